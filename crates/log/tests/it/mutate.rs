//! What happens to bytes at rest, drawn at random, and what came of it: for the tests of `log` and of `kv`.

use std::collections::BTreeMap;

pub const PAGE: usize = 4096;

pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }
}

/// A number from the environment.
pub fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(usual)
}

/// Damages a file, which was `older` before, at a page that `page` draws; says how. Of its first pages only so many bytes are `used`.
pub fn mutate(
    bytes: &[u8],
    older: &[Vec<u8>],
    rng: &mut Rng,
    page: impl Fn(&mut Rng) -> usize,
    used: usize,
) -> (&'static str, String, Vec<u8>) {
    let mut bytes = bytes.to_vec();
    let at = page(rng);
    let range = at * PAGE..(at + 1) * PAGE;
    match rng.below(6) {
        0 => {
            let (byte, bit) = (at * PAGE + rng.below(if at < 5 { used } else { PAGE }), rng.below(8));
            bytes[byte] ^= 1 << bit;
            ("bit", format!("byte {byte} bit {bit}"), bytes)
        }
        1 => {
            let line = at * PAGE + rng.below(PAGE / 64) * 64;
            let fill = [0, 0xff, rng.below(256) as u8][rng.below(3)];
            bytes[line..line + 64].fill(fill);
            ("line", format!("64 bytes at {line} of {fill}"), bytes)
        }
        2 => {
            bytes[range].fill(0);
            ("zeroed page", format!("page {at}"), bytes)
        }
        3 => {
            let len = if rng.below(2) == 0 { at * PAGE } else { rng.below(bytes.len()) };
            bytes.truncate(len);
            ("truncation", format!("to {len}"), bytes)
        }
        4 => {
            let from = page(rng) * PAGE;
            bytes.copy_within(from..from + PAGE, at * PAGE);
            ("moved page", format!("page {} to {at}", from / PAGE), bytes)
        }
        _ => {
            let look = rng.below(older.len());
            if let Some(was) = older[look].get(range.clone()) {
                bytes[range].copy_from_slice(was);
            }
            ("lost write", format!("page {at} as it was at look {look}"), bytes)
        }
    }
}

/// Damages a file at two offsets.
pub fn mutate_twice(
    bytes: &[u8],
    older: &[Vec<u8>],
    rng: &mut Rng,
    page: impl Fn(&mut Rng) -> usize,
    used: usize,
) -> (&'static str, String, Vec<u8>) {
    let (_, first, once) = mutate(bytes, older, rng, &page, used);
    // What a truncation left may be too short for the page of the second.
    let within = |rng: &mut Rng| page(rng).min((once.len() / PAGE).saturating_sub(1));
    if once.len() < PAGE {
        return ("two", first, once);
    }
    let (_, second, twice) = mutate(&once, older, rng, within, used);
    ("two", format!("{first}; {second}"), twice)
}

/// What came of all mutations.
#[derive(Default)]
pub struct Tally {
    outcomes: BTreeMap<(bool, &'static str, &'static str), u64>,
    wrong: Vec<String>,
}

impl Tally {
    /// Notes what came of a mutation of a file of this name.
    pub fn note(
        &mut self,
        name: &str,
        closed: bool,
        (kind, what): (&'static str, &str),
        outcome: Result<&'static str, String>,
    ) {
        match outcome {
            Ok(outcome) => *self.outcomes.entry((closed, kind, outcome)).or_default() += 1,
            Err(why) => self.wrong.push(format!("{name} {}: {kind}, {what}: {why}", how(closed))),
        }
    }

    /// Prints the counts. Nothing may be wrong, a closed file has no limits, and so many mutations at least must be errors.
    pub fn judge(&self, seed: u64, errors_least: u64) {
        for ((closed, kind, outcome), count) in &self.outcomes {
            println!("{} {kind}: {outcome} {count}", how(*closed));
        }
        let (count, first) = (self.wrong.len(), &self.wrong[..self.wrong.len().min(60)]);
        assert!(count == 0, "seed {seed}: {count} wrong, such as\n{}", first.join("\n"));
        let errors: u64 = self.outcomes.iter().filter(|o| o.0.2 == "error").map(|o| o.1).sum();
        assert!(errors > errors_least, "{errors} errors: what is mutated is not looked at");
        assert!(self.outcomes.keys().filter(|o| o.0).all(|o| o.2 != "limit"), "a closed file has no limits");
    }
}

fn how(closed: bool) -> &'static str {
    if closed { "closed" } else { "killed" }
}
