//! TCP, with and without TLS, among ends that trust each other and others.

use std::sync::Arc;
use std::time::Duration;

use fabric::conformance::Subject;
use fabric::{Connection, Options, Result, Secret, Window, tcp};

use crate::certificates;

/// Short of patience: a check has a slow peer.
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

/// Who connects, and whom the listener lets in until that is done.
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
        // Who connects may be done first.
        let near = near.join().unwrap();
        (near, far.or_else(|| listener.accept(Duration::from_millis(100)).unwrap()))
    })
}

fabric::conformance!(conforms, Tcp(options()));
fabric::conformance!(conforms_spinning, Tcp(Options { spin: Duration::from_millis(1), ..options() }));
fabric::conformance!(conforms_with_tls, Tcp(Options { secret: None, ..certificates::options() }));
