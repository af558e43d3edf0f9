//! Threads that force at once, and one that looks whether any of them sleeps over something.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use crate::failpoints::Step;
use crate::{Options, Replica, Replicas};

const THREADS: usize = 6;
/// Of each thread, if nothing is seen before.
const APPENDS_MAX: usize = 4000;

#[derive(Debug, Default)]
struct Seen {
    looks: usize,
    asleep: usize,
    overlooked: usize,
}

/// Until enough is seen, or all is appended: how often this thread looks is the scheduler's business.
fn many_force(without: Option<Step>, enough: impl Fn(&Seen) -> bool) -> Seen {
    let dir = tempfile::tempdir().expect("a folder");
    let trust = fabric::Options { anyone: true, ..Default::default() };
    let serve = |n: usize| Replica::serve(dir.path().join(n.to_string()), "127.0.0.1:0", trust.clone());
    let backups = [0, 1].map(|n| serve(n).expect("serves"));
    let replicas = Replicas::new().local(dir.path().join("own")).trust(trust.clone());
    let address = |backup: &Replica| backup.address().expect("an address").to_string();
    let replicas = backups.iter().fold(replicas, |replicas, backup| replicas.at(&address(backup)));
    let options = Options { without, ..Options::new().bytes(4 << 20).idle(None) };
    let log = options.create_replicated(&replicas).expect("made");
    let core = log.core();
    let leading = core.leading.as_ref().expect("it leads");

    let (working, over, mut seen) = (AtomicUsize::new(THREADS), AtomicBool::new(false), Seen::default());
    std::thread::scope(|threads| {
        for _ in 0..THREADS {
            threads.spawn(|| {
                for n in 0..APPENDS_MAX {
                    if n % 4 == 0 {
                        let lsn = log.reserve(8).and_then(crate::Reservation::complete).expect("appended");
                        assert!(log.force_own(lsn).expect("forced"));
                        log.force_now(lsn).expect("forced");
                    } else {
                        log.append(b"a record").expect("appended");
                    }
                    if over.load(Relaxed) {
                        break;
                    }
                }
                working.fetch_sub(1, Relaxed);
            });
        }
        while working.load(Relaxed) > 0 {
            let group = leading.group.lock();
            let (overlooked, asleep) =
                leading.acks.overlooked(&group, |until| leading.is_there(&core.image, &group, until));
            drop(group);
            seen.looks += 1;
            seen.asleep += asleep;
            seen.overlooked += overlooked;
            over.fetch_or(enough(&seen), Relaxed);
            std::thread::yield_now();
        }
    });
    assert_eq!(log.forced().get() + 1, log.stats().next.get());
    seen
}

/// The same, again until it is enough: on a busy machine the thread that looks may not be run once while others sleep.
fn seen_at_last(without: Option<Step>, enough: impl Fn(&Seen) -> bool) -> Seen {
    let mut seen = Seen::default();
    for _ in 0..20 {
        seen = many_force(without, &enough);
        if enough(&seen) || without.is_none() && seen.overlooked > 0 {
            break;
        }
    }
    seen
}

#[test]
fn nobody_sleeps_over_what_is_there() {
    let seen = seen_at_last(None, |seen| seen.asleep > 1000);
    assert!(seen.asleep > 100 && seen.overlooked == 0, "{seen:?}");
}

/// A thread that has heard enough goes away without a word.
#[test]
fn sleepers_whom_nobody_calls_are_found() {
    let seen = seen_at_last(Some(Step::HandOn), |seen| seen.overlooked > 0);
    assert!(seen.overlooked > 0, "{seen:?}");
}

/// What was committed is told to no thread.
#[test]
fn sleepers_who_hear_no_news_are_found() {
    let seen = seen_at_last(Some(Step::TellNews), |seen| seen.overlooked > 0);
    assert!(seen.overlooked > 0, "{seen:?}");
}
