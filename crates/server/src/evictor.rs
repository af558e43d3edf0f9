//! What a server knows of its keys to choose which of them go: when or how often they were used, as far as the policy asks for it, and where the hand is.

mod uses;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use parking_lot::Mutex;

use self::uses::{Frequency, Uses};
use crate::clock::now;
use crate::config::{By, Eviction, Settings};
use crate::data::Key;
use crate::form::{Form, flag};
use crate::random::Random;
use crate::request::Arguments;

/// Of the keys that were passed lately so many are remembered, and one of so many is.
const KEPT: usize = 1024;
const OF: u64 = 8;

/// What a server knows to choose keys that go.
pub(crate) struct Evictor {
    uses: Uses,
    /// What of uses is noted: nothing, moments, or counts.
    notes: AtomicU32,
    /// How counts grow and fall: see [`Frequency`].
    log_factor: AtomicU32,
    decay_minutes: AtomicU32,
    pub(crate) evicted: AtomicU64,
    /// Times that room was made.
    pub(crate) rounds: AtomicU64,
    /// Held by the thread that makes room.
    pub(crate) hand: Mutex<Hand>,
    /// Moments are counted from then on.
    began: u64,
}

/// Milliseconds of a moment: 32 bits of them are 13 years.
const MOMENT: u64 = 100;
/// The moment at which it began: a key can be told that it was used up to a year before that.
const BEGAN: u32 = (365 * 86_400 * 1000 / MOMENT) as u32;

/// The key that was passed last, and what was seen of others.
#[derive(Default)]
pub(crate) struct Hand {
    pub(crate) last: Vec<u8>,
    pub(crate) policy: Eviction,
    /// Worths of some that stayed.
    pub(crate) seen: Vec<u64>,
    /// Until when it is not worth a look, in milliseconds of Unix time.
    pub(crate) rests_until: u64,
}

impl Hand {
    pub(crate) fn see(&mut self, worth: u64, random: u64) {
        if self.seen.len() < KEPT {
            self.seen.push(worth);
        } else if random.is_multiple_of(OF) {
            self.seen[(random / OF) as usize % KEPT] = worth;
        }
    }

    /// Not above this are about one of so many.
    pub(crate) fn low(&self, samples: usize) -> u64 {
        let mut seen = self.seen.clone();
        let at = seen.len() / samples;
        if at < seen.len() { *seen.select_nth_unstable(at).1 } else { u64::MAX }
    }
}

const NOTHING: u32 = 0;
const MOMENTS: u32 = 1;
const COUNTS: u32 = 2;

impl Evictor {
    pub(crate) fn new(seed: u64, settings: &Settings) -> Self {
        let this = Self {
            uses: Uses::new(seed),
            notes: NOTHING.into(),
            log_factor: 0.into(),
            decay_minutes: 0.into(),
            evicted: 0.into(),
            rounds: 0.into(),
            hand: Mutex::default(),
            began: now() - 1000,
        };
        this.set(settings);
        this
    }

    /// From now on uses are noted as this asks for.
    pub(crate) fn set(&self, settings: &Settings) {
        self.log_factor.store(settings.lfu_log_factor, Relaxed);
        self.decay_minutes.store(settings.lfu_decay_minutes, Relaxed);
        let notes = match settings.eviction.by() {
            Some(By::Lru) => MOMENTS,
            Some(By::Lfu) => COUNTS,
            _ => NOTHING,
        };
        if self.notes.swap(notes, Relaxed) != notes {
            self.uses.clear();
            if notes != NOTHING {
                self.uses.grow(0);
            }
        }
    }

    /// Whether uses are noted.
    #[inline]
    pub(crate) fn notes(&self) -> bool {
        self.notes.load(Relaxed) != NOTHING
    }

    /// Keys that a command has named were used.
    #[cold]
    pub(crate) fn note(&self, random: &Random, command: &Form, args: &Arguments<'_>, db: u8, now: u64) {
        // These only tell of a key.
        let tells = ["exists", "object", "ttl", "pttl", "expiretime", "pexpiretime", "type"].contains(&command.name);
        if !tells && command.is(flag::READ | flag::WRITE) {
            let writes = command.is(flag::WRITE);
            command.keys(args).into_iter().for_each(|key| self.note_key(random, &Key::new(db, key), writes, now));
        }
    }

    /// A key, as it is in the store, was read or written.
    pub(crate) fn note_key(&self, random: &Random, key: &[u8], writes: bool, now: u64) {
        match self.notes.load(Relaxed) {
            MOMENTS => self.uses.note_moment(key, self.moment(now)),
            COUNTS => self.uses.note_use(key, writes, minute(now), random.next(), self.frequency()),
            _ => {}
        }
    }

    fn frequency(&self) -> Frequency {
        Frequency { log_factor: self.log_factor.load(Relaxed), decay_minutes: self.decay_minutes.load(Relaxed) }
    }

    fn moment(&self, now: u64) -> u32 {
        let since = u32::try_from(now.saturating_sub(self.began) / MOMENT).unwrap_or(u32::MAX);
        since.saturating_add(BEGAN)
    }

    /// When a key was used last, as far as that is known.
    fn used(&self, key: &[u8]) -> u32 {
        let moment = self.uses.moment(key);
        if moment == 0 { BEGAN } else { moment }
    }

    /// A key that was put there was not used for so many seconds, or is used so often: what of it this policy goes by is noted.
    pub(crate) fn set_use(&self, key: &[u8], idle: Option<u64>, frequency: Option<u8>, now: u64) {
        match (self.notes.load(Relaxed), idle, frequency) {
            (MOMENTS, Some(seconds), _) => {
                let ago = u32::try_from(seconds.saturating_mul(1000 / MOMENT)).unwrap_or(u32::MAX);
                self.uses.note_moment(key, self.moment(now).saturating_sub(ago).max(1));
            }
            (COUNTS, _, Some(count)) => self.uses.set_count(key, count, minute(now)),
            _ => {}
        }
    }

    /// There are so many keys.
    pub(crate) fn grow(&self, keys: u64) {
        self.uses.grow(keys);
    }

    /// A key is gone.
    pub(crate) fn forget(&self, key: &[u8]) {
        self.uses.forget(key);
    }

    /// For how many seconds a key was not used; since the server began to note that if it was not.
    pub(crate) fn idle_seconds(&self, key: &[u8], now: u64) -> Option<u32> {
        let noted = self.notes.load(Relaxed) == MOMENTS;
        noted.then(|| self.moment(now).saturating_sub(self.used(key)) / (1000 / MOMENT) as u32)
    }

    /// How often a key is used.
    pub(crate) fn count(&self, key: &[u8], now: u64) -> Option<u32> {
        let noted = self.notes.load(Relaxed) == COUNTS;
        noted.then(|| self.uses.count(key, minute(now), self.frequency()))
    }

    /// The less, the sooner it goes.
    pub(crate) fn worth(&self, random: &Random, policy: Eviction, key: &[u8], expires: Option<u64>, now: u64) -> u64 {
        match policy.by() {
            Some(By::Lru) => self.used(key).into(),
            Some(By::Lfu) => self.count(key, now).unwrap_or(0).into(),
            Some(By::Random) => random.next(),
            None => expires.unwrap_or(u64::MAX),
        }
    }
}

fn minute(now: u64) -> u32 {
    (now / 60_000) as u32
}
