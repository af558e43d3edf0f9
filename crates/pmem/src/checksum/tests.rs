//! All functions against the definition, on all levels that the processor has.

use super::clnh::{Level, Shared};
use super::*;
use crate::hash::splitmix;

/// `docs/checksums.md`, word for word.
mod definition {
    use super::super::expand::block;

    fn product(a: u64, b: u64) -> u128 {
        (0..64).filter(|i| b >> i & 1 == 1).fold(0, |sum, i| sum ^ u128::from(a) << i)
    }

    pub(super) fn reduce(mut a: u128) -> u64 {
        for i in (64..128).rev() {
            if a >> i & 1 == 1 {
                a ^= (1 << 64 | 0x1b) << (i - 64);
            }
        }
        a as u64
    }

    pub(super) fn times(a: u64, b: u64) -> u64 {
        reduce(product(a, b))
    }

    fn sum(key: &[u64; 4], text: &[u8]) -> u128 {
        let words: Vec<u64> = (0..17).flat_map(|i| block(key, i, 0)).collect();
        let (mut before, mut sum) = (text.len() as u64, 0);
        let mut blocks: Vec<&[u8]> = text.chunks(1024).collect();
        blocks.resize(blocks.len().max(1), &[]);
        for (n, block) in blocks.into_iter().enumerate() {
            if n > 0 {
                before = reduce(sum);
            }
            sum = product(before, words[128]);
            for (lane, key) in block.chunks(16).zip(words.chunks(2)) {
                let mut padded = [0; 16];
                padded[..lane.len()].copy_from_slice(lane);
                let word = |at: usize| u64::from_le_bytes(padded[at..at + 8].try_into().unwrap());
                sum ^= product(word(0) ^ key[0], word(8) ^ key[1]);
            }
        }
        sum
    }

    pub(super) fn checksum(key: &[u64; 4], place: u64, kind: u64, text: &[u8], bound: Option<[u64; 3]>) -> u64 {
        let [f0, f1, f2, pad, _, b0, b1, b2] = block(key, place, kind);
        let mut sum = sum(key, text);
        if let Some([w0, w1, w2]) = bound {
            sum ^= product(w0 ^ b0, w1 ^ b1) ^ product(w2, b2);
        }
        let bit = |n: usize| [f0, f1, f2][n / 64] >> (n % 64) & 1;
        let row = |k: usize| (0..128).filter(|j| sum >> j & 1 == 1).fold(0, |row, j| row ^ bit(128 + k - j));
        (0..64).fold(0, |checksum, k| checksum | row(k) << k) ^ pad
    }
}

const KEY: [u64; 4] = [11, 12, 13, 14];

/// The same key for each level.
fn keys(place: u64) -> Vec<(Level, ChecksumKey)> {
    let shared = Shared::new(KEY);
    let key = |level| (level, Checksums::of(shared.at_level(level)).key(place));
    shared.levels().into_iter().map(key).collect()
}

/// Random bytes from a seed that is printed.
struct Random(u64);

impl Random {
    fn new(what: &str) -> Self {
        let seed = std::env::var("CAIRN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5ea1);
        println!("{what}: CAIRN_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, end: usize) -> usize {
        (splitmix(&mut self.0) % end as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| splitmix(&mut self.0) as u8).collect()
    }
}

/// Lengths around whatever is special, and some between.
fn lengths(random: &mut Random) -> Vec<usize> {
    let near = |n: usize| n.saturating_sub(2)..n + 3;
    let special = [16, 24, 64, 128, 240, 1024, 1040, 1088, 2048, 4096].into_iter().flat_map(near);
    (0..150).chain(special).chain((0..60).map(|_| random.below(5000))).collect()
}

#[test]
fn every_level_is_the_definition() {
    let mut random = Random::new("every_level_is_the_definition");
    let bytes = random.bytes(5100);
    let keys = keys(77);
    for len in lengths(&mut random) {
        let at = random.below(64);
        let text = &bytes[at..at + len];
        let words = [len as u64, !0, 1 << 63];
        let checksum = definition::checksum(&KEY, 77, OF_PLACE, text, None);
        let bound = definition::checksum(&KEY, 77, OF_PLACE, text, Some(words));
        for (level, key) in &keys {
            assert_eq!(key.checksum(text), checksum, "{level:?}, {len} bytes from {at} on");
            assert_eq!(
                key.checksum_with(key.sum(text), words),
                bound,
                "{level:?}, {len} bytes from {at} on, with words"
            );
        }
    }
}

/// In pieces of any length, from any address.
#[test]
fn parts_checksum_as_their_concatenation() {
    let mut random = Random::new("parts_checksum_as_their_concatenation");
    let bytes = random.bytes(6000);
    let mut all: Vec<ChecksumKey> = keys(9).into_iter().map(|(_, key)| key).collect();
    all.push(ChecksumKey::format_1(7, 9));
    for len in lengths(&mut random) {
        let text = &bytes[random.below(64)..][..len];
        let mut cuts: Vec<usize> = (0..random.below(7)).map(|_| random.below(len + 1)).chain([0, len]).collect();
        cuts.sort_unstable();
        let parts = cuts.windows(2).map(|two| &text[two[0]..two[1]]);
        for key in &all {
            assert_eq!(key.checksum_parts(parts.clone()), key.checksum(text), "{len} bytes cut at {cuts:?}");
        }
    }
}

#[test]
fn a_list_is_a_polynomial_of_its_checksums() {
    let (place, list) = (5, [3, 1 << 63, 77, !0]);
    let point = super::expand::block(&KEY, place, OF_PLACE)[4];
    for n in 1..=list.len() {
        let expected = list[1..n].iter().fold(list[0], |before, next| definition::times(before, point) ^ next);
        for (level, key) in keys(place) {
            assert_eq!(key.checksum_list(list[..n].iter().copied()), expected, "{level:?}, {n} checksums");
            assert_eq!(key.checksum_list([].into_iter()), key.checksum(&[]));
        }
    }
}

/// Of one pool and of several; what a key of format version 1 gives is what it gave.
#[test]
fn places_kinds_and_names_have_keys_of_their_own() {
    let key = ChecksumKey::new(7, 4096);
    let mut checksums = vec![key.checksum(b"debit")];
    checksums.extend([ChecksumKey::new(8, 4096), ChecksumKey::new(7, 8192)].map(|key| key.checksum(b"debit")));
    checksums.push(Checksums::version_2(7, 1).key(4096).checksum(b"debit"));
    checksums.extend([0, 1].map(|kind| key.of_kind(kind).checksum(b"debit")));
    checksums.extend([0, 1, 4096].map(|name| key.derived(name).checksum(b"debit")));
    checksums.push(ChecksumKey::new(7, 8192).derived(0).checksum(b"debit"));
    checksums.push(key.checksum_with(key.sum(b"debit"), [0; 3]));
    let distinct: std::collections::HashSet<u64> = checksums.iter().copied().collect();
    assert_eq!(distinct.len(), checksums.len(), "{checksums:x?}");

    let old = ChecksumKey::format_1(7, 4096);
    assert_eq!(old.of_kind(3).checksum(b"debit"), old.checksum(b"debit"));
    assert_eq!(
        old.derived(5).checksum(b"debit"),
        ChecksumKey::format_1(old.checksum(&5_u64.to_le_bytes()), 5).checksum(b"debit")
    );
    let joined = [1_u64, 2, 3, old.checksum(b"debit")].map(u64::to_le_bytes);
    assert_eq!(old.checksum_with(old.sum(b"debit"), [1, 2, 3]), old.checksum(joined.as_flattened()));
}

/// No bit, and no byte of zeros at the end, goes unnoticed; nor does the same change in two words of one lane, or of two.
#[test]
fn changes_are_noticed() {
    for (level, key) in keys(3) {
        for len in [1, 8, 16, 40, 100, 1024, 1025, 2100] {
            let text = vec![0; len + 1];
            let whole = key.checksum(&text[..len]);
            assert_ne!(key.checksum(&text), whole, "{level:?}, {len} zeros and one more");
            let step = if len > 200 { 53 } else { 1 };
            for bit in (0..len * 8).step_by(step) {
                let mut other = text[..len].to_vec();
                other[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(key.checksum(&other), whole, "{level:?}, bit {bit} of {len} bytes");
                for apart in [8, 16, 64, 1024] {
                    if let Some(byte) = other.get_mut(bit / 8 + apart) {
                        *byte ^= 1 << (bit % 8);
                        assert_ne!(key.checksum(&other), whole, "{level:?}, bit {bit} of {len} bytes, and {apart} on");
                        other[bit / 8 + apart] ^= 1 << (bit % 8);
                    }
                }
            }
        }
    }
}

/// Two texts that XXH3 checksums alike, whatever else is in them: the top bits of two words 64 bytes apart.
///
/// Above 240 bytes XXH3 adds, for each word, the product of the two halves of the word XOR a word of the secret; the
/// secret moves on by 8 bytes from one 64 bytes to the next. The top bit of a word adds 2^31 times the lower half, up to the
/// sign that the upper half has: if the secret's words have the same lower halves and other top bits (one key in 2^33), the
/// two changes undo each other in equal words, and where a word is added to its neighbour, two top bits do.
#[test]
fn the_forgery_of_xxh3_is_none_of_clnh() {
    let text = vec![0; 4096];
    let mut other = text.clone();
    other[7] ^= 0x80;
    other[64 + 7] ^= 0x80;
    let mut secret = super::xxh3::secret(7, 9);
    let low: [u8; 4] = secret[..4].try_into().unwrap();
    secret[8..12].copy_from_slice(&low);
    (secret[7], secret[15]) = (secret[7] | 0x80, secret[15] & 0x7f);
    let weak = ChecksumKey(Function::Xxh3(Box::new(secret)));
    assert_eq!(weak.checksum(&text), weak.checksum(&other), "the weakness that this is about");

    // Words of the key with the same relation, in each two that lie so: nothing follows of it.
    let mut words = [0; 128];
    let mut state = 1;
    for (i, word) in words.iter_mut().enumerate() {
        *word = splitmix(&mut state) & !0xffff_ffff | 0x1234_5678;
        *word ^= (i as u64 / 8 % 2) << 63;
    }
    let shared = Shared::new(KEY).with_words(words);
    for level in shared.levels() {
        let key = Checksums::of(shared.at_level(level)).key(9);
        assert_ne!(key.checksum(&text), key.checksum(&other), "{level:?}");
        for (place, secret) in [(0, 1), (5, 1 << 40)] {
            let key = ChecksumKey::new(secret, place);
            assert_ne!(key.checksum(&text), key.checksum(&other));
        }
    }
}

/// The bound, where it can be counted: with all but one word of the key fixed, two texts collide for one value of that word. In eight bits of a
/// checksum about one key in 256 shows it: the bits are as good as the bound says.
#[test]
fn parts_of_checksums_collide_as_often_as_the_bound_says() {
    let (one, other) = ([0_u8; 24], {
        let mut text = [0_u8; 24];
        text[7] = 0x80;
        text[23] = 0x80;
        text
    });
    let keys = 8192;
    let equal = (0..keys).filter(|key| {
        let key = ChecksumKey::new(*key, 1);
        (key.checksum(&one) ^ key.checksum(&other)) & 0xff == 0
    });
    let equal = equal.count();
    assert!((8..=64).contains(&equal), "{equal} of {keys} keys, 32 expected");
}

/// Whatever leaves the processor is what was checksummed.
#[test]
fn what_is_stored_while_it_is_summed_is_the_text() {
    let mut random = Random::new("what_is_stored_while_it_is_summed_is_the_text");
    let bytes = random.bytes(5100);
    for len in lengths(&mut random) {
        let (from, skip) = (random.below(64), random.below(65));
        let text = &bytes[from..from + len];
        for (level, key) in keys(4) {
            let mut memory = vec![0xaa_u8; 5300];
            let start = memory.as_ptr().align_offset(64);
            // SAFETY: more than the text's length is behind it.
            let found = unsafe { key.sum_storing(text, memory.as_mut_ptr().add(start), skip) };
            let (sum, stored) = found.expect("not of format version 1");
            crate::cpu::drain();
            let at = format!("{level:?}, {len} bytes from {from} on but for {skip}");
            assert_eq!(stored, len.saturating_sub(skip) / 64 * 64, "{at}");
            assert_eq!(memory[start..start + stored], text[skip.min(len)..][..stored], "{at}");
            assert!(memory[..start].iter().chain(&memory[start + stored..]).all(|byte| *byte == 0xaa), "{at}");
            assert_eq!(key.checksum_with(sum, [0; 3]), key.checksum_with(key.sum(text), [0; 3]), "{at}");
        }
    }
}

/// The same of a text whose first part is elsewhere.
#[test]
fn what_is_stored_behind_another_part_is_checksummed_with_it() {
    let mut random = Random::new("what_is_stored_behind_another_part_is_checksummed_with_it");
    let bytes = random.bytes(6200);
    for len in lengths(&mut random) {
        for front in [0, 1, 56, 120, 248, random.below(1024), 1023, 1024, 1100] {
            let from = random.below(64);
            let (before, body) = bytes[from..from + front + len].split_at(front);
            for (level, key) in keys(4) {
                let mut memory = vec![0xaa_u8; 5300];
                let start = memory.as_ptr().align_offset(64);
                // SAFETY: more than the body's length is behind it.
                let found = unsafe { key.checksum_storing(before, body, memory.as_mut_ptr().add(start)) };
                crate::cpu::drain();
                let at = format!("{level:?}, {len} bytes behind {front}");
                assert_eq!(found.is_some(), front == 0 || front <= 1024 && front + len > 1024, "{at}");
                let stored = found.map_or(0, |(checksum, stored)| {
                    assert_eq!(checksum, key.checksum_parts([before, body].into_iter()), "{at}");
                    assert_eq!(stored, len / 64 * 64, "{at}");
                    stored
                });
                assert_eq!(memory[start..start + stored], body[..stored], "{at}");
                assert!(memory[..start].iter().chain(&memory[start + stored..]).all(|byte| *byte == 0xaa), "{at}");
            }
        }
    }
}

/// So that no build changes the bytes unnoticed.
#[test]
fn known_checksums() {
    let key = ChecksumKey::new(0x0123_4567_89ab_cdef, 4096);
    let text: Vec<u8> = (0..3000).map(|i| (i * 7) as u8).collect();
    let found = [0, 1, 16, 100, 1024, 3000].map(|len| key.checksum(&text[..len]));
    let expected = [
        0x04ec_5334_15f3_bd72,
        0xb54c_8b67_7b59_b765,
        0xb712_5c93_a4ae_bd0e,
        0x340b_e260_81eb_5fa7,
        0x34ad_0c0e_f6dd_168c,
        0xde46_073d_b9e0_ae0f,
    ];
    assert_eq!(found, expected, "{found:#x?}");
    assert_eq!(key.checksum_with(key.sum(&text), [1, 2, 3]), 0xb8b8_43fe_e7df_336e);
    assert_eq!(key.checksum_each([&text[..10], &text[..2000], &text[5..6]].into_iter()), 0x4ebb_d6d9_6258_2ea1);
    assert_eq!(key.derived(9).checksum(&text), 0x2c15_0a99_224d_b180);
    assert_eq!(key.of_kind(3).checksum(&text), 0x0fd8_dbe0_4a48_d56d);
}
