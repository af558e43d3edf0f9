//! Requests of Redis' protocol: arrays of bulk strings, or lines typed by hand.
//!
//! A [`Parser`] goes on where it stopped, so a large request that arrives in many pieces is looked at once.

use std::ops::Range;

use crate::buffer::{Buffer, free};

/// What a request may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Arguments, the command included.
    pub arguments: usize,
    /// Bytes of an argument.
    pub argument: usize,
    /// Bytes of all arguments of a request, and of what has come of one that is not complete.
    pub request: usize,
}

impl Limits {
    /// For a client that has not authenticated: enough to do so.
    pub const STRANGER: Self = Self { arguments: 10, argument: 16 << 10, request: 32 << 10 };
}

/// Bytes of a line: the head of an array or of a bulk string, or an inline request.
const LINE_MAX: usize = 64 << 10;

/// What is wrong with the bytes; the connection cannot go on. The texts are Redis' own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A number that is none, or too large.
    #[error("Protocol error: invalid multibulk length")]
    Arguments,
    /// A number that is none, negative or too large.
    #[error("Protocol error: invalid bulk length")]
    Argument,
    /// More than a stranger may send.
    #[error("Protocol error: unauthenticated multibulk length")]
    StrangersArguments,
    /// More than a stranger may send.
    #[error("Protocol error: unauthenticated bulk length")]
    StrangersArgument,
    /// Something else where a bulk string begins.
    #[error("Protocol error: expected '$', got '{}'", .0.escape_ascii())]
    Dollar(u8),
    /// The head of an array without an end.
    #[error("Protocol error: too big mbulk count string")]
    CountLine,
    /// The head of a bulk string without an end.
    #[error("Protocol error: too big bulk count string")]
    BulkLine,
    /// A line without an end.
    #[error("Protocol error: too big inline request")]
    InlineLine,
    /// A quote that is not closed.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
    /// More than the limit for all arguments together.
    #[error("Protocol error: request too large")]
    Request,
}

/// Finds requests in bytes as they come.
#[derive(Debug, Default)]
pub struct Parser {
    /// Up to here the buffer has been looked at.
    at: usize,
    /// The request that is not complete begins here.
    start: usize,
    /// Arguments still to come; none outside of an array.
    missing: Option<usize>,
    /// Bytes of the next one, if its head has come.
    bulk: Option<usize>,
    /// Where arguments are in the buffer.
    arguments: Vec<Range<usize>>,
    bytes: usize,
}

impl Parser {
    /// True once a request is complete, which is then the last one of `batch`. `buffer` begins where it began with the calls before, and is longer or
    /// the same.
    ///
    /// # Errors
    /// What is wrong; nothing that follows can be understood.
    pub fn advance(&mut self, buffer: &[u8], limits: &Limits, batch: &mut Batch) -> Result<bool, Malformed> {
        let stranger = *limits == Limits::STRANGER;
        loop {
            let Some(missing) = self.missing else {
                match buffer.get(self.at) {
                    None => return Ok(false),
                    Some(b'*') => {
                        let Some((line, next)) = line(buffer, self.at, Malformed::CountLine)? else { return Ok(false) };
                        let count = number(&line[1..]).ok_or(Malformed::Arguments)?;
                        if count > limits.arguments as i64 {
                            return Err(if stranger { Malformed::StrangersArguments } else { Malformed::Arguments });
                        }
                        self.at = next;
                        // Nothing is answered to nothing.
                        self.missing = usize::try_from(count).ok().filter(|count| *count > 0);
                        if self.missing.is_none() {
                            self.start = next;
                        }
                        continue;
                    }
                    Some(_) => {
                        let Some((line, next)) = line(buffer, self.at, Malformed::InlineLine)? else {
                            return Ok(false);
                        };
                        let (bytes, arguments) = unquote(line).ok_or(Malformed::Quotes)?;
                        if stranger && (bytes.len() > limits.argument || arguments.len() > limits.arguments) {
                            return Err(Malformed::StrangersArgument);
                        }
                        (self.at, self.start) = (next, next);
                        if arguments.is_empty() {
                            continue;
                        }
                        batch.push_inline(&bytes, arguments);
                        return Ok(true);
                    }
                }
            };
            if missing == 0 {
                batch.push(&mut self.arguments);
                (self.missing, self.bytes, self.start) = (None, 0, self.at);
                return Ok(true);
            }
            let Some(len) = self.bulk else {
                let Some(first) = buffer.get(self.at) else { return Ok(false) };
                if *first != b'$' {
                    return Err(Malformed::Dollar(*first));
                }
                let Some((line, next)) = line(buffer, self.at, Malformed::BulkLine)? else { return Ok(false) };
                let len = number(&line[1..]).and_then(|len| usize::try_from(len).ok()).ok_or(Malformed::Argument)?;
                if len > limits.argument {
                    return Err(if stranger { Malformed::StrangersArgument } else { Malformed::Argument });
                }
                self.bytes += len;
                if self.bytes > limits.request {
                    return Err(Malformed::Request);
                }
                self.at = next;
                self.bulk = Some(len);
                continue;
            };
            if buffer.len() < self.at + len + 2 {
                return Ok(false);
            }
            self.arguments.push(self.at..self.at + len);
            self.at += len + 2;
            (self.missing, self.bulk) = (Some(missing - 1), None);
        }
    }

    /// Bytes that are still to come for certain, as far as is known: room for them can be made at once.
    #[must_use]
    pub fn wanted(&self, buffer: &[u8]) -> usize {
        self.bulk.map_or(0, |len| (self.at + len + 2).saturating_sub(buffer.len()))
    }

    /// Bytes of complete requests, which the caller takes off the front of the buffer now.
    pub fn discard(&mut self) -> usize {
        let gone = std::mem::take(&mut self.start);
        self.at -= gone;
        for range in &mut self.arguments {
            *range = range.start - gone..range.end - gone;
        }
        gone
    }
}

/// Requests that are complete.
#[derive(Debug, Default)]
pub struct Batch {
    ranges: Vec<Range<usize>>,
    requests: Vec<(Range<usize>, bool)>,
    /// Arguments of inline requests, which are not in the buffer as they are.
    unquoted: Buffer,
}

impl Drop for Batch {
    fn drop(&mut self) {
        free(std::mem::take(&mut self.ranges));
        free(std::mem::take(&mut self.requests));
    }
}

impl Batch {
    fn push(&mut self, arguments: &mut Vec<Range<usize>>) {
        let from = self.ranges.len();
        if from == 0 {
            // There may be a million: the parser gets the room of these, which is not much.
            std::mem::swap(&mut self.ranges, arguments);
        } else {
            self.ranges.append(arguments);
        }
        self.requests.push((from..self.ranges.len(), false));
    }

    fn push_inline(&mut self, bytes: &[u8], arguments: Vec<Range<usize>>) {
        let (from, base) = (self.ranges.len(), self.unquoted.len());
        self.ranges.extend(arguments.into_iter().map(|range| range.start + base..range.end + base));
        self.unquoted.extend_from_slice(bytes);
        self.requests.push((from..self.ranges.len(), true));
    }

    /// A copy of a request, which no buffer is needed for.
    pub fn push_copy(&mut self, arguments: &Arguments<'_>) {
        self.push_words(arguments.from(0));
    }

    /// The same of a command and its arguments, one by one.
    pub fn push_words<'w>(&mut self, words: impl Iterator<Item = &'w [u8]>) {
        let from = self.ranges.len();
        for argument in words {
            self.ranges.push(self.unquoted.len()..self.unquoted.len() + argument.len());
            self.unquoted.extend_from_slice(argument);
        }
        self.requests.push((from..self.ranges.len(), true));
    }

    /// Requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Bytes of the copies.
    #[must_use]
    pub fn copied(&self) -> usize {
        self.unquoted.len()
    }

    /// Forgets all, and gives memory back that is seldom needed.
    pub fn clear(&mut self) {
        self.ranges.clear();
        if self.ranges.capacity() > 1024 {
            free(std::mem::take(&mut self.ranges));
        }
        self.requests.clear();
        self.unquoted.reset(4096);
    }

    /// One of them, found in `buffer`; without arguments if there are not so many.
    #[must_use]
    pub fn arguments<'b>(&'b self, at: usize, buffer: &'b [u8]) -> Arguments<'b> {
        let Some((range, copied)) = self.requests.get(at) else { return Arguments { bytes: &[], ranges: &[] } };
        let bytes = if *copied { &self.unquoted[..] } else { buffer };
        Arguments { bytes, ranges: self.ranges.get(range.clone()).unwrap_or_default() }
    }
}

/// A command and its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'b> {
    bytes: &'b [u8],
    ranges: &'b [Range<usize>],
}

impl<'b> Arguments<'b> {
    /// How many, the command included; never 0.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Never, but of a request that is not there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// One; empty if there are not so many.
    #[must_use]
    pub fn get(&self, at: usize) -> &'b [u8] {
        self.ranges.get(at).and_then(|range| self.bytes.get(range.clone())).unwrap_or_default()
    }

    /// Those from `at` on, as a request.
    pub fn behind(&self, at: usize) -> Self {
        Self { bytes: self.bytes, ranges: self.ranges.get(at..).unwrap_or_default() }
    }

    /// Those from `at` on.
    pub fn from(&self, at: usize) -> impl Iterator<Item = &'b [u8]> + use<'b> {
        let bytes = self.bytes;
        self.ranges.iter().skip(at).map(move |range| bytes.get(range.clone()).unwrap_or_default())
    }
}

/// The line at `at` without its end, and where the next one begins; none if it has not come yet.
fn line(buffer: &[u8], at: usize, too_long: Malformed) -> Result<Option<(&[u8], usize)>, Malformed> {
    let rest = &buffer[at..];
    let Some(len) = rest.iter().take(LINE_MAX).position(|byte| *byte == b'\n') else {
        return if rest.len() >= LINE_MAX { Err(too_long) } else { Ok(None) };
    };
    let line = &rest[..len];
    Ok(Some((line.strip_suffix(b"\r").unwrap_or(line), at + len + 1)))
}

/// A decimal number as the protocol writes it.
#[must_use]
pub fn number(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let canonical = match digits {
        [b'0'] => digits.len() == text.len(),
        [first, ..] => *first != b'0' && digits.iter().all(u8::is_ascii_digit),
        [] => false,
    };
    if !canonical || text.len() > 20 {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The words of a line, with quotes as a shell has them; none if one is not closed.
pub(crate) fn split_words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (bytes, words) = unquote(line)?;
    Some(words.into_iter().map(|word| bytes[word].to_vec()).collect())
}

/// The words of a line, with quotes as a shell has them; none if one is not closed, or goes on behind its end.
fn unquote(line: &[u8]) -> Option<(Vec<u8>, Vec<Range<usize>>)> {
    let (mut bytes, mut ranges) = (Vec::new(), Vec::new());
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        if at == line.len() {
            return Some((bytes, ranges));
        }
        let from = bytes.len();
        while let Some(byte) = line.get(at).filter(|byte| !byte.is_ascii_whitespace()) {
            at += 1;
            match byte {
                b'"' => {
                    at = double_quoted(line, at, &mut bytes)?;
                    (line.get(at).is_none_or(u8::is_ascii_whitespace)).then_some(())?;
                }
                b'\'' => {
                    at = single_quoted(line, at, &mut bytes)?;
                    (line.get(at).is_none_or(u8::is_ascii_whitespace)).then_some(())?;
                }
                other => bytes.push(*other),
            }
        }
        ranges.push(from..bytes.len());
    }
}

fn double_quoted(line: &[u8], mut at: usize, into: &mut Vec<u8>) -> Option<usize> {
    loop {
        match line.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => {
                let hex = line.get(at + 2..at + 4).and_then(|hex| std::str::from_utf8(hex).ok());
                if line.get(at + 1) == Some(&b'x')
                    && let Some(byte) = hex.filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
                {
                    into.push(u8::from_str_radix(byte, 16).ok()?);
                    at += 4;
                    continue;
                }
                into.push(match line.get(at + 1)? {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                at += 2;
            }
            other => {
                into.push(*other);
                at += 1;
            }
        }
    }
}

fn single_quoted(line: &[u8], mut at: usize, into: &mut Vec<u8>) -> Option<usize> {
    loop {
        match line.get(at)? {
            b'\'' => return Some(at + 1),
            b'\\' if line.get(at + 1) == Some(&b'\'') => {
                into.push(b'\'');
                at += 2;
            }
            other => {
                into.push(*other);
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { arguments: 1 << 20, argument: 1 << 20, request: 4 << 20 };

    /// All requests in `bytes`, which come `piece` by piece.
    fn all(bytes: &[u8], piece: usize, limits: &Limits) -> Result<Vec<Vec<Vec<u8>>>, Malformed> {
        let (mut parser, mut buffer, mut found) = (Parser::default(), Vec::new(), Vec::new());
        let mut batch = Batch::default();
        for some in bytes.chunks(piece) {
            buffer.extend_from_slice(some);
            while parser.advance(&buffer, limits, &mut batch)? {}
            found.extend((0..batch.len()).map(|at| batch.arguments(at, &buffer).from(0).map(<[u8]>::to_vec).collect()));
            batch.clear();
            buffer.drain(..parser.discard());
        }
        Ok(found)
    }

    fn words(words: &[&str]) -> Vec<Vec<u8>> {
        words.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn requests_are_found_however_they_are_cut() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n*0\r\n*-1\r\n\r\nPING\r\n set  \"a b\\x00\\n\" 'it\\'s' \r\n*1\r\n$0\r\n\r\n";
        let expected =
            vec![words(&["GET", "a\r\n"]), words(&["PING"]), words(&["set", "a b\0\n", "it's"]), words(&[""])];
        for piece in 1..bytes.len() {
            assert_eq!(all(bytes, piece, &LIMITS).unwrap(), expected, "{piece}");
        }
    }

    #[test]
    fn what_is_no_request_is_told() {
        let long = [b'a'; LINE_MAX];
        let with = |head: &[u8]| [head, &long].concat();
        for (bytes, wrong) in [
            (b"*x\r\n".to_vec(), Malformed::Arguments),
            (b"*99999999999999999999\r\n".to_vec(), Malformed::Arguments),
            (b"*2000000\r\n".to_vec(), Malformed::Arguments),
            (b"*1\r\n:5\r\n".to_vec(), Malformed::Dollar(b':')),
            (b"*1\r\n$-1\r\n".to_vec(), Malformed::Argument),
            (b"*1\r\n$ 1\r\n".to_vec(), Malformed::Argument),
            (b"*1\r\n$2000000\r\n".to_vec(), Malformed::Argument),
            (b"a \"b\r\n".to_vec(), Malformed::Quotes),
            (b"a \"b\"c\r\n".to_vec(), Malformed::Quotes),
            (with(b"*"), Malformed::CountLine),
            (with(b"*1\r\n$"), Malformed::BulkLine),
            (with(b""), Malformed::InlineLine),
        ] {
            assert_eq!(all(&bytes, 7, &LIMITS), Err(wrong), "{}", bytes.escape_ascii());
        }
        let one = [&b"*5\r\n"[..], &[b"$1000000\r\n", &[0; 1_000_000][..], b"\r\n"].concat().repeat(5)].concat();
        assert_eq!(all(&one, 10_000, &LIMITS), Err(Malformed::Request));
    }

    #[test]
    fn strangers_send_little() {
        let two = |bytes: &[u8]| all(bytes, 100, &Limits::STRANGER);
        assert_eq!(two(b"*11\r\n"), Err(Malformed::StrangersArguments));
        assert_eq!(two(b"*2\r\n$16385\r\n"), Err(Malformed::StrangersArgument));
        assert_eq!(two(b"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n").unwrap(), [words(&["AUTH", "x"])]);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            requests in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6), 0..6),
            piece in 1_usize..100,
        ) {
            let mut bytes = Vec::new();
            for request in &requests {
                bytes.extend(format!("*{}\r\n", request.len()).bytes());
                for argument in request {
                    bytes.extend(format!("${}\r\n", argument.len()).bytes());
                    bytes.extend(argument);
                    bytes.extend(b"\r\n");
                }
            }
            prop_assert_eq!(all(&bytes, piece, &LIMITS), Ok(requests));
        }

        #[test]
        fn any_bytes_are_requests_or_an_error(bytes in prop::collection::vec(prop_oneof![
            Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'"'), Just(b'\''), Just(b'\\'), b'0'..=b'9', any::<u8>()
        ], 0..200), piece in 1_usize..50) {
            prop_assert_eq!(all(&bytes, piece, &LIMITS), all(&bytes, 1, &LIMITS));
        }
    }
}
