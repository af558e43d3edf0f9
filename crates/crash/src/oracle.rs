//! What the program has promised: operations acknowledged as durable, and those a crash may still take.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Names one operation between its beginning and its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use = "an operation that is never committed stays in doubt"]
pub struct Ticket(u64);

/// Takes the program's promises down. Shared by its threads.
#[derive(Debug)]
pub struct Ack<E> {
    book: Mutex<Book<E>>,
    version: AtomicU64,
}

#[derive(Debug)]
struct Book<E> {
    acknowledged: Vec<E>,
    open: Vec<(Ticket, E)>,
    next: u64,
}

impl<E> Default for Ack<E> {
    fn default() -> Self {
        Self {
            book: Mutex::new(Book { acknowledged: Vec::new(), open: Vec::new(), next: 0 }),
            version: AtomicU64::new(0),
        }
    }
}

impl<E: Clone> Ack<E> {
    /// Before the first store of an operation: from here on a crash may show this effect, whole or not at all.
    pub fn begin(&self, effect: E) -> Ticket {
        let mut book = self.book.lock();
        let ticket = Ticket(book.next);
        book.next += 1;
        book.open.push((ticket, effect));
        self.version.fetch_add(1, Ordering::Relaxed);
        ticket
    }

    /// The operation is durable: every crash from here on must show it.
    pub fn commit(&self, ticket: Ticket) {
        if let Some(effect) = self.close(ticket) {
            self.book.lock().acknowledged.push(effect);
        }
    }

    /// The operation has no effect, and no crash from here on may show it.
    pub fn abort(&self, ticket: Ticket) {
        self.close(ticket);
    }

    fn close(&self, ticket: Ticket) -> Option<E> {
        let mut book = self.book.lock();
        self.version.fetch_add(1, Ordering::Relaxed);
        let at = book.open.iter().position(|(t, _)| *t == ticket)?;
        Some(book.open.remove(at).1)
    }

    /// Moves with every promise.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    pub(crate) fn history(&self) -> History<E> {
        let book = self.book.lock();
        History {
            acknowledged: book.acknowledged.clone(),
            in_doubt: book.open.iter().map(|(_, effect)| effect.clone()).collect(),
        }
    }
}

/// What a recovered state is held against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History<E> {
    /// Must all be there. In the order of their acknowledgement.
    pub acknowledged: Vec<E>,
    /// Each may be there whole, or not at all. In the order of their beginning.
    pub in_doubt: Vec<E>,
}

impl<E: PartialEq + std::fmt::Debug> History<E> {
    /// For structures that keep an order (logs, queues): what survived must be all that was acknowledged, in order,
    /// followed by a prefix of what is in doubt.
    ///
    /// ```
    /// let history = crash::History { acknowledged: vec![1, 2], in_doubt: vec![3, 4] };
    /// assert!(history.check_prefix(&[1, 2, 3]).is_ok());
    /// assert!(history.check_prefix(&[1, 2, 4]).is_err());
    /// assert!(history.check_prefix(&[1]).is_err());
    /// ```
    ///
    /// # Errors
    /// A violation that says what is missing or too much.
    pub fn check_prefix(&self, survived: &[E]) -> Result<(), crate::Violation> {
        let expected = self.acknowledged.iter().chain(&self.in_doubt);
        if survived.len() < self.acknowledged.len() {
            let missing = &self.acknowledged[survived.len()];
            return Err(crate::Violation::new(format!(
                "acknowledged and lost: {missing:?}; {} of {} acknowledged operations survived",
                survived.len(),
                self.acknowledged.len()
            )));
        }
        for (at, (found, expected)) in survived.iter().zip(expected).enumerate() {
            if found != expected {
                return Err(crate::Violation::new(format!("at position {at} stands {found:?}, expected {expected:?}")));
            }
        }
        let most = self.acknowledged.len() + self.in_doubt.len();
        if survived.len() > most {
            return Err(crate::Violation::new(format!("{:?} was never written", survived[most])));
        }
        Ok(())
    }
}
