//! A group whose leader is killed while databases are swapped, a long string is appended to, and settings are kept; and one that hangs, whose clients must read nothing that is stale.

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
    assert_eq!(connection.ask("SELECT 5").unwrap(), "+OK");
    let swapped: u64 = connection.ask("GET swaps").unwrap().parse().unwrap();
    assert!((swaps..=swaps + 1).contains(&swapped), "{swapped} swaps, and {swaps} were acknowledged");
    told.swaps.store(swapped, SeqCst);
    let mut marks = Vec::new();
    for number in 0..2 {
        assert_eq!(connection.ask(&format!("SELECT {number}")).unwrap(), "+OK");
        marks.push(connection.ask("GET mark").unwrap());
    }
    // Each swap is in one transaction with its count.
    let first = (swapped % 2) as usize;
    assert_eq!(marks, [MARKS[first], MARKS[1 - first]], "behind {swapped} swaps");
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
            swaps.ask("SELECT 5").unwrap();
            go_on(|| {
                for line in ["MULTI", "SWAPDB 0 1", "INCR swaps"] {
                    if swaps.ask(line)?.starts_with('-') {
                        return Ok(false);
                    }
                }
                let done = swaps.ask("EXEC")? == "*2" && swaps.reply()? == "+OK" && swaps.reply()?.starts_with(':');
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

#[test]
fn swaps_long_strings_and_settings_are_whole_on_the_next_leader() {
    let mut group = Group::new();
    (group.log_size, group.lease) = ("4M", 4);
    group.start_all();
    let all: Vec<usize> = (0..MACHINES).collect();
    let others = |of: usize| all.iter().copied().filter(|at| *at != of).collect::<Vec<_>>();
    let mut leader = group.leader(&all);
    group.await_all(leader);
    let told = Told::default();
    {
        let mut connection = connect(&group, leader);
        for line in ["SET mark zero", "SELECT 1", "SET mark one", "SELECT 6", "SET kept old", "SELECT 5", "SET swaps 0"]
        {
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
        change_until_killed(&mut group, leader, &told);
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
    // One that hangs until another one leads: it answers nothing of before.
    let mut stale = connect(&group, leader);
    assert_eq!([stale.ask("SELECT 6").unwrap(), stale.ask("GET kept").unwrap()], ["+OK", "old"]);
    group.signal(leader, Signal::STOP);
    let next = group.leader(&others(leader));
    for line in ["SWAPDB 6 7", "SET kept new"] {
        assert_eq!(group.ask(next, line).unwrap(), "+OK", "{line}");
    }
    group.signal(leader, Signal::CONT);
    eventually("it answers that it leads no more, or nothing", || {
        stale.ask("GET kept").map_or(true, |said| {
            assert_ne!(said, "old", "a machine that leads no more");
            said.starts_with("-READONLY ")
        })
    });
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
