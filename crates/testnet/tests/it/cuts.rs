//! What a cut lets through, and what not.

use std::cell::Cell;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use testnet::Net;

use crate::{SILENCE, TIMEOUT};

/// A socket on each host; each sends to each, and `reached[from][to]` is whether it arrived.
struct Pings {
    sockets: Vec<UdpSocket>,
    sent: Cell<u64>,
}

impl Pings {
    fn new(net: &Net) -> Self {
        let socket = |index| {
            let host = net.host(index);
            host.inside(|| UdpSocket::bind((host.addr(), 7)).unwrap()).unwrap()
        };
        Self { sockets: (0..net.len()).map(socket).collect(), sent: Cell::new(0) }
    }

    /// Whether one of the packets sent in this time arrives. The first ones may be lost while addresses are looked up, which is tried again after a
    /// second; one that was late is still there.
    #[expect(clippy::disallowed_methods, reason = "packets take real time")]
    fn arrives(&self, from: usize, to: usize, timeout: Duration) -> bool {
        let (sender, receiver) = (&self.sockets[from], &self.sockets[to]);
        receiver.set_read_timeout(Some(SILENCE)).unwrap();
        let (first, begin) = (self.sent.get(), Instant::now());
        while begin.elapsed() < timeout {
            let number = self.sent.replace(self.sent.get() + 1);
            sender.send_to(&number.to_le_bytes(), receiver.local_addr().unwrap()).unwrap();
            let mut bytes = [0; 8];
            while receiver.recv_from(&mut bytes).is_ok() {
                if (first..=number).contains(&u64::from_le_bytes(bytes)) {
                    return true;
                }
            }
        }
        false
    }

    /// All ways are open but these.
    #[track_caller]
    fn all_arrive_but(&self, cut: &[(usize, usize)]) {
        let hosts = 0..self.sockets.len();
        let pairs = hosts.clone().flat_map(|from| hosts.clone().map(move |to| (from, to)));
        for (from, to) in pairs.filter(|(from, to)| from != to) {
            if cut.contains(&(from, to)) {
                assert!(!self.arrives(from, to, 2 * SILENCE), "{from} reaches {to}, where it is cut off");
            } else {
                assert!(self.arrives(from, to, TIMEOUT), "{from} does not reach {to}");
            }
        }
    }
}

#[test]
fn hosts_reach_each_other_but_where_they_are_cut_off() {
    let Some(net) = Net::or_say_why(3) else { return };
    let pings = Pings::new(&net);
    pings.all_arrive_but(&[]);
    net.cut_one_way(0, 1).unwrap();
    pings.all_arrive_but(&[(0, 1)]);
    net.cut(1, 2).unwrap();
    pings.all_arrive_but(&[(0, 1), (1, 2), (2, 1)]);
    net.heal().unwrap();
    pings.all_arrive_but(&[]);
    net.isolate(2).unwrap();
    pings.all_arrive_but(&[(0, 2), (1, 2), (2, 0), (2, 1)]);
    net.heal().unwrap();
    pings.all_arrive_but(&[]);
}

#[test]
fn the_isolated_still_reach_themselves() {
    let Some(net) = Net::or_say_why(2) else { return };
    net.isolate(0).unwrap();
    let host = net.host(0);
    host.inside(|| {
        let listener = TcpListener::bind((host.addr(), 7000)).unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    })
    .unwrap();
}

#[test]
fn an_open_connection_stalls_and_goes_on() {
    let Some(net) = Net::or_say_why(2) else { return };
    let (one, other) = (net.host(0), net.host(1));
    let listener = one.inside(|| TcpListener::bind((one.addr(), 7000)).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = other.inside(|| TcpStream::connect_timeout(&address, TIMEOUT).unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let mut byte = [0];
    client.write_all(b"1").unwrap();
    server.read_exact(&mut byte).unwrap();

    net.cut(0, 1).unwrap();
    client.write_all(b"2").unwrap();
    server.set_read_timeout(Some(SILENCE)).unwrap();
    let silence = server.read(&mut byte).unwrap_err();
    assert_eq!(silence.kind(), std::io::ErrorKind::WouldBlock);
    let fresh = other.inside(|| TcpStream::connect_timeout(&address, SILENCE)).unwrap().unwrap_err();
    assert_eq!(fresh.kind(), std::io::ErrorKind::TimedOut);

    net.heal().unwrap();
    server.set_read_timeout(Some(TIMEOUT)).unwrap();
    server.read_exact(&mut byte).unwrap();
    assert_eq!(byte, *b"2");
}

#[test]
fn networks_have_nothing_to_do_with_each_other() {
    let (Some(one), Some(other)) = (Net::or_say_why(2), Net::or_say_why(2)) else { return };
    assert_eq!(one.host(0).addr(), other.host(0).addr());
    one.cut(0, 1).unwrap();
    Pings::new(&one).all_arrive_but(&[(0, 1), (1, 0)]);
    Pings::new(&other).all_arrive_but(&[]);
}
