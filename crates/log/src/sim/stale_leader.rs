//! Tests: a leader that goes on writing, whatever it is told.

use std::path::Path;
use std::time::Duration;

use fabric::{Connection, Event};
use pmem::DomainChoice;

use super::wiring::layout;
use crate::at::At;
use crate::replicate::Replica;
use crate::replicate::members::Layout;
use crate::replicate::message::{FromReplica, Reply, Request, ToReplica, decode, encode};
use crate::replicate::wire::{NEWEST, OLDEST};

const LAYOUT: Layout = layout(64 << 10, 4);
const START: At = At { lsn: 1, position: 0, epoch: 1 };
const TIMEOUT: Duration = Duration::from_secs(20);

/// Speaks as a leader does.
struct Leader {
    connection: Connection,
    call: u32,
}

impl Leader {
    fn connect(replica: &Replica, trust: &fabric::Options) -> Self {
        let address = replica.address().expect("an address").to_string();
        Self { connection: fabric::connect(&address, trust, None).expect("reached"), call: 0 }
    }

    fn ask(&mut self, request: Request) -> Reply {
        self.call += 1;
        let sender = &mut self.connection.sender;
        sender.send(&encode(&ToReplica { call: self.call, request })).and_then(|()| sender.flush()).expect("asked");
        let event = self.connection.receiver.poll(TIMEOUT).expect("it is there").expect("it answers");
        let Event::Message(bytes) = event else { panic!("{event:?}") };
        match decode(&bytes, NEWEST) {
            Some(FromReplica::Answer { call, reply }) if call == self.call => reply,
            other => panic!("{other:?}"),
        }
    }

    /// Has the promise from now on.
    fn lead(&mut self, epoch: u32) {
        let found = self.ask(Request::Promise { epoch, owner: u64::from(epoch) });
        assert!(matches!(&found, Reply::State(state) if state.formed.is_some()), "{found:?}");
    }

    /// What it is told until the end.
    fn told(&mut self) -> Vec<FromReplica> {
        let mut told = Vec::new();
        loop {
            match self.connection.receiver.poll(TIMEOUT).expect("it is told the end").expect("something comes") {
                Event::Message(bytes) => told.extend(decode::<FromReplica>(&bytes, NEWEST)),
                Event::Closed(_) => return told,
                other => panic!("{other:?}"),
            }
        }
    }
}

fn serve(path: &Path, trust: &fabric::Options) -> Replica {
    let pool = pmem::Options::new().domain(DomainChoice::Emulated);
    Replica::serve_with(&pool, path, "127.0.0.1:0", trust.clone()).expect("served")
}

/// What each does with a replica at this path.
fn over_all(body: impl Fn(&Path, &fabric::Options)) {
    let transports: &[&str] = if cfg!(feature = "libfabric") { &["tcp", "libfabric:tcp"] } else { &["tcp"] };
    for transport in transports {
        let dir = tempfile::tempdir().expect("a folder");
        let transport = transport.parse().expect("a transport");
        // A sender that would wait for a peer that is gone would do so for long.
        let send_timeout = Duration::from_secs(600);
        let trust = fabric::Options { anyone: true, transport, send_timeout, ..Default::default() };
        body(&dir.path().join("replica"), &trust);
    }
}

/// It writes without a word, so that nothing but what was taken from it keeps it from writing.
#[test]
fn who_is_shut_out_writes_nothing_from_when_another_has_the_promise() {
    over_all(|path, trust| {
        for round in 0..8 {
            let _ = std::fs::remove_file(path);
            let replica = serve(path, trust);
            let mut old = Leader::connect(&replica, trust);
            old.ask(Request::Look { oldest: OLDEST });
            old.ask(Request::Format { layout: LAYOUT, me: 5 });
            old.lead(1);
            let bytes = || std::fs::read(path).expect("the pool");
            let empty = bytes();
            std::thread::scope(|scope| {
                let Connection { sender, .. } = &mut old.connection;
                let hammers = scope.spawn(move || {
                    for n in 0_u64.. {
                        let done = sender.write(n % 256 * 1024, &[n as u8 | 1; 1024]).and_then(|()| sender.flush());
                        if done.is_err() {
                            return;
                        }
                    }
                });
                while bytes() == empty {
                    std::thread::yield_now();
                }
                std::thread::sleep(Duration::from_micros(300 * round));
                let mut new = Leader::connect(&replica, trust);
                new.lead(2);
                let then = bytes();
                hammers.join().expect("it ends");
                std::thread::sleep(Duration::from_millis(10));
                assert!(bytes() == then, "{}: the old leader writes", trust.transport);
                // It is the new one's now.
                new.connection.sender.write(0, &[0xee; 64]).expect("written");
                new.ask(Request::Walk { from: START, until: u64::MAX, epoch: 2 });
                assert!(bytes() != then, "{}: the new leader does not write", trust.transport);
            });
            let fenced = FromReplica::Fenced { epoch: 2, owner: 2 };
            assert!(old.told().contains(&fenced), "{}: it is not told", trust.transport);
            replica.stop().expect("closed");
        }
    });
}

/// It asks, and takes no answer: no other leader waits until it takes what it was told last.
#[test]
fn who_takes_no_answers_keeps_nobody_from_leading() {
    let dir = tempfile::tempdir().expect("a folder");
    let send_timeout = Duration::from_secs(250);
    let trust = fabric::Options { anyone: true, send_timeout, ..Default::default() };
    let replica = serve(&dir.path().join("replica"), &trust);
    let mut old = Leader::connect(&replica, &trust);
    old.ask(Request::Look { oldest: OLDEST });
    old.ask(Request::Format { layout: LAYOUT, me: 5 });
    old.lead(1);
    // More answers than systems keep.
    old.connection.sender.queue_up_to(usize::MAX - 1);
    for call in 1000..160_000 {
        let asked = encode(&ToReplica { call, request: Request::Look { oldest: OLDEST } });
        if old.connection.sender.send(&asked).is_err() {
            break;
        }
    }
    let _ = old.connection.sender.flush();
    let mut new = Leader::connect(&replica, &trust);
    new.lead(2); // within its timeout, which is shorter than that of a sender
    drop(old);
    replica.stop().expect("closed");
}

/// A leader that wants to bring back a replica that is back already leaves it alone.
#[test]
fn a_replica_that_is_live_is_not_brought_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let trust = fabric::Options { anyone: true, ..Default::default() };
    let replica = serve(&dir.path().join("replica"), &trust);
    let address = replica.address().expect("an address").to_string();
    let replicas = crate::Replicas::new().at(&address).trust(trust.clone());
    let log = crate::Options::new().bytes(64 << 10).idle(None).create_replicated(&replicas).expect("made");
    let Connection { sender, receiver, .. } = fabric::connect(&address, &trust, None).expect("reached");
    let link = crate::replicate::Link::new(0, address, sender);
    let joined = log.core().join(link, receiver, None, &mut || log.core().listen(), TIMEOUT, &|| false);
    let error = joined.err().expect("it is there");
    assert!(error.to_string().contains("live already"), "{error}");
    log.append(b"by the way that there was").expect("appended");
}

/// However long the log: an answer is waited for only so long.
#[test]
fn a_walk_reads_so_much_at_a_time() {
    let dir = tempfile::tempdir().expect("a folder");
    let trust = fabric::Options { anyone: true, ..Default::default() };
    let replica = serve(&dir.path().join("replica"), &trust);
    let replicas = crate::Replicas::new().at(&replica.address().expect("an address").to_string()).trust(trust.clone());
    let log = crate::Options::new().bytes(64 << 10).idle(None).create_replicated(&replicas).expect("made");
    for n in 0..100 {
        log.append(&[n; 50]).expect("appended");
    }
    log.abandon();
    let mut leader = Leader::connect(&replica, &trust);
    leader.lead(100);
    let (mut at, mut answers) = (START, 0);
    loop {
        let Reply::Walked(walked) = leader.ask(Request::Walk { from: at, until: u64::MAX, epoch: 1 }) else {
            panic!("it does not walk")
        };
        if walked.end == at {
            break;
        }
        assert!(walked.end.position - at.position < crate::replicate::stored::WALK_BYTES + 256, "{walked:?}");
        (at, answers) = (walked.end, answers + 1);
    }
    assert!(at.lsn > 100 && answers > 5, "{at:?} {answers}");
    replica.stop().expect("closed");
}

/// Before there is a log no leader gets rights, and afterwards none without the promise does.
#[test]
fn who_has_no_promise_writes_nothing() {
    over_all(|path, trust| {
        let trust = fabric::Options { rights: fabric::Rights::Write, ..trust.clone() };
        let replica = serve(path, &trust);
        for is_formed in [false, true] {
            let mut stranger = Leader::connect(&replica, &trust);
            assert_eq!(replica.status().is_some(), is_formed);
            let _ = stranger.connection.sender.write(0, &[1; 64]).and_then(|()| stranger.connection.sender.flush());
            assert!(stranger.told().is_empty(), "the connection ends");

            let mut former = Leader::connect(&replica, &trust);
            former.ask(Request::Format { layout: LAYOUT, me: 5 });
            let _ = former.connection.sender.write(0, &[1; 64]).and_then(|()| former.connection.sender.flush());
            assert!(former.told().is_empty(), "the connection ends");
        }
        let bytes = std::fs::read(path).expect("the pool");
        assert!(!bytes.windows(64).any(|some| some == [1; 64]), "{}: it was written to", trust.transport);
        replica.stop().expect("closed");
    });
}
