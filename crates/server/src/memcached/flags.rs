//! The flags of the meta commands, which say what is to be done and what is to be answered.

use std::borrow::Cow;

use super::words::number;
use super::{BAD_LINE, base64};

/// Bytes of an opaque token, with its letter.
const OPAQUE_MAX: usize = 32;
const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";

/// How to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Set,
    /// Only if there is none.
    Add,
    /// Only if there is one.
    Replace,
    Append,
    Prepend,
    /// Only if it is unchanged.
    Cas,
}

/// A key and flags.
pub(super) struct Meta<'b> {
    pub(super) key: Cow<'b, [u8]>,
    /// In the order they came in.
    pub(super) flags: Vec<&'b [u8]>,
    pub(super) client_flags: u32,
    pub(super) cas: Option<u64>,
    pub(super) delta: u64,
    pub(super) initial: u64,
    pub(super) mode: Option<u8>,
    pub(super) touch: Option<i64>,
    pub(super) vivify: Option<i64>,
    pub(super) recache: Option<i64>,
}

impl<'b> Meta<'b> {
    /// Of the words behind a command. A flag that stands twice or is unknown is worse than others with a wrong token.
    pub(super) fn parse(mut words: impl Iterator<Item = &'b [u8]>) -> Result<Self, &'static str> {
        let mut meta = Self {
            key: Cow::Borrowed(words.next().unwrap_or_default()),
            flags: words.collect(),
            client_flags: 0,
            cas: None,
            delta: 1,
            initial: 0,
            mode: None,
            touch: None,
            vivify: None,
            recache: None,
        };
        let (mut seen, mut wrong) = (0_u128, None);
        for flag in meta.flags.clone() {
            let bit = 1_u128.checked_shl(flag[0].into()).filter(|bit| flag[0] < 127 && seen & bit == 0);
            seen |= bit.ok_or("CLIENT_ERROR duplicate flag")?;
            if !b"bNTRlOPLkstcfvhuqFCMJDI".contains(&flag[0]) {
                return Err("CLIENT_ERROR invalid flag");
            }
            wrong = meta.take(flag).err().or(wrong);
        }
        wrong.map_or(Ok(meta), Err)
    }

    /// The words of an `ms` without the length.
    pub(super) fn of_set(words: impl Iterator<Item = &'b [u8]> + Clone) -> impl Iterator<Item = &'b [u8]> {
        words.clone().skip(1).take(1).chain(words.skip(3))
    }

    fn take(&mut self, flag: &[u8]) -> Result<(), &'static str> {
        let token = &flag[1..];
        match flag[0] {
            b'b' => self.key = Cow::Owned(base64::decode(&self.key).ok_or("CLIENT_ERROR error decoding key")?),
            b'N' => self.vivify = Some(number(token).ok_or(BAD_TOKEN)?),
            b'T' => self.touch = Some(number(token).ok_or(BAD_TOKEN)?),
            b'R' => self.recache = Some(number(token).ok_or(BAD_TOKEN)?),
            b'F' => self.client_flags = number(token).ok_or(BAD_LINE)?,
            b'C' => self.cas = Some(number(token).ok_or(BAD_TOKEN)?),
            b'M' => match token {
                [mode] => self.mode = Some(*mode),
                _ => return Err("CLIENT_ERROR incorrect length for M token"),
            },
            b'J' => self.initial = number(token).ok_or("CLIENT_ERROR invalid numeric initial value")?,
            b'D' => self.delta = number(token).ok_or("CLIENT_ERROR invalid numeric delta value")?,
            _ => {}
        }
        Ok(())
    }

    pub(super) fn check_opaque(&self) -> Result<(), &'static str> {
        let long = self.flags.iter().any(|flag| flag[0] == b'O' && flag.len() > OPAQUE_MAX);
        if long { Err("CLIENT_ERROR opaque token too long") } else { Ok(()) }
    }

    pub(super) fn has(&self, letter: u8) -> bool {
        self.flags.iter().any(|flag| flag[0] == letter)
    }

    /// How to store.
    pub(super) fn mode(&self) -> Result<Mode, &'static str> {
        let mode = match self.mode {
            None | Some(b'S') => Mode::Set,
            Some(b'E') => Mode::Add,
            Some(b'A') => Mode::Append,
            Some(b'P') => Mode::Prepend,
            Some(b'R') => Mode::Replace,
            Some(_) => return Err("CLIENT_ERROR invalid mode for ms M token"),
        };
        let compares = self.cas.is_some() && matches!(mode, Mode::Set | Mode::Replace);
        Ok(if compares { Mode::Cas } else { mode })
    }

    /// Up, or down.
    pub(super) fn is_increment(&self) -> Result<bool, &'static str> {
        match self.mode {
            None | Some(b'I' | b'+') => Ok(true),
            Some(b'D' | b'-') => Ok(false),
            Some(_) => Err("CLIENT_ERROR invalid mode for ma M token"),
        }
    }

    /// Copies what is to be repeated of one flag.
    pub(super) fn repeat(&self, flag: &[u8], head: &mut Vec<u8>) {
        match flag[0] {
            b'O' => {
                head.push(b' ');
                head.extend_from_slice(flag);
            }
            b'k' => {
                head.extend_from_slice(b" k");
                self.write_key(head);
            }
            _ => {}
        }
    }

    fn write_key(&self, head: &mut Vec<u8>) {
        if !self.has(b'b') {
            return head.extend_from_slice(&self.key);
        }
        head.extend_from_slice(&base64::encode(&self.key));
        head.extend_from_slice(b" b");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_or_refused() {
        let parse = |line: &'static str| {
            Meta::parse(line.as_bytes().split(|byte| *byte == b' ')).map(|meta| meta.key.into_owned())
        };
        assert_eq!(parse("a v t T30 O1").unwrap(), b"a");
        assert_eq!(parse("AQI= b k").unwrap(), [1, 2]);
        for (line, wrong) in [
            ("a v v", "CLIENT_ERROR duplicate flag"),
            ("a \u{80}", "CLIENT_ERROR duplicate flag"),
            ("a x", "CLIENT_ERROR invalid flag"),
            ("a Tx x", "CLIENT_ERROR invalid flag"),
            ("a T", "CLIENT_ERROR bad token in command line format"),
            ("a Tx Mxx", "CLIENT_ERROR incorrect length for M token"),
            ("a= b", "CLIENT_ERROR error decoding key"),
        ] {
            assert_eq!(parse(line), Err(wrong), "{line}");
        }
    }
}
