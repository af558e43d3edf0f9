//! Runs of neighbouring keys, and how they are noted as bytes.
//!
//! For each run: a number whose lower two bits say whether it abandons and whether it has an end, and whose other bits are how many bytes its beginning has in
//! common with the one before; how many more it has, and these; the same of its end, against its beginning. In place of a run, 0 and 0 begin a sieve: see [`sieve`](super::sieve).

use std::sync::Arc;

use tx::Keys;

use super::sieve::{self, Sieve};

/// Keys that go, with nothing between them that stays, unless there is a sieve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) from: Vec<u8>,
    /// The first that does not go; none for the first that does not begin as `from`.
    pub(super) to: Option<Vec<u8>>,
    /// The elements of collections among them have no owner from then on.
    pub(super) abandons: bool,
    /// Which of them go, and abandon.
    pub(super) sieve: Option<Arc<Sieve>>,
}

impl Run {
    pub(super) fn new(from: Vec<u8>, to: Option<Vec<u8>>, abandons: bool) -> Self {
        Self { from, to, abandons, sieve: None }
    }

    pub(super) fn keys(&self) -> Keys {
        match &self.to {
            Some(to) => Keys::from(&self.from).until(to),
            None => Keys::prefix(&self.from),
        }
    }

    pub(super) fn has(&self, key: &[u8]) -> bool {
        let is_in = match &self.to {
            Some(to) => (&self.from[..]..&to[..]).contains(&key),
            None => key.starts_with(&self.from),
        };
        is_in && self.goes(key).is_some()
    }

    /// Of a key between the two: none if it stays, otherwise whether its elements have no owner from then on.
    pub(super) fn goes(&self, key: &[u8]) -> Option<bool> {
        self.sieve.as_ref().map_or(Some(self.abandons), |sieve| sieve.goes(key))
    }
}

pub(super) fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

// ---- runs as bytes ------------------------------------------------------------------------------------------------

fn number(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<usize> {
    let mut number = 0;
    for shift in (0..28).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take_key(bytes: &mut &[u8], before: &[u8], common: usize) -> Option<Vec<u8>> {
    let len = take_number(bytes)?;
    let (rest, left) = bytes.split_at_checked(len)?;
    *bytes = left;
    Some([before.get(..common)?, rest].concat())
}

pub(super) fn encode(runs: &[Run]) -> Vec<u8> {
    let (mut bytes, mut before) = (Vec::new(), &[][..]);
    for run in runs {
        if let (Some(sieve), Some(to)) = (&run.sieve, &run.to) {
            encode_sieve(&mut bytes, &run.from, to, sieve);
            before = &run.from;
            continue;
        }
        let shared = common(before, &run.from);
        number(&mut bytes, shared << 2 | usize::from(run.to.is_some()) << 1 | usize::from(run.abandons));
        number(&mut bytes, run.from.len() - shared);
        bytes.extend_from_slice(&run.from[shared..]);
        if let Some(to) = &run.to {
            let shared = common(&run.from, to);
            number(&mut bytes, shared);
            number(&mut bytes, to.len() - shared);
            bytes.extend_from_slice(&to[shared..]);
        }
        before = &run.from;
    }
    bytes
}

fn encode_sieve(bytes: &mut Vec<u8>, from: &[u8], to: &[u8], sieve: &Sieve) {
    bytes.extend_from_slice(&[0, 0]);
    for key in [from, to] {
        number(bytes, key.len());
        bytes.extend_from_slice(key);
    }
    bytes.extend_from_slice(&sieve.seed.to_be_bytes());
    bytes.extend_from_slice(&[sieve.attempt as u8, sieve.width as u8]);
    number(bytes, sieve.part);
    bytes.extend_from_slice(&sieve.bytes);
}

/// Behind the two zeros.
fn decode_sieve(bytes: &mut &[u8]) -> Option<Run> {
    let from = take_key(bytes, &[], 0)?;
    let to = take_key(bytes, &[], 0)?;
    let (seed, rest) = bytes.split_first_chunk()?;
    let ([attempt, width @ 1..=2], mut rest) = rest.split_first_chunk()? else { return None };
    let (width, part) = (usize::from(*width), take_number(&mut rest)?);
    let (cells, left) = rest.split_at_checked(sieve::bytes_of(part, width))?;
    *bytes = left;
    let attempt = u64::from(*attempt);
    let sieve = Sieve { seed: u64::from_be_bytes(*seed), attempt, width, part, bytes: cells.to_vec() };
    Some(Run { sieve: Some(Arc::new(sieve)), ..Run::new(from, Some(to), false) })
}

fn decode_run(bytes: &mut &[u8], before: &[u8]) -> Option<Run> {
    let first = take_number(bytes)?;
    let from = take_key(bytes, before, first >> 2)?;
    let mut to = None;
    if first & 2 != 0 {
        let shared = take_number(bytes)?;
        to = Some(take_key(bytes, &from, shared)?);
    }
    Some(Run::new(from, to, first & 1 != 0))
}

pub(super) fn decode(mut bytes: &[u8]) -> Option<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    while !bytes.is_empty() {
        let run = if bytes.starts_with(&[0, 0]) {
            bytes = &bytes[2..];
            decode_sieve(&mut bytes)?
        } else {
            let before = runs.last().map_or(&[][..], |run| &run.from);
            decode_run(&mut bytes, before)?
        };
        // No range of everything: a key of a client begins with its database.
        if run.from.is_empty() || run.to.as_ref().is_some_and(|to| *to <= run.from) {
            return None;
        }
        runs.push(run);
    }
    Some(runs)
}
