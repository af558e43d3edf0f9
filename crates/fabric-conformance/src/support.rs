//! Two ends whose receivers are polled by threads of their own.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Inbox, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use fabric::{Access, Event, Memory, Reason, Receiver, Rights, Sender, Window};

use crate::Subject;

pub(crate) const LEN: usize = 1 << 20;

/// An end: its sender, and what its receiver was told.
pub(crate) struct End<'a> {
    pub(crate) sender: &'a mut Box<dyn Sender>,
    pub(crate) access: Access,
    inbox: Inbox<Event>,
    timeout: Duration,
}

impl End<'_> {
    /// What it is told next.
    #[track_caller]
    pub(crate) fn next(&self) -> Event {
        match self.inbox.recv_timeout(self.timeout) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => panic!("nothing arrived within {:?}", self.timeout),
            Err(RecvTimeoutError::Disconnected) => {
                panic!("the receiver was told nothing before it said that it is over")
            }
        }
    }

    #[track_caller]
    pub(crate) fn expect(&self, event: &Event) {
        let next = self.next();
        assert!(&next == event, "{} instead of {}", short(&next), short(event));
    }

    /// Why it is over, which is what it is told next.
    #[track_caller]
    pub(crate) fn closed(&self) -> Reason {
        match self.next() {
            Event::Closed(reason) => reason,
            other => panic!("{} instead of the end", short(&other)),
        }
    }

    /// Why it is over, after whatever else it is told.
    #[track_caller]
    pub(crate) fn closed_at_last(&self) -> Reason {
        loop {
            if let Event::Closed(reason) = self.next() {
                return reason;
            }
        }
    }

    /// Nothing comes in a moment.
    #[track_caller]
    pub(crate) fn expect_nothing(&self) {
        if let Ok(event) = self.inbox.recv_timeout(Duration::from_millis(50)) {
            panic!("{} instead of nothing", short(&event));
        }
    }

    /// Sends and flushes again and again until it is told that the connection is over.
    #[track_caller]
    pub(crate) fn fails_at_last(&mut self) {
        let pause = Duration::from_millis(2);
        for _ in 0..self.timeout.as_millis() / 2 {
            if self.sender.send(b"?").and_then(|()| self.sender.flush()).is_err() {
                return;
            }
            thread::sleep(pause);
        }
        panic!("it goes on sending after the end");
    }
}

fn short(event: &Event) -> String {
    match event {
        Event::Message(bytes) => format!("a message of {} bytes: {:?}", bytes.len(), &bytes[..bytes.len().min(16)]),
        Event::Read { tag, bytes } => {
            format!("{} bytes read for {tag}: {:?}", bytes.len(), &bytes[..bytes.len().min(16)])
        }
        other => format!("{other:?}"),
    }
}

/// A window at each end.
pub(crate) fn memories() -> [Arc<Memory>; 2] {
    [Arc::new(Memory::new(LEN)), Arc::new(Memory::new(LEN))]
}

pub(crate) fn contents(window: &Memory) -> Vec<u8> {
    got(window, 0, LEN)
}

pub(crate) fn got(window: &Memory, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    assert!(window.read(offset, &mut bytes).is_ok());
    bytes
}

/// Two ends with these windows, of which each may write into the other's.
pub(crate) fn meet<R>(
    subject: &dyn Subject,
    windows: &[Arc<Memory>; 2],
    body: impl FnOnce(End<'_>, End<'_>) -> R,
) -> R {
    meet_with(subject, windows, [Rights::Write; 2], &|_| {}, body)
}

/// The same with those rights for the peers of each; `watch` sees what the second end is told, before it is asked for more.
pub(crate) fn meet_with<R>(
    subject: &dyn Subject,
    windows: &[Arc<Memory>; 2],
    rights: [Rights; 2],
    watch: &(dyn Fn(&Event) + Sync),
    body: impl FnOnce(End<'_>, End<'_>) -> R,
) -> R {
    let windows = windows.clone().map(|window| Some(window as Arc<dyn Window>));
    meet_windows(subject, windows, rights, watch, body)
}

pub(crate) fn meet_windows<R>(
    subject: &dyn Subject,
    windows: [Option<Arc<dyn Window>>; 2],
    rights: [Rights; 2],
    watch: &(dyn Fn(&Event) + Sync),
    body: impl FnOnce(End<'_>, End<'_>) -> R,
) -> R {
    let timeout = subject.timeout();
    let [mut a, mut b] = ok(subject.connect(windows));
    a.access.set(rights[0]);
    b.access.set(rights[1]);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // Also when the body panics: or the threads would be waited for.
        let _stop = Stop(&stop);
        let (told_a, inbox_a) = channel();
        let (told_b, inbox_b) = channel();
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                subject.move_on();
            }
        });
        let (stop, at_a, at_b) = (&stop, &mut a.receiver, &mut b.receiver);
        scope.spawn(move || poll(at_a, stop, &|event| drop(told_a.send(event))));
        scope.spawn(move || {
            poll(at_b, stop, &|event| {
                watch(&event);
                drop(told_b.send(event));
            });
        });
        let end_a = End { sender: &mut a.sender, access: a.access.clone(), inbox: inbox_a, timeout };
        let end_b = End { sender: &mut b.sender, access: b.access.clone(), inbox: inbox_b, timeout };
        body(end_a, end_b)
    })
}

/// While it lives, what does not move by itself is moved.
pub(crate) fn moving<R>(subject: &dyn Subject, body: impl FnOnce() -> R) -> R {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                subject.move_on();
            }
        });
        body()
    })
}

/// Sets it when dropped, also by a panic.
pub(crate) struct Stop<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn poll(receiver: &mut Box<dyn Receiver>, stop: &AtomicBool, tell: &dyn Fn(Event)) {
    while !stop.load(Ordering::Relaxed) {
        match receiver.poll(Duration::from_millis(10)) {
            Ok(Some(event)) => tell(event),
            Ok(None) => thread::yield_now(),
            Err(_) => return,
        }
    }
}

#[track_caller]
pub(crate) fn ok<T, E: Debug>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error:?}"),
    }
}

/// Bytes that differ with `seed` and from place to place.
pub(crate) fn pattern(seed: u32, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed as usize * 31 + at * 7 + at / 251) as u8).collect()
}
