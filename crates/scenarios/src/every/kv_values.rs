//! What a store holds under a few keys, for the workload of its operations and for its check.

use std::collections::BTreeMap;

use kv::Table;

/// Commits of a log for one watermark.
pub(super) const WATERMARK: u32 = 2;
pub(super) const KEYS: u8 = 4;
/// When it has expired.
pub(super) const PAST: u64 = 1;

/// A value: which, how long, and when it expires.
pub(super) type Value = (u64, usize, Option<u64>);
pub(super) type Values = BTreeMap<u8, Value>;

/// What a commit changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect(pub(super) BTreeMap<u8, Option<Value>>);

impl Effect {
    pub(super) fn apply(&self, values: &mut Values) {
        for (&key, value) in &self.0 {
            match value {
                Some(value) => drop(values.insert(key, *value)),
                None => drop(values.remove(&key)),
            }
        }
    }
}

pub(super) fn bytes((n, len, _): Value) -> Vec<u8> {
    n.to_le_bytes().iter().copied().chain((0..len).map(|at| (n as usize * 31 + at) as u8)).take(len.max(8)).collect()
}

pub(super) fn is_live(value: &Value) -> bool {
    value.2 != Some(PAST)
}

pub(super) fn table() -> kv::Result<Table<(u32, u32), [u8]>> {
    Table::new("t")
}

/// As a key of the table.
pub(super) fn of(n: u8) -> (u32, u32) {
    (u32::from(n) / 2, u32::from(n) % 2)
}

pub(super) fn key(n: u8) -> kv::Result<Vec<u8>> {
    Ok(table()?.raw_key(&of(n)))
}

pub(super) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

pub(super) fn pairs(scan: kv::Scan<'_>) -> kv::Result<Pairs> {
    let is_entry = |pair: &kv::Result<(&[u8], &[u8])>| !matches!(pair, Ok((key, _)) if key.starts_with(TYPES));
    scan.filter(is_entry).map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
}

/// Keys under which the store keeps what types a table has.
pub(super) const TYPES: &[u8] = b"\0types\0";
