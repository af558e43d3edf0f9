//! A server whose thread a test holds, so that what clients send meanwhile is found at one time.

use std::net::TcpStream;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use pmem::DomainChoice;
use server::{Config, Server};

use crate::support::{Client, Reply, Store, WAIT_LIMIT, scarce, start, told, usual};

/// A server with one thread, which the test can hold in a commit, and in which there is no room for the key `full`.
pub struct Held {
    server: Option<Server>,
    holds: Arc<AtomicBool>,
    changed: Arc<AtomicUsize>,
    entered: Receiver<()>,
    release: Sender<()>,
    _dir: tempfile::TempDir,
}

impl Held {
    pub fn start(store: Store) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let domain = if store == Store::Slow { DomainChoice::File } else { DomainChoice::Emulated };
        let engine = store.open(dir.path().join("store"), pmem::Options::new().domain(domain));
        let ((enter, entered), (release, released)) = (channel(), channel::<()>());
        let (holds, changed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (hold, count, ends) = (holds.clone(), changed.clone(), Mutex::new((enter, released)));
        let at_commit = Box::new(move || {
            count.fetch_add(1, SeqCst);
            if hold.swap(false, SeqCst) {
                let (enter, released) = &*ends.lock().unwrap();
                enter.send(()).unwrap();
                released.recv_timeout(WAIT_LIMIT).unwrap();
            }
        });
        let engine = told(scarce(engine, Box::new(|key, _, _| key.ends_with(b"full"))), at_commit);
        let config = Config { threads: 1, memcached: vec!["127.0.0.1:0".parse().unwrap()], ..usual() };
        Self { server: Some(start(None, config, engine)), holds, changed, entered, release, _dir: dir }
    }

    pub fn client(&self) -> Client {
        Client::to(self.server.as_ref().unwrap().redis()[0])
    }

    pub fn memcached(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.as_ref().unwrap().memcached()[0]).unwrap();
        stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        stream
    }

    /// How many transactions have changed something.
    pub fn changed(&self) -> usize {
        self.changed.load(SeqCst)
    }

    /// A transaction of another client is about to be committed meanwhile.
    pub fn during(&self, request: &[u8], run: impl FnOnce()) {
        let mut holder = self.client();
        self.hold_next();
        holder.send(request);
        self.held(run);
        assert_eq!(holder.reply(), Reply::ok());
    }

    /// The next transaction that has changed something is held before it is committed,
    pub fn hold_next(&self) {
        self.holds.store(true, SeqCst);
    }

    /// and is meanwhile.
    pub fn held(&self, run: impl FnOnce()) {
        self.entered.recv_timeout(WAIT_LIMIT).unwrap();
        run();
        self.release.send(()).unwrap();
    }

    /// The gate is closed meanwhile: two databases exchange their numbers.
    pub fn closed(&self, run: impl FnOnce()) {
        self.during(b"SWAPDB 1 2\r\n", run);
    }

    /// The thread has looked at all that was sent: it looks at every connection in each round.
    pub fn looked(&self) {
        let mut client = self.client();
        (0..100).for_each(|_| assert_eq!(client.say("PING"), Reply::Simple("PONG".to_owned())));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
            assert!(server.join().is_ok() || std::thread::panicking());
        }
    }
}
