//! Whatever bytes, as what peers say: to a replica in all its states, to a candidate, to a leader. None of them may panic, go on for ever, or write where the log is not; and
//! a replica keeps what it acknowledged to the leader that has its promise.

use std::sync::Arc;
use std::time::Duration;

use fabric::{Access, Event, Reason, Receiver, Rights, Sender};
use parking_lot::Mutex;
use pmem::Pool;

use super::alone::{Position, record};
use super::cluster::{Cluster, Home};
use super::wiring::{self, LAYOUT, SEGMENT, SEGMENTS};
use crate::at::{At, Span};
use crate::error::Result;
use crate::failpoints::Failpoints;
use crate::raw::{self, Claim};
use crate::replicate::candidate::{Candidate, Link, Lost, Stand};
use crate::replicate::leading::FlushOrder;
use crate::replicate::members::{Config, Layout, Origin, Quorum};
use crate::replicate::message::{Formed, FromReplica, Reply, Request, State, ToReplica, Walked, decode, encode};
use crate::replicate::served::Served;
use crate::replicate::stored::StoredReplica;
use crate::replicate::takeover::Taken;
use crate::replicate::wire::{NEWEST, OLDEST, Versions};
use crate::{Log, Options};

/// Steps after which it goes on for ever.
const STEPS_MAX: usize = 20_000;

// ---- what is said -----------------------------------------------------------------------------------------------

/// Bytes, as decisions; zeros behind them.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// True once in so many bytes.
    fn once_in(&mut self, many: u8) -> bool {
        self.byte().is_multiple_of(many)
    }

    fn bytes(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        bytes
    }

    /// Small ones, and those at the ends of what there is.
    fn number(&mut self) -> u64 {
        let odd = self.byte();
        let n = u64::from(self.byte());
        match odd % 8 {
            0..=3 => n,
            4 => n * 8,
            5 => u64::MAX - n,
            6 => (1 << (n % 64)) - u64::from(odd >> 7),
            _ => n << 8 | u64::from(self.byte()),
        }
    }

    fn at(&mut self) -> At {
        At { lsn: self.number(), position: self.number(), epoch: self.number() as u32 }
    }

    fn origin(&mut self) -> Origin {
        Origin { base: self.number() as u32, taken: self.number() }
    }

    fn config(&mut self) -> Config {
        let mut quorum = || {
            let ids = (0..self.byte() % 9).map(|_| self.number()).collect();
            Quorum { ids, write_quorum: self.number() as u32 }
        };
        let (Quorum { ids, write_quorum }, before) = (quorum(), quorum());
        let before = Some(before).filter(|before| !before.ids.is_empty());
        Config { ids, write_quorum, generation: self.number() as u32, before }
    }

    fn layout(&mut self) -> Layout {
        if self.once_in(2) {
            return LAYOUT;
        }
        Layout {
            log: self.number(),
            key: self.number(),
            segment_bytes: self.number(),
            segments: self.number(),
            checksums: self.number() as u32,
        }
    }

    /// Of this build, or of the one before.
    fn versions(&mut self) -> Versions {
        if self.once_in(2) { Versions::default() } else { Versions::BEFORE }
    }

    fn request(&mut self) -> Request {
        match self.byte() % 8 {
            0 => Request::Look { oldest: OLDEST },
            1 => Request::Look { oldest: self.number() as u32 },
            2 => Request::Format { layout: self.layout(), me: self.number() },
            3 => Request::Promise { epoch: self.number() as u32, owner: self.number() },
            4 => Request::Walk { from: self.at(), until: self.number(), epoch: self.number() as u32 },
            5 => Request::Digest { span: Span { from: self.number(), to: self.number() } },
            6 => Request::Install { head: self.at(), end: self.at(), config: self.config(), origin: self.origin() },
            _ => Request::Head { head: self.at() },
        }
    }

    fn formed(&mut self) -> Formed {
        Formed {
            layout: self.layout(),
            me: self.number(),
            promised: self.number() as u32,
            owner: self.number(),
            log_epoch: self.number() as u32,
            config: (!self.once_in(4)).then(|| self.config()),
            origin: self.origin(),
            head: self.at(),
            next: self.number(),
            knows: self.once_in(2),
        }
    }

    fn state(&mut self) -> State {
        State { formed: self.once_in(2).then(|| self.formed()) }
    }

    fn reply(&mut self) -> Reply {
        match self.byte() % 9 {
            0 => Reply::State(State { formed: None }),
            1 => Reply::State(State { formed: Some(self.formed()) }),
            2 => Reply::Refused { promised: self.number() as u32, owner: self.number() },
            3 => Reply::Walked(Walked { end: self.at(), doubt: self.once_in(2), through: self.number() }),
            4 => Reply::Digests((0..self.byte()).map(|_| self.number()).collect()),
            5 => Reply::Installed,
            6 => Reply::HeadMoved,
            7 => Reply::Speaks { oldest: self.number() as u32, newest: self.number() as u32, state: self.state() },
            _ => Reply::Failed { why: "it says so".into() },
        }
    }

    /// An event at a candidate or a leader, whose last question had this number.
    fn replica_says(&mut self, call: u32) -> Event {
        match self.byte() % 8 {
            0 | 1 => Event::Message(self.bytes().to_vec()),
            2 => Event::Message(encode(&FromReplica::Fenced { epoch: self.number() as u32, owner: self.number() })),
            3 => Event::Read { tag: self.number() as u32, bytes: self.bytes().to_vec() },
            4 => Event::Written { imm: self.number() as u32 },
            5 => Event::Closed(Reason::Peer),
            6 => Event::Message(encode(&FromReplica::Answer { call: self.number() as u32, reply: self.reply() })),
            _ => Event::Message(encode(&FromReplica::Answer { call, reply: self.reply() })),
        }
    }

    /// Some bits of these bytes are others, or some are missing.
    fn spoil(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.byte() % 3 {
            let (at, what) = (usize::from(self.byte()), self.byte());
            let len = bytes.len().max(1);
            match bytes.get_mut(at % len) {
                Some(byte) if what > 0 => *byte ^= what,
                _ => bytes.truncate(at),
            }
        }
    }
}

/// What was sent.
enum Sent {
    Message(Vec<u8>),
    /// Where, what, and with which immediate.
    Write(u64, Vec<u8>, Option<u32>),
    Read {
        offset: u64,
        len: u32,
        tag: u32,
    },
}

/// Sends to no peer: what was sent is looked at.
#[derive(Clone, Default)]
struct Desk(Arc<Mutex<Vec<Sent>>>);

impl Desk {
    fn put(&self, sent: Sent) -> fabric::Result<()> {
        self.0.lock().push(sent);
        Ok(())
    }

    fn take(&self) -> Vec<Sent> {
        std::mem::take(&mut self.0.lock())
    }

    /// What a replica acknowledged.
    fn acknowledgements(&self) -> Vec<u32> {
        let immediate = |sent| if let Sent::Write(_, _, imm) = sent { imm } else { None };
        self.take().into_iter().filter_map(immediate).collect()
    }

    fn messages(&self) -> Vec<FromReplica> {
        let messages = |sent| if let Sent::Message(bytes) = sent { decode(&bytes, NEWEST) } else { None };
        self.take().into_iter().filter_map(messages).collect()
    }
}

impl Sender for Desk {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> fabric::Result<()> {
        self.put(Sent::Write(offset, bytes.to_vec(), None))
    }

    fn write_imm(&mut self, offset: u64, bytes: &[u8], imm: u32) -> fabric::Result<()> {
        self.put(Sent::Write(offset, bytes.to_vec(), Some(imm)))
    }

    fn read(&mut self, offset: u64, len: u32, tag: u32) -> fabric::Result<()> {
        self.put(Sent::Read { offset, len, tag })
    }

    fn send(&mut self, message: &[u8]) -> fabric::Result<()> {
        self.put(Sent::Message(message.to_vec()))
    }

    fn flush(&mut self) -> fabric::Result<()> {
        Ok(())
    }

    fn close(&mut self) {}
}

// ---- a replica ----------------------------------------------------------------------------------------------

/// A session at the replica.
struct Peer {
    session: u64,
    access: Access,
    desk: Desk,
    call: u32,
}

struct Target {
    served: Served,
    pool: Pool,
}

impl Target {
    fn connect(&mut self) -> Peer {
        let (desk, access) = (Desk::default(), Access::new(Rights::None));
        let session = self.served.connected(Box::new(desk.clone()), access.clone(), "somebody".into());
        Peer { session, access, desk, call: 0 }
    }

    /// No peer makes a replica stop.
    fn event(&mut self, peer: &Peer, event: Event) {
        let done = self.served.on_event(peer.session, event);
        assert!(done.is_ok(), "a peer stopped the replica: {done:?}");
    }

    fn ask(&mut self, peer: &mut Peer, request: Request) -> Option<Reply> {
        peer.call += 1;
        self.event(peer, Event::Message(encode(&ToReplica { call: peer.call, request })));
        let answered = |said| match said {
            FromReplica::Answer { call, reply } if call == peer.call => Some(reply),
            _ => None,
        };
        peer.desk.messages().into_iter().find_map(answered)
    }

    /// As a transport does it: within the bounds, and by the rights that there are.
    fn write(&mut self, peer: &Peer, offset: u64, bytes: &[u8]) {
        let window = self.served.stored().window();
        let len = fabric::Window::len(&*window);
        let before = self.outside();
        let is_inside = offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= len);
        if !is_inside {
            assert!(fabric::Window::write(&*window, offset, bytes).is_err(), "{} bytes at {offset}", bytes.len());
        } else if peer.access.get() < Rights::Write {
            self.event(peer, Event::Closed(Reason::Peer));
        } else {
            assert!(fabric::Window::write(&*window, offset, bytes).is_ok());
        }
        assert!(before == self.outside(), "{} bytes at {offset} went past the segments", bytes.len());
    }

    /// All bytes that are not of segments.
    fn outside(&self) -> Vec<u8> {
        let all = self.pool.size();
        let (first, end) = match self.served.stored().log() {
            Some(log) => (log.geometry.offset(0), log.geometry.offset(0) + SEGMENT * SEGMENTS),
            None => (all, all),
        };
        let part = |from, to: u64| raw::bytes(Claim::Opening, self, &self.pool, from, to - from).unwrap_or_default();
        [part(0, first), part(end.min(all), all)].concat()
    }
}

/// The leader that all is well with.
struct Honest {
    peer: Peer,
    next: Position,
    acknowledged: Vec<(u64, Vec<u8>)>,
}

impl Honest {
    fn append(&mut self, target: &mut Target, len: u8) {
        let payload = vec![len; usize::from(len % 60)];
        let bytes = record(self.next, &payload);
        if self.next.position % SEGMENT + bytes.len() as u64 > SEGMENT {
            self.next.position = self.next.position.next_multiple_of(SEGMENT);
        }
        if self.next.position + bytes.len() as u64 > SEGMENT * SEGMENTS {
            return;
        }
        target.write(&self.peer, self.next.position, &bytes);
        target.event(&self.peer, Event::Written { imm: (bytes.len() / 8) as u32 });
        let done = target.served.persist();
        assert!(done.is_ok(), "{done:?}");
        let lsn = self.next.lsn;
        let said = self.peer.desk.acknowledgements();
        assert!(said.contains(&(lsn as u32)), "record {lsn} of the leader is not taken: {said:?}");
        self.acknowledged.push((lsn, payload));
        self.next = Position { lsn: lsn + 1, position: self.next.position + bytes.len() as u64, ..self.next };
    }
}

/// Any bytes, as what peers say to a replica and write there: in a pool without anything, which it changes.
///
/// # Panics
/// The replica stopped, wrote elsewhere, or forgot what it had acknowledged.
pub fn replica(pool: &Pool, bytes: &[u8]) {
    let mut script = Script(bytes);
    let Ok(replica) = StoredReplica::open(pool, Failpoints::default()) else {
        panic!("an empty replica cannot be opened")
    };
    let mut target = Target { served: Served::new(replica.speaking(script.versions()), false), pool: pool.clone() };
    let start = Position { lsn: 1, position: 0, epoch: 1 };
    let mut honest = Honest { peer: target.connect(), next: start, acknowledged: Vec::new() };
    let state = script.byte() % 4;
    if state > 0 {
        target.ask(&mut honest.peer, Request::Format { layout: LAYOUT, me: 1 });
    }
    if state > 1 {
        target.ask(&mut honest.peer, Request::Promise { epoch: 1, owner: 1 });
    }
    if state > 2 {
        let config = Config::of(vec![1], 1);
        let (head, end) = (start.into(), start.into());
        let reply = target.ask(&mut honest.peer, Request::Install { head, end, config, origin: Origin::default() });
        assert_eq!(reply, Some(Reply::Installed));
        honest.append(&mut target, 20);
        honest.append(&mut target, 50);
    }
    let mut others = vec![target.connect()];
    let is_led = |target: &Target, honest: &Honest| state > 2 && target.served.stored().is_writer(honest.peer.session);
    while !script.0.is_empty() {
        let at = others.len() - 1;
        let led = is_led(&target, &honest);
        match script.byte() % 10 {
            0 => target.event(&others[at], Event::Message(script.bytes().to_vec())),
            1..=3 => {
                let request = script.request();
                target.ask(&mut others[at], request);
            }
            4 => {
                others[at].call += 1;
                let mut message = encode(&ToReplica { call: others[at].call, request: script.request() });
                script.spoil(&mut message);
                target.event(&others[at], Event::Message(message));
            }
            5 => {
                let offset = script.number();
                target.write(&others[at], offset, script.bytes());
            }
            6 => target.event(&others[at], Event::Written { imm: script.number() as u32 }),
            7 if led => honest.append(&mut target, script.byte()),
            8 => {
                let mut peer = target.connect();
                peer.call = script.versions().first_call() - 1;
                others.push(peer);
            }
            _ => {
                let done = target.served.persist();
                assert!(done.is_ok(), "{done:?}");
            }
        }
        others.iter().for_each(|other| drop(other.desk.take()));
    }
    let led = is_led(&target, &honest);
    if led {
        check(target.served.stored(), 1, &honest);
    }
    drop(target);
    match StoredReplica::open(pool, Failpoints::default()) {
        Ok(again) if led => check(&again, 1, &honest),
        Ok(_) => {}
        Err(error) => panic!("the replica cannot be opened again: {error}"),
    }
}

/// It has all that was acknowledged, and is of the same leader.
fn check(replica: &StoredReplica, epoch: u32, honest: &Honest) {
    let Some(log) = replica.log() else { panic!("it is no replica any more") };
    let formed = log.formed();
    assert_eq!((formed.promised, formed.log_epoch, formed.head.lsn), (epoch, epoch, 1));
    let mut reader = log.reader(replica.pool());
    let walk = reader.walk();
    let last = honest.acknowledged.len() as u64;
    assert!(
        walk.as_ref().is_ok_and(|walk| walk.lsn > last && walk.records >= last),
        "{last} records were acknowledged"
    );
    let bytes: u64 = honest.acknowledged.iter().map(|(_, payload)| payload.len() as u64).sum();
    assert!(walk.is_ok_and(|walk| walk.bytes >= bytes));
}

// ---- a candidate ------------------------------------------------------------------------------------------------

/// Any bytes, as what becomes of all that a replica with some records says to a candidate, in two pools without anything.
///
/// # Panics
/// The takeover goes on for ever, or the replica stopped.
pub fn candidate(pools: [&Pool; 2], bytes: &[u8]) {
    let mut script = Script(bytes);
    let [here, there] = pools;
    let Ok(replica) = StoredReplica::open(there, Failpoints::default()) else {
        panic!("an empty replica cannot be opened")
    };
    let mut target = Target { served: Served::new(replica.speaking(script.versions()), false), pool: there.clone() };
    let mut first = target.connect();
    let start = Position { lsn: 1, position: 0, epoch: 1 };
    let config = Config::of(vec![1], 1);
    target.ask(&mut first, Request::Format { layout: LAYOUT, me: 1 });
    target.ask(&mut first, Request::Promise { epoch: 1, owner: 1 });
    let (head, end) = (start.into(), start.into());
    target.ask(&mut first, Request::Install { head, end, config, origin: Origin::default() });
    let mut honest = Honest { peer: first, next: start, acknowledged: Vec::new() };
    (0..script.byte() % 12).for_each(|n| honest.append(&mut target, 40 + n));

    let peer = target.connect();
    let desk = Desk::default();
    let link = Link::new(0, "a replica".into(), Box::new(desk.clone()));
    let Ok(image) = StoredReplica::open(here, Failpoints::default()) else { panic!("an empty image cannot be opened") };
    let stand = Stand {
        owner: 2,
        term: script.number() as u32,
        make: None,
        image_id: 2,
        image_counts: script.once_in(2),
        accept_doubt: script.once_in(2),
        lost: if script.once_in(4) { vec![Lost { id: 3, new_id: 9 }] } else { Vec::new() },
        speaks: script.versions(),
        failpoints: Failpoints::default(),
    };
    if let Ok((candidate, None)) = Candidate::stand(stand, image, vec![link]) {
        let _: Option<Log> = converse(&mut script, candidate, &mut target, &peer, &desk);
    }
}

/// Until it is elected, or gives up.
fn converse(
    script: &mut Script<'_>,
    mut candidate: Candidate,
    target: &mut Target,
    peer: &Peer,
    desk: &Desk,
) -> Option<Log> {
    let mut call = 0;
    for _ in 0..STEPS_MAX {
        let mut events = Vec::new();
        for sent in desk.take() {
            match sent {
                Sent::Message(bytes) => {
                    call = decode::<ToReplica>(&bytes, NEWEST).map_or(call, |asked| asked.call);
                    target.event(peer, Event::Message(bytes));
                }
                Sent::Write(offset, bytes, _) => target.write(peer, offset, &bytes),
                Sent::Read { offset, len, tag } => {
                    let mut bytes = vec![0; len as usize];
                    let window = target.served.stored().window();
                    if fabric::Window::read(&*window, offset, &mut bytes).is_ok() {
                        events.push(Event::Read { tag, bytes });
                    }
                }
            }
        }
        let said = peer.desk.take().into_iter();
        events.extend(
            said.filter_map(|sent| if let Sent::Message(bytes) = sent { Some(Event::Message(bytes)) } else { None }),
        );
        if events.is_empty() {
            match candidate.on_timeout() {
                Ok(None) => return None, // no replica is waited for
                Ok(Some(taken)) => return lead(candidate, taken),
                Err(_) => return None,
            }
        }
        for event in events {
            for event in befall(script, event, call) {
                match candidate.on_event(1, event) {
                    Ok(None) => {}
                    Ok(Some(taken)) => return lead(candidate, taken),
                    Err(_) => return None,
                }
            }
        }
    }
    panic!("the takeover does not end");
}

/// What arrives in place of an event.
fn befall(script: &mut Script<'_>, event: Event, call: u32) -> Vec<Event> {
    match (script.byte() % 12, event) {
        (6, event) => vec![event.clone(), event],
        (7, _) => Vec::new(),
        (8, Event::Message(mut bytes)) => {
            script.spoil(&mut bytes);
            vec![Event::Message(bytes)]
        }
        (8, Event::Read { tag, mut bytes }) => {
            script.spoil(&mut bytes);
            vec![Event::Read { tag, bytes }]
        }
        (9, event) => vec![script.replica_says(call), event],
        (10 | 11, Event::Message(bytes)) => match decode::<FromReplica>(&bytes, NEWEST) {
            Some(FromReplica::Answer { call, reply }) => {
                let reply = alike(script, reply);
                vec![Event::Message(encode(&FromReplica::Answer { call, reply }))]
            }
            _ => vec![script.replica_says(call)],
        },
        (_, event) => vec![event],
    }
}

/// A reply that makes sense, and is not true.
fn alike(script: &mut Script<'_>, reply: Reply) -> Reply {
    match reply {
        Reply::Speaks { mut oldest, mut newest, state } => {
            match script.byte() % 3 {
                0 => oldest = script.number() as u32,
                1 => newest = script.number() as u32,
                _ => return alike(script, Reply::State(state)),
            }
            Reply::Speaks { oldest, newest, state }
        }
        Reply::State(State { formed: Some(mut formed) }) => {
            match script.byte() % 8 {
                0 => formed.promised = script.number() as u32,
                1 => formed.log_epoch = script.number() as u32,
                2 => formed.config = Some(script.config()),
                3 => formed.origin = script.origin(),
                4 => formed.head = script.at(),
                5 => formed.next = script.number(),
                6 => formed.layout = script.layout(),
                _ => formed.me = script.number(),
            }
            Reply::State(State { formed: Some(formed) })
        }
        Reply::Walked(mut walked) => {
            match script.byte() % 6 {
                0 => walked.end.lsn = script.number(),
                1 => walked.end.position = script.number(),
                2 => walked.end = script.at(),
                3 => walked.through = script.number(),
                4 => walked.doubt = !walked.doubt,
                _ => walked.end.epoch = script.number() as u32,
            }
            Reply::Walked(walked)
        }
        Reply::Digests(mut digests) => {
            let at = usize::from(script.byte());
            match digests.get_mut(at) {
                Some(digest) => *digest ^= 1,
                None => digests.truncate(at / 2),
            }
            Reply::Digests(digests)
        }
        _ => script.reply(),
    }
}

/// It leads, and reads all there is.
fn lead(candidate: Candidate, taken: Taken) -> Option<Log> {
    let options = Options::new().idle(None);
    let led = wiring::lead(candidate.finish(taken), FlushOrder::Beside, Box::new(|| 0), &options);
    let (log, _) = led.ok()?;
    let mut records = log.iter();
    while let Ok(Some(_)) = records.next() {}
    drop(records);
    Some(log)
}

// ---- a leader ---------------------------------------------------------------------------------------------------

/// What a replica that joins says.
struct Told(Vec<Event>);

impl Receiver for Told {
    fn poll(&mut self, _: Duration) -> fabric::Result<Option<Event>> {
        Ok(self.0.pop())
    }

    fn watch<'a>(&'a mut self, _: &mut fabric::Watch<'a>) {} // no thread waits here
}

/// Any bytes, as what two replicas say to the leader of a log, and one that joins: all three in regions of a pool without anything.
///
/// # Panics
/// A record counts as durable that no replica has acknowledged.
pub fn leading(pool: &Pool, bytes: &[u8]) {
    let mut script = Script(bytes);
    let homes = ["here", "one", "two"].map(|region| Home { pool: pool.clone(), region });
    let options = Options::new()
        .bytes(SEGMENTS * SEGMENT)
        .segment_bytes(SEGMENT)
        .idle(None)
        .stall_timeout(Duration::from_millis(200));
    let Ok(mut cluster) = Cluster::create(&options, &homes, 2, |_, act| act()) else { panic!("no log can be made") };
    let mut acknowledged = 0;
    for _ in 0..STEPS_MAX {
        if script.0.is_empty() {
            break;
        }
        match script.byte() % 8 {
            0 | 1 => {
                let _: Result<_> = cluster.complete(script.bytes()); // it may be full
            }
            2 => {
                let _: Result<()> = cluster.log().post_parts(true);
            }
            3 => {
                let forced = cluster.log().forced();
                let _: Result<()> = cluster.log().truncate_to(forced);
                let _: Result<()> = cluster.log().reclaim();
            }
            4 => {
                let first = Versions::default().first_call();
                let mut events: Vec<Event> = (0..8).map(|n| script.replica_says(first + 7 - n)).collect();
                // Else most are over with the first.
                if !script.once_in(4) {
                    let formed = Formed { layout: LAYOUT, ..script.formed() };
                    let reply = Reply::State(State { formed: Some(formed) });
                    for call in [first + 1, first] {
                        events.push(Event::Message(encode(&FromReplica::Answer { call, reply: reply.clone() })));
                    }
                }
                let _: Result<()> = cluster.join_by(Box::new(Desk::default()), Box::new(Told(events)));
                // Meanwhile the others do what they are asked for.
                acknowledged = acknowledged.max(cluster.log().forced().get());
            }
            _ => {
                let (peer, event) = (usize::from(script.byte() % 2), script.replica_says(1));
                if let Event::Written { imm } = event {
                    acknowledged = acknowledged.max(imm.into());
                }
                cluster.log().on_event(peer, event);
            }
        }
        let forced = cluster.log().forced().get();
        assert!(forced <= acknowledged, "record {forced} counts, and {acknowledged} is acknowledged");
    }
}
