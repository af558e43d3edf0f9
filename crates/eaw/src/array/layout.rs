//! What stands on media.
//!
//! ```text
//! region  K:table    | header, two-slot | transaction table, a slot for each TID | mark: slot 0 | slot 1, on the next page |
//! regions K:meta.N   metadata chunks: where each piece of data goes, 32 bytes for a piece; the last place links to the next chunk
//! regions K:log.N    log chunks: the data
//! regions K/NAME     the member's stripes of a file
//! ```
//!
//! A slot of the table is a line; on files it has room behind that for metadata and data, in this order, so that a commit's log is in one place.
//!
//! K is the member's number. Where data goes to stands apart from the data, which the program edits: an edit cannot change it.

use pmem::{ChecksumKey, Persist, RegionKind};

/// Region kind of an array's parts in a pool's directory.
pub(super) const REGION_KIND: RegionKind = RegionKind::Other(18);
/// An array whose slots of the table are lines says 1.
pub(super) const VERSION: u32 = 2;
pub(super) const PAGE: u64 = 4096;
/// Bytes of a metadata entry.
pub(super) const ENTRY: u64 = size_of::<Entry>() as u64;
/// Members of an array at most: one word has a bit for each.
pub const MEMBERS_MAX: usize = 64;

/// What the array is, and which member this is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Persist)]
pub(super) struct Header {
    pub(super) array: u64,
    pub(super) stripe: u64,
    pub(super) chunk: u64,
    pub(super) member: u32,
    pub(super) members: u32,
    pub(super) tids: u32,
    /// Entries of a metadata chunk, the link included.
    pub(super) entries: u32,
    pub(super) version: u32,
    /// Bytes of a slot of the table; 0: a line, and nothing behind it. Its name is that of version 1: a cell tells its type by the names of its fields, too.
    pub(super) reserved: u32,
}

impl Header {
    /// Of the table; 0: a line, and nothing behind it.
    pub(super) fn slot_bytes(&self) -> u64 {
        self.reserved.into()
    }

    /// From a line of the table to the next.
    pub(super) fn stride(&self) -> u64 {
        LINE.max(self.slot_bytes())
    }

    pub(super) fn table_bytes(&self) -> u64 {
        (u64::from(self.tids) * self.stride()).next_multiple_of(PAGE)
    }
}

/// A slot of the mark: every transaction through here is persistent in its files, on all members. The slots are written in turn; the higher one that is whole
/// counts.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Persist)]
pub(super) struct Mark {
    /// Of the rest.
    pub(super) checksum: u64,
    pub(super) retired: u64,
    pub(super) slot: u64,
    pub(super) reserved: [u64; 5],
}

/// A line of the transaction table: this member's part of a transaction is complete.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Persist)]
pub(super) struct Checksummed {
    /// Of the rest of the line.
    pub(super) checksum: u64,
    pub(super) sequence: u64,
    /// Of the parts of all members: the same word in each.
    pub(super) digest: u64,
    /// Of this member's metadata, and by it of its data.
    pub(super) part: u64,
    /// A bit for each member that has a part.
    pub(super) participants: u64,
    pub(super) tid: u32,
    /// The transaction so many before this one, and all before that, were durable when this was written.
    pub(super) durable_back: u32,
    /// Metadata entries.
    pub(super) count: u32,
    /// The first metadata chunk.
    pub(super) meta: u32,
    /// 1: the data was drained before this was written, and its checksums do not count.
    pub(super) drained: u32,
    /// 1: the metadata is behind this line, and not in chunks.
    pub(super) inline: u32,
}

/// Bytes of a line of the table.
pub(super) const LINE: u64 = size_of::<Checksummed>() as u64;
const _: () = assert!(LINE == pmem::LINE && ENTRY == 32);

/// For checksums on a member.
#[derive(Clone)]
pub(super) struct Keys {
    pub(super) line: ChecksumKey,
    pub(super) part: ChecksumKey,
    pub(super) data: ChecksumKey,
    pub(super) mark: ChecksumKey,
}

impl Keys {
    pub(super) fn new(key: &ChecksumKey) -> Self {
        Self { line: key.of_kind(1), part: key.of_kind(2), data: key.of_kind(3), mark: key.of_kind(5) }
    }

    /// The checksum of a line of the table.
    pub(super) fn checksum(&self, line: &Checksummed) -> u64 {
        self.line.checksum(&pmem::bytes_of(line)[8..])
    }
}

/// A piece of data, and where it goes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Persist)]
pub(super) struct Entry {
    /// In the member's stripes of the file.
    pub(super) target: u64,
    /// In the member's log: chunk times its size, and the place in it; or [`INLINE`] and the place in the slot of the table. Of a link, the next metadata chunk.
    pub(super) log: u64,
    /// Of the data.
    pub(super) checksum: u64,
    /// The file's number, or [`LINK`].
    pub(super) file: u32,
    pub(super) len: u32,
}

/// Of a place in the log: it is in the slot of the table.
pub(super) const INLINE: u64 = 1 << 63;

/// Bytes of a slot of the table at most.
pub(super) const SLOT_MAX: u64 = 1 << 20;

/// In place of a file: the entry leads to the next metadata chunk.
pub(super) const LINK: u32 = u32::MAX;

/// A file's number and bytes, as the directory keeps them.
pub(super) fn file_options(number: u32, len: u64) -> u64 {
    u64::from(number) << 48 | len
}

/// Bytes of a file at most.
pub(super) const FILE_MAX: u64 = (1 << 48) - 1;

pub(super) fn file_of(options: u64) -> (u32, u64) {
    ((options >> 48) as u32, options & FILE_MAX)
}
