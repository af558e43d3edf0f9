//! A sketch of a set in the bytes of a string, as Redis lays it out, byte by byte.
//!
//! ```text
//!   "HYLL", encoding (1), 0 0 0, cardinality (8, little-endian; its highest bit says that it is out of date), registers
//!
//!   dense    16384 registers of six bits, lowest bits first
//!   sparse   runs of registers:  00llllll            l + 1 of them are zero
//!                                01llllll llllllll   the same
//!                                1vvvvvll            l + 1 of them are v + 1
//! ```

/// Registers.
pub(super) const COUNT: usize = 1 << BITS;
const BITS: u32 = 14;
const HEAD: usize = 16;
const DENSE_BYTES: usize = HEAD + COUNT * 6 / 8;
/// Bytes of a sparse one, at most.
const SPARSE_BYTES: usize = 3000;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
/// The highest value of a register that a sparse one holds.
const SPARSE_VALUE: u8 = 32;
/// Registers of the longest run of each kind.
const ZERO_RUN: usize = 64;
const VALUE_RUN: usize = 4;
/// The highest value that a register can have.
const HIGHEST: usize = 51;

pub(super) const INVALID: &str = "WRONGTYPE Key is not a valid HyperLogLog string value.";
pub(super) const CORRUPT: &str = "INVALIDOBJ Corrupted HLL object detected";

/// Which register an element is for, and what it would be.
pub(super) fn register(element: &[u8]) -> (usize, u8) {
    let hash = murmur(element, 0xadc8_3b19);
    let rest = hash >> BITS | 1 << (64 - BITS);
    ((hash as usize) & (COUNT - 1), rest.trailing_zeros() as u8 + 1)
}

/// `MurmurHash64A`.
fn murmur(bytes: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(M);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut k = u64::from_le_bytes(*word).wrapping_mul(M);
        k = (k ^ k >> 47).wrapping_mul(M);
        hash = (hash ^ k).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let last = rest.iter().rev().fold(0, |last, byte| last << 8 | u64::from(*byte));
        hash = (hash ^ last).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 47).wrapping_mul(M);
    hash ^ hash >> 47
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    value: u8,
    len: usize,
    /// Bytes that it takes.
    bytes: usize,
}

impl Run {
    fn read(bytes: &[u8]) -> Option<Self> {
        Some(match bytes {
            [first, ..] if first & 0x80 != 0 => {
                Self { value: (first >> 2 & 31) + 1, len: (first & 3) as usize + 1, bytes: 1 }
            }
            [first, second, ..] if first & 0x40 != 0 => {
                Self { value: 0, len: (usize::from(first & 63) << 8 | usize::from(*second)) + 1, bytes: 2 }
            }
            [first, ..] if first & 0x40 == 0 => Self { value: 0, len: (first & 63) as usize + 1, bytes: 1 },
            _ => return None,
        })
    }

    fn write(value: u8, len: usize, into: &mut Vec<u8>) {
        let less = len - 1;
        match value {
            0 if len > ZERO_RUN => into.extend_from_slice(&[(less >> 8) as u8 | 0x40, less as u8]),
            0 => into.push(less as u8),
            _ => into.push((value - 1) << 2 | less as u8 | 0x80),
        }
    }
}

/// The bytes of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sketch(pub(super) Vec<u8>);

impl Sketch {
    /// Of nothing.
    pub(super) fn new() -> Self {
        let mut bytes = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\0".to_vec();
        Run::write(0, COUNT, &mut bytes);
        Self(bytes)
    }

    /// None if these are the bytes of something else.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let is_one = bytes.len() >= HEAD
            && bytes.starts_with(b"HYLL")
            && bytes[4] <= SPARSE
            && (bytes[4] == SPARSE || bytes.len() == DENSE_BYTES);
        is_one.then(|| Self(bytes.to_vec()))
    }

    pub(super) fn is_dense(&self) -> bool {
        self.0[4] == DENSE
    }

    /// How many elements it is of, if it knows.
    pub(super) fn known(&self) -> Option<u64> {
        let count = u64::from_le_bytes(self.0[8..HEAD].try_into().ok()?);
        Some(count).filter(|count| count >> 63 == 0)
    }

    pub(super) fn know(&mut self, count: u64) {
        self.0[8..HEAD].copy_from_slice(&count.to_le_bytes());
    }

    /// It does not know any more.
    pub(super) fn forget(&mut self) {
        self.0[HEAD - 1] |= 0x80;
    }

    fn dense(&self, at: usize) -> u8 {
        let (byte, shift) = (HEAD + at * 6 / 8, at * 6 % 8);
        let two = u16::from(self.0[byte]) | u16::from(self.0.get(byte + 1).copied().unwrap_or(0)) << 8;
        (two >> shift) as u8 & 63
    }

    /// True if the register was lower.
    fn set_dense(&mut self, at: usize, value: u8) -> bool {
        if self.dense(at) >= value {
            return false;
        }
        let (byte, shift) = (HEAD + at * 6 / 8, at * 6 % 8);
        let (mask, bits) = (63_u16 << shift, u16::from(value) << shift);
        for (at, part) in [(byte, 0), (byte + 1, 8)] {
            if let Some(byte) = self.0.get_mut(at) {
                *byte = *byte & !((mask >> part) as u8) | (bits >> part) as u8;
            }
        }
        true
    }

    /// Raises the registers of `to` to its own. None if its bytes are corrupt.
    pub(super) fn raise(&self, to: &mut [u8; COUNT]) -> Option<()> {
        if self.is_dense() {
            (0..COUNT).for_each(|at| to[at] = to[at].max(self.dense(at)));
            return Some(());
        }
        let (mut at, mut register) = (HEAD, 0);
        while at < self.0.len() {
            let run = Run::read(&self.0[at..])?;
            let registers = to.get_mut(register..register + run.len)?;
            registers.iter_mut().for_each(|own| *own = (*own).max(run.value));
            (at, register) = (at + run.bytes, register + run.len);
        }
        (register == COUNT).then_some(())
    }

    pub(super) fn make_dense(&mut self) -> Option<()> {
        if self.is_dense() {
            return Some(());
        }
        let mut registers = [0; COUNT];
        self.raise(&mut registers)?;
        self.0.truncate(HEAD);
        self.0[4] = DENSE;
        self.0.resize(DENSE_BYTES, 0);
        for (at, value) in registers.iter().enumerate() {
            self.set_dense(at, *value);
        }
        Some(())
    }

    /// Raises a register; whether it was lower. None if the bytes are corrupt.
    pub(super) fn set(&mut self, register: usize, value: u8) -> Option<bool> {
        if self.is_dense() {
            return Some(self.set_dense(register, value));
        }
        if value > SPARSE_VALUE {
            self.make_dense()?;
            return Some(self.set_dense(register, value));
        }
        self.set_sparse(register, value)
    }

    fn set_sparse(&mut self, register: usize, value: u8) -> Option<bool> {
        // The run that has the register, and where the one before it is.
        let (mut at, mut before, mut first) = (HEAD, HEAD, 0);
        let run = loop {
            let run = Run::read(self.0.get(at..)?)?;
            if register < first + run.len {
                break run;
            }
            (before, at, first) = (at, at + run.bytes, first + run.len);
        };
        if run.value >= value {
            return Some(false);
        }
        // The parts of it on both sides stay.
        let (left, right) = (register - first, first + run.len - 1 - register);
        let mut parts = Vec::with_capacity(5);
        if left > 0 {
            Run::write(run.value, left, &mut parts);
        }
        Run::write(value, 1, &mut parts);
        if right > 0 {
            Run::write(run.value, right, &mut parts);
        }
        if parts.len() > run.bytes && self.0.len() + parts.len() - run.bytes > SPARSE_BYTES {
            self.make_dense()?;
            return Some(self.set_dense(register, value));
        }
        self.0.splice(at..at + run.bytes, parts);
        self.join(before);
        self.forget();
        Some(true)
    }

    /// Joins runs of one value that have become neighbours. Redis looks at five from the one before the change, so that is how many are looked at.
    fn join(&mut self, mut at: usize) {
        let run = |bytes: &[u8], at: usize| bytes.get(at..).and_then(Run::read);
        for _ in 0..5 {
            let Some(one) = run(&self.0, at) else { break };
            let next = run(&self.0, at + one.bytes).filter(|next| one.value > 0 && next.value == one.value);
            match next {
                Some(next) if one.len + next.len <= VALUE_RUN => {
                    let mut joined = Vec::with_capacity(1);
                    Run::write(one.value, one.len + next.len, &mut joined);
                    self.0.splice(at..at + 2, joined);
                }
                _ => at += one.bytes,
            }
        }
    }
}

/// How many different elements have raised the registers, by Ertl's estimator: "New cardinality estimation algorithms for HyperLogLog sketches", 2017.
pub(super) fn estimate(registers: &[u8; COUNT]) -> u64 {
    let mut histogram = [0_u32; 64];
    registers.iter().for_each(|value| histogram[usize::from(value & 63)] += 1);
    let m = COUNT as f64;
    let mut z = m * tau((m - f64::from(histogram[HIGHEST])) / m);
    for count in histogram[1..HIGHEST].iter().rev() {
        z += f64::from(*count);
        z *= 0.5;
    }
    z += m * sigma(f64::from(histogram[0]) / m);
    (0.721_347_520_444_481_7 * m * m / z).round() as u64
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if before == z {
            return z / 3.0;
        }
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before == z {
            return z;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_the_same_sparse_and_dense() {
        let (mut sparse, mut expected) = (Sketch::new(), [0_u8; COUNT]);
        let mut dense = Sketch::new();
        dense.make_dense().unwrap();
        for n in 0..3000_u32 {
            let (register, value) = register(&n.to_le_bytes());
            let raises = expected[register] < value;
            expected[register] = expected[register].max(value);
            assert_eq!((sparse.set(register, value), dense.set(register, value)), (Some(raises), Some(raises)));
            if n % 100 == 0 {
                let (mut one, mut other) = ([0; COUNT], [0; COUNT]);
                sparse.raise(&mut one).unwrap();
                dense.raise(&mut other).unwrap();
                assert!(one == expected && other == expected, "{n}");
            }
        }
        assert!(sparse.is_dense(), "it has grown too large");
        let count = estimate(&expected);
        assert!((2900..3100).contains(&count), "{count}");
        assert_eq!(estimate(&[0; COUNT]), 0);
    }

    #[test]
    fn bytes_that_are_no_sketch_are_refused() {
        let new = Sketch::new();
        assert_eq!(Sketch::read(&new.0), Some(new.clone()));
        assert_eq!(new.known(), Some(0));
        for other in [
            &b"HYLL"[..],
            b"hyll\x01\0\0\0\0\0\0\0\0\0\0\0",
            b"HYLL\x02\0\0\0\0\0\0\0\0\0\0\0",
            b"HYLL\0\0\0\0\0\0\0\0\0\0\0\0",
        ] {
            assert_eq!(Sketch::read(other), None);
        }
        for corrupt in [&b""[..], b"\x7f", b"\x00", b"\x7f\xff\x00"] {
            let mut one = Sketch([&new.0[..HEAD], corrupt].concat());
            assert_eq!(one.raise(&mut [0; COUNT]), None);
            assert_eq!(one.clone().make_dense(), None);
            let _ = one.set(COUNT - 1, 1);
        }
    }
}
