//! What recovery tells of its work.

/// What opening a heap had to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Records of transactions found.
    pub records: u64,
    /// Of these, transactions that were durable and finished.
    pub finished: u64,
    /// Transactions whose changes were taken back from kept old bytes.
    pub undone: u64,
    /// Zones compared with the backup.
    pub zones: u64,
    /// Objects, or segments of them, compared with their copies.
    pub copies: u64,
    /// Bytes of main that were replaced.
    pub restored_bytes: u64,
    /// Places of records that are not whole at the end of a slot's log: never acknowledged, or the last acknowledged one, damaged since.
    pub in_doubt: Vec<u64>,
    /// Places of copies that are not whole: they were being made, or they are damaged and their objects could not be taken back.
    pub copies_in_doubt: Vec<u64>,
}

impl Recovery {
    /// True if the heap was as a clean close leaves it.
    pub fn was_clean(&self) -> bool {
        self.records == 0
            && self.zones == 0
            && self.copies == 0
            && self.in_doubt.is_empty()
            && self.copies_in_doubt.is_empty()
    }
}
