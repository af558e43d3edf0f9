//! What is handed over arrives, whole and in order.

use std::thread;

use fabric::{Error, Event, MESSAGE_MAX, READ_MAX, READS_MAX, Rights, WRITE_MAX};

use crate::Subject;
use crate::support::{LEN, contents, got, meet, meet_with, memories, ok, pattern};

/// Writes that tell, and messages, arrive in the order they were handed over.
pub(crate) fn order(subject: &dyn Subject) {
    let windows = memories();
    meet(subject, &windows, |a, b| {
        for round in 0..40_u32 {
            for step in 0..25 {
                let imm = round * 25 + step;
                match imm % 3 {
                    0 => ok(a.sender.send(&imm.to_le_bytes())),
                    1 => ok(a.sender.write_imm(u64::from(imm), &[imm as u8], imm)),
                    _ => {
                        ok(a.sender.write(u64::from(imm), &[imm as u8]));
                        ok(a.sender.write_imm(0, &[], imm));
                    }
                }
                if imm % 7 == 0 {
                    ok(a.sender.flush());
                }
            }
            ok(a.sender.flush());
            for imm in round * 25..round * 25 + 25 {
                b.expect(&match imm % 3 {
                    0 => Event::Message(imm.to_le_bytes().to_vec()),
                    _ => Event::Written { imm },
                });
            }
        }
        b.expect_nothing();
        a.expect_nothing();
    });
    let bytes = contents(&windows[1]);
    for imm in (0..1000).filter(|imm| imm % 3 != 0) {
        assert_eq!(bytes[imm], imm as u8, "byte {imm}");
    }
}

/// When an end is told of a write, all its bytes and those of earlier writes are there.
pub(crate) fn bytes_come_before_the_immediate(subject: &dyn Subject) {
    let windows = memories();
    let place = |imm: u32| u64::from(imm % 16) * 65536;
    let len = |imm: u32| (imm as usize * 977) % 30_000 + 1;
    let target = windows[1].clone();
    let watch = move |event: &Event| {
        if let Event::Written { imm } = event {
            assert!(
                got(&target, place(*imm), len(*imm)) == pattern(*imm, len(*imm)),
                "write {imm} was told and is not there"
            );
            assert!(
                got(&target, place(*imm) + 40_000, 100) == pattern(imm + 1, 100),
                "the one before {imm} is not there"
            );
        }
    };
    meet_with(subject, &windows, [Rights::Write; 2], &watch, |a, b| {
        for imm in 0..400 {
            ok(a.sender.write(place(imm) + 40_000, &pattern(imm + 1, 100)));
            ok(a.sender.write_imm(place(imm), &pattern(imm, len(imm)), imm));
            // No more under way than have places of their own.
            if imm % 8 == 7 {
                ok(a.sender.flush());
                (imm - 7..=imm).for_each(|imm| b.expect(&Event::Written { imm }));
            }
        }
    });
}

/// One write of the whole window, at once and from many pieces.
pub(crate) fn long_writes(subject: &dyn Subject) {
    let windows = memories();
    meet(subject, &windows, |a, b| {
        for imm in 0..8 {
            ok(a.sender.write_imm(0, &pattern(imm, LEN), imm));
            ok(a.sender.flush());
            b.expect(&Event::Written { imm });
            assert!(contents(&windows[1]) == pattern(imm, LEN), "write {imm} arrived otherwise");
        }
        let whole = pattern(99, LEN);
        for (index, piece) in whole.chunks(70_001).enumerate() {
            ok(a.sender.write(index as u64 * 70_001, piece));
        }
        ok(a.sender.write_imm(LEN as u64, &[], 99));
        ok(a.sender.flush());
        b.expect(&Event::Written { imm: 99 });
        assert!(contents(&windows[1]) == whole, "the pieces arrived otherwise");
        assert!(contents(&windows[0]).iter().all(|&byte| byte == 0), "its own window changed");
    });
}

/// Reads see what was written before them, and answers come in order, from one byte to the most there may be.
pub(crate) fn reads(subject: &dyn Subject) {
    let windows = [1, READ_MAX as usize].map(fabric::Memory::new).map(std::sync::Arc::new);
    meet(subject, &windows, |a, b| {
        let lens = [1, 8, 100, 65_535, 65_536, 65_537, 300_000, READ_MAX as usize, 0];
        for (tag, len) in (0..).zip(lens) {
            ok(a.sender.write(0, &pattern(tag, len)));
            ok(a.sender.read(0, len as u32, tag));
            ok(a.sender.flush());
            a.expect(&Event::Read { tag, bytes: pattern(tag, len) });
        }
        // Several at once, between writes that change what they read.
        for tag in 100..110 {
            ok(a.sender.write(64, &pattern(tag, 5000)));
            ok(a.sender.read(64, 5000, tag));
        }
        ok(a.sender.flush());
        for tag in 100..110 {
            match a.next() {
                Event::Read { tag: found, bytes } => {
                    assert_eq!(found, tag);
                    // Later writes may be there already, in part: earlier ones are not all there is.
                    let versions: Vec<_> = (tag..110).map(|tag| pattern(tag, 5000)).collect();
                    let old =
                        bytes.iter().enumerate().find(|(at, byte)| !versions.iter().any(|one| one[*at] == **byte));
                    assert_eq!(old, None, "read {tag} did not see the write before it");
                }
                other => panic!("{other:?} instead of an answer"),
            }
        }
        b.expect_nothing();
    });
}

/// One more than may wait for answers is refused, and changes nothing.
pub(crate) fn reads_are_bounded(subject: &dyn Subject) {
    let windows = memories();
    meet(subject, &windows, |a, _b| {
        for round in 0..3 {
            for tag in 0..READS_MAX as u32 {
                ok(a.sender.read(0, LEN as u32, tag));
            }
            // Not flushed: none can be answered.
            if round == 0 {
                // ... unless a backend flushes early, which it may. Then one of the next is refused.
                let more = (0..=READS_MAX as u32).map(|tag| a.sender.read(0, LEN as u32, 1000 + tag));
                let taken = more.take_while(Result::is_ok).count();
                assert!(taken <= READS_MAX, "reads are taken without a bound");
                ok(a.sender.flush());
                (0..READS_MAX + taken).for_each(|_| drop(a.next()));
            } else {
                ok(a.sender.flush());
                (0..READS_MAX as u32).for_each(|tag| a.expect(&Event::Read { tag, bytes: vec![0; LEN] }));
            }
        }
    });
}

/// From none to the most there may be.
pub(crate) fn messages_of_all_lengths(subject: &dyn Subject) {
    meet(subject, &memories(), |a, b| {
        for (seed, len) in (0..).zip([0, 1, 7, 8, 9, 4095, 4096, 65_000, MESSAGE_MAX - 1, MESSAGE_MAX]) {
            ok(a.sender.send(&pattern(seed, len)));
            ok(b.sender.send(&pattern(seed + 50, len)));
            ok(a.sender.flush());
            ok(b.sender.flush());
            b.expect(&Event::Message(pattern(seed, len)));
            a.expect(&Event::Message(pattern(seed + 50, len)));
        }
        // Some of the longest at once.
        for seed in 0..10 {
            ok(a.sender.send(&pattern(seed, MESSAGE_MAX)));
        }
        ok(a.sender.flush());
        (0..10).for_each(|seed| b.expect(&Event::Message(pattern(seed, MESSAGE_MAX))));
    });
}

/// What is too long is refused, and the connection stays.
pub(crate) fn too_long(subject: &dyn Subject) {
    meet(subject, &memories(), |a, b| {
        assert!(matches!(a.sender.send(&vec![0; MESSAGE_MAX + 1]), Err(Error::TooLong { .. })));
        assert!(matches!(a.sender.read(0, READ_MAX + 1, 0), Err(Error::TooLong { .. })));
        // As much memory as that takes is not touched.
        let zeros = vec![0; WRITE_MAX + 1];
        assert!(matches!(a.sender.write(0, &zeros), Err(Error::TooLong { .. })));
        assert!(matches!(a.sender.write_imm(0, &zeros, 0), Err(Error::TooLong { .. })));
        ok(a.sender.send(b"still here"));
        ok(a.sender.flush());
        b.expect(&Event::Message(b"still here".to_vec()));
        a.expect_nothing();
    });
}

/// Each end writes, tells, reads and sends while the other does.
pub(crate) fn both_ways_at_once(subject: &dyn Subject) {
    let windows = memories();
    meet(subject, &windows, |a, b| {
        thread::scope(|scope| {
            for (end, seed) in [(a, 1), (b, 1_000_000)] {
                scope.spawn(move || {
                    let other = if seed == 1 { 1_000_000 } else { 1 };
                    for round in 0..200_u32 {
                        let len = (round as usize * 331) % 40_000 + 1;
                        ok(end.sender.write(0, &pattern(seed + round, len)));
                        ok(end.sender.read(0, len as u32, round));
                        ok(end.sender.write_imm(500_000, &pattern(seed, 64), seed + round));
                        ok(end.sender.send(&(seed + round).to_le_bytes()));
                        ok(end.sender.flush());
                        // The other's telling and message, and the own answer, which may come between.
                        let mut events: Vec<_> = (0..3).map(|_| end.next()).collect();
                        let answer = events.iter().position(|event| matches!(event, Event::Read { .. }));
                        let Some(answer) = answer else { panic!("no answer in round {round}: {events:?}") };
                        assert!(events.remove(answer) == Event::Read { tag: round, bytes: pattern(seed + round, len) });
                        let message = Event::Message((other + round).to_le_bytes().to_vec());
                        assert_eq!(events, [Event::Written { imm: other + round }, message]);
                    }
                });
            }
        });
    });
}
