//! Digests by which scripts and libraries are known.

use sha1::{Digest, Sha1};

pub(crate) type Sha = [u8; 20];

pub(crate) fn sha1(bytes: &[u8]) -> Sha {
    Sha1::digest(bytes).into()
}

/// None if it is no digest.
pub(crate) fn unhex(text: &[u8]) -> Option<Sha> {
    let mut sha = [0; 20];
    if text.len() != 40 {
        return None;
    }
    for (byte, two) in sha.iter_mut().zip(text.chunks(2)) {
        let digit = |at: usize| char::from(two[at]).to_digit(16);
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    Some(sha)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |four: u8| char::from_digit(four.into(), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
