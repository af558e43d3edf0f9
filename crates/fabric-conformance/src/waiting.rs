//! One thread waits for several.

use std::sync::Arc;
use std::time::Duration;

use fabric::{Connection, Event, Reason, Receiver, Rights, Window, wait};

use crate::Subject;
use crate::support::{memories, moving, ok};

const TURN: Duration = Duration::from_millis(5);
/// A pause behind each turn: a transport whose time is simulated waits for nothing, and the sender is a thread that must run.
const PAUSE: Duration = Duration::from_millis(1);

/// What arrives next, and at which of them, of those that are said to have something.
#[track_caller]
fn next(subject: &dyn Subject, receivers: &mut [Box<dyn Receiver>]) -> (usize, Event) {
    for _ in 0..subject.timeout().as_millis() / TURN.as_millis() {
        let ready = ok(wait(receivers.iter_mut().map(|receiver| &mut **receiver as &mut dyn Receiver), TURN));
        for (index, receiver) in receivers.iter_mut().enumerate().filter(|(index, _)| ready.has(*index)) {
            if let Some(event) = ok(receiver.poll(Duration::ZERO)) {
                return (index, event);
            }
        }
        std::thread::sleep(PAUSE);
    }
    panic!("nothing arrived at any of them within {:?}", subject.timeout());
}

/// Whichever of several has something is said to; also when more than one thing came at once, and at the end.
pub(crate) fn several_at_once(subject: &dyn Subject) {
    let windows = memories();
    let window = || Some(windows[0].clone() as Arc<dyn Window>);
    let all = (0..4).map(|_| ok(subject.connect([window(), None]))).collect::<Vec<_>>();
    let (mut senders, mut receivers, mut far) = (Vec::new(), Vec::new(), Vec::new());
    for [near, there] in all {
        let Connection { sender, receiver, access, .. } = near;
        access.set(Rights::Write);
        senders.push(sender);
        receivers.push(receiver);
        far.push(there);
    }
    moving(subject, || {
        for round in 0..100_u32 {
            let at = round as usize * 7 / 3 % far.len();
            let Connection { sender, receiver, .. } = &mut far[at];
            // An end makes progress while it is polled.
            assert_eq!(ok(receiver.poll(Duration::ZERO)), None);
            let count = round % 4 + 1;
            std::thread::scope(|threads| {
                // A sender that waits for each operation waits for the other end's progress.
                threads.spawn(move || {
                    for number in 0..count {
                        if number % 2 == 0 {
                            ok(sender.send(&[round as u8, number as u8]));
                        } else {
                            ok(sender.write_imm(0, b"x", round * 4 + number));
                        }
                    }
                    ok(sender.flush());
                });
                for number in 0..count {
                    let event = match number % 2 {
                        0 => Event::Message(vec![round as u8, number as u8]),
                        _ => Event::Written { imm: round * 4 + number },
                    };
                    assert_eq!(next(subject, &mut receivers), (at, event));
                }
            });
        }
        far[2].sender.close();
        assert_eq!(next(subject, &mut receivers), (2, Event::Closed(Reason::Peer)));
        let _over = receivers.remove(2);
        senders[1].close();
        assert_eq!(next(subject, &mut receivers), (1, Event::Closed(Reason::Here)));
    });
}
