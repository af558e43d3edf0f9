//! Reports how far a measurement is.

/// Is told of progress.
pub trait Watch {
    /// So many steps more are to come, in a part called `what`.
    fn begin(&self, what: &str, steps: u64) {
        let _ = (what, steps);
    }

    /// One step is done.
    fn step(&self) {}
}

/// Ignores progress.
impl Watch for () {}
