//! What came last to the server, in a group whose leader is killed in the middle of it: databases that are swapped, a long string that is appended to, settings that are kept, clients that track.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use rustix::process::Signal;

use super::groups::{Group, MACHINES};
use crate::eventually;
use crate::witness::Connection;

const MARKS: [&str; 2] = ["zero", "one"];
const PART: usize = 3000;
/// Parts of the string that is there in the beginning: a few more, and it lies in chunks.
const FIRST: u64 = 85;

fn part(number: u64) -> String {
    format!("<{number:06}>{}", "x".repeat(PART - 8))
}

fn text(parts: u64) -> String {
    (0..parts).map(part).collect()
}

/// What clients were told, and how many of what they have sent have no answer.
#[derive(Default)]
struct Told {
    swaps: AtomicU64,
    parts: AtomicU64,
    settings: AtomicU64,
}

impl Told {
    fn all(&self) -> [u64; 3] {
        [&self.swaps, &self.parts, &self.settings].map(|count| count.load(SeqCst))
    }
}

/// Asks until the connection ends; what is refused because the machine leads no more has changed nothing, or is in doubt.
fn go_on(mut once: impl FnMut() -> std::io::Result<bool>) {
    while once().is_ok_and(|done| done) {}
}

fn connect(group: &Group, at: usize) -> Connection {
    Connection::to(&format!("127.0.0.1:{}", group.ports[at].0)).unwrap()
}

/// The value of a setting.
fn setting(connection: &mut Connection, name: &str) -> u64 {
    assert_eq!(connection.ask(&format!("CONFIG GET {name}")).unwrap(), "*2");
    assert_eq!(connection.reply().unwrap(), name);
    connection.reply().unwrap().parse().unwrap()
}

/// Reads what the next leader has: all that was acknowledged, with at most one more of each kind, and nothing by halves.
fn check(group: &Group, leader: usize, told: &Told) {
    let mut connection = connect(group, leader);
    let [swaps, parts, settings] = told.all();
    let mut marks = Vec::new();
    for number in 0..2 {
        assert_eq!(connection.ask(&format!("SELECT {number}")).unwrap(), "+OK");
        marks.push(connection.ask("GET mark").unwrap());
    }
    let swapped = MARKS.map(|mark| marks.iter().position(|found| found == mark).unwrap_or_else(|| panic!("{marks:?}")));
    assert_eq!(swapped[0], 1 - swapped[1], "{marks:?}");
    let found = if swapped[0] as u64 == swaps % 2 { swaps } else { swaps + 1 };
    told.swaps.store(found, SeqCst);
    assert_eq!(connection.ask("SELECT 5").unwrap(), "+OK");
    let found = connection.ask("GET long").unwrap();
    assert!(found.len().is_multiple_of(PART), "{} bytes: a part by halves", found.len());
    let count = (found.len() / PART) as u64;
    assert!((parts..=parts + 1).contains(&count), "{count} parts, and {parts} were acknowledged");
    assert!(found == text(count), "another text of {count} parts");
    told.parts.store(count, SeqCst);
    let kept = setting(&mut connection, "slowlog-max-len");
    assert!((settings..=settings + 1).contains(&kept), "{kept} is kept, and {settings} was acknowledged");
    told.settings.store(kept, SeqCst);
}

/// Changes all of it on this machine until it is killed, which is when some of each was acknowledged.
fn change_until_killed(group: &mut Group, leader: usize, told: &Told) {
    let before = told.all();
    let [mut swaps, mut appends, mut settings] = [0; 3].map(|_| connect(group, leader));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            go_on(|| {
                let done = swaps.ask("SWAPDB 0 1")? == "+OK";
                told.swaps.fetch_add(done.into(), SeqCst);
                Ok(done)
            });
        });
        scope.spawn(|| {
            appends.ask("SELECT 5").unwrap();
            go_on(|| {
                let next = told.parts.load(SeqCst);
                let done =
                    appends.ask(&format!("APPEND long {}", part(next)))? == format!(":{}", (next + 1) * PART as u64);
                told.parts.fetch_add(done.into(), SeqCst);
                Ok(done)
            });
        });
        scope.spawn(|| {
            go_on(|| {
                let next = told.settings.load(SeqCst) + 1;
                let set = settings.ask(&format!("CONFIG SET slowlog-max-len {next}"))? == "+OK";
                let done = set && settings.ask("CONFIG REWRITE")? == "+OK";
                told.settings.fetch_add(done.into(), SeqCst);
                Ok(done)
            });
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually("all of it is acknowledged", || {
                told.all().iter().zip(before).all(|(now, before)| *now > before + 8)
            });
        }));
        group.kill(leader);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// A client that tracks, and has read a key.
fn tracking(group: &Group, leader: usize) -> Connection {
    let mut connection = connect(group, leader);
    for line in ["HELLO 3", "SELECT 6", "CLIENT TRACKING ON", "GET kept", "ECHO the-end"] {
        let mut said = connection.ask(line).unwrap();
        while line == "ECHO the-end" && said != "the-end" {
            said = connection.reply().unwrap();
        }
    }
    connection
}

/// Whether it is told to forget everything, or its connection ends.
fn is_told(connection: &mut Connection) -> bool {
    loop {
        match connection.reply() {
            Ok(line) if line == "invalidate" => return true,
            Ok(_) => {}
            Err(error) => {
                return !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
            }
        }
    }
}

#[test]
fn what_came_last_is_whole_on_the_next_leader() {
    let mut group = Group::new();
    group.log_size = "4M";
    group.start_all();
    let all: Vec<usize> = (0..MACHINES).collect();
    let others = |of: usize| all.iter().copied().filter(|at| *at != of).collect::<Vec<_>>();
    let mut leader = group.leader(&all);
    group.await_all(leader);
    let told = Told::default();
    {
        let mut connection = connect(&group, leader);
        for line in ["SET mark zero", "SELECT 1", "SET mark one", "SELECT 6", "SET kept old", "SELECT 5"] {
            assert_eq!(connection.ask(line).unwrap(), "+OK", "{line}");
        }
        for number in 0..FIRST {
            let said = connection.ask(&format!("APPEND long {}", part(number))).unwrap();
            assert_eq!(said, format!(":{}", (number + 1) * PART as u64));
        }
        told.parts.store(FIRST, SeqCst);
        for line in ["CONFIG SET slowlog-max-len 200", "CONFIG REWRITE"] {
            assert_eq!(connection.ask(line).unwrap(), "+OK", "{line}");
        }
        told.settings.store(200, SeqCst);
    }
    for _ in 0..2 {
        let mut tracks = tracking(&group, leader);
        change_until_killed(&mut group, leader, &told);
        assert!(is_told(&mut tracks), "a client of the machine that was killed");
        let next = group.leader(&others(leader));
        check(&group, next, &told);
        // Who follows answers nothing about databases, those of before the swaps neither.
        for at in others(leader).into_iter().filter(|at| *at != next) {
            for line in ["GET mark", "DBSIZE", "SWAPDB 0 1"] {
                let said = group.ask(at, line).unwrap();
                assert!(said.starts_with("-READONLY "), "{line}: {said}");
            }
        }
        group.start(leader);
        group.await_all(next);
        leader = next;
    }
    // One that hangs until another one leads: its clients must not keep what they have read.
    let mut tracks = tracking(&group, leader);
    group.signal(leader, Signal::STOP);
    let next = group.leader(&others(leader));
    for line in ["SWAPDB 6 7", "SET kept new"] {
        assert_eq!(group.ask(next, line).unwrap(), "+OK", "{line}");
    }
    group.signal(leader, Signal::CONT);
    assert!(is_told(&mut tracks), "a client of the machine that leads no more");
    eventually("it answers nothing about data", || {
        group.ask(leader, "GET kept").is_ok_and(|said| said.starts_with("-READONLY "))
    });
    // And all at once.
    (0..MACHINES).for_each(|at| group.kill(at));
    group.start_all();
    let leader = group.leader(&all);
    check(&group, leader, &told);
    assert_eq!(
        group.ask(leader, "DBSIZE").unwrap(),
        ":2",
        "the mark, and what was set last in the database that nobody has swapped"
    );
}
