//! TCP, with and without TLS, among ends that trust each other and others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use fabric::{Connection, Options, Result, Secret, Window, tcp};
use fabric_conformance::Subject;

use crate::certificates;

/// With a short timeout: a check has a slow peer.
pub(crate) fn options() -> Options {
    Options {
        secret: Some(Secret::new(b"a secret of the tests").unwrap()),
        send_timeout: Duration::from_secs(2),
        ..Options::default()
    }
}

pub(crate) struct Tcp(pub(crate) Options);

impl Subject for Tcp {
    fn connect(&self, [a, b]: [Option<Arc<dyn Window>>; 2]) -> Result<[Connection; 2]> {
        let mut listener = tcp::Listener::bind("localhost:0", self.0.clone(), b)?;
        let (near, far) = meet(&mut listener, |address| tcp::connect(address, &self.0, a));
        Ok([near?, far.expect("nobody came")])
    }
}

/// What `connect` returns, and the peer that the listener lets in until that is done.
pub(crate) fn meet<R: Send>(
    listener: &mut tcp::Listener,
    connect: impl FnOnce(&str) -> R + Send,
) -> (R, Option<Connection>) {
    let address = format!("localhost:{}", listener.address().unwrap().port());
    std::thread::scope(|scope| {
        let near = scope.spawn(move || connect(&address));
        let mut far = None;
        while far.is_none() && !near.is_finished() {
            far = listener.accept(Duration::from_millis(2)).unwrap();
        }
        // The end that connects may be done first.
        let near = near.join().unwrap();
        (near, far.or_else(|| listener.accept(Duration::from_millis(100)).unwrap()))
    })
}

fabric_conformance::conformance!(conforms, Tcp(options()));
fabric_conformance::conformance!(conforms_spinning, Tcp(Options { spin: Duration::from_millis(1), ..options() }));
fabric_conformance::conformance!(conforms_with_tls, Tcp(Options { secret: None, ..certificates::options() }));

/// What the socket of a peer that does not poll takes, and the queue, is bounded; then the connection is over, and no thread has waited.
#[test]
fn who_queues_never_waits_for_its_peer() {
    for options in [options(), Options { secret: None, ..certificates::options() }] {
        let options = Options { send_timeout: Duration::from_secs(60), ..options };
        let [near, far] = Tcp(options.clone()).connect([None, None]).unwrap();
        let Connection { mut sender, receiver: _receiver, .. } = near;
        sender.queue_up_to(1 << 20);
        let message = [7; 32 << 10];
        let over = (0..1 << 14).find_map(|_| sender.send(&message).and_then(|()| sender.flush()).err());
        let Some(fabric::Error::Closed { reason: fabric::Reason::Slow { waited }, .. }) = over else {
            panic!("{over:?}")
        };
        assert!(waited < options.send_timeout, "it waited {waited:?}");
        drop(far);
    }
}

/// Set when this is dropped, by a panic too: a thread that waits for it ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// What was queued arrives, whole and in order, while its end does no more than poll.
#[test]
fn what_is_queued_goes_when_its_end_polls() {
    for options in [options(), Options { secret: None, ..certificates::options() }] {
        let [near, far] = Tcp(options).connect([None, None]).unwrap();
        let Connection { mut sender, mut receiver, .. } = near;
        let Connection { receiver: mut there, sender: _kept, .. } = far;
        sender.queue_up_to(usize::MAX - 1);
        let count = 1024_u32;
        for number in 0..count {
            // More than is gathered, and less.
            let len = if number % 16 == 0 { 60 << 10 } else { 12 << 10 };
            let message: Vec<u8> = number.to_le_bytes().into_iter().cycle().take(len).collect();
            sender.send(&message).unwrap();
        }
        sender.flush().unwrap();
        let over = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _over = Over(over);
            scope.spawn(move || {
                while !over.load(Relaxed) {
                    assert_eq!(receiver.poll(Duration::from_millis(5)).unwrap(), None);
                }
            });
            for number in 0..count {
                let event = there.poll(Duration::from_secs(60)).unwrap();
                let Some(fabric::Event::Message(bytes)) = event else { panic!("{event:?}") };
                assert_eq!(bytes[..4], number.to_le_bytes());
            }
        });
    }
}
