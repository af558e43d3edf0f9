//! What stands in the array's files.
//!
//! ```text
//! file mars        header, which says how many tables and blocks are used | catalog: a line for each table
//! files mars.0 …   blocks; each a header, and slots of one size: a record's header and its bytes
//! ```
//!
//! Every line and every header of what is used is checksummed, that of a free slot, too: zeros are damage there.

use pmem::ChecksumKey;

/// The file of header and catalog, and those of the data, behind a dot.
pub(super) const NAME: &str = "mars";
pub(super) const VERSION: u32 = 1;
/// A line, which is the header of the store, of a block, and an entry of the catalog.
pub(super) const LINE: u64 = pmem::LINE;
/// Tables of a store at most.
pub(super) const TABLES_MAX: usize = 1023;
/// Bytes of a table's name at most.
pub(super) const TABLE_NAME_MAX: usize = 48;
/// Of a record.
pub(super) const HEADER: usize = 32;
/// The first data file's size doubles with each further one.
pub(super) const SEGMENTS_MAX: u32 = 24;

/// Keys of a store.
#[derive(Clone)]
pub(super) struct Keys {
    lines: ChecksumKey,
    headers: ChecksumKey,
    records: ChecksumKey,
}

impl Keys {
    pub(super) fn new(key: &ChecksumKey) -> Self {
        Self { lines: key.of_kind(1), headers: key.of_kind(2), records: key.of_kind(3) }
    }

    /// A line at this place: 56 bytes and their checksum.
    pub(super) fn line(&self, at: u64, payload: &[u8]) -> [u8; LINE as usize] {
        let mut line = [0; LINE as usize];
        line[..payload.len()].copy_from_slice(payload);
        let checksum = self.checksum_line(at, &line);
        line[56..].copy_from_slice(&checksum.to_le_bytes());
        line
    }

    /// What is in a line; `None` if that is zeros.
    pub(super) fn open_line(&self, at: u64, line: &[u8]) -> Result<Option<[u8; 56]>, Broken> {
        if line.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if line.len() != LINE as usize || word(line, 56) != self.checksum_line(at, line) {
            return Err(Broken);
        }
        let mut payload = [0; 56];
        payload.copy_from_slice(&line[..56]);
        Ok(Some(payload))
    }

    fn checksum_line(&self, at: u64, line: &[u8]) -> u64 {
        self.lines.checksum_parts([&line[..56], &at.to_le_bytes()].into_iter())
    }

    /// A record with its header, in a slot at this place.
    pub(super) fn record(&self, at: u64, id: u64, table: u32, bytes: &[u8], into: &mut Vec<u8>) {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&id.to_le_bytes());
        header[8..12].copy_from_slice(&table.to_le_bytes());
        header[12..16].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        header[16..24].copy_from_slice(&self.checksum_record(at, id, bytes).to_le_bytes());
        let checksum = self.checksum_header(at, &header);
        header[24..].copy_from_slice(&checksum.to_le_bytes());
        into.clear();
        into.extend_from_slice(&header);
        into.extend_from_slice(bytes);
    }

    fn checksum_record(&self, at: u64, id: u64, bytes: &[u8]) -> u64 {
        self.records.checksum_with(self.records.sum(bytes), [at, id, bytes.len() as u64])
    }

    fn checksum_header(&self, at: u64, header: &[u8; HEADER]) -> u64 {
        self.headers.checksum_words([at, word(header, 0), word(header, 8), word(header, 16)].into_iter())
    }

    /// The header of a slot without a record at this place.
    pub(super) fn empty(&self, at: u64) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        let checksum = self.checksum_header(at, &header);
        header[24..].copy_from_slice(&checksum.to_le_bytes());
        header
    }

    /// What the header of the slot at this place says; `None` of one without a record.
    pub(super) fn open_header(&self, at: u64, header: &[u8]) -> Result<Option<RecordHeader>, Broken> {
        let header: &[u8; HEADER] = header.try_into().map_err(|_| Broken)?;
        if *header == self.empty(at) {
            return Ok(None);
        }
        if word(header, 24) != self.checksum_header(at, header) {
            return Err(Broken);
        }
        Ok(Some(RecordHeader {
            id: word(header, 0),
            table: word(header, 8) as u32,
            len: (word(header, 8) >> 32) as u32,
        }))
    }

    /// Whether a record and its header, as they were read at this place, are those of this number.
    pub(super) fn is_whole(&self, at: u64, id: u64, read: &[u8]) -> bool {
        let Some((header, bytes)) = read.split_at_checked(HEADER) else { return false };
        let said = RecordHeader { id, table: word(header, 8) as u32, len: bytes.len() as u32 };
        self.open_header(at, header) == Ok(Some(said)) && word(header, 16) == self.checksum_record(at, id, bytes)
    }
}

/// Bytes that were not stored so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// What is known of a record without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub(super) id: u64,
    pub(super) table: u32,
    pub(super) len: u32,
}

/// Little-endian, as everything.
pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
