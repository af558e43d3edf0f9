//! What two strings have in common.

use super::flag::{READ, STRING};
use super::{Command, Context, KeysAt, Outcome, SYNTAX, data, int, is};
use crate::data::STRING_MAX;
use crate::data::chunks::Text;
use crate::request::Arguments;

pub(super) const COMMANDS: &[Command] = &[data("lcs", -3, READ | STRING, KeysAt::Range(1, 2, 1), lcs)];

/// What a pair of bytes takes, about, in nanoseconds.
const CELL: u64 = 4;

/// A run of bytes that both have: where it begins in each, and how long it is.
#[derive(Debug, PartialEq)]
struct Match {
    one: usize,
    other: usize,
    len: usize,
}

/// For each pair of beginnings of two strings, how long the longest subsequence is that both have.
struct Lengths<'a> {
    one: &'a [u8],
    other: &'a [u8],
    table: Vec<u32>,
}

impl<'a> Lengths<'a> {
    /// None if that takes more memory than a string may be long.
    fn of(one: &'a [u8], other: &'a [u8]) -> Option<Self> {
        let cells =
            (one.len() + 1).checked_mul(other.len() + 1).filter(|cells| *cells <= STRING_MAX / size_of::<u32>())?;
        let mut table = vec![0; cells];
        let width = other.len() + 1;
        for (i, a) in one.iter().enumerate() {
            let (above, below) = table[i * width..(i + 2) * width].split_at_mut(width);
            for (j, b) in other.iter().enumerate() {
                below[j + 1] = if a == b { above[j] + 1 } else { above[j + 1].max(below[j]) };
            }
        }
        Some(Self { one, other, table })
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.table[i * (self.other.len() + 1) + j]
    }

    fn len(&self) -> usize {
        self.at(self.one.len(), self.other.len()) as usize
    }

    /// The runs that make up such a subsequence, from the last to the first.
    fn matches(&self) -> Vec<Match> {
        let (mut i, mut j) = (self.one.len(), self.other.len());
        let (mut matches, mut run) = (Vec::new(), 0);
        while i > 0 && j > 0 {
            let is_same = self.one[i - 1] == self.other[j - 1];
            if is_same {
                (i, j, run) = (i - 1, j - 1, run + 1);
            }
            if run > 0 && (!is_same || i == 0 || j == 0) {
                matches.push(Match { one: i, other: j, len: std::mem::take(&mut run) });
            }
            if !is_same {
                if self.at(i - 1, j) > self.at(i, j - 1) { i -= 1 } else { j -= 1 }
            }
        }
        matches
    }
}

fn lcs(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let mut strings = Vec::new();
    for key in [args.get(1), args.get(2)] {
        let value = c.tx.get(&c.key(key))?;
        let wrong = "ERR The specified keys must contain string values";
        let text = value.map_or(Ok(Some(Text::Whole(&[]))), Text::read)?.ok_or(wrong)?;
        strings.push(text.bytes(&*c.tx)?.into_owned());
    }
    let (mut idx, mut len, mut with_len, mut least, mut at) = (false, false, false, 0, 3);
    while at < args.len() {
        match args.get(at) {
            word if is(word, "IDX") => idx = true,
            word if is(word, "LEN") => len = true,
            word if is(word, "WITHMATCHLEN") => with_len = true,
            word if is(word, "MINMATCHLEN") && at + 1 < args.len() => {
                at += 1;
                least = int(args.get(at))?.max(0) as usize;
            }
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    if idx && len {
        return Err("ERR If you want both the length and indexes, please just use IDX.".into());
    }
    let cells = (strings[0].len() as u64 + 1).saturating_mul(strings[1].len() as u64 + 1);
    c.takes(cells.saturating_mul(CELL))?;
    let full = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";
    let lengths = Lengths::of(&strings[0], &strings[1]).ok_or(full)?;
    if len {
        c.reply.int(lengths.len() as i64);
        return Ok(());
    }
    let mut matches = lengths.matches();
    if !idx {
        let runs = matches.iter().rev().flat_map(|run| &strings[0][run.one..][..run.len]);
        c.reply.bulk(&runs.copied().collect::<Vec<u8>>());
        return Ok(());
    }
    matches.retain(|run| run.len >= least);
    c.reply.map(2);
    c.reply.bulk(b"matches");
    c.reply.array(matches.len());
    for run in matches {
        c.reply.array(2 + usize::from(with_len));
        for start in [run.one, run.other] {
            c.reply.array(2);
            c.reply.int(start as i64);
            c.reply.int((start + run.len - 1) as i64);
        }
        if with_len {
            c.reply.int(run.len as i64);
        }
    }
    c.reply.bulk(b"len");
    c.reply.int(lengths.len() as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_those_of_the_documentation() {
        let lengths = Lengths::of(b"ohmytext", b"mynewtext").unwrap();
        let runs = [Match { one: 4, other: 5, len: 4 }, Match { one: 2, other: 0, len: 2 }];
        assert_eq!((lengths.len(), lengths.matches().as_slice()), (6, &runs[..]));
        assert!(Lengths::of(&vec![0; 1 << 20], &[0; 1 << 8]).is_none());
        assert!(Lengths::of(b"", b"x").unwrap().matches().is_empty());
    }
}
