//! Ways in which bytes go wrong.

use crash::Rng;

use super::reference::Reference;
use super::{put, word};

const LINE: usize = 64;
const PAGE: usize = 4096;

/// One change of a pool's bytes. Places behind the end change nothing.
#[derive(Clone, Copy, Debug)]
pub enum Mutation {
    /// One bit, counted from the start of the file, is inverted.
    Flip(usize),
    /// A byte gets a value.
    Byte(usize, u8),
    /// An aligned word gets a value.
    Word(usize, u64),
    /// An aligned word is increased.
    Add(usize, u64),
    /// Two aligned words change places.
    Swap(usize, usize),
    /// The line at the second place is written to the first too.
    CopyLine(usize, usize),
    /// A line reads as zeros.
    ZeroLine(usize),
    /// A page reads as zeros.
    ZeroPage(usize),
    /// The file gets this length, a multiple of 8.
    Len(usize),
}

impl Mutation {
    /// Longest file that is judged.
    pub const LEN_MAX: usize = super::contents::CAPACITY;

    /// A mutation by chance, three times in four of a place that a checksum covers.
    pub fn random(rng: &mut Rng, reference: &Reference) -> Self {
        let len = reference.bytes().len();
        match rng.below(20) {
            0..=4 => Self::Flip(offset(rng, reference) * 8 + rng.index(8)),
            5 | 6 => Self::Byte(offset(rng, reference), [0, 1, 0x7f, 0x80, 0xff][rng.index(5)]),
            7..=10 => Self::Word(offset(rng, reference), reference.interesting(rng)),
            11 | 12 => {
                Self::Add(offset(rng, reference), [1u64, 8, 64, 4096, 1 << 32][rng.index(5)].wrapping_mul(sign(rng)))
            }
            13 | 14 => Self::Swap(offset(rng, reference), offset(rng, reference)),
            15 | 16 => Self::CopyLine(offset(rng, reference), offset(rng, reference)),
            17 => Self::ZeroLine(offset(rng, reference)),
            18 => Self::ZeroPage(offset(rng, reference)),
            _ => {
                let page = rng.index(2 * len / PAGE) * PAGE;
                Self::Len(if rng.chance(1, 2) { page } else { page + rng.index(PAGE / 8) * 8 })
            }
        }
    }

    /// A mutation as a fuzzer writes it, taken off the front of `input`; `None` at its end.
    pub fn parse(input: &mut &[u8], reference: &Reference) -> Option<Self> {
        let (head, rest) = input.split_first_chunk::<4>()?;
        let kind = head[0];
        let at = u32::from_le_bytes([head[1], head[2], head[3], 0]) as usize;
        let (tail, rest) = match kind % 9 {
            1..=5 => rest.split_first_chunk::<8>().map(|(w, rest)| (u64::from_le_bytes(*w), rest))?,
            _ => (0, rest),
        };
        *input = rest;
        let at = if kind >= 128 { reference.hot_place(at) } else { at };
        Some(match kind % 9 {
            0 => Self::Flip(at * 8 + usize::from(kind) / 9 % 8),
            1 => Self::Byte(at, tail as u8),
            2 => Self::Word(at, tail),
            3 => Self::Add(at, tail),
            4 => Self::Swap(at, tail as u32 as usize),
            5 => Self::CopyLine(at, tail as u32 as usize),
            6 => Self::ZeroLine(at),
            7 => Self::ZeroPage(at),
            _ => Self::Len(at),
        })
    }

    /// Does it.
    pub fn apply(self, bytes: &mut Vec<u8>) {
        let down = |at: usize, to: usize| at / to * to;
        match self {
            Self::Flip(bit) => {
                if let Some(b) = bytes.get_mut(bit / 8) {
                    *b ^= 1 << (bit % 8);
                }
            }
            Self::Byte(at, value) => {
                if let Some(b) = bytes.get_mut(at) {
                    *b = value;
                }
            }
            Self::Word(at, value) => put(bytes, down(at, 8), value),
            Self::Add(at, by) => {
                let old = word(bytes, down(at, 8));
                put(bytes, down(at, 8), old.wrapping_add(by));
            }
            Self::Swap(a, b) => {
                let (a, b) = (down(a, 8), down(b, 8));
                if a.max(b) + 8 <= bytes.len() {
                    let (x, y) = (word(bytes, a), word(bytes, b));
                    put(bytes, a, y);
                    put(bytes, b, x);
                }
            }
            Self::CopyLine(to, from) => {
                let (to, from) = (down(to, LINE), down(from, LINE));
                if to.max(from) + LINE <= bytes.len() {
                    bytes.copy_within(from..from + LINE, to);
                }
            }
            Self::ZeroLine(at) => zero(bytes, down(at, LINE), LINE),
            Self::ZeroPage(at) => zero(bytes, down(at, PAGE), PAGE),
            Self::Len(len) => bytes.resize(down(len.min(Self::LEN_MAX), 8), 0),
        }
    }
}

fn zero(bytes: &mut [u8], at: usize, len: usize) {
    let end = (at + len).min(bytes.len());
    if at < end {
        bytes[at..end].fill(0);
    }
}

fn sign(rng: &mut Rng) -> u64 {
    if rng.chance(1, 2) { 1 } else { u64::MAX }
}

fn offset(rng: &mut Rng, reference: &Reference) -> usize {
    if rng.chance(3, 4) { reference.hot_place(rng.bits() as usize >> 1) } else { rng.index(reference.bytes().len()) }
}
