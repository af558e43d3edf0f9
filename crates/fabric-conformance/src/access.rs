//! What a peer may not do does not happen, and both ends are told.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fabric::{Event, Reason, Rights, Violation, Window};

use crate::Subject;
use crate::support::{End, LEN, Stop, contents, got, meet, meet_windows, meet_with, memories, ok, pattern};

/// What an end does that it may not; and what it is told.
fn violates(subject: &dyn Subject, rights: Rights, act: impl Fn(&mut End<'_>), expected: impl Fn(&Violation) -> bool) {
    let windows = memories();
    ok(windows[1].write(0, &pattern(5, LEN)));
    meet_with(subject, &windows, [Rights::None, rights], &|_| {}, |mut a, mut b| {
        act(&mut a);
        // Some backends tell at once.
        let _ = a.sender.flush();
        match (b.closed(), a.closed()) {
            (Reason::PeerViolated(here), Reason::Violated(there)) => {
                assert!(expected(&here), "{here:?} was told at the target");
                assert!(expected(&there), "{there:?} was told to who did it");
            }
            other => panic!("the target and who did it were told {other:?}"),
        }
        a.fails_at_last();
        b.fails_at_last();
    });
    assert!(contents(&windows[1]) == pattern(5, LEN), "the window changed");
}

fn by_rights(wanted: Rights, given: Rights) -> impl Fn(&Violation) -> bool {
    move |violation| *violation == Violation::Rights { wanted, given }
}

/// A peer may do nothing before it is given rights.
pub(crate) fn no_rights(subject: &dyn Subject) {
    let wanted = by_rights(Rights::Write, Rights::None);
    violates(subject, Rights::None, |a| drop(a.sender.write(0, b"x")), &wanted);
    violates(subject, Rights::None, |a| drop(a.sender.write_imm(0, &pattern(1, 100_000), 1)), &wanted);
    violates(subject, Rights::None, |a| drop(a.sender.read(0, 1, 1)), by_rights(Rights::Read, Rights::None));
    // No window is as good as no right.
    let none = [None, None];
    meet_windows(subject, none, [Rights::None, Rights::Write], &|_| {}, |a, b| {
        let _ = a.sender.write(0, b"x").and_then(|()| a.sender.flush());
        assert!(matches!(b.closed(), Reason::PeerViolated(_)));
        assert!(matches!(a.closed(), Reason::Violated(_)));
    });
}

/// A peer that is told that it may, may.
pub(crate) fn rights_given_later(subject: &dyn Subject) {
    let windows = memories();
    meet_with(subject, &windows, [Rights::None; 2], &|_| {}, |a, b| {
        ok(a.sender.send(b"may I?"));
        ok(a.sender.flush());
        b.expect(&Event::Message(b"may I?".to_vec()));
        for (rights, imm) in [(Rights::Read, 1), (Rights::Write, 2)] {
            b.access.set(rights);
            assert_eq!(b.access.get(), rights);
            ok(b.sender.send(b"you may"));
            ok(b.sender.flush());
            a.expect(&Event::Message(b"you may".to_vec()));
            if rights == Rights::Write {
                ok(a.sender.write_imm(10, b"thanks", imm));
                ok(a.sender.flush());
                b.expect(&Event::Written { imm });
            }
            ok(a.sender.read(10, 6, imm));
            ok(a.sender.flush());
            let bytes = if imm == 2 { b"thanks".to_vec() } else { vec![0; 6] };
            a.expect(&Event::Read { tag: imm, bytes });
        }
    });
}

/// A peer that may read may not write.
pub(crate) fn read_only(subject: &dyn Subject) {
    let read = |a: &mut End<'_>| {
        ok(a.sender.read(3, 1000, 9));
        ok(a.sender.flush());
        a.expect(&Event::Read { tag: 9, bytes: pattern(5, 1003)[3..].to_vec() });
        let _ = a.sender.write_imm(3, b"x", 1);
    };
    violates(subject, Rights::Read, read, by_rights(Rights::Write, Rights::Read));
}

/// Behind the end, across it, and around all numbers.
pub(crate) fn out_of_bounds(subject: &dyn Subject) {
    let end = LEN as u64;
    for (at, bytes) in [(end, 1), (end - 1, 2), (end + 1, 0), (end - 65_536, 65_537), (u64::MAX, 1), (u64::MAX - 3, 8)]
    {
        let beyond = move |violation: &Violation| matches!(violation, Violation::Bounds { offset, len, window } if (*offset, *len, *window) == (at, bytes, end));
        violates(subject, Rights::Write, |a| drop(a.sender.write(at, &pattern(1, bytes as usize))), beyond);
        violates(subject, Rights::Write, |a| drop(a.sender.write_imm(at, &pattern(1, bytes as usize), 1)), beyond);
        violates(subject, Rights::Read, |a| drop(a.sender.read(at, bytes as u32, 1)), beyond);
    }
}

/// Once access was taken away nothing changes any more, however much is under way.
pub(crate) fn revocation(subject: &dyn Subject) {
    for round in 0..12 {
        let windows = memories();
        let target = windows[1].clone();
        let len = if round % 2 == 0 { 200 } else { LEN / 2 };
        meet_with(subject, &windows, [Rights::None, Rights::Write], &|_| {}, |a, b| {
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                let _stop = Stop(&stop);
                let (sender, stop) = (a.sender, &stop);
                scope.spawn(move || {
                    for seed in 1_u32.. {
                        let done = sender.write(u64::from(seed % 2) * len as u64, &vec![seed as u8; len]);
                        if done.and_then(|()| sender.flush()).is_err() || stop.load(Ordering::Relaxed) {
                            return;
                        }
                        // No faster than any backend's queue.
                        thread::sleep(Duration::from_micros(50));
                    }
                });
                let came = |_: &u128| got(&target, len as u64, 1) != [0];
                let waits =
                    (0..subject.timeout().as_millis() * 5).inspect(|_| thread::sleep(Duration::from_micros(200)));
                assert!(waits.into_iter().any(|wait| came(&wait)), "nothing is written");
                thread::sleep(Duration::from_micros(300 * round));
                b.access.set(Rights::None);
                let then = contents(&target);
                // The next write is one too many, unless taking access away has ended the connection by itself.
                let _ = b.closed_at_last();
                assert!(contents(&target) == then, "it was written to after access was taken away");
                thread::sleep(Duration::from_millis(10));
                assert!(contents(&target) == then, "it was written to long after access was taken away");
            });
        });
    }
}

/// Whose access is taken away with a message gets it, behind all that was sent before.
pub(crate) fn last_message(subject: &dyn Subject) {
    for round in 0..8 {
        let windows = memories();
        meet_with(subject, &windows, [Rights::None, Rights::Write], &|_| {}, |a, b| {
            for imm in 0..round {
                ok(a.sender.write_imm(0, &pattern(imm, 1000), imm));
                ok(a.sender.flush());
                b.expect(&Event::Written { imm });
            }
            if !b.access.withdraw(b"no more") {
                ok(b.sender.send(b"no more"));
                ok(b.sender.flush());
                b.sender.close();
            }
            assert_eq!(b.access.get(), Rights::None);
            a.expect(&Event::Message(b"no more".to_vec()));
            a.closed();
        });
    }
}

/// A window that says no.
struct Failing;

impl Window for Failing {
    fn len(&self) -> u64 {
        LEN as u64
    }

    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::Error::other("out of order"))
    }

    fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::Error::other("out of order"))
    }
}

/// A window that cannot be written or read ends the connection, and both are told why.
pub(crate) fn failing_window(subject: &dyn Subject) {
    for write in [true, false] {
        let windows = [None, Some(Arc::new(Failing) as Arc<dyn Window>)];
        meet_windows(subject, windows, [Rights::None, Rights::Write], &|_| {}, |a, b| {
            let done = if write { a.sender.write(0, b"x") } else { a.sender.read(0, 1, 1) };
            let _ = done.and_then(|()| a.sender.flush()); // it may be over by then
            for reason in [b.closed(), a.closed()] {
                let told = reason.to_string();
                assert!(matches!(reason, Reason::Window { .. }) && told.contains("out of order"), "{told}");
            }
        });
    }
    // An end that does not touch it has nothing to fear.
    let windows = memories();
    meet(subject, &windows, |a, b| {
        ok(a.sender.send(b"hello"));
        ok(a.sender.flush());
        b.expect(&Event::Message(b"hello".to_vec()));
    });
}
