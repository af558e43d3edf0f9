//! Which peers are let in, and what strangers get.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::Duration;

use fabric::{Connection, Error, Event, Options, Result, Secret, Tls, tcp};

use crate::certificates::{self, certificates};
use crate::proxy::Proxy;
use crate::tcp::{meet, options};

fn secret(bytes: &[u8]) -> Options {
    Options { secret: Some(Secret::new(bytes).unwrap()), ..options() }
}

fn nobody_but(anyone: bool) -> Options {
    Options { secret: None, anyone, ..options() }
}

/// Both ends with their options: what the end that connects gets, and whether the other was let in.
fn try_to_meet(near: &Options, far: &Options, host: Option<&str>) -> (Result<Connection>, bool) {
    let mut listener = tcp::Listener::bind("localhost:0", far.clone(), None).unwrap();
    let port = listener.address().unwrap().port();
    let (found, let_in) = meet(&mut listener, |address| {
        let other = host.map(|host| format!("{host}:{port}"));
        tcp::connect(other.as_deref().unwrap_or(address), near, None)
    });
    assert_eq!(listener.refused(), u64::from(let_in.is_none()));
    (found, let_in.is_some())
}

fn refused(near: &Options, far: &Options) {
    let (found, let_in) = try_to_meet(near, far, None);
    assert!(!let_in, "a stranger is let in");
    // An end that connects under TLS 1.3 may find itself connected before it is refused; it gets nothing then.
    assert!(matches!(found, Err(Error::NotTrusted { .. })), "{found:?}");
}

fn let_in(near: &Options, far: &Options) {
    let (found, let_in) = try_to_meet(near, far, None);
    assert!(let_in && found.is_ok(), "{found:?}");
}

#[test]
fn the_same_secret_lets_in_and_another_does_not() {
    let_in(&secret(b"0123456789abcdef"), &secret(b"0123456789abcdef"));
    refused(&secret(b"0123456789abcdef"), &secret(b"0123456789abcdeF"));
    refused(&secret(b"0123456789abcdef"), &secret(b"0123456789abcdef0"));
    refused(&nobody_but(true), &options());
    refused(&options(), &nobody_but(true));
    let_in(&nobody_but(true), &nobody_but(true));
}

#[test]
fn options_without_trust_are_refused() {
    assert!(matches!(Secret::new(b"guess me"), Err(Error::WeakSecret { len: 8, .. })));
    assert!(matches!(tcp::Listener::bind("localhost:0", nobody_but(false), None), Err(Error::NoTrust)));
    assert!(matches!(tcp::connect("localhost:1", &nobody_but(false), None), Err(Error::NoTrust)));
    assert_eq!(format!("{:?}", Secret::new(b"0123456789abcdef").unwrap()), "Secret(..)");
}

#[test]
fn certificates_of_one_root_let_in_and_others_do_not() {
    let made = certificates();
    let with = |chain: &(Vec<u8>, Vec<u8>), root: &[u8]| Options {
        tls: Some(Tls::from_pem(&chain.0, &chain.1, root).unwrap()),
        ..nobody_but(false)
    };
    let ours = with(&made.ours, &made.root);
    let_in(&ours, &ours);
    // A stranger that trusts us, one that we would trust, and one that wants no certificates.
    refused(&with(&made.strangers, &made.root), &ours);
    refused(&ours, &with(&made.strangers, &made.root));
    refused(&with(&made.ours, &made.strangers_root), &ours);
    refused(&nobody_but(true), &ours);
    refused(&ours, &nobody_but(true));
    // Right certificate, wrong host.
    let (found, let_in) = try_to_meet(&ours, &ours, Some("127.0.0.1"));
    assert!(!let_in && matches!(found, Err(Error::NotTrusted { .. })), "{found:?}");
}

#[test]
fn both_a_secret_and_certificates_must_be_right() {
    let both = certificates::options();
    let_in(&both, &both);
    refused(&Options { secret: None, ..both.clone() }, &both);
    refused(&Options { secret: Some(Secret::new(&[7; 32]).unwrap()), ..both.clone() }, &both);
    refused(&Options { tls: None, ..both.clone() }, &both);
}

#[test]
fn files_that_are_no_certificates_are_refused() {
    let made = certificates();
    for (chain, key, root) in [
        (&b""[..], &made.ours.1[..], &made.root[..]),
        (&made.ours.0, b"nothing", &made.root),
        (&made.ours.0, &made.ours.1, b""),
        (&made.ours.0, &made.strangers.1, &made.root),
    ] {
        assert!(matches!(Tls::from_pem(chain, key, root), Err(Error::Tls { .. })));
    }
}

/// A stranger gets 32 random bytes, and those only for 32 of its own.
#[test]
fn a_stranger_gets_nothing() {
    let mut listener = tcp::Listener::bind("localhost:0", options(), None).unwrap();
    let (said, let_in) = meet(&mut listener, |address| {
        let mut stranger = TcpStream::connect(address).unwrap();
        stranger.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut bytes = [0; 100];
        assert!(stranger.read(&mut bytes).is_err(), "it speaks first");
        stranger.write_all(&[1; 32]).unwrap();
        stranger.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stranger.read_exact(&mut bytes[..32]).unwrap();
        stranger.write_all(&[2; 32]).unwrap();
        let mut rest = Vec::new();
        let _ = stranger.read_to_end(&mut rest);
        rest
    });
    assert_eq!(said, []);
    assert!(let_in.is_none());
    assert_eq!(listener.refused(), 1);
}

/// Many that say nothing keep no other peer out, and are given up.
#[test]
fn silent_strangers_are_bounded_in_number_and_time() {
    let patient = Options { half_open_max: 4, greeting_timeout: Duration::from_millis(300), ..options() };
    let mut listener = tcp::Listener::bind("localhost:0", patient, None).unwrap();
    let port = listener.address().unwrap().port();
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(("localhost", port)).unwrap()).collect();
    let (near, far) = meet(&mut listener, |address| tcp::connect(address, &options(), None));
    assert!(near.is_ok() && far.is_some());
    assert!(listener.refused() >= 16, "{}", listener.refused());
    assert!(listener.accept(Duration::from_secs(2)).unwrap().is_none());
    assert_eq!(listener.refused(), 20);
    for mut stranger in silent {
        assert!(!matches!(stranger.read(&mut [0; 1]), Ok(1..)), "something was said");
    }
}

/// Many of one address keep no peer of another out that was there before and takes a while.
#[test]
fn a_flood_from_one_address_gives_up_its_own() {
    use rustix::net::{AddressFamily, SocketAddrV4, SocketType, bind, connect, socket};
    use std::net::Ipv4Addr;
    let few = Options { half_open_max: 4, ..options() };
    let mut listener = tcp::Listener::bind("127.0.0.1:0", few, None).unwrap();
    let port = listener.address().unwrap().port();
    let other = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&other, &SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 2), 0)).unwrap();
    connect(&other, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).unwrap();
    let mut other = TcpStream::from(other);
    assert!(listener.accept(Duration::ZERO).unwrap().is_none());
    let _flood: Vec<_> = (0..20).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    assert!(listener.accept(Duration::from_millis(20)).unwrap().is_none());
    assert!(listener.refused() >= 17, "{}", listener.refused());
    other.set_nonblocking(true).unwrap();
    let mut greeting = [0; 256];
    let open = (0..).find_map(|_| match other.read(&mut greeting) {
        Ok(0) => Some(false),
        Ok(_) => None,
        Err(error) => Some(error.kind() == std::io::ErrorKind::WouldBlock),
    });
    assert_eq!(open, Some(true), "it was given up for the flood");
}

/// An end that connects to something that never answers is told so.
#[test]
fn a_silent_listener_is_given_up() {
    let silent = std::net::TcpListener::bind("localhost:0").unwrap();
    let address = format!("localhost:{}", silent.local_addr().unwrap().port());
    let hurried = Options { greeting_timeout: Duration::from_millis(100), ..options() };
    assert!(matches!(tcp::connect(&address, &hurried, None), Err(Error::Unreachable { .. })));
    drop(silent);
    assert!(matches!(tcp::connect(&address, &hurried, None), Err(Error::Unreachable { .. })));
    assert!(matches!(tcp::connect("no such host:1", &hurried, None), Err(Error::Unreachable { .. })));
}

/// What travels, with TLS and without.
#[test]
fn with_tls_nobody_on_the_way_reads_along() {
    for tls in [true, false] {
        let options = if tls { certificates::options() } else { options() };
        let mut listener = tcp::Listener::bind("localhost:0", options.clone(), None).unwrap();
        let seen = Mutex::new(Vec::new());
        let proxy = Proxy::to(listener.address().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| proxy.forward(&|bytes| seen.lock().unwrap().extend_from_slice(bytes), &|_| {}));
            let near = scope.spawn(|| tcp::connect(&format!("localhost:{}", proxy.port()), &options, None).unwrap());
            let mut far = listener.accept(Duration::from_secs(20)).unwrap().unwrap();
            let mut near = near.join().unwrap();
            near.sender.send(b"seventeen apples").unwrap();
            near.sender.flush().unwrap();
            let told = far.receiver.poll(Duration::from_secs(20)).unwrap();
            assert_eq!(told, Some(Event::Message(b"seventeen apples".to_vec())));
        });
        let seen = seen.into_inner().unwrap();
        assert_eq!(seen.windows(16).any(|bytes| bytes == b"seventeen apples"), !tls);
    }
}
