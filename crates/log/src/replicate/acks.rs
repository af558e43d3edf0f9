//! The thread that hears the replicas: one that waits for them anyway. A thread of its own would be woken for each acknowledgement, and wake the one that waits:
//! two switches where one is enough, and where processors are few these are most of what a further replica costs.
//!
//! All receivers are one thing, the *ears*. A thread that has to wait takes them if they are there, waits for the replicas itself, and goes on when it has heard enough; one that
//! finds them taken sleeps, and is woken by the thread that hears. While no thread waits, a thread of its own takes them now and then: so connections that end,
//! leaders that are shut out, and acknowledgements of what was only posted, are heard.
//!
//! No thread sleeps over what it waits for. Whenever the group's lock is free, of each sleeper that was not woken what it waits for is not there, and one of
//! these is true:
//!
//! * A thread has the ears. A thread that gives them back, or has news, does so with the lock held, and wakes the sleepers that it concerns.
//! * A sleeper was called to take them, and has not looked yet. It looks with the lock held: takes them, or calls another.
//! * It waits for the leader's own image alone, or no replica lacks anything, but that does. The thread that flushes it is awake, and has news.

use std::thread::Thread;
use std::time::Duration;

use fabric::{Event, Receiver};
use parking_lot::{Condvar, Mutex};

use super::group::{Group, Lacking, Until};
use crate::failpoints::Step;

#[cfg(test)]
mod tests;

/// Events of one replica before the next has its turn.
const EVENTS_MAX: usize = 256;

/// The receiver of one replica.
struct Ear {
    peer: usize,
    receiver: Box<dyn Receiver>,
    /// It is waited for; others are looked at when it has something.
    awaited: bool,
}

/// The receivers of all replicas: with the thread that hears.
#[derive(Default)]
pub(super) struct Ears(Vec<Ear>);

impl Ears {
    /// Chooses the replicas to wait for: those that were sent to last, which answer last. False if no replica lacks anything.
    fn choose(&mut self, group: &Group, until: Until) -> bool {
        let Some(Lacking { through, mut heard }) = group.lacking(until) else { return false };
        for ear in self.0.iter_mut().rev() {
            ear.awaited = heard > 0 && group.is_behind(ear.peer, through);
            heard -= usize::from(ear.awaited);
        }
        true
    }

    fn choose_all(&mut self) {
        self.0.iter_mut().for_each(|ear| ear.awaited = true);
    }

    /// Waits until one that was chosen may have something, no longer than that, and tells what any of them brings. Whether there was anything.
    pub(super) fn hear(&mut self, wait: Duration, mut tell: impl FnMut(usize, Event)) -> bool {
        let awaited = self.0.iter_mut().filter(|ear| ear.awaited).map(|ear| &mut *ear.receiver as &mut dyn Receiver);
        let ready = fabric::wait(awaited, wait);
        let (mut nth, mut heard) = (0, false);
        self.0.retain_mut(|ear| {
            if ear.awaited {
                nth += 1;
                // Where the system could not wait, all are looked at.
                if ready.as_ref().is_ok_and(|ready| !ready.has(nth - 1)) {
                    return true;
                }
            }
            for _ in 0..EVENTS_MAX {
                match ear.receiver.poll(Duration::ZERO) {
                    Ok(None) => return true,
                    Ok(Some(event)) => {
                        let over = matches!(event, Event::Closed(_));
                        heard = true;
                        tell(ear.peer, event);
                        if over {
                            return false;
                        }
                    }
                    Err(_) => return false, // it was said by an event
                }
            }
            true
        });
        heard
    }
}

/// How a sleeper was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// It was not.
    No,
    /// What it waits for may be there.
    News,
    /// To take the ears.
    Called,
}

struct Sleeper {
    number: u64,
    until: Until,
    thread: Thread,
    woken: Woken,
}

/// Whose turn it is to hear. Locked behind the group, or alone.
#[derive(Default)]
struct Turn {
    /// None while a thread has them.
    ears: Option<Ears>,
    /// Came while a thread had them.
    joined: Vec<Ear>,
    sleepers: Vec<Sleeper>,
    next: u64,
}

impl Turn {
    fn take(&mut self) -> Option<Ears> {
        let mut ears = self.ears.take()?;
        ears.0.append(&mut self.joined);
        Some(ears)
    }

    /// If no thread has the ears, or will: calls a sleeper that a replica keeps waiting, to take them.
    fn call(&mut self, group: &Group) {
        let is_heard = self.ears.is_none() || self.sleepers.iter().any(|s| s.woken == Woken::Called);
        if is_heard || group.skips(Step::HandOn) {
            return;
        }
        let waits = |s: &&mut Sleeper| s.woken == Woken::No && group.lacking(s.until).is_some();
        if let Some(sleeper) = self.sleepers.iter_mut().find(waits) {
            sleeper.woken = Woken::Called;
            sleeper.thread.unpark();
        }
    }
}

/// With it, what threads wait at that wait for a moment only.
pub(super) struct Acks(Mutex<Turn>, Condvar);

/// What a thread that waits is to do.
pub(super) enum Part {
    Hear(Ears),
    /// Until it is woken, or for a while; and then to say that it is [up](Acks::up), by this number.
    Sleep(u64),
}

impl Acks {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Turn { ears: Some(Ears::default()), ..Turn::default() }), Condvar::new())
    }

    /// One more replica.
    pub(super) fn add(&self, peer: usize, receiver: Box<dyn Receiver>) {
        self.0.lock().joined.push(Ear { peer, receiver, awaited: false });
    }

    /// The ears, if no thread has them, chosen all.
    pub(super) fn take(&self) -> Option<Ears> {
        let mut ears = self.0.lock().take()?;
        ears.choose_all();
        Some(ears)
    }

    /// This thread waits for what is not there. The caller holds the group's lock, here and below.
    pub(super) fn wait(&self, group: &Group, until: Until) -> Part {
        let mut turn = self.0.lock();
        if let Some(mut ears) = turn.take() {
            if ears.choose(group, until) {
                return Part::Hear(ears);
            }
            turn.ears = Some(ears);
        }
        turn.next += 1;
        let number = turn.next;
        turn.sleepers.push(Sleeper { number, until, thread: std::thread::current(), woken: Woken::No });
        Part::Sleep(number)
    }

    /// A sleeper is awake, and by whom. If it was called, it waits again, or calls another.
    pub(super) fn up(&self, _: &Group, number: u64) -> Woken {
        let mut turn = self.0.lock();
        let at = turn.sleepers.iter().position(|s| s.number == number);
        at.map_or(Woken::No, |at| turn.sleepers.swap_remove(at).woken)
    }

    /// The thread that has the ears goes on hearing: false if nothing is missing that a replica says.
    pub(super) fn go_on(&self, group: &Group, ears: &mut Ears, until: Until) -> bool {
        ears.0.append(&mut self.0.lock().joined);
        ears.choose(group, until)
    }

    pub(super) fn give_back(&self, group: &Group, ears: Ears) {
        let mut turn = self.0.lock();
        turn.ears = Some(ears);
        turn.call(group);
        self.heard();
    }

    /// A thread has heard a replica, or has stopped hearing them.
    pub(super) fn heard(&self) {
        self.1.notify_all();
    }

    /// Sleeps while another thread hears the replicas, until it has heard something, and no longer than that.
    pub(super) fn pause(&self, limit: Duration) {
        let mut turn = self.0.lock();
        if turn.ears.is_none() {
            self.1.wait_for(&mut turn, limit);
        }
    }

    /// If no thread has the ears, a sleeper takes them.
    pub(super) fn call(&self, group: &Group) {
        self.0.lock().call(group);
    }

    /// Wakes all sleepers for which it is there.
    pub(super) fn news(&self, group: &Group, is_there: impl Fn(Until) -> bool) {
        if group.skips(Step::TellNews) {
            return;
        }
        self.heard();
        for sleeper in &mut self.0.lock().sleepers {
            if sleeper.woken == Woken::No && is_there(sleeper.until) {
                sleeper.woken = Woken::News;
                sleeper.thread.unpark();
            }
        }
    }

    /// Sleepers that sleep over something, and how many there are in all.
    #[cfg(test)]
    pub(super) fn overlooked(&self, group: &Group, is_there: impl Fn(Until) -> bool) -> (usize, usize) {
        let turn = self.0.lock();
        let awaited = turn.ears.is_none() || turn.sleepers.iter().any(|s| s.woken == Woken::Called);
        let asleep = turn.sleepers.iter().filter(|s| s.woken == Woken::No);
        let over = asleep.filter(|s| is_there(s.until) || !awaited && group.lacking(s.until).is_some()).count();
        (over, turn.sleepers.len())
    }
}
