//! A proxy on the way that sees, and may change, what travels.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

pub(crate) struct Proxy {
    listener: TcpListener,
    to: SocketAddr,
}

/// What is done with bytes before they go on.
type Change<'a> = &'a (dyn Fn(&mut Vec<u8>) + Sync);

impl Proxy {
    pub(crate) fn to(to: SocketAddr) -> Self {
        Self { listener: TcpListener::bind("localhost:0").unwrap(), to }
    }

    pub(crate) fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    /// Forwards one connection until it ends.
    pub(crate) fn forward(&self, there: Change<'_>, back: Change<'_>) {
        let near = self.listener.accept().unwrap().0;
        let far = TcpStream::connect(self.to).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| pass(&near, &far, there));
            scope.spawn(|| pass(&far, &near, back));
        });
    }
}

fn pass(mut from: &TcpStream, mut to: &TcpStream, change: Change<'_>) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        let mut piece = bytes[..len].to_vec();
        change(&mut piece);
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
