//! libfabric's providers that need no hardware.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fabric::libfabric::{Endpoint, Listener, Provider, connect};
use fabric::{Connection, Error, Options, Result, Secret, Window};
use fabric_conformance::Subject;

use crate::tcp::options;

struct Fabric {
    provider: Provider,
    options: Options,
    /// Windows do not say where they are.
    hidden: bool,
}

impl Fabric {
    fn new(provider: &str) -> Self {
        Self { provider: Provider::new(provider), options: options(), hidden: false }
    }
}

impl Subject for Fabric {
    fn connect(&self, windows: [Option<Arc<dyn Window>>; 2]) -> Result<[Connection; 2]> {
        let [a, b] = windows.map(|window| match window {
            Some(window) if self.hidden => Some(Arc::new(Hidden(window)) as Arc<dyn Window>),
            other => other,
        });
        let mut listener = Listener::bind("127.0.0.1:0", self.options.clone(), self.provider.clone(), b)?;
        let address = listener.address()?.to_string();
        std::thread::scope(|scope| {
            let near = scope.spawn(|| connect(&address, &self.options, &self.provider, a));
            let far = listener.accept(Duration::from_secs(10))?.expect("nobody came");
            Ok([near.join().unwrap()?, far])
        })
    }
}

/// A window that no device reaches.
struct Hidden(Arc<dyn Window>);

impl Window for Hidden {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write(offset, bytes)
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, into)
    }
}

fabric_conformance::conformance!(tcp_conforms, Fabric::new("tcp"));
fabric_conformance::conformance!(
    tcp_conforms_spinning,
    Fabric { options: Options { spin: Duration::from_millis(1), ..options() }, ..Fabric::new("tcp") }
);
fabric_conformance::conformance!(tcp_conforms_by_software, Fabric { hidden: true, ..Fabric::new("tcp") });
fabric_conformance::conformance!(
    tcp_conforms_without_order,
    Fabric { provider: Provider { wait_for_each: true, ..Provider::new("tcp") }, ..Fabric::new("tcp") }
);
fabric_conformance::conformance!(
    tcp_datagrams_conform,
    Fabric {
        provider: Provider { endpoint: Endpoint::Datagram, node: Some("127.0.0.1".into()), ..Provider::new("tcp") },
        ..Fabric::new("tcp")
    }
);

#[test]
fn a_provider_that_is_not_there_is_said_so() {
    let bound = Listener::bind("127.0.0.1:0", options(), Provider::new("no such"), None);
    assert!(matches!(bound, Err(Error::Provider { .. })));
    let connected = Provider { endpoint: Endpoint::Connected, ..Provider::new("shm") };
    assert!(matches!(Listener::bind("127.0.0.1:0", options(), connected, None), Err(Error::Provider { .. })));
}

/// A process with itself, by shm; an end of one provider with one of another.
#[test]
fn ends_that_do_not_fit_are_told_so() {
    for (near, far) in [("shm", "shm"), ("tcp", "shm"), ("shm", "tcp")] {
        let mut listener = Listener::bind("127.0.0.1:0", options(), Provider::new(far), None).unwrap();
        let address = listener.address().unwrap().to_string();
        std::thread::scope(|scope| {
            let near = scope.spawn(move || connect(&address, &options(), &Provider::new(near), None));
            assert!(listener.accept(Duration::from_millis(700)).unwrap().is_none());
            let found = near.join().unwrap();
            assert!(matches!(found, Err(Error::Unreachable { .. })), "{found:?}");
        });
    }
}

/// A listener lets no peer to its endpoint that does not know the secret.
#[test]
fn strangers_are_not_let_in() {
    let mut listener = Listener::bind("127.0.0.1:0", options(), Provider::new("tcp"), None).unwrap();
    let address = listener.address().unwrap().to_string();
    std::thread::scope(|scope| {
        let stranger = Options { secret: Some(Secret::new(&[3; 16]).unwrap()), ..options() };
        let near = scope.spawn(move || connect(&address, &stranger, &Provider::new("tcp"), None));
        assert!(listener.accept(Duration::from_millis(300)).unwrap().is_none());
        assert!(matches!(near.join().unwrap(), Err(Error::NotTrusted { .. })));
    });
}
