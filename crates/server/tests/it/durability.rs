//! What an answer to a write means: connections that settle for less than the commit have theirs at a stage of it.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pmem::DomainChoice;
use server::engine::{Commit, Engine, Error, Kv, Result, Run, Stage, Tell};
use server::{Config, Durability, Server, Settings, Step};
use tokio::sync::oneshot;

use crate::kill::whole;
use crate::support::{Client, Reply, Running, WAIT_LIMIT, left_to, start, until, usual};

/// A commit that settles somebody, in the hands of the test.
struct Flight {
    tell: Tell,
    end: oneshot::Sender<Result<()>>,
}

impl Flight {
    fn ends(self, result: Result<()>) {
        self.end.send(result).unwrap();
    }
}

/// A store whose commits go on when the test says so, if they are to be told of.
struct Staged {
    store: Kv,
    flights: Mutex<Sender<Flight>>,
    ill: Arc<AtomicBool>,
}

impl Engine for Staged {
    fn read(&self, run: Run<'_>) -> Result<()> {
        self.store.read(run)
    }
    fn write(&self, run: Run<'_>) -> Result<()> {
        self.store.write(run)
    }
    fn write_once(&self, run: Run<'_>, here: bool) -> Result<Commit> {
        self.store.write_once(run, here)
    }
    fn write_told(&self, run: Run<'_>, tell: Tell) -> Result<Commit> {
        let commit = self.store.write_once(run, false)?;
        let (end, ended) = oneshot::channel();
        self.flights.lock().unwrap().send(Flight { tell, end }).unwrap();
        Ok(Box::pin(async move {
            commit.await?;
            ended.await.unwrap()
        }))
    }
    fn healthy(&self) -> Result<()> {
        if self.ill.load(SeqCst) { Err(Error::Elsewhere("another leads".to_owned())) } else { self.store.healthy() }
    }
    left_to!(store);
    fn close(self: Box<Self>) -> Result<()> {
        Box::new(self.store).close()
    }
}

/// A server with one thread, on such a store.
struct Stages {
    server: Option<Server>,
    flights: Receiver<Flight>,
    ill: Arc<AtomicBool>,
    _dir: tempfile::TempDir,
}

fn settings() -> Settings {
    Settings { least_durability: Durability::Bounded, ..Settings::default() }
}

impl Stages {
    fn start(step: Option<Step>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pool = pmem::Options::new().domain(DomainChoice::File);
        let store = Kv::new(kv::Options::new().pool(pool).create(dir.path().join("store")).unwrap());
        let (sender, flights) = channel();
        let ill = Arc::new(AtomicBool::new(false));
        let engine = Box::new(Staged { store, flights: Mutex::new(sender), ill: ill.clone() });
        let config = Config { threads: 1, settings: settings(), ..usual() };
        Self { server: Some(start(step, config, engine)), flights, ill, _dir: dir }
    }

    fn client(&self, durability: &str) -> Client {
        let mut client = Client::to(self.server.as_ref().unwrap().redis()[0]);
        assert_eq!(client.ask(&["CLIENT", "DURABILITY", durability]), Reply::ok());
        client
    }

    fn flight(&self) -> Flight {
        self.flights.recv_timeout(WAIT_LIMIT).unwrap()
    }

    /// The thread has read what was sent before: it looks at every connection in each round.
    fn looked(&self) {
        let mut client = self.client("quorum");
        (0..100).for_each(|_| assert_eq!(client.say("PING"), Reply::Simple("PONG".to_owned())));
    }

    /// What these have sent, each on a connection of its own, is one commit.
    fn together(&self, some: &mut [(&mut Client, &str)]) -> Flight {
        let mut first = self.client("bounded");
        first.send(b"SET first 1\r\n");
        let flight = self.flight();
        some.iter_mut().for_each(|(client, line)| client.send(format!("{line}\r\n").as_bytes()));
        self.looked();
        flight.ends(Ok(()));
        assert_eq!(first.reply(), Reply::ok());
        self.flight()
    }

    fn counts(&self) -> (u64, u64) {
        let Reply::Bulk(text) = self.client("quorum").say("INFO persistence") else { panic!("no text") };
        let text = String::from_utf8(text).unwrap();
        let count = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse().unwrap();
        (count("cairn_early_answers:"), count("cairn_early_answers_lost:"))
    }
}

impl Drop for Stages {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
            if !std::thread::panicking() {
                server.join().unwrap();
            }
        }
    }
}

/// Whether nothing has come. That a machine is slow makes no difference to one that answers too early.
fn is_silent(client: &mut Client) -> bool {
    use std::io::BufRead;
    let stream = client.0.get_ref();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let silent = client.0.fill_buf().is_err();
    client.0.get_ref().set_read_timeout(Some(WAIT_LIMIT)).unwrap();
    silent
}

#[test]
fn each_has_its_answer_at_its_stage() {
    answered_at_its_stage(None);
}

/// The same, without a step, if one is named.
pub fn answered_at_its_stage(step: Option<Step>) {
    let stages = Stages::start(step);
    let [mut bounded, mut local, mut quorum] = ["bounded", "local", "quorum"].map(|level| stages.client(level));
    let flight = stages.together(&mut [(&mut bounded, "SET a 1"), (&mut local, "SET b 1"), (&mut quorum, "SET c 1")]);
    assert!(is_silent(&mut bounded));
    (flight.tell)(Stage::Ordered);
    assert_eq!(bounded.reply(), Reply::ok());
    assert!(is_silent(&mut local), "answered before it is enough");
    (flight.tell)(Stage::Here);
    assert_eq!(local.reply(), Reply::ok());
    // What it sends next finds what it has written.
    bounded.send(b"GET a\r\n");
    assert!(is_silent(&mut bounded) && is_silent(&mut quorum));
    (flight.tell)(Stage::Here);
    flight.ends(Ok(()));
    assert_eq!(quorum.reply(), Reply::ok());
    assert_eq!(bounded.reply(), Reply::text("1"));
    assert_eq!(local.say("GET b"), Reply::text("1"));
    assert_eq!(stages.counts(), (2, 0));
}

/// What one connection has written in a transaction, and is not committed, no other one is shown.
#[test]
fn who_sees_what_others_write_at_the_same_time_waits() {
    unseen_before_the_commit(None);
}

/// The same, without a step, if one is named.
pub fn unseen_before_the_commit(step: Option<Step>) {
    let stages = Stages::start(step);
    let [mut quorum, mut sees, mut lists, mut apart] =
        ["quorum", "bounded", "bounded", "bounded"].map(|level| stages.client(level));
    let flight = stages.together(&mut [
        (&mut quorum, "INCR n"),
        (&mut sees, "INCR n"),
        (&mut lists, "EVAL \"return #redis.call('keys', '*')\" 0"),
        (&mut apart, "INCR m"),
    ]);
    (flight.tell)(Stage::Ordered);
    assert_eq!(apart.reply(), Reply::Int(1));
    assert!(is_silent(&mut sees) && is_silent(&mut lists), "shown what is not committed");
    assert!(is_silent(&mut quorum));
    flight.ends(Ok(()));
    assert!(matches!((quorum.reply(), sees.reply()), (Reply::Int(1), Reply::Int(2)) | (Reply::Int(2), Reply::Int(1))));
    assert!(matches!(lists.reply(), Reply::Int(1..=3)));
    assert_eq!(stages.counts(), (1, 0));
}

/// Requests of a pipeline, a transaction and a script are answered in their order, each once.
#[test]
fn answers_stay_in_their_order() {
    let stages = Stages::start(None);
    let mut client = stages.client("bounded");
    client.send(b"SET a 1\r\nINCR a\r\nPING\r\nMULTI\r\nINCR a\r\nGET a\r\nEXEC\r\nEVAL \"return redis.call('INCR', 'a')\" 0\r\nGET a\r\n");
    let (int, text) = (Reply::Int, Reply::text);
    let queued = || Reply::Simple("QUEUED".to_owned());
    let expected = [
        vec![Reply::ok(), int(2)],
        vec![Reply::Simple("PONG".to_owned()), Reply::ok(), queued(), queued(), Reply::Array(vec![int(3), text("3")])],
        vec![int(4)],
    ];
    for replies in expected {
        let flight = stages.flight();
        (flight.tell)(Stage::Ordered);
        replies.into_iter().for_each(|reply| assert_eq!(client.reply(), reply));
        assert!(is_silent(&mut client));
        flight.ends(Ok(()));
    }
    assert_eq!(client.reply(), text("4"));
}

#[test]
fn who_waits_for_an_element_is_woken_behind_the_commit() {
    let stages = Stages::start(None);
    let (mut waits, mut client) = (stages.client("quorum"), stages.client("bounded"));
    waits.send(b"BLPOP list 0\r\n");
    stages.looked();
    client.send(b"RPUSH list e\r\n");
    let flight = stages.flight();
    (flight.tell)(Stage::Ordered);
    assert_eq!(client.reply(), Reply::Int(1));
    assert!(is_silent(&mut waits));
    flight.ends(Ok(()));
    assert_eq!(waits.reply(), Reply::Array(vec![Reply::text("list"), Reply::text("e")]));
}

#[test]
fn who_was_answered_learns_of_a_failure_by_the_end_of_the_connection() {
    for error in [Error::InDoubt("lost".to_owned()), Error::Conflict("late".to_owned())] {
        let stages = Stages::start(None);
        let [mut bounded, mut quorum] = ["bounded", "quorum"].map(|level| stages.client(level));
        let flight = stages.together(&mut [(&mut bounded, "SET a 1"), (&mut quorum, "SET b 1")]);
        (flight.tell)(Stage::Ordered);
        assert_eq!(bounded.reply(), Reply::ok());
        flight.ends(Err(error));
        assert!(bounded.has_ended());
        assert!(quorum.reply().error().contains("in doubt"));
        assert_eq!(stages.counts(), (1, 1));
        assert!(stages.flights.try_recv().is_err(), "it is not run again");
    }
    // One that was not answered is told, or tried again, as ever.
    let stages = Stages::start(None);
    let mut bounded = stages.client("bounded");
    bounded.send(b"SET a 1\r\n");
    stages.flight().ends(Err(Error::Conflict("early".to_owned())));
    stages.flight().ends(Err(Error::InDoubt("lost".to_owned())));
    assert!(bounded.reply().error().contains("in doubt"));
    assert_eq!(stages.counts(), (0, 0));
}

/// What it has read with it may be old then.
#[test]
fn a_server_that_may_not_lead_any_more_answers_nobody_early() {
    answered_by_who_leads(None);
}

/// The same, without a step, if one is named.
pub fn answered_by_who_leads(step: Option<Step>) {
    let stages = Stages::start(step);
    let mut bounded = stages.client("bounded");
    bounded.send(b"SET a 1\r\n");
    let flight = stages.flight();
    stages.ill.store(true, SeqCst);
    (flight.tell)(Stage::Here);
    assert!(is_silent(&mut bounded), "answered by one that may not lead");
    flight.ends(Ok(()));
    assert_eq!(bounded.reply(), Reply::ok());
    assert_eq!(stages.counts().0, 0);
    stages.ill.store(false, SeqCst);
}

#[test]
fn a_connection_chooses_within_what_the_operator_allows() {
    let running = Running::start(DomainChoice::File);
    let mut client = running.client();
    let level = |client: &mut Client| match client.say("CLIENT DURABILITY") {
        Reply::Bulk(name) => String::from_utf8(name).unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(level(&mut client), "quorum");
    for weaker in ["bounded", "local"] {
        let refused = client.ask(&["CLIENT", "DURABILITY", weaker]);
        assert!(refused.error().contains("means quorum at least; next: "), "{refused:?}");
    }
    assert!(client.say("CLIENT DURABILITY everysec").error().contains("bounded, local or quorum"));
    assert!(client.say("CONFIG SET least-durability no").error().contains("bounded, local, quorum"));
    assert_eq!(client.say("CONFIG SET least-durability bounded"), Reply::ok());
    let pair = |value| Reply::Array(vec![Reply::text("least-durability"), Reply::text(value)]);
    assert_eq!(client.say("CONFIG GET least-durability"), pair("bounded"));
    assert_eq!(level(&mut client), "quorum", "it has not asked for less");
    assert_eq!(client.say("CLIENT DURABILITY Bounded"), Reply::ok());
    assert_eq!(client.say("SET k v"), Reply::ok());
    assert_eq!(client.say("GET k"), Reply::text("v"));
    assert_eq!(level(&mut client), "bounded");
    // The operator's word counts at once.
    assert_eq!(running.client().say("CONFIG SET least-durability local"), Reply::ok());
    assert_eq!(level(&mut client), "local");
    assert_eq!(client.say("RESET"), Reply::Simple("RESET".to_owned()));
    assert_eq!(level(&mut client), "quorum");
    // What stands beside it in a transaction was answered for by what held before.
    assert_eq!(client.say("MULTI"), Reply::ok());
    assert_eq!(client.say("CLIENT DURABILITY local"), Reply::Simple("QUEUED".to_owned()));
    let Reply::Array(replies) = client.say("EXEC") else { panic!("no replies") };
    assert!(replies[0].error().contains("inside a transaction"));
    // By its user, until it asks for another.
    assert!(client.say("ACL SETUSER u durability=none").error().contains("bounded, local or quorum"));
    assert_eq!(client.say("ACL SETUSER u on >p ~* +@all durability=bounded"), Reply::ok());
    let Reply::Array(users) = client.say("ACL LIST") else { panic!("no users") };
    assert!(users.iter().any(
        |user| matches!(user, Reply::Bulk(rules) if String::from_utf8_lossy(rules).contains(" durability=bounded "))
    ));
    assert_eq!(client.say("AUTH u p"), Reply::ok());
    assert_eq!(level(&mut client), "local", "the operator's least");
    assert_eq!(client.say("CONFIG SET least-durability bounded"), Reply::ok());
    assert_eq!(level(&mut client), "bounded");
    assert_eq!(client.say("CLIENT DURABILITY quorum"), Reply::ok());
    assert_eq!(level(&mut client), "quorum");
    assert_eq!(client.say("ACL SETUSER u durability=local"), Reply::ok());
    let mut other = running.client();
    assert_eq!(other.say("AUTH u p"), Reply::ok());
    assert_eq!(level(&mut other), "local");
}

/// Of a connection that settles for the least there is a crash takes what it was answered last, and no more. On a disk: where a sync takes no time the commit is there before it could be told of.
#[test]
fn a_kill_takes_the_last_answer_at_most() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let (mut acknowledged, mut sent) = (0_u64, 0_u64);
    for _ in 0..4 {
        let served = whole("file", &path);
        let mut client = Client::to(served.address.parse().unwrap());
        let found = match client.say("GET count") {
            Reply::Bulk(count) => String::from_utf8(count).unwrap().parse().unwrap(),
            _ => 0,
        };
        assert!((acknowledged.saturating_sub(1)..=sent).contains(&found), "{found}: {acknowledged} of {sent}");
        assert_eq!(client.say("CONFIG SET least-durability bounded"), Reply::ok());
        assert_eq!(client.say("CLIENT DURABILITY bounded"), Reply::ok());
        (acknowledged, sent) = (found, found);
        let counted = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (counted, acknowledged, sent) = (&counted, &mut acknowledged, &mut sent);
            scope.spawn(move || {
                loop {
                    *sent += 1;
                    client.send(format!("SET count {sent}\r\n").as_bytes());
                    match client.try_reply() {
                        Some(reply) => assert_eq!(reply, Reply::ok()),
                        None => break,
                    }
                    *acknowledged = *sent;
                    counted.store(*sent > found + 200, SeqCst);
                }
                counted.store(true, SeqCst);
            });
            until("two hundred are acknowledged", || counted.load(SeqCst));
            drop(served);
        });
    }
}
