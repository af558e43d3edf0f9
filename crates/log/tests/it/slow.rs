//! A replica that is slow, or hangs, holds no thread up, falls out of the group, and comes back by itself.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use log::{Log, Options, Replica, ReplicaHealth, Replicas, fabric};
use pmem::DomainChoice;

/// A way to a replica on which nothing moves while it is shut: a sender fills what systems keep, and then waits.
struct Gate {
    address: String,
    shut: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
}

impl Gate {
    #[expect(clippy::disallowed_methods, reason = "they end with the connections, or the process")]
    fn to(replica: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let address = listener.local_addr().expect("an address").to_string();
        let (shut, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let here = (Arc::clone(&shut), Arc::clone(&over));
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(&replica)) else { continue };
                let twice = || (near.try_clone().expect("cloned"), far.try_clone().expect("cloned"));
                let ((n, f), (n2, f2)) = (twice(), twice());
                let (here, there) = (here.clone(), here.clone());
                std::thread::spawn(move || pass(n, f, &here));
                std::thread::spawn(move || pass(f2, n2, &there));
            }
        });
        Self { address, shut, over }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, (shut, over): &(Arc<AtomicBool>, Arc<AtomicBool>)) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        while shut.load(Relaxed) && !over.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        match from.read(&mut bytes) {
            Ok(len @ 1..) if to.write_all(&bytes[..len]).is_ok() => {}
            _ => break,
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

fn live(log: &Log) -> usize {
    log.replicas().iter().filter(|(_, state, _)| *state == ReplicaHealth::Live).count()
}

/// Longer than these tests may take.
const LONG: Duration = Duration::from_secs(200);

fn trust() -> fabric::Options {
    fabric::Options { anyone: true, send_timeout: LONG, ..Default::default() }
}

fn serve(dir: &tempfile::TempDir, name: &str, trust: &fabric::Options) -> Replica {
    let pool = pmem::Options::new().domain(DomainChoice::Emulated);
    Replica::serve_with(&pool, dir.path().join(name), "127.0.0.1:0", trust.clone()).expect("serves")
}

/// What is durable here is so while no other machine answers, with the barrier that the quorum's force needs anyway.
#[test]
fn the_own_image_waits_for_no_replica() {
    let dir = tempfile::tempdir().expect("a folder");
    let trust = trust();
    let serve = |name: &str| serve(&dir, name, &trust);
    let others = [serve("one"), serve("two")];
    let gates = others.each_ref().map(|replica| Gate::to(replica.address().expect("an address").to_string()));
    let replicas =
        gates.iter().fold(Replicas::new().local(dir.path().join("own")), |some, gate| some.at(&gate.address));
    let replicas = replicas.write_quorum(2).trust(trust.clone()).timeout(LONG);
    let log = Options::new().bytes(1 << 20).idle(None).create_replicated(&replicas).expect("made");
    log.append(b"on all of them").expect("appended");
    gates.iter().for_each(|gate| gate.shut.store(true, Relaxed));
    let before = log.pool().stats().drains;
    let lsn = log.reserve(7).and_then(|mut record| {
        record.copy(0, b"is here");
        record.complete()
    });
    let lsn = lsn.expect("appended");
    assert!(log.force_own(lsn).expect("forced"));
    assert!(log.force_own(lsn).expect("forced"), "it is there");
    assert_eq!(log.pool().stats().drains - before, 1);
    assert_eq!(log.forced().get(), lsn.get() - 1, "no other machine has it");
    gates.iter().for_each(|gate| gate.shut.store(false, Relaxed));
    log.force_now(lsn).expect("two of three have it");
    assert_eq!(log.pool().stats().drains - before, 1);
    assert_eq!(log.forced(), lsn);
    gates.iter().for_each(|gate| gate.over.store(true, Relaxed));
    log.close().expect("closed");
}

/// No thread waits until a replica takes something: what would be waited for is longer than this test may take.
#[test]
fn a_replica_that_hangs_holds_nobody_up_and_comes_back_by_itself() {
    let dir = tempfile::tempdir().expect("a folder");
    let trust = trust();
    let serve = |name: &str| serve(&dir, name, &trust);
    let (one, two, three) = (serve("one"), serve("two"), serve("three"));
    let address = |replica: &Replica| replica.address().expect("an address").to_string();
    let gate = Gate::to(address(&three));
    let replicas = Replicas::new().at(&address(&one)).at(&address(&two)).at(&gate.address);
    let replicas = replicas.write_quorum(2).trust(trust.clone()).timeout(LONG);
    let options = Options::new().bytes(64 << 20).segment_bytes(4 << 20).idle(None);
    let log = options.create_replicated(&replicas).expect("made");
    log.append(b"on all of them").expect("appended");
    gate.shut.store(true, Relaxed);
    // More than the systems of both ends keep, and the leader.
    for n in 0..800_u32 {
        log.append(&[n as u8; 64 << 10]).expect("two of three have it");
        log.truncate_to(log.forced()).expect("discarded");
        if live(&log) == 2 {
            break;
        }
    }
    let states = log.replicas();
    let failed: Vec<_> = states.iter().filter(|(_, state, _)| *state != ReplicaHealth::Live).collect();
    let [(_, ReplicaHealth::Failed(why), _)] = &failed[..] else { panic!("{states:?}") };
    assert!(why.contains("did not take") && !why.contains("for 200"), "{why}");
    log.append(b"on two of them").expect("appended");

    gate.shut.store(false, Relaxed);
    let is_back = (0..60_000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        live(&log) == 3
    });
    assert!(is_back, "{:?}", log.replicas());
    let last = log.append(b"on all of them again").expect("appended");
    let has_it = |replica: &(u64, ReplicaHealth, log::Lsn)| replica.2 == last;
    assert!((0..60_000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        log.replicas().iter().all(has_it)
    }));
    gate.over.store(true, Relaxed);
    log.close().expect("closed");
}
