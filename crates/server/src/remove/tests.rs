use std::collections::{BTreeMap, BTreeSet};

use tx::Keys;

use super::record::Recording;
use super::run::{decode, encode};
use super::sieve::Known;
use super::*;
use crate::engine::Visit;

/// A transaction of which there are only pairs.
#[derive(Default)]
pub(crate) struct Pairs(BTreeMap<Vec<u8>, Vec<u8>>);

impl Pairs {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Tx for Pairs {
    fn get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        Ok(self.0.get(key).map(Vec::as_slice))
    }
    fn put(&mut self, key: &[u8], value: &[u8], _: Option<u64>) -> Result<()> {
        self.0.insert(key.to_vec(), value.to_vec());
        Ok(())
    }
    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.0.remove(key).is_some())
    }
    fn expires(&self, _: &[u8]) -> Result<Option<u64>> {
        Ok(None)
    }
    fn version(&self, _: &[u8]) -> Result<Option<u64>> {
        Ok(None)
    }
    fn scan(&self, keys: Keys, visit: Visit<'_>) -> Result<()> {
        let mut pairs: Vec<_> = self.0.iter().filter(|(key, _)| keys.contains(key)).collect();
        if keys.reverse {
            pairs.reverse();
        }
        let _ = pairs.into_iter().try_for_each(|(key, value)| visit(key, value));
        Ok(())
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }

    /// One that others are beginnings of, or nearly.
    fn key(&mut self) -> Vec<u8> {
        let area = [0, 1, 15, 0xf0][self.below(4) as usize];
        let alphabet = [0, 1, b'a', b'b', 254, 255];
        std::iter::once(area).chain((0..self.below(5)).map(|_| alphabet[self.below(6) as usize])).collect()
    }
}

fn value(random: &mut Random, id: u64) -> Vec<u8> {
    match random.below(3) {
        // A head, of a collection with this id.
        0 => [&b"h"[..], &id.to_be_bytes(), &[0; 24]].concat(),
        _ => b"s".to_vec(),
    }
}

fn element(id: u64, n: u8) -> Vec<u8> {
    [&[0xf0], &id.to_be_bytes()[..], &[n]].concat()
}

/// Whatever is deleted among whatever stays: the steps do what the transaction would, after any restart.
#[test]
fn steps_come_to_what_the_transaction_does() {
    let mut noted = [0, 0];
    for seed in 0..3000 {
        let mut random = Random(seed);
        let mut pairs = Pairs(BTreeMap::new());
        let most = [12, 40, 120][random.below(3) as usize];
        for id in 0..1 + random.below(most) {
            let (key, value) = (random.key(), value(&mut random, id));
            pairs.0.insert(key, value);
        }
        let (mut changes, mut expected, mut abandoned) = (Changes::default(), pairs.0.clone(), Vec::new());
        let all: Vec<_> = pairs.0.clone().into_iter().collect();
        for (key, value) in &all {
            if random.below(3) == 0 {
                continue;
            }
            if let Some(head) = head(key, value).filter(|_| random.below(3) == 0) {
                // It is overwritten: its elements go, those that this transaction has set, too.
                let put = random.below(2) == 0;
                (0..3).for_each(|n| drop(pairs.0.insert(element(head.id, n), b"old".to_vec())));
                changes.0.insert(element(head.id, 9), put.then(|| (b"own".to_vec(), None)));
                changes.0.insert(garbage(head.id), Some((Vec::new(), None)));
                changes.0.insert(key.clone(), Some((b"new".to_vec(), None)));
                expected.insert(key.clone(), b"new".to_vec());
                continue;
            }
            changes.0.insert(key.clone(), None);
            expected.remove(key);
            if let Some(head) = head(key, value).filter(|_| random.below(2) == 0) {
                (0..3).for_each(|n| drop(pairs.0.insert(element(head.id, n), b"old".to_vec())));
                changes.0.insert(garbage(head.id), Some((Vec::new(), None)));
                abandoned.push(head.id);
            }
        }
        for _ in 0..random.below(4) {
            let key = random.key();
            if pairs.0.get(&key).is_some_and(|value| head(&key, value).is_some()) {
                continue;
            }
            changes.0.insert(key.clone(), Some((b"new".to_vec(), None)));
            expected.insert(key, b"new".to_vec());
        }
        // They are noted to have no owner, or go.
        let elements = random.below(4) == 0;
        for id in abandoned.into_iter().filter(|_| !elements) {
            expected.insert(garbage(id), Vec::new());
            (0..3).for_each(|n| drop(expected.insert(element(id, n), b"old".to_vec())));
        }
        changes.take_in_elements(&pairs, elements).unwrap();
        let plan = Plan::of(&pairs, &changes, seed).unwrap();
        plan.runs.iter().for_each(|run| noted[usize::from(run.sieve.is_some())] += 1);
        let gone: BTreeSet<_> = changes.deleted().map(<[u8]>::to_vec).filter(|key| pairs.0.contains_key(key)).collect();
        assert_eq!(plan.sizes.iter().map(|size| size.0.clone()).collect::<BTreeSet<_>>(), gone, "seed {seed}");
        let runs = decode(&encode(&plan.runs)).unwrap();
        assert_eq!(runs, plan.runs, "seed {seed}");
        // As the first step does.
        plan.garbage.iter().for_each(|id| drop(changes.0.remove(&garbage(*id))));
        for (key, put) in &changes.0 {
            if let Some((value, expires)) = put {
                pairs.put(key, value, *expires).unwrap();
            }
        }
        // A reader that looks meanwhile sees what it will.
        let hidden = Hidden { runs: runs.clone() };
        let begun = Position { run: random.below(runs.len() as u64 + 1) as usize, last: None };
        let (mut position, mut most) = (begun, 1 + random.below(if most > 40 { 40 } else { 4 }) as usize);
        for again in [false, true] {
            loop {
                let clients = |pairs: &BTreeMap<Vec<u8>, Vec<u8>>| -> Vec<_> {
                    pairs
                        .iter()
                        .filter(|(key, _)| key[0] != GARBAGE)
                        .map(|(key, value)| (key.clone(), value.clone()))
                        .collect()
                };
                assert_eq!(
                    seen(&Hiding::new(&mut pairs, &hidden), Keys::prefix(&[]).until(&[GARBAGE])),
                    clients(&expected),
                    "seed {seed}: {runs:?}"
                );
                if position.is_end(&runs) {
                    break;
                }
                position = step(&mut pairs, &runs, position, most).unwrap();
                most = (most / 2).max(1 + pairs.0.len() / 20);
            }
            position = if again { position } else { Position::default() };
        }
        assert_eq!(pairs.0, expected, "seed {seed}: {runs:?}");
    }
    assert!(noted.iter().all(|count| *count > 300), "{noted:?} runs, and sieves");
}

#[test]
fn neighbours_are_one_run_and_others_take_few_bytes() {
    let mut pairs = Pairs(BTreeMap::new());
    for n in 0..10_000u64 {
        let name = crate::data::name_hash(1, &n.to_be_bytes());
        pairs.0.insert([&[0xf0], &7u64.to_be_bytes()[..], &name, &[b'x'; 100]].concat(), Vec::new());
    }
    let deleted =
        |step: usize| -> Changes { Changes(pairs.0.keys().step_by(step).map(|key| (key.clone(), None)).collect()) };
    let planned = |step: usize| Plan::of(&pairs, &deleted(step), 1).unwrap().runs;
    assert_eq!(planned(1).len(), 1);
    assert!(planned(1)[0].sieve.is_none());
    // Few among many.
    let (runs, note) = (planned(100), encode(&planned(100)));
    assert_eq!((runs.len(), note.len() < 8 * 100), (100, true), "{} bytes", note.len());
    // Every other one.
    let (runs, note) = (planned(2), encode(&planned(2)));
    assert_eq!((runs.len(), note.len() < 10_000 / 8 * 13 / 10 + 300), (1, true), "{} bytes", note.len());
    assert_eq!(decode(&note).unwrap(), runs);
}

#[test]
fn what_is_no_note_is_told() {
    let runs = [Run::new(vec![0, 5], Some(vec![0, 5, 0]), true), Run::new(vec![0, 6], None, false)];
    let note = encode(&runs);
    assert_eq!(decode(&note).as_deref(), Some(&runs[..]));
    for len in 1..note.len() {
        assert!(decode(&note[..len]).is_none_or(|runs| runs.len() == 1), "{len}");
    }
    assert!(decode(&[0, 0]).is_none() && decode(&[255; 9]).is_none());
    let mut known = Known::new(7);
    (0..100_u8).for_each(|n| known.add(&[0, n], (n % 2 == 0).then_some(n % 3 == 0)));
    let sieve = Some(known.sieve().unwrap().into());
    let runs = [Run { sieve, ..Run::new(vec![0, 5], Some(vec![0, 99]), false) }];
    let note = encode(&runs);
    assert_eq!(decode(&note).as_deref(), Some(&runs[..]));
    (1..note.len()).for_each(|len| assert!(decode(&note[..len]).is_none(), "{len}"));
}

fn seen(tx: &dyn Tx, keys: Keys) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut seen = Vec::new();
    tx.scan(keys, &mut |key, value| {
        seen.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })
    .unwrap();
    for (key, value) in &seen {
        assert_eq!(tx.get(key), Ok(Some(&value[..])));
    }
    seen
}

/// Whatever a transaction does that is recorded only, it sees what it would see.
#[test]
fn a_recorded_transaction_sees_what_it_does() {
    for seed in 0..2000 {
        let mut random = Random(seed);
        let mut pairs = Pairs(BTreeMap::new());
        for _ in 0..random.below(20) {
            pairs.0.insert(random.key(), random.below(100).to_be_bytes().to_vec());
        }
        let (before, mut expected) = (pairs.0.clone(), Pairs(pairs.0.clone()));
        let mut recording = Recording::new(&pairs, 50);
        for _ in 0..random.below(30) {
            let key = match random.below(2) {
                0 => random.key(),
                _ => before.keys().nth(random.below(20) as usize).cloned().unwrap_or_default(),
            };
            match random.below(4) {
                0 => assert_eq!(recording.delete(&key), expected.delete(&key), "seed {seed}"),
                1 => {
                    let value = random.below(100).to_be_bytes();
                    recording.put(&key, &value, Some(51)).unwrap();
                    expected.put(&key, &value, None).unwrap();
                }
                // It has expired.
                2 => {
                    recording.put(&key, b"", Some(50)).unwrap();
                    expected.delete(&key).unwrap();
                }
                _ => assert_eq!(recording.get(&key), expected.get(&key), "seed {seed}"),
            }
            let mut keys = Keys::from(&random.key());
            if random.below(2) == 0 {
                keys = keys.until(&random.key());
            }
            if random.below(2) == 0 {
                keys = keys.reverse();
            }
            let (mut own, mut others) = (seen(&recording, keys.clone()), seen(&expected, keys.clone()));
            assert_eq!(own, others, "seed {seed}: {keys:?}");
            // As far as a reader looks.
            let most = random.below(4) as usize;
            for (tx, some) in [(&recording as &dyn Tx, &mut own), (&expected, &mut others)] {
                some.clear();
                tx.scan(keys.clone(), &mut |key, value| {
                    some.push((key.to_vec(), value.to_vec()));
                    if some.len() > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })
                .unwrap();
            }
            assert_eq!(own, others, "seed {seed}: {keys:?}, {most} of them");
        }
        assert_eq!(pairs.0, before);
    }
}
