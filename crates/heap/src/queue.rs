//! The order in which transactions that met conflicts get their objects.
//!
//! A transaction never waits while it holds locks: it is rolled back first, so there is no deadlock. But a writer would never get an object whose readers come and go.
//! So a thread that runs a transaction again takes a number, and marks each object that its transactions met a conflict at. Marked objects are entered in the order of
//! the numbers, and not without a number; a transaction that has the lock already goes on. The thread keeps its number and its places until it has committed, or gives up.
//! It follows that
//!
//! * no transaction that comes after the mark gets the object first: the thread waits for the transactions that hold it then, and for threads with smaller numbers;
//! * the thread with the smallest number meets a conflict at each of its objects once at most, if all its attempts use the same ones.
//!
//! Three exceptions. A mark that is made in the very moment in which a writer gives its lock up may be lost; the thread looks again, and makes it once more. A thread that
//! has another transaction open passes marks, since the thread that made the mark may wait for just that. And a thread whose object is not given up for a second lets all
//! others pass before it takes a new number: the holder may wait for one of them, in some way that is not seen here.

use std::cell::Cell;
use std::time::Duration;

use pmem::sync::{Mutex, is_scheduled, park_while, unpark, wait_point};
use tx::Waited;

use crate::lock::{self, State};
use crate::raw::Word;

/// Objects at which one thread keeps its place.
const AWAITED_MAX: usize = 64;
/// Looks in vain, one after the other, before a thread lets others pass.
const IN_VAIN_MAX: u32 = 100;

thread_local! {
    /// The object of this thread's last conflict, and whether it was to be written: so [`Queue::wait`] knows what to wait for. Of no use but that.
    static MET: Cell<(usize, bool)> = const { Cell::new((0, false)) };
}

#[derive(Default)]
pub(crate) struct Queue(Mutex<Row>);

#[derive(Default)]
struct Row {
    /// In the order of their numbers.
    threads: Vec<Waiting>,
}

struct Waiting {
    thread: usize,
    awaited: Vec<Awaited>,
    in_vain: u32,
}

struct Awaited {
    word: Word,
    /// To write: no other thread enters until it is over.
    write: bool,
    /// It reads by now: those behind may, too.
    entered: bool,
}

impl Row {
    /// The thread whose turn it is.
    fn next(&self, word: Word) -> Option<usize> {
        let waits = |one: &Awaited| one.word == word && (one.write || !one.entered);
        self.threads.iter().find(|waiting| waiting.awaited.iter().any(waits)).map(|waiting| waiting.thread)
    }

    fn has(&self, word: Word) -> bool {
        self.threads.iter().flat_map(|waiting| &waiting.awaited).any(|one| one.word == word)
    }
}

impl Queue {
    /// Notes what [`wait`](Self::wait) is to wait for.
    pub(crate) fn met(word: Word, write: bool) {
        MET.set((word.id(), write));
    }

    /// Whether the calling thread, which does not hold it, may have a marked object's lock.
    #[cold]
    pub(crate) fn may_enter(&self, word: Word) -> bool {
        let row = self.0.lock();
        if !row.has(word) {
            lock::unmark(word.get()); // put back by a writer that had seen it
        }
        row.next(word).is_none_or(|thread| thread == pmem::thread_number())
    }

    /// The calling thread reads a marked object.
    #[cold]
    pub(crate) fn entered(&self, word: Word) {
        let thread = pmem::thread_number();
        let mut row = self.0.lock();
        let awaited = row.threads.iter_mut().filter(|waiting| waiting.thread == thread).flat_map(|w| &mut w.awaited);
        awaited.filter(|one| one.word == word).for_each(|one| one.entered = true);
        drop(row);
        unpark(word.id());
    }

    /// As [`tx::Queue::wait`].
    pub(crate) fn wait(&self, word: Word, most: Duration) -> Waited {
        let thread = pmem::thread_number();
        let write = MET.get() != (word.id(), false);
        {
            let mut row = self.0.lock();
            let at = row.threads.iter().position(|waiting| waiting.thread == thread).unwrap_or_else(|| {
                row.threads.push(Waiting { thread, awaited: Vec::new(), in_vain: 0 });
                row.threads.len() - 1
            });
            let awaited = &mut row.threads[at].awaited;
            match awaited.iter().position(|one| one.word == word) {
                Some(at) => awaited[at].write |= write,
                None if awaited.len() < AWAITED_MAX => awaited.push(Awaited { word, write, entered: false }),
                None => {}
            }
            for one in awaited {
                one.entered = false;
                lock::mark(one.word.get());
            }
        }
        if is_scheduled() {
            wait_point();
            return Waited::Woken;
        }
        let ready = || {
            let free = match lock::load(word.get()) {
                State::Writer(_) => false,
                State::Shared(readers) | State::Pending(_, readers) => readers == 0 || !write,
            };
            free && self.0.lock().next(word).is_none_or(|next| next == thread)
        };
        if park_while(word.id(), most, || !ready()) {
            self.looked(thread, |in_vain| *in_vain = 0);
            return Waited::Woken;
        }
        if self.looked(thread, |in_vain| *in_vain += 1) >= IN_VAIN_MAX {
            self.leave();
            park_while(word.id(), most, || !ready());
        }
        Waited::InVain
    }

    fn looked(&self, thread: usize, note: impl FnOnce(&mut u32)) -> u32 {
        let mut row = self.0.lock();
        let Some(waiting) = row.threads.iter_mut().find(|waiting| waiting.thread == thread) else { return 0 };
        note(&mut waiting.in_vain);
        waiting.in_vain
    }

    /// As [`tx::Queue::leave`].
    pub(crate) fn leave(&self) {
        let thread = pmem::thread_number();
        let mut row = self.0.lock();
        let Some(at) = row.threads.iter().position(|waiting| waiting.thread == thread) else { return };
        let awaited = row.threads.remove(at).awaited;
        for one in awaited.iter().filter(|one| !row.has(one.word)) {
            lock::unmark(one.word.get());
        }
        drop(row);
        awaited.iter().for_each(|one| unpark(one.word.id()));
    }
}
