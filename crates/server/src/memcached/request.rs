//! Requests of memcached's text and meta protocols: a line, and behind some a block of data.
//!
//! A [`Parser`] goes on where it stopped. What is wrong with one line is a request, too: the answer stands among the others.

use std::ops::Range;

use super::line::{Parsed, Verb, parse};
use super::words::words;

/// Bytes of a line.
const LINE_MAX: usize = 2048;
/// Bytes of a line that asks for many keys.
const KEYS_MAX: usize = 1 << 20;

const BAD_DATA: &str = "CLIENT_ERROR bad data chunk";

/// Nothing that follows is to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum End {
    /// The client says so.
    #[error("quit")]
    Quit,
    /// A line without an end.
    #[error("CLIENT_ERROR line too long")]
    Line,
}

/// Finds requests in bytes as they come.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// Here the next line or block begins.
    at: usize,
    /// From there on the line has not been looked at.
    seen: usize,
    /// The request that is not complete begins here.
    start: usize,
    /// Bytes of a block that is not wanted.
    skip: usize,
    /// A line whose block of data has not come yet, and the bytes of that.
    open: Option<(Found, usize)>,
}

impl Parser {
    /// True once a request is complete, which is then the last one of `batch`. `buffer` begins where it began with the calls before, and is longer or
    /// the same. Items have `item_max` bytes at most.
    ///
    /// # Errors
    /// Why this was the last one.
    pub(super) fn advance(&mut self, buffer: &[u8], item_max: usize, batch: &mut Batch) -> Result<bool, End> {
        if self.skip > 0 {
            let some = self.skip.min(buffer.len() - self.at);
            self.skip -= some;
            self.go_on(self.at + some);
            if self.skip > 0 {
                return Ok(false);
            }
        }
        if let Some((found, len)) = self.open.take() {
            return Ok(self.block(buffer, found, len, batch));
        }
        let Some((line, next)) = self.line(buffer)? else { return Ok(false) };
        let words = &buffer[line.clone()];
        // A browser that was sent here by a page: what follows is not a person's.
        if [&b"POST "[..], b"Host:"]
            .iter()
            .any(|page| words.get(..5).is_some_and(|begin| begin.eq_ignore_ascii_case(page)))
        {
            return Err(End::Quit);
        }
        match parse(words, item_max) {
            Parsed::Quit => return Err(End::Quit),
            Parsed::Plain(verb, quiet) => batch.push(Found { verb, quiet, line, data: 0..0 }),
            Parsed::Gats(verbs) => {
                for verb in verbs {
                    // The `Gets` of a `gats` has a moment before its keys.
                    batch.push(Found { verb, quiet: verb == Verb::Touches, line: line.clone(), data: 0..0 });
                }
            }
            Parsed::Swallow(verb, quiet, len) => {
                batch.push(Found { verb, quiet, line, data: 0..0 });
                self.skip = len;
            }
            Parsed::Block(verb, quiet, len) => {
                (self.at, self.seen) = (next, next);
                return Ok(self.block(buffer, Found { verb, quiet, line, data: 0..0 }, len, batch));
            }
        }
        self.go_on(next);
        Ok(true)
    }

    fn go_on(&mut self, at: usize) {
        (self.at, self.seen, self.start) = (at, at, at);
    }

    /// The line that begins here, and where the next one does; none if it has not come yet.
    fn line(&mut self, buffer: &[u8]) -> Result<Option<(Range<usize>, usize)>, End> {
        let rest = &buffer[self.at..];
        let max = if asks_for_keys(rest) { KEYS_MAX } else { LINE_MAX };
        let fresh = &rest[self.seen - self.at..rest.len().min(max).max(self.seen - self.at)];
        let Some(len) = fresh.iter().position(|byte| *byte == b'\n') else {
            self.seen += fresh.len();
            return if rest.len() >= max { Err(End::Line) } else { Ok(None) };
        };
        let end = self.seen + len;
        let without = if buffer[self.at..end].ends_with(b"\r") { end - 1 } else { end };
        Ok(Some((self.at..without, end + 1)))
    }

    /// The block behind a line; false if it has not come yet.
    fn block(&mut self, buffer: &[u8], mut found: Found, len: usize, batch: &mut Batch) -> bool {
        let end = self.at + len;
        let Some(last) = buffer.get(end..end + 2) else {
            self.open = Some((found, len));
            return false;
        };
        if last == b"\r\n" {
            found.data = self.at..end;
        } else {
            found.verb = Verb::Refused(BAD_DATA);
        }
        batch.push(found);
        self.go_on(end + 2);
        true
    }

    /// Bytes that are still to come for certain.
    pub(super) fn wanted(&self, buffer: &[u8]) -> usize {
        self.open.as_ref().map_or(0, |(_, len)| (self.at + len + 2).saturating_sub(buffer.len()))
    }

    /// Bytes of complete requests, which the caller takes off the front of the buffer now.
    pub(super) fn discard(&mut self) -> usize {
        let gone = std::mem::take(&mut self.start);
        self.at -= gone;
        self.seen -= gone;
        if let Some((found, _)) = &mut self.open {
            found.line = found.line.start - gone..found.line.end - gone;
        }
        gone
    }
}

fn asks_for_keys(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    [&b"get "[..], b"gets ", b"gat ", b"gats "].iter().any(|name| line.starts_with(name))
}

/// A request, and where it lies in the buffer.
#[derive(Clone, Debug)]
struct Found {
    verb: Verb,
    quiet: bool,
    line: Range<usize>,
    data: Range<usize>,
}

/// Requests that are complete.
#[derive(Debug, Default)]
pub(super) struct Batch(Vec<Found>);

impl Batch {
    fn push(&mut self, found: Found) {
        self.0.push(found);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Forgets all, and gives memory back that is seldom needed.
    pub(super) fn clear(&mut self) {
        self.0.clear();
        self.0.shrink_to(1024);
    }

    /// One of them, found in `buffer`.
    pub(super) fn get<'b>(&self, at: usize, buffer: &'b [u8]) -> Option<Request<'b>> {
        let Found { verb, quiet, line, data } = self.0.get(at)?;
        let bytes = |range: &Range<usize>| buffer.get(range.clone()).unwrap_or_default();
        Some(Request { verb: *verb, quiet: *quiet, line: bytes(line), data: bytes(data) })
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request<'b> {
    pub(super) verb: Verb,
    /// The client waits for no answer, not even for an error.
    pub(super) quiet: bool,
    line: &'b [u8],
    pub(super) data: &'b [u8],
}

impl<'b> Request<'b> {
    /// The words of the line, the command first.
    pub(super) fn words(&self) -> impl Iterator<Item = &'b [u8]> + Clone + use<'b> {
        words(self.line)
    }

    pub(super) fn word(&self, at: usize) -> &'b [u8] {
        self.words().nth(at).unwrap_or_default()
    }

    /// Its keys, as they are written.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'b [u8]> + use<'b> {
        let many = matches!(self.verb, Verb::Get | Verb::Gets | Verb::Gat | Verb::Touches);
        // `gat` and `gats` have a moment before their keys.
        let first = if self.word(0).starts_with(b"gat") { 2 } else { 1 };
        self.words().skip(first).take(if many { usize::MAX } else { 1 })
    }

    /// Bytes of the line and the data.
    pub(super) fn bytes(&self) -> usize {
        self.line.len() + self.data.len()
    }

    /// Whether it may change the store.
    pub(super) fn writes(&self) -> bool {
        match self.verb {
            Verb::Gat | Verb::Touches | Verb::Store(_) | Verb::Incr | Verb::Decr => true,
            Verb::Delete | Verb::Touch | Verb::FlushAll | Verb::TooLarge => true,
            Verb::MetaSet | Verb::MetaDelete | Verb::MetaArithmetic => true,
            Verb::MetaGet => self.has_flag(b"TNR"),
            _ => false,
        }
    }

    /// Whether it answers with versions: those of what its own transaction has written are not known in it.
    pub(super) fn tells_versions(&self) -> bool {
        match self.verb {
            Verb::Gets | Verb::MetaDebug => true,
            Verb::MetaGet | Verb::MetaSet | Verb::MetaArithmetic => self.has_flag(b"c"),
            _ => false,
        }
    }

    pub(super) fn has_flag(&self, any: &[u8]) -> bool {
        self.words().skip(2).any(|word| any.contains(&word[0]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ITEM_MAX: usize = 30;

    type Seen = (Verb, bool, Vec<Vec<u8>>, Vec<u8>);

    /// All requests in `bytes`, which come `piece` by piece, and how they ended.
    fn all(bytes: &[u8], piece: usize) -> (Vec<Seen>, Option<End>) {
        let (mut parser, mut buffer, mut found) = (Parser::default(), Vec::new(), Vec::new());
        let mut batch = Batch::default();
        for some in bytes.chunks(piece) {
            buffer.extend_from_slice(some);
            let end = loop {
                match parser.advance(&buffer, ITEM_MAX, &mut batch) {
                    Ok(true) => {}
                    Ok(false) => break None,
                    Err(end) => break Some(end),
                }
            };
            assert!(parser.wanted(&buffer) <= ITEM_MAX + 2);
            found.extend(
                (0..batch.len())
                    .filter_map(|at| batch.get(at, &buffer))
                    .map(|one| (one.verb, one.quiet, one.words().map(<[u8]>::to_vec).collect(), one.data.to_vec())),
            );
            batch.clear();
            if end.is_some() {
                return (found, end);
            }
            buffer.drain(..parser.discard());
            assert!(buffer.len() <= KEYS_MAX.max(ITEM_MAX + 2));
        }
        (found, None)
    }

    fn verbs(bytes: &[u8]) -> Vec<Verb> {
        let (found, end) = all(bytes, bytes.len());
        assert_eq!(end, None);
        found.into_iter().map(|one| one.0).collect()
    }

    #[test]
    fn requests_are_found_however_they_are_cut() {
        let bytes = b"get a  b\nset a 1 2 5\r\nab\r\nc\r\nms k 2 c\r\nhi\r\n\r\n incr n 5 noreply\r\nset a 0 0 31\r\n\
            0123456789012345678901234567890\r\ngats -1 a\r\nset a 0 0 1\r\nabc\r\nmn\r\nquit\r\nget a\r\n";
        let expected = [
            Verb::Get,
            Verb::Store(super::super::flags::Mode::Set),
            Verb::MetaSet,
            Verb::Refused("ERROR"),
            Verb::Incr,
            Verb::TooLarge,
            Verb::Gets,
            Verb::Touches,
            Verb::Refused("CLIENT_ERROR bad data chunk"),
            // The data were longer than was said.
            Verb::Refused("ERROR"),
            Verb::MetaNoop,
        ];
        let (found, end) = all(bytes, bytes.len());
        assert_eq!(found.iter().map(|one| one.0).collect::<Vec<_>>(), expected);
        assert_eq!((found[1].3.as_slice(), found[2].3.as_slice(), end), (&b"ab\r\nc"[..], &b"hi"[..], Some(End::Quit)));
        assert_eq!(found.iter().map(|one| one.1).filter(|quiet| *quiet).count(), 2);
        for piece in 1..bytes.len() {
            assert_eq!(all(bytes, piece), (found.clone(), end), "{piece}");
        }
    }

    #[test]
    fn lines_end() {
        let long = |head: &[u8], len: usize| all(&[head, &vec![b'x'; len][..], b"\r\n"].concat(), 1000).1;
        assert_eq!(long(b"get ", 2000), None);
        assert_eq!(long(b"set ", 2000), None);
        assert_eq!(long(b"set ", LINE_MAX), Some(End::Line));
        assert_eq!(long(b"get ", LINE_MAX), None);
        assert_eq!(long(b"gats 0 ", KEYS_MAX), Some(End::Line));
    }

    #[test]
    fn what_follows_a_refused_line_is_as_memcached_takes_it() {
        // The length is known, so the data are, too.
        assert_eq!(verbs(b"ms a 2 v v\r\nhi\r\nmn\r\n").last(), Some(&Verb::MetaNoop));
        assert_eq!(verbs(b"ms a 2 v v\r\nhi\r\nmn\r\n").len(), 2);
        // It is not, or not said to be.
        assert_eq!(verbs(b"set a x 0 2\r\nhi\r\nmn\r\n").len(), 3);
        assert_eq!(verbs(b"set a 0 0 -1\r\nmn\r\n").len(), 2);
        assert!(all(b"delete noreply\r\ndelete a noreply\r\n", 99).0.iter().map(|one| one.1).eq([false, true]));
        assert_eq!(verbs(b"get a\x01\r\n"), [Verb::Refused("CLIENT_ERROR bad command line format")]);
    }

    #[test]
    fn what_tells_versions_and_what_writes_is_known_before() {
        let of = |line: &[u8]| {
            let mut batch = Batch::default();
            let (mut parser, line) = (Parser::default(), [line, b"\r\n"].concat());
            assert_eq!(parser.advance(&line, ITEM_MAX, &mut batch), Ok(true));
            batch.get(0, &line).map(|one| (one.writes(), one.tells_versions())).unwrap()
        };
        for (line, expected) in [
            (&b"get cas"[..], (false, false)),
            (b"gets a", (false, true)),
            (b"gat 0 a", (true, false)),
            (b"gats 0 a", (true, false)),
            (b"mg c v k t s f q O1", (false, false)),
            (b"mg a c", (false, true)),
            (b"mg a T0 c", (true, true)),
            (b"mg a R30", (true, false)),
            (b"mg a N30 c", (true, true)),
            (b"md a", (true, false)),
            (b"ma a c", (true, true)),
            (b"me a", (false, true)),
            (b"stats", (false, false)),
            (b"flush_all", (true, false)),
        ] {
            assert_eq!(of(line), expected, "{}", line.escape_ascii());
        }
    }

    fn some_bytes() -> impl Strategy<Value = Vec<u8>> {
        let words = [
            "get",
            "gets",
            "gat",
            "gats",
            "set",
            "cas",
            "add",
            "append",
            "delete",
            "incr",
            "touch",
            "flush_all",
            "mg",
            "ms",
            "md",
            "ma",
            "me",
            "mn",
            "quit",
            "noreply",
            " ",
            " ",
            " ",
            " ",
            "\r\n",
            "\r\n",
            "\n",
            "a",
            "b",
            "0",
            "1",
            "5",
            "40",
            "-1",
            "v",
            "c",
            "q",
            "T5",
            "C1",
            "I",
            "MA",
            "YQ==",
            "O1",
        ];
        let word = prop::sample::select(words.to_vec()).prop_map(|word| word.as_bytes().to_vec());
        let one = prop_oneof![9 => word, 1 => prop::collection::vec(any::<u8>(), 1..4)];
        prop::collection::vec(one, 0..60).prop_map(|all| all.concat())
    }

    proptest! {
        #[test]
        fn any_bytes_are_the_same_requests_however_they_are_cut(bytes in some_bytes(), piece in 2_usize..60) {
            prop_assert_eq!(all(&bytes, piece), all(&bytes, 1));
        }

        #[test]
        fn what_is_written_is_read(
            items in prop::collection::vec(("[a-z]{1,9}", any::<u32>(), prop::collection::vec(any::<u8>(), 0..ITEM_MAX)), 0..6),
            piece in 1_usize..100,
        ) {
            let write = |(key, flags, data): &(String, u32, Vec<u8>)| {
                [format!("set {key} {flags} 0 {}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
            };
            let bytes: Vec<u8> = items.iter().flat_map(write).collect();
            let (found, end) = all(&bytes, piece);
            prop_assert_eq!(end, None);
            prop_assert_eq!(found.into_iter().map(|one| one.3).collect::<Vec<_>>(), items.into_iter().map(|item| item.2).collect::<Vec<_>>());
        }
    }
}
