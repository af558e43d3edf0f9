//! Where connections come to a thread's reactor, and what each has there.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Wake, Waker};

use parking_lot::Mutex;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use crate::client::Client;
use crate::job::Parts;
use crate::line::{Line, Socket};
use crate::request::Parser;
use crate::thread::Present;

/// Where connections come to a thread's reactor.
pub(crate) struct Desk {
    pub(super) epoll: AsyncFd<Rc<OwnedFd>>,
    came: RefCell<Vec<Came>>,
    bell: Arc<Bell>,
}

pub(super) enum Came {
    New(Socket, Arc<Client>, Present),
    Back(Box<ConnSlot>),
    /// The connection of that slot has ended in a task.
    Left(usize),
}

/// Rung from anywhere.
#[derive(Default)]
struct Bell {
    notify: Notify,
    /// Slots whose connections are to end.
    ended: Mutex<Vec<usize>>,
}

/// Wakes the reactor, and says for which slot.
struct Ring(Arc<Bell>, usize);

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        self.0.ended.lock().push(self.1);
        self.0.notify.notify_one();
    }
}

/// A connection.
pub(super) struct ConnSlot {
    pub(super) at: usize,
    pub(super) line: Line,
    pub(super) client: Arc<Client>,
    pub(super) parser: Parser,
    /// None while a job or a future has them.
    pub(super) parts: Option<Parts>,
    /// Something may have come that is not read.
    pub(super) readable: bool,
    /// It has come to its end, which is seen behind what came before.
    pub(super) hung: bool,
    /// There may be requests that were read and not yet looked at.
    pub(super) full: bool,
    /// It takes part in the next round; and the last one that it took part in.
    pub(super) queued: bool,
    pub(super) round: u64,
    pub(super) _present: Present,
}

pub(super) enum Entry {
    Free,
    /// A task has the connection.
    Away,
    Taken(Box<ConnSlot>),
}

impl Desk {
    /// Of this thread, which must run a `LocalSet`.
    #[expect(deprecated, reason = "it asks for a descriptor that stays the same and open, which this one does")]
    pub(crate) fn open() -> io::Result<Rc<Self>> {
        let epoll = Rc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let epoll = AsyncFd::with_interest(epoll, tokio::io::Interest::READABLE)?;
        Ok(Rc::new(Self { epoll, came: RefCell::default(), bell: Arc::default() }))
    }

    pub(crate) fn slot(&self, socket: Socket, client: Arc<Client>, present: Present) {
        self.come(Came::New(socket, client, present));
    }

    /// Wakes the reactor when the connection in that slot is to end.
    pub(super) fn ring(&self, at: usize) -> Waker {
        Waker::from(Arc::new(Ring(self.bell.clone(), at)))
    }

    /// What came since this was asked last.
    pub(super) fn take_who_came(&self) -> Vec<Came> {
        std::mem::take(&mut *self.came.borrow_mut())
    }

    /// The slots whose connections were told to end since this was asked last.
    pub(super) fn take_ended(&self) -> Vec<usize> {
        std::mem::take(&mut *self.bell.ended.lock())
    }

    fn come(&self, came: Came) {
        self.came.borrow_mut().push(came);
        self.bell.notify.notify_one();
    }

    /// Until something is to be done.
    pub(super) async fn wait(&self) {
        tokio::select! {
            biased;
            ready = self.epoll.readable() => {
                // Before it is looked: what comes behind that is heard of again.
                if let Ok(mut ready) = ready {
                    ready.clear_ready();
                }
            }
            () = self.bell.notify.notified() => {}
        }
    }
}

/// A connection that leaves a task comes this way.
pub(super) struct Way(pub(crate) Rc<Desk>, pub(crate) Option<Came>);

impl Drop for Way {
    fn drop(&mut self) {
        if let Some(came) = self.1.take() {
            self.0.come(came);
        }
    }
}
