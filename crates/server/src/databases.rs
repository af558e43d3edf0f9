//! Which database of the store the number of a client leads to. `SWAPDB` exchanges two entries of this map, and moves no key.
//!
//! ```text
//!   SELECT 3 ─> DatabaseMap::of(3) ─> the first byte of a key in the store
//! ```
//!
//! The map stands behind the store's seed, in the same record ([`data`](crate::data)); a store without it has the map that changes no number. A server from before `SWAPDB`
//! refuses a seed that is not 8 bytes long, so it does not serve the databases of a changed map under the wrong numbers.
//!
//! Transactions of clients go by the map in memory. It changes only while the gate is closed ([`remove`](crate::remove)), with a transaction that is alone inside: none of
//! the others runs beside the change, and none has to read the map from the store.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use parking_lot::Mutex;

use crate::data::{DATABASES, StoreRecord, stored};
use crate::engine::{Engine, Error, Result, Tx};

/// What a watched key was: its version and its database of the store; none if it was not there.
pub(crate) type Seen = Option<(u64, u8)>;

/// Of each number of a client the database of the store: four bits each, the lowest those of number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatabaseMap(u64);

const _: () = assert!(DATABASES == 16, "a database is four bits");

impl Default for DatabaseMap {
    /// Each number leads to the database of the same number.
    fn default() -> Self {
        Self(0xfedc_ba98_7654_3210)
    }
}

impl DatabaseMap {
    pub(crate) const BYTES: usize = DATABASES as usize;

    /// The database of the store that a client calls `number`.
    #[inline]
    pub(crate) fn of(self, number: u8) -> u8 {
        (self.0 >> (4 * u32::from(number & 15))) as u8 & 15
    }

    /// What clients call a database of the store.
    pub(crate) fn number_of(self, database: u8) -> u8 {
        (0..DATABASES).find(|number| self.of(*number) == database).unwrap_or(database)
    }

    /// The key in the store of one that has the number of its database in front.
    pub(crate) fn key(self, numbered: &[u8]) -> Vec<u8> {
        let Some((number, key)) = numbered.split_first() else { return Vec::new() };
        stored(self.of(*number), key)
    }

    /// The other way round.
    pub(crate) fn numbered(self, stored_key: &[u8]) -> Vec<u8> {
        let Some((database, key)) = stored_key.split_first() else { return Vec::new() };
        stored(self.number_of(*database), key)
    }

    /// What a key, with the number of its database in front, is at this moment.
    pub(crate) fn seen(self, tx: &dyn Tx, numbered: &[u8]) -> Result<Seen> {
        let key = self.key(numbered);
        Ok(tx.version(&key)?.zip(key.first().copied()))
    }

    /// The two exchanged.
    pub(crate) fn swapped(self, one: u8, other: u8) -> Self {
        let with = |number: u8, database: u8, bits: u64| {
            let shift = 4 * u32::from(number & 15);
            bits & !(15 << shift) | u64::from(database) << shift
        };
        Self(with(other, self.of(one), with(one, self.of(other), self.0)))
    }

    /// None if it is no map in which each database has one number.
    fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let is_a_map = (0..DATABASES).all(|database| bytes.contains(&database));
        is_a_map.then(|| Self(bytes.iter().rev().fold(0, |bits, database| bits << 4 | u64::from(*database))))
    }

    fn write(self) -> [u8; Self::BYTES] {
        std::array::from_fn(|number| self.of(number as u8))
    }
}

/// The map of the store.
pub(crate) fn load(engine: &dyn Engine) -> Result<DatabaseMap> {
    let mut found = Ok(DatabaseMap::default());
    engine.read(&mut |tx| {
        let map = StoreRecord::of(tx)?.and_then(|record| record.map);
        found = map.map_or(Ok(DatabaseMap::default()), |map| DatabaseMap::read(&map).ok_or(()));
        Ok(())
    })?;
    found.map_err(|()| {
        let why = "the map of the databases (behind the seed of the store) is no permutation of 0 to 15; next: cairn kv check, or a backup";
        Error::Damaged(why.to_owned())
    })
}

/// Writes the map; `seed` is that of a store which has not written its own.
pub(crate) fn put(tx: &mut dyn Tx, seed: u64, map: DatabaseMap) -> Result<()> {
    let record = StoreRecord::of(tx)?.unwrap_or(StoreRecord { seed, has_long: false, map: None });
    // Servers from before `SWAPDB` read a store in which every database has its own number again.
    let map = (map != DatabaseMap::default()).then(|| map.write());
    StoreRecord { map, ..record }.put(tx)
}

/// Swaps of a number that are remembered.
const LED: usize = 256;

/// To which databases of the store a number has led.
#[derive(Debug)]
struct Led {
    /// How many are forgotten.
    before: u64,
    last: VecDeque<u8>,
}

/// The map of a server that runs.
#[derive(Debug)]
pub(crate) struct Databases {
    now: AtomicU64,
    /// Of each number, to which databases of the store it has led, the last of them last.
    led: Mutex<[Led; DATABASES as usize]>,
    /// What the transaction that is alone inside the gate has made of it, and whether there is such a transaction.
    next: AtomicU64,
    may_change: AtomicBool,
}

impl Databases {
    pub(crate) fn new(map: DatabaseMap) -> Self {
        let led = std::array::from_fn(|number| Led { before: 0, last: VecDeque::from([map.of(number as u8)]) });
        Self { now: map.0.into(), led: Mutex::new(led), next: map.0.into(), may_change: false.into() }
    }

    /// By which a transaction goes that is inside the gate.
    #[inline]
    pub(crate) fn now(&self) -> DatabaseMap {
        DatabaseMap(self.now.load(SeqCst))
    }

    /// Whether the transaction is alone inside the gate.
    pub(crate) fn may_change(&self) -> bool {
        self.may_change.load(SeqCst)
    }

    /// While the gate is closed: from here on, or no longer.
    pub(crate) fn let_change(&self, may: bool) {
        self.may_change.store(may, SeqCst);
    }

    /// An attempt of the transaction that may change it begins.
    pub(crate) fn begin(&self) {
        self.next.store(self.now.load(SeqCst), SeqCst);
    }

    /// What the attempt makes of it.
    pub(crate) fn change(&self, map: DatabaseMap) {
        self.next.store(map.0, SeqCst);
    }

    /// What the last attempt has made of it.
    pub(crate) fn next(&self) -> DatabaseMap {
        DatabaseMap(self.next.load(SeqCst))
    }

    /// All transactions go by this one from now on.
    pub(crate) fn adopt(&self, map: DatabaseMap) {
        let before = self.now();
        self.now.store(map.0, SeqCst);
        // Counted behind that: a number that is read before the map is never newer than the map.
        let mut led = self.led.lock();
        for (number, led) in (0..).zip(led.iter_mut()).filter(|(number, _)| before.of(*number) != map.of(*number)) {
            led.last.push_back(map.of(number));
            if led.last.len() > LED {
                led.last.pop_front();
                led.before += 1;
            }
        }
    }

    /// How often a number has come to lead to another database.
    pub(crate) fn swaps(&self, number: u8) -> u64 {
        self.led.lock().get(usize::from(number)).map_or(0, |led| led.before + led.last.len() as u64)
    }

    /// Whether a key that was watched when there were so many swaps of its number may be another one since: as in Redis it is, if one of the databases had it.
    pub(crate) fn is_swapped(&self, tx: &dyn Tx, numbered: &[u8], seen: Seen, swaps: u64) -> Result<bool> {
        let Some((number, key)) = numbered.split_first() else { return Ok(false) };
        let databases: BTreeSet<u8> = {
            let led = self.led.lock();
            let Some(Led { before, last }) = led.get(usize::from(*number)) else { return Ok(false) };
            if before + last.len() as u64 == swaps {
                return Ok(false);
            }
            if seen.is_some() || swaps <= *before {
                return Ok(true);
            }
            last.iter().skip((swaps - before - 1) as usize).copied().collect()
        };
        for database in databases {
            if tx.version(&stored(database, key))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swaps_exchange_two_entries() {
        let map = DatabaseMap::default();
        assert!((0..DATABASES).all(|number| map.of(number) == number && map.number_of(number) == number));
        let map = map.swapped(0, 15).swapped(15, 3);
        assert_eq!([map.of(0), map.of(3), map.of(15), map.of(7)], [15, 0, 3, 7]);
        assert_eq!([map.number_of(15), map.number_of(0), map.number_of(3)], [0, 3, 15]);
        assert_eq!((map.key(b"\x03key"), map.numbered(b"\0key")), (b"\0key".to_vec(), b"\x03key".to_vec()));
        assert_eq!(map.swapped(4, 4), map);
        assert_eq!(map.swapped(15, 3).swapped(0, 15), DatabaseMap::default());
    }

    #[test]
    fn swaps_of_a_number_are_counted() {
        let databases = Databases::new(DatabaseMap::default());
        let [zero, two] = [0, 2].map(|number| databases.swaps(number));
        (0..2).for_each(|_| databases.adopt(databases.now().swapped(0, 1)));
        assert_eq!((databases.swaps(0), databases.swaps(1), databases.swaps(2)), (zero + 2, zero + 2, two));
        (0..1000).for_each(|_| databases.adopt(databases.now().swapped(0, 1)));
        assert_eq!(databases.swaps(0), zero + 1002);
        assert!(databases.led.lock().iter().all(|led| led.last.len() <= LED));
    }

    #[test]
    fn maps_are_read_as_they_were_written() {
        let map = DatabaseMap::default().swapped(0, 9).swapped(2, 0);
        assert_eq!(DatabaseMap::read(&map.write()), Some(map));
        let mut twice = map.write();
        twice[1] = twice[0];
        let mut beyond = map.write();
        beyond[5] = DATABASES;
        assert!([&twice[..], &beyond, &map.write()[1..], &[]].iter().all(|bytes| DatabaseMap::read(bytes).is_none()));
    }
}
