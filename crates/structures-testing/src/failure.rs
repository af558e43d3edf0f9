//! What a check found.

/// What was not as it should be.
pub type Failure = Box<dyn std::error::Error>;

/// That both are.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), Failure> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: found {found:?}, expected {expected:?}").into())
}
