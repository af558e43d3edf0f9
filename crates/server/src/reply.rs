//! Replies of Redis' protocol, of version 2 or 3.

use std::sync::Arc;

use crate::buffer::Buffer;

/// Bytes of a reply, or of those to a transaction, at most, with what stands before it and is not sent yet: from here on nothing more is added.
const MOST: usize = 1 << 30;
/// Bytes of room that one keeps for the next replies.
const KEPT: usize = 64 << 10;
/// Bytes from which on a message is not copied into the reply of each client that is to hear it.
const SHARED: usize = 16 << 10;

/// Where replies are written.
#[derive(Debug)]
pub struct Reply {
    bytes: Buffer,
    /// In their order; none at an end of `bytes`.
    shared: Vec<Shared>,
    /// Bytes of all that have been sent.
    pub(crate) sent: usize,
    /// Bytes from which on nothing more is added.
    most: usize,
    /// Version 3, which has more types.
    pub three: bool,
}

/// Bytes that others have, too.
#[derive(Debug)]
struct Shared {
    /// Where in the reply's own bytes they belong, and in all.
    offset: usize,
    start: usize,
    bytes: Arc<[u8]>,
}

impl Shared {
    /// All that is shared up to its end.
    fn until(&self) -> usize {
        self.start - self.offset + self.bytes.len()
    }
}

impl Reply {
    /// Nothing yet, for version 2.
    #[must_use]
    pub fn new() -> Self {
        Self::up_to(MOST)
    }

    /// One to which little is added from so many bytes on.
    pub(crate) fn up_to(most: usize) -> Self {
        Self { bytes: Buffer::new(), shared: Vec::new(), sent: 0, most, three: false }
    }

    /// All of it, and what has gone of it; nothing is left.
    pub(crate) fn take(&mut self) -> Self {
        let empty = Self { three: self.three, ..Self::up_to(self.most) };
        std::mem::replace(self, empty)
    }

    /// What was written, without what is shared with others: all of it, except of a subscriber.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes written, without what is shared: where something in it begins.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Nothing more is added, and what was left out is not known.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() > self.most
    }

    /// What is said of one that [is full](Self::is_full): it may lack something, and is not to be sent.
    pub(crate) fn too_long(&self) -> String {
        format!("the reply has more than {} bytes; ask for less at once", self.most)
    }

    /// An error if it is full: for a command whose arguments, or few of them, ask for far more than they take. To be asked between its parts, so that its time and memory have a bound, too.
    pub(crate) fn check_room(&self) -> Result<(), String> {
        if self.is_full() { Err(format!("ERR {}", self.too_long())) } else { Ok(()) }
    }

    /// True if nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.size() == 0
    }

    /// Bytes that are to be sent.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + self.shared.last().map_or(0, Shared::until)
    }

    /// What is to be sent next, or its beginning; nothing if all has been sent.
    pub(crate) fn unsent(&self) -> &[u8] {
        let begun = self.shared.partition_point(|shared| shared.start <= self.sent);
        let before = begun.checked_sub(1).and_then(|last| self.shared.get(last));
        if let Some(rest) = before.and_then(|shared| shared.bytes.get(self.sent - shared.start..))
            && !rest.is_empty()
        {
            return rest;
        }
        let from = self.sent - before.map_or(0, Shared::until);
        let to = self.shared.get(begun).map_or(self.bytes.len(), |next| next.offset);
        self.bytes.get(from..to).unwrap_or_default()
    }

    /// Takes back all behind the first `len` bytes, of those that are not shared.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
        self.shared.truncate(self.shared.partition_point(|shared| shared.offset < len));
    }

    /// Forgets what was written, and gives memory back that is seldom needed.
    pub fn clear(&mut self) {
        (self.shared, self.sent) = (Vec::new(), 0);
        self.bytes.reset(KEPT);
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.bytes.push(kind);
        // A line cannot have one within.
        self.bytes.extend(text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn head(&mut self, kind: u8, number: i64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = number.unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.bytes.push(kind);
        if number < 0 {
            self.bytes.push(b'-');
        }
        self.bytes.extend_from_slice(&digits[at..]);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Bytes as they are: another protocol's.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A word.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// `OK`.
    pub fn ok(&mut self) {
        self.bytes.extend_from_slice(b"+OK\r\n");
    }

    /// An error, which begins with its code.
    pub fn error(&mut self, text: &str) {
        self.error_bytes(text.as_bytes());
    }

    /// A word, and an error, of any bytes.
    pub(crate) fn simple_bytes(&mut self, text: &[u8]) {
        self.line(b'+', text);
    }

    pub(crate) fn error_bytes(&mut self, text: &[u8]) {
        let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
        self.line(b'-', &text[..end]);
    }

    /// Yes or no; 1 or 0 for version 2.
    pub(crate) fn boolean(&mut self, yes: bool) {
        if self.three {
            self.bytes.extend_from_slice(if yes { b"#t\r\n" } else { b"#f\r\n" });
        } else {
            self.int(yes.into());
        }
    }

    /// A number of any length, as text.
    pub(crate) fn big_number(&mut self, digits: &[u8]) {
        if self.three {
            return self.line(b'(', digits);
        }
        let digits: Vec<u8> =
            digits.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect();
        self.bulk(&digits);
    }

    /// Text of a kind, which has three letters.
    pub(crate) fn verbatim_bytes(&mut self, kind: &[u8], text: &[u8]) {
        if !self.three {
            return self.bulk(text);
        }
        let letter = |at: usize| kind.get(at).copied().unwrap_or(b' ');
        self.head(b'=', text.len() as i64 + 4);
        self.bytes.extend_from_slice(&[letter(0), letter(1), letter(2), b':']);
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// A number.
    pub fn int(&mut self, number: i64) {
        self.head(b':', number);
    }

    /// Bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        // Far too much already: the code that runs the command sees that, and answers something else.
        if self.bytes.len() > self.most {
            return;
        }
        self.head(b'$', bytes.len() as i64);
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// So many bytes, which `write` appends. After an error the reply is to be taken back.
    pub(crate) fn bulk_with<E>(
        &mut self,
        len: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.bytes.len() > self.most {
            return Ok(());
        }
        self.head(b'$', len as i64);
        self.raw_with(len, write)?;
        self.bytes.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// The same, of another protocol.
    pub(crate) fn raw_with<E>(
        &mut self,
        len: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.bytes.reserve(len + 2);
        write(&mut self.bytes)
    }

    /// Bytes that are sent to others as well: if they are many they stay where they are until they are sent.
    pub(crate) fn shared_bulk(&mut self, bytes: &Arc<[u8]>) {
        if bytes.len() < SHARED || self.bytes.len() > self.most {
            return self.bulk(bytes);
        }
        self.head(b'$', bytes.len() as i64);
        self.shared.push(Shared { offset: self.bytes.len(), start: self.size(), bytes: bytes.clone() });
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Text for people.
    pub fn verbatim(&mut self, text: &str) {
        if !self.three {
            return self.bulk(text.as_bytes());
        }
        self.head(b'=', text.len() as i64 + 4);
        self.bytes.extend_from_slice(b"txt:");
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Nothing, where bytes might be.
    pub fn null(&mut self) {
        self.bytes.extend_from_slice(if self.three { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Nothing, where an array might be.
    pub fn null_array(&mut self) {
        self.bytes.extend_from_slice(if self.three { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// Bytes, or nothing.
    pub fn maybe(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// So many follow.
    pub fn array(&mut self, len: usize) {
        self.head(b'*', len as i64);
    }

    /// So many pairs follow; for version 2 twice as many values.
    pub fn map(&mut self, pairs: usize) {
        if self.three { self.head(b'%', pairs as i64) } else { self.array(2 * pairs) }
    }

    /// So many follow, for which the client has not asked; for version 2 an array.
    pub fn push(&mut self, len: usize) {
        self.head(if self.three { b'>' } else { b'*' }, len as i64);
    }

    /// Takes all behind the first `len` bytes, of which nothing is shared: an answer.
    pub(crate) fn split_off(&mut self, len: usize) -> Vec<u8> {
        self.bytes.split_off(len)
    }

    /// So many members follow, in no order.
    pub fn set(&mut self, len: usize) {
        self.head(if self.three { b'~' } else { b'*' }, len as i64);
    }

    /// A number with a point, perhaps.
    pub fn double(&mut self, number: f64) {
        let text = double(number);
        if self.three { self.line(b',', text.as_bytes()) } else { self.bulk(text.as_bytes()) }
    }

    /// The same, or nothing.
    pub fn maybe_double(&mut self, number: Option<f64>) {
        match number {
            Some(number) => self.double(number),
            None => self.null(),
        }
    }
}

/// As Redis has written numbers since 7.2: in the fewest digits that mean this one and no other.
pub(crate) fn double(number: f64) -> String {
    /// Whole numbers up to here are written as such.
    const WHOLE: f64 = (1_u64 << 52) as f64;
    if number.is_nan() {
        return if number.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if number.abs() < WHOLE && number.fract() == 0.0 || !number.is_finite() {
        return number.to_string();
    }
    let text = format!("{number:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let count = digits.bytes().filter(u8::is_ascii_digit).count() as i32;
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let last = exponent - (count - 1);
    let plain = if last < 0 { last > -7 || exponent.abs() < 4 } else { exponent.abs() < count + 7 };
    let plus = if exponent < 0 { "" } else { "+" };
    if plain { number.to_string() } else { format!("{digits}e{plus}{exponent}") }
}

impl Default for Reply {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_as_the_protocol_has_them() {
        let mut two = Reply::new();
        for number in [0, 7, -1, i64::MAX, i64::MIN] {
            two.int(number);
        }
        assert_eq!(two.bytes(), b":0\r\n:7\r\n:-1\r\n:9223372036854775807\r\n:-9223372036854775808\r\n");
        two.clear();
        two.error("ERR a\r\nb");
        two.map(1);
        two.bulk(b"\r\n");
        two.null();
        assert_eq!(two.bytes(), b"-ERR a  b\r\n*2\r\n$2\r\n\r\n\r\n$-1\r\n");
        let mut three = Reply { three: true, ..Reply::new() };
        three.map(1);
        three.verbatim("a");
        three.null_array();
        assert_eq!(three.bytes(), b"%1\r\n=5\r\ntxt:a\r\n_\r\n");
        for reply in [&mut two, &mut three] {
            reply.clear();
            reply.set(1);
            reply.double(1.5);
        }
        assert_eq!((two.bytes(), three.bytes()), (&b"*1\r\n$3\r\n1.5\r\n"[..], &b"~1\r\n,1.5\r\n"[..]));
    }

    #[test]
    fn what_is_shared_is_sent_in_its_place() {
        let mut reply = Reply::new();
        let long: Arc<[u8]> = (0..SHARED).map(|n| n as u8).collect();
        let mut all = Vec::new();
        for n in 0..3 {
            reply.int(n);
            reply.shared_bulk(&long);
            all.extend(format!(":{n}\r\n${SHARED}\r\n").bytes().chain(long.iter().copied()).chain(*b"\r\n"));
        }
        assert!(reply.size() == all.len() && reply.len() < 100 && Arc::strong_count(&long) == 4);
        let sent = |reply: &mut Reply| {
            let mut sent = Vec::new();
            while let piece @ [_, ..] = reply.unsent() {
                // It is taken bit by bit.
                let count = piece.len().div_ceil(3);
                sent.extend_from_slice(&piece[..count]);
                reply.sent += count;
            }
            sent
        };
        let offsets = [0, 1, 10, 12, 13, 12 + SHARED, 13 + SHARED, 15 + SHARED, 40 + SHARED, all.len() - 1, all.len()];
        for at in offsets {
            reply.sent = at;
            assert_eq!(sent(&mut reply), all[at..], "{at}");
        }
        // A mark is in front of an answer.
        let mark = reply.len();
        reply.bulk(b"answer");
        assert_eq!(reply.split_off(mark), b"$6\r\nanswer\r\n");
        reply.truncate(4);
        assert!(reply.bytes() == b":0\r\n" && reply.size() == 4);
        reply.clear();
        assert!(reply.size() == 0 && Arc::strong_count(&long) == 1);
    }

    #[test]
    fn doubles_are_short_and_mean_the_same() {
        for (number, text) in [
            (3.0, "3"),
            (-0.0, "-0"),
            (3.1, "3.1"),
            (-2.5e-3, "-0.0025"),
            (1e-7, "1e-7"),
            (1e15, "1000000000000000"),
            (1e20, "1e+20"),
            (1.5e300, "1.5e+300"),
            (f64::NAN, "nan"),
            (-f64::NAN, "-nan"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (0.1 + 0.2, "0.30000000000000004"),
            (9_007_199_254_740_993.0, "9007199254740992"),
            (f64::MAX, "1.7976931348623157e+308"),
        ] {
            assert_eq!(double(number), text);
            assert!(text.parse() == Ok(number) || number.is_nan(), "{text}");
        }
    }
}
