//! A process starts on what its medium has.
//!
//! | found | a member that is the head | another member | no member |
//! |---|---|---|---|
//! | records without a gap | carried out again, in flight again | carried out again | voided |
//! | records behind a gap | kept: the gap is filled by skips, its numbers were drawn and lost | erased: they are sent again | voided |
//! | a copy that is not whole | not possible: it has an id that no view names | | erased |

use super::{Covers, Replica, Status};
use crate::failpoints::Step;
use crate::locks::Locks;
use crate::queue::Queue;
use crate::{Command, Entry, Number, Record};

impl Replica {
    /// The view is known, and this is a member.
    pub(super) fn recover(&mut self) {
        let Status::Starting(found) = std::mem::replace(&mut self.status, Status::Recovering) else { return };
        let Some(view) = self.view.clone() else { return };
        let retired = self.queue.retired();
        let mut found: std::collections::BTreeMap<u64, Entry> =
            found.into_iter().filter(|entry| entry.number.n > retired).map(|entry| (entry.number.n, entry)).collect();
        let is_head = view.head() == Some(self.id);
        let end = found.last_key_value().map_or(retired, |(&last, _)| last);
        for n in retired + 1..=end {
            match found.remove(&n) {
                Some(entry) => self.queue.push(entry, false),
                // What is behind it is of transactions that this one did not touch, and committed.
                None if is_head => {
                    let entry = Entry::skip(Number { view: view.id, n });
                    self.queue.push(entry.clone(), false);
                    self.out.push(Command::Append(Record { entry, bytes: Vec::new() }));
                }
                None => break,
            }
        }
        if !is_head && !self.failpoints.skips(Step::EraseBehindGap) {
            self.out.push(Command::Truncate(self.queue.last()));
        }
        if self.failpoints.skips(Step::PersistRecovery) {
            self.redo();
        } else {
            self.persist(Covers::Found);
        }
    }

    /// Here as ever: what is carried out in place, or sent, is persistent in the queue before. What was found may stand in a cache alone, and the decision that follows from it
    /// does.
    pub(super) fn redo(&mut self) {
        let first = self.queue.retired() + 1;
        let last = if self.failpoints.skips(Step::ExecuteAgain) { first - 1 } else { self.queue.last() };
        self.out.push(Command::Recover { first, last });
    }

    /// It is a member again.
    pub(super) fn has_recovered(&mut self) {
        if !matches!(self.status, Status::Recovering) {
            return;
        }
        let (first, last) = (self.queue.retired() + 1, self.queue.last());
        self.queue.set_persistent_through(last);
        (first..=last).for_each(|n| self.queue.set_executed(n));
        if self.failpoints.skips(Step::KeepInRecovery) {
            self.queue.retire(last);
            self.retiring = last;
            self.out.push(Command::Retire(last));
        }
        self.persist(Covers::Effects);
        self.install(false);
    }

    pub(super) fn forget_everything(&mut self) {
        self.queue = Queue::new(0);
        self.locks = Locks::new(self.failpoints);
        self.barriers.clear();
        self.reads.clear();
        self.executing = None;
        self.proposed = None;
        self.join = None;
        (self.sent, self.applying, self.applied, self.retiring, self.read_from) = (0, 0, 0, 0, 0);
    }

    pub(super) fn restart_from(&mut self, through: u64) {
        self.queue = Queue::new(through);
        (self.sent, self.applying, self.applied, self.retiring) = (through, through, through, through);
    }
}
