//! How connections end, and that others begin.

use std::sync::Arc;
use std::time::Duration;

use fabric::{Error, Event, Reason, Rights, Window};

use crate::Subject;
use crate::support::{LEN, got, meet, memories, moving, ok, pattern};

/// What was handed over before arrives, then the end; both ends are told, once.
pub(crate) fn close(subject: &dyn Subject) {
    let windows = memories();
    meet(subject, &windows, |mut a, mut b| {
        for imm in 0..200 {
            ok(a.sender.write_imm(u64::from(imm) * 64, &pattern(imm, 64), imm));
            ok(a.sender.send(&imm.to_le_bytes()));
        }
        // Not flushed: closing does.
        a.sender.close();
        for imm in 0..200 {
            b.expect(&Event::Written { imm });
            b.expect(&Event::Message(imm.to_le_bytes().to_vec()));
        }
        assert_eq!(b.closed(), Reason::Peer);
        assert_eq!(a.closed(), Reason::Here);
        assert!(matches!(a.sender.send(b"x").and_then(|()| a.sender.flush()), Err(Error::Closed { .. })));
        b.fails_at_last();
        a.fails_at_last();
        a.sender.close();
        b.sender.close();
    });
    for imm in 0..200 {
        assert_eq!(got(&windows[1], u64::from(imm) * 64, 64), pattern(imm, 64));
    }

    // After the end, polling is an error.
    let [mut a, mut b] = ok(subject.connect([None, None]));
    moving(subject, || {
        a.sender.close();
        let timeout = subject.timeout();
        let mut told = None;
        for _ in 0..timeout.as_millis() {
            told = ok(b.receiver.poll(Duration::from_millis(1)));
            if told.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(told, Some(Event::Closed(Reason::Peer)));
        assert_eq!(ok(a.receiver.poll(timeout)), Some(Event::Closed(Reason::Here)));
        for receiver in [&mut a.receiver, &mut b.receiver] {
            assert!(matches!(receiver.poll(timeout), Err(Error::Closed { .. })), "the end is told once");
        }
    });
}

/// An end that drops either half has closed.
pub(crate) fn dropped_halves(subject: &dyn Subject) {
    for sender_first in [true, false] {
        let [a, mut b] = ok(subject.connect([None, None]));
        let (mut sender, receiver) = (a.sender, a.receiver);
        moving(subject, || {
            ok(sender.send(b"last"));
            ok(sender.flush());
            let _kept: Box<dyn std::any::Any> = if sender_first {
                drop(sender);
                Box::new(receiver)
            } else {
                drop(receiver);
                Box::new(sender)
            };
            let mut told = Vec::new();
            for _ in 0..subject.timeout().as_millis() {
                match b.receiver.poll(Duration::from_millis(1)) {
                    Ok(Some(event)) => told.push(event),
                    Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                    Err(_) => break,
                }
            }
            assert_eq!(told, [Event::Message(b"last".to_vec()), Event::Closed(Reason::Peer)]);
        });
    }
}

/// An end that is not polled takes a bounded number of bytes; then the sender is told, within the time-out.
pub(crate) fn slow_reader(subject: &dyn Subject) {
    const MOST: usize = 256 << 20;
    for message in [true, false] {
        let windows = memories();
        let [mut a, b] = ok(subject.connect([None, Some(windows[1].clone() as Arc<dyn Window>)]));
        b.access.set(Rights::Write);
        moving(subject, || {
            let bytes = pattern(1, 60_000);
            let mut taken = 0;
            let error = loop {
                let done = if message { a.sender.send(&bytes) } else { a.sender.write_imm(0, &bytes, 1) };
                match done.and_then(|()| a.sender.flush()) {
                    Ok(()) => taken += bytes.len(),
                    Err(error) => break error,
                }
                assert!(taken < MOST, "{taken} bytes wait for an end that does not poll");
            };
            assert!(matches!(&error, Error::Closed { reason: Reason::Slow { .. }, .. }), "{error}");
            let told = ok(a.receiver.poll(subject.timeout()));
            assert!(matches!(told, Some(Event::Closed(Reason::Slow { .. }))), "{told:?}");
        });
    }
}

/// One connection after the other to the same windows; and two at once, of which one ends.
pub(crate) fn reconnect(subject: &dyn Subject) {
    let windows = memories();
    for round in 0..20_u32 {
        meet(subject, &windows, |a, b| {
            let last = round.checked_sub(1).map_or(vec![0; 100], |last| pattern(last, 100));
            ok(a.sender.read(0, 100, round));
            ok(a.sender.write_imm(0, &pattern(round, 100), round));
            ok(a.sender.flush());
            b.expect(&Event::Written { imm: round });
            match a.next() {
                // A backend may answer after the write that follows.
                Event::Read { tag, bytes } => {
                    assert!(tag == round && (bytes == last || bytes == pattern(round, 100)), "round {round}");
                }
                other => panic!("{other:?} instead of an answer"),
            }
            if round % 2 == 0 {
                a.sender.close()
            } else {
                b.sender.close()
            }
            assert!(matches!(a.closed(), Reason::Here | Reason::Peer));
            assert!(matches!(b.closed(), Reason::Here | Reason::Peer));
        });
    }
    meet(subject, &windows, |a, b| {
        meet(subject, &windows, |c, d| {
            c.sender.close();
            assert_eq!(d.closed(), Reason::Peer);
        });
        ok(a.sender.write_imm(LEN as u64 - 1, b"x", 7));
        ok(a.sender.flush());
        b.expect(&Event::Written { imm: 7 });
    });
}
