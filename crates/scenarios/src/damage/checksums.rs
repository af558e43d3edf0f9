//! Every checksum of the reference pool, as a place and a way to compute it anew; the formulas are those of `docs/format.md`. That they
//! are the right ones is shown by the reference pool, which rechecksumming does not change.

use pmem::{ChecksumKey, Pool, crc32c};

use super::{Range, put, word};

/// From one header slot to the other, and bytes of the value in one.
const HEADER_SLOT: usize = 4096;
const HEADER_VALUE: usize = 3264;
/// Bytes in front of a typed cell's value.
const TYPE: usize = 8;
/// The kind of the checksums that records keep of bytes outside of the ring.
const OUTSIDE: u32 = 1;
/// Bytes of one slot of a ring's mark, one in front of its records and one behind them, and of a record's header.
const MARK: usize = 64;
const RECORD: usize = 32;
/// From slot to slot of a cell whose slots lie on two pages.
pub(crate) const APART: usize = 4096;

/// One checksum.
pub(crate) enum Checksum {
    /// The last word of a slot, over all before it.
    Slot { range: Range, number: u64, key: ChecksumKey },
    /// The third word of the root line, over the first two.
    Root { at: usize, key: ChecksumKey },
    /// The first word of a ring record.
    Record { at: usize, end: usize, key: ChecksumKey },
    /// The first payload word of a record that makes blocks live, over these.
    Outside { at: usize, blocks: Vec<Range>, key: ChecksumKey },
    /// Header and payload of a checksummed record.
    Checksummed { at: usize, end: usize },
    /// The upper 24 bits of a chunk's table word, and its copy in the second table.
    Chunk { at: usize, twin: usize, number: u64, salt: u64 },
    /// The code of a bitmap word that was used.
    Pair { at: usize, code: usize, id: u64 },
}

impl Checksum {
    /// Makes it fit what stands there.
    pub(crate) fn apply(&self, bytes: &mut [u8]) {
        let len = bytes.len();
        match self {
            Self::Slot { range, number, key } if range.end <= len => {
                let checksum = key.checksum(&bytes[range.start..range.end - 8]) ^ number;
                put(bytes, range.end - 8, checksum);
            }
            Self::Root { at, key } if at + 24 <= len => put(bytes, at + 16, key.checksum(&bytes[*at..at + 16])),
            Self::Record { at, end, key } if *end <= len => {
                let payload = (word(bytes, at + 16) >> 32) as usize & 0x0fff_ffff;
                let checksummed = RECORD + payload.min(end - at - RECORD);
                put(bytes, *at, key.checksum(&bytes[at + 8..at + checksummed]));
            }
            Self::Outside { at, blocks, key } if blocks.iter().all(|b| b.end <= len) => {
                let checksum = key.checksum_each(blocks.iter().map(|b| &bytes[b.clone()]));
                put(bytes, *at, checksum);
            }
            Self::Checksummed { at, end } if *end <= len => {
                let payload = (word(bytes, at + 16) as usize).min(end - at - 32);
                let payload_crc = crc32c(&[&bytes[at + 32..at + 32 + payload]]);
                bytes[at + 24..at + 28].copy_from_slice(&payload_crc.to_le_bytes());
                let header_crc = crc32c(&[&bytes[*at..at + 28]]);
                bytes[at + 28..at + 32].copy_from_slice(&header_crc.to_le_bytes());
            }
            Self::Chunk { at, twin, number, salt } => {
                let low = word(bytes, *at) & 0xff_ffff_ffff;
                if word(bytes, *at) != 0 {
                    put(bytes, *at, low | splitmix(salt ^ number << 40 ^ low) << 40);
                }
                put(bytes, *twin, word(bytes, *at));
            }
            Self::Pair { at, code, id } if (word(bytes, *at), word(bytes, *code)) != (0, 0) => {
                let fits = (word(bytes, *at) ^ id ^ *at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
                put(bytes, *code, fits);
            }
            _ => {} // cut off
        }
    }

    /// What it covers, itself included.
    pub(crate) fn covers(&self) -> Range {
        match self {
            Self::Slot { range, .. } => range.clone(),
            Self::Root { at, .. } => *at..at + 24,
            Self::Record { at, end, .. } => *at..*end,
            Self::Outside { at, .. } => *at..at + 8,
            Self::Checksummed { at, end } => *at..*end,
            Self::Chunk { at, .. } => *at..at + 8,
            Self::Pair { at, .. } => *at..at + 8,
        }
    }

    /// The two copies of the pool header.
    pub(crate) fn header() -> [Self; 2] {
        let key = ChecksumKey::format_1(u64::from_le_bytes(*b"CAIRN\r\n\x1a"), 0);
        [0, 1].map(|n| Self::slot(n * HEADER_SLOT, HEADER_VALUE, n as u64, key.clone()))
    }

    fn slot(at: usize, value: usize, number: u64, key: ChecksumKey) -> Self {
        Self::Slot { range: at..at + value + 16, number, key }
    }

    /// The two slots of a typed cell for values of `value` bytes, a multiple of 8.
    pub(crate) fn cell(pool: &Pool, at: usize, value: usize) -> [Self; 2] {
        Self::cell_apart(pool, at, value, (TYPE + value + 16).next_multiple_of(64))
    }

    /// The same, with slots this far apart.
    pub(crate) fn cell_apart(pool: &Pool, at: usize, value: usize, stride: usize) -> [Self; 2] {
        let key = pool.checksum_key(at as u64);
        [0, 1].map(|n| Self::slot(at + n * stride, TYPE + value, n as u64, key.clone()))
    }

    /// The root line.
    pub(crate) fn root(pool: &Pool, at: usize) -> Self {
        Self::Root { at, key: pool.checksum_key(at as u64) }
    }

    /// The mark and all records, live or not, of the ring in `range`.
    pub(crate) fn ring(pool: &Pool, range: Range, bytes: &[u8]) -> Vec<Self> {
        let Range { start: records, end } = ring_records(&range);
        let mut checksums: Vec<Self> = Self::cell_apart(pool, range.start, 16, end - range.start).into();
        let capacity = (end - records) as u64;
        let key = pool.checksum_key(records as u64);
        for position in (0..capacity).step_by(64) {
            let at = records + position as usize;
            if word(bytes, at) != 0 && word(bytes, at + 8) % capacity == position {
                checksums.push(Self::Record { at, end: records + capacity as usize, key: key.clone() });
            }
        }
        checksums
    }

    /// The checksum that the record at `at` of the ring in `ring` keeps of these blocks.
    pub(crate) fn outside(pool: &Pool, ring: &Range, at: usize, blocks: Vec<Range>) -> Self {
        Self::Outside { at: at + RECORD, blocks, key: pool.checksum_key((ring.start + MARK) as u64).of_kind(OUTSIDE) }
    }

    /// Table words and bitmap pairs of a heap extent of `chunks` chunks of 4 KiB.
    pub(crate) fn heap(pool: &Pool, at: usize, chunks: usize) -> Vec<Self> {
        let (salt, id) = (pool.id() ^ at as u64, pool.id());
        let Tables { bits, codes, twin, .. } = Tables::new(at, chunks);
        let table =
            (0..chunks).map(|n| Self::Chunk { at: at + n * 8, twin: twin.start + n * 8, number: n as u64, salt });
        let pair = |n| Self::Pair { at: bits.start + n * 8, code: codes.start + n * 8, id };
        table.chain((0..chunks * 4).map(pair)).collect()
    }
}

/// Where a ring has its records.
pub(crate) fn ring_records(ring: &Range) -> Range {
    ring.start + MARK..ring.start + ring.len() / 64 * 64 - MARK
}

/// Where a heap extent of chunks of 4 KiB has what.
pub(crate) struct Tables {
    pub(crate) table: Range,
    pub(crate) bits: Range,
    pub(crate) codes: Range,
    pub(crate) twin: Range,
    pub(crate) chunks: usize,
}

impl Tables {
    pub(crate) fn new(at: usize, chunks: usize) -> Self {
        let table = at..at + (chunks * 8).next_multiple_of(64);
        let bits = table.end..table.end + chunks * 32;
        let codes = bits.end.next_multiple_of(4096);
        let codes = codes..codes + chunks * 32;
        let twin = codes.end.next_multiple_of(64);
        let twin = twin..twin + table.len();
        Self { table, bits, codes, chunks: twin.end.next_multiple_of(4096), twin }
    }
}

/// SplitMix64, as `docs/format.md` gives it.
fn splitmix(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
