//! Keys: how long they are, their hash, and those that are the store's own.

/// Longest key.
pub const KEY_MAX: usize = 64 << 10;
/// Longest value.
pub const VALUE_MAX: usize = 1 << 30;

/// Of a key: for the index and the locks. Neither secret nor on media but for fourteen bits, which only make look-ups faster.
#[inline]
pub(crate) fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// Begins the keys under which the types of tables are kept. No table has an empty name, so none has these keys.
pub(crate) const RECORDS: &[u8] = b"\0types\0";
