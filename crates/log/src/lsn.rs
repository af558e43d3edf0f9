//! The number of a record.

/// A log sequence number: the first record of a log has 1, each further one the next, data or not. 0 stands before the first.
///
/// ```
/// # fn main() -> cairn_log::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let log = cairn_log::Options::new().bytes(1 << 20).create(dir.path().join("l"))?;
/// let (a, b) = (log.append(b"debit")?, log.append(b"credit")?);
/// assert!(a < b);
/// assert_eq!((a.get(), b.get()), (1, 2));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub(crate) u64);

impl Lsn {
    /// The number of this value: for numbers that came from a log, and were kept elsewhere.
    #[must_use]
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl std::fmt::Display for Lsn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
