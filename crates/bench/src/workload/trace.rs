//! Recorded operations: one a line, `#` begins a comment.
//!
//! ```text
//! get KEY
//! put KEY BYTES
//! delete KEY
//! scan KEY N
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;

use super::{KEY_BYTES_MAX, Names, Op};
use crate::{Error, Result};

/// Longest value.
pub const VALUE_BYTES_MAX: u32 = 1 << 20;
/// Longest scan.
pub const SCAN_MAX: u32 = 10_000;
/// Longest line: a reader of foreign files does not read without bound.
const LINE_MAX: u64 = 4096;
/// Most operations: 1 GiB of them.
const OPS_MAX: usize = 1 << 26;

/// A trace in memory. Keys are numbered in the order of their first use.
///
/// ```
/// use bench::workload::{Names, Op, Trace};
/// let trace = Trace::parse("put apple 100\nget apple\n".as_bytes(), "fruit.txt".as_ref())?;
/// assert_eq!(trace.ops(), [Op::Update { key: 0, bytes: 100 }, Op::Read { key: 0 }]);
/// assert_eq!(trace.name(0, &mut trace.buffer()), b"apple");
/// # Ok::<(), bench::Error>(())
/// ```
#[derive(Debug)]
pub struct Trace {
    keys: Vec<Box<[u8]>>,
    ops: Vec<Op>,
}

impl Trace {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read; a line is wrong: the error names it.
    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| failed(path, error))?;
        Self::parse(BufReader::new(file), path)
    }

    /// Reads from anywhere; `path` is for error messages.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(mut from: impl BufRead, path: &Path) -> Result<Self> {
        let mut trace = Self { keys: Vec::new(), ops: Vec::new() };
        let mut numbers = BTreeMap::new();
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let read =
                from.by_ref().take(LINE_MAX + 1).read_until(b'\n', &mut line).map_err(|error| failed(path, error))?;
            if read == 0 {
                break;
            }
            let wrong = |why| Error::Trace { path: path.to_owned(), line: number, why };
            if read as u64 > LINE_MAX {
                return Err(wrong(format!("longer than {LINE_MAX} bytes")));
            }
            let Some((verb, key, count)) = split(&line).map_err(wrong)? else { continue };
            let next = numbers.len() as u64;
            let key = *numbers.entry(key.into()).or_insert(next);
            trace.ops.push(operation(verb, key, count).map_err(wrong)?);
            if trace.ops.len() == OPS_MAX {
                return Err(wrong(format!("more than {OPS_MAX} operations")));
            }
        }
        let mut keys: Vec<(Box<[u8]>, u64)> = numbers.into_iter().collect();
        keys.sort_by_key(|(_, number)| *number);
        trace.keys = keys.into_iter().map(|(key, _)| key).collect();
        Ok(trace)
    }

    /// The operations, in order.
    #[must_use]
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// How many different keys there are.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys.len() as u64
    }

    /// Length of the longest value that is put.
    #[must_use]
    pub fn longest_value(&self) -> u32 {
        let bytes = |op: &Op| if let Op::Update { bytes, .. } = op { *bytes } else { 0 };
        self.ops.iter().map(bytes).max().unwrap_or(0)
    }

    /// Length of the longest key.
    #[must_use]
    pub fn longest_key(&self) -> usize {
        self.keys.iter().map(|key| key.len()).max().unwrap_or(0)
    }

    /// True if some operation needs an order of keys.
    #[must_use]
    pub fn scans(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::Scan { .. }))
    }

    /// The part of one of `threads`: the operations on its keys, in order, so that those on one key stay in order.
    #[must_use]
    pub fn share(&self, thread: usize, threads: usize) -> Vec<Op> {
        let own = |op: &&Op| op.key() % threads as u64 == thread as u64;
        self.ops.iter().filter(own).copied().collect()
    }
}

impl Names for Trace {
    fn name<'a>(&'a self, key: u64, _: &'a mut [u8; KEY_BYTES_MAX]) -> &'a [u8] {
        &self.keys[key as usize]
    }
}

fn failed(path: &Path, source: std::io::Error) -> Error {
    Error::Io { op: "read", path: path.to_owned(), source }
}

/// Verb, key and number.
type Words<'a> = (&'a [u8], &'a [u8], Option<&'a [u8]>);

/// The words of a line; `None` if there are none.
fn split(line: &[u8]) -> Result<Option<Words<'_>>, String> {
    let line = line.split(|byte| *byte == b'#').next().unwrap_or(line);
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let Some(verb) = words.next() else { return Ok(None) };
    let key = words.next().ok_or_else(|| format!("{} of which key?", text(verb)))?;
    if key.len() > KEY_BYTES_MAX {
        return Err(format!("a key of {} bytes; at most {KEY_BYTES_MAX} are possible", key.len()));
    }
    let count = words.next();
    match words.next() {
        Some(extra) => Err(format!("{} is one word too many", text(extra))),
        None => Ok(Some((verb, key, count))),
    }
}

fn operation(verb: &[u8], key: u64, count: Option<&[u8]>) -> Result<Op, String> {
    let number = |what: &str, max: u32| -> Result<u32, String> {
        let word = count.ok_or_else(|| format!("how many {what}?"))?;
        let number = std::str::from_utf8(word).ok().and_then(|word| word.parse::<u32>().ok());
        match number {
            Some(number) if number <= max => Ok(number),
            _ => Err(format!("{} is no number of {what} from 0 to {max}", text(word))),
        }
    };
    match (verb, count) {
        (b"put", _) => Ok(Op::Update { key, bytes: number("bytes", VALUE_BYTES_MAX)? }),
        (b"scan", _) => Ok(Op::Scan { key, count: number("pairs", SCAN_MAX)? }),
        (b"get" | b"delete", Some(word)) => Err(format!("{} is one word too many", text(word))),
        (b"get", None) => Ok(Op::Read { key }),
        (b"delete", None) => Ok(Op::Delete { key }),
        _ => Err(format!("{} is no operation: get, put, delete or scan", text(verb))),
    }
}

/// Foreign bytes for a message: printable and short.
fn text(word: &[u8]) -> String {
    const SHOWN: usize = 40;
    let shown = word[..word.len().min(SHOWN)].escape_ascii().to_string();
    if word.len() > SHOWN { format!("\"{shown}...\"") } else { format!("\"{shown}\"") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: impl AsRef<[u8]>) -> Result<Trace> {
        Trace::parse(text.as_ref(), Path::new("t"))
    }

    #[test]
    fn a_trace_with_everything() {
        let trace = parse("# head\n\nput a 10 # ten\r\n get\tb\nscan a 3\ndelete a\nput c 0").unwrap();
        let wanted = [
            Op::Update { key: 0, bytes: 10 },
            Op::Read { key: 1 },
            Op::Scan { key: 0, count: 3 },
            Op::Delete { key: 0 },
            Op::Update { key: 2, bytes: 0 },
        ];
        assert_eq!(trace.ops(), wanted);
        assert_eq!((trace.keys(), trace.longest_value(), trace.longest_key(), trace.scans()), (3, 10, 1, true));
        assert_eq!(trace.share(0, 2).len() + trace.share(1, 2).len(), 5);
        assert_eq!(trace.share(1, 2), [Op::Read { key: 1 }]);
    }

    #[test]
    fn errors_name_the_line_and_the_reason() {
        for (text, wanted) in [
            ("get a\nfrob b\n", "t:2: \"frob\" is no operation"),
            ("get", "t:1: \"get\" of which key?"),
            ("get a b", "t:1: \"b\" is one word too many"),
            ("put a 1 2", "t:1: \"2\" is one word too many"),
            ("put a", "t:1: how many bytes?"),
            ("put a -1", "\"-1\" is no number of bytes from 0 to 1048576"),
            ("put a 1048577", "is no number of bytes"),
            ("scan a 10001", "is no number of pairs from 0 to 10000"),
            ("\n\nget \u{7f}\u{1}\nput \u{7f} x\u{1}", "t:4: \"x\\x01\" is no number"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text:?}: {error}");
        }
        assert!(parse(format!("get {}", "k".repeat(65))).unwrap_err().to_string().contains("65 bytes"));
        assert!(parse(format!("get a{}", " ".repeat(5000))).unwrap_err().to_string().contains("longer than"));
        let error = Trace::read(Path::new("/nonexistent/trace")).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/trace"));
    }

    fn any_op() -> impl Strategy<Value = (String, Op)> {
        (0..4, 0..6_u64, 0..=10_000_u32).prop_map(|(kind, key, n)| match kind {
            0 => (format!("get k{key}"), Op::Read { key }),
            1 => (format!("put k{key} {n}"), Op::Update { key, bytes: n }),
            2 => (format!("delete k{key}"), Op::Delete { key }),
            _ => (format!("scan k{key} {n}"), Op::Scan { key, count: n }),
        })
    }

    proptest! {
        /// Whatever the bytes, it is a trace or an error that names a line that is there.
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            match parse(&bytes) {
                Ok(trace) => prop_assert!(trace.ops().iter().all(|op| op.key() < trace.keys())),
                Err(Error::Trace { line, .. }) => {
                    prop_assert!(line >= 1 && line <= bytes.split(|byte| *byte == b'\n').count());
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }

        /// The same, nearer to what is right.
        #[test]
        fn words_in_any_order(words in prop::collection::vec("get|put|scan|delete|#|\n|\r\n|k|12|99999999999|\t| ", 0..40)) {
            let _ = parse(words.join(" "));
        }

        /// What was written is read.
        #[test]
        fn written_traces_are_read(ops in prop::collection::vec(any_op(), 0..50)) {
            let written: Vec<&str> = ops.iter().map(|(line, _)| line.as_str()).collect();
            let trace = parse(written.join("\n")).unwrap();
            prop_assert_eq!(trace.ops().len(), ops.len());
            for (op, (_, wanted)) in trace.ops().iter().zip(&ops) {
                // Numbers are by first use, names by the writer.
                let name = format!("k{}", wanted.key());
                let mut buffer = trace.buffer();
                prop_assert_eq!(trace.name(op.key(), &mut buffer), name.as_bytes());
                let same_key = match *wanted {
                    Op::Read { .. } => Op::Read { key: op.key() },
                    Op::Update { bytes, .. } => Op::Update { key: op.key(), bytes },
                    Op::Scan { count, .. } => Op::Scan { key: op.key(), count },
                    _ => Op::Delete { key: op.key() },
                };
                prop_assert_eq!(*op, same_key);
            }
        }
    }
}
