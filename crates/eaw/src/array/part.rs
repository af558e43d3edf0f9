//! A member's part of a transaction: what is to be written there, in memory and beyond that in the log.

use pmem::{Area, ChecksumKey};
use smallvec::SmallVec;

use super::chunks::Chunk;
use super::layout::{ENTRY, Entry, INLINE, Keys, LINE, LINK};
use crate::error::{Error, Result};

/// Pieces for which a part keeps room when it is used again.
const KEPT: usize = 1 << 10;

/// In place of a chunk: the slot of the table.
const SLOT: u32 = u32::MAX;

/// Of one member. It is used again for other transactions, with what it has allocated and a chunk of each kind.
#[derive(Default)]
pub(super) struct Part {
    pub(super) member: usize,
    /// The TID's slot of the member's table: its line, and room behind it.
    pub(super) slot: Option<Area>,
    /// The metadata goes there.
    pub(super) is_inline: bool,
    /// When this was taken, there was something to do for others.
    pub(super) is_due: bool,
    /// In the order in which they were logged.
    pub(super) pieces: Vec<Piece>,
    /// Bytes that wait in memory.
    pub(super) draft: Vec<u8>,
    /// Log chunks. The first of them are filled.
    pub(super) data: Vec<Chunk>,
    pub(super) filled: usize,
    /// Bytes used in the last one that is filled.
    pub(super) used: u64,
    /// Metadata chunks.
    pub(super) meta: Vec<Chunk>,
    /// A metadata chunk that is being made.
    image: Vec<u8>,
}

/// A run of bytes that goes to one place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Of which entry of the transaction it is, and where in that.
    pub(super) entry: usize,
    pub(super) from: u64,
    /// In the member's stripes of the file.
    pub(super) target: u64,
    pub(super) file: u32,
    pub(super) len: u32,
    /// Where in the log: which chunk, and where in it. Of what is in the draft, where it is going to be.
    pub(super) chunk: u32,
    pub(super) at: u32,
    /// Where in the draft, if it is there.
    pub(super) draft: Option<u32>,
    /// Otherwise: it is on its way to media as it is.
    pub(super) is_stored: bool,
    /// Of its bytes, when it commits.
    pub(super) checksum: u64,
}

/// How much of a part there is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extent {
    pub(super) pieces: usize,
    pub(super) draft: usize,
    pub(super) filled: usize,
}

impl Part {
    /// For another transaction; returns the chunks that it does not keep, data and metadata.
    pub(super) fn clear(&mut self) -> (impl Iterator<Item = Chunk>, impl Iterator<Item = Chunk>) {
        self.pieces.clear();
        self.pieces.shrink_to(KEPT);
        self.draft.clear();
        self.filled = 0;
        // Where there is room in the slot, chunks are for more than that, and are better next to each other.
        let kept = usize::from(self.room() == 0);
        (self.data.drain(kept.min(self.data.len())..), self.meta.drain(kept.min(self.meta.len())..))
    }

    pub(super) fn extent(&self) -> Extent {
        Extent { pieces: self.pieces.len(), draft: self.draft.len(), filled: self.filled }
    }

    /// Takes back what is beyond.
    pub(super) fn truncate(&mut self, to: Extent) {
        self.pieces.truncate(to.pieces);
        self.draft.truncate(to.draft);
        self.filled = to.filled;
        self.cut();
    }

    /// Takes back an entry that is the last, and not whole.
    pub(super) fn forget(&mut self, entry: usize) {
        let pieces = self.pieces_of(entry).start;
        let draft = self.pieces[pieces..].iter().find_map(|piece| piece.draft);
        let last = self.pieces[..pieces].iter().rev().find(|piece| piece.draft.is_none());
        self.truncate(Extent {
            pieces,
            draft: draft.map_or(self.draft.len(), |at| at as usize),
            filled: last.map_or(0, |piece| piece.chunk as usize + 1),
        });
    }

    /// Moves what is beyond to another part, which is empty.
    pub(super) fn split_off(&mut self, at: Extent, to: &mut Self) {
        to.draft.extend_from_slice(&self.draft[at.draft..]);
        to.data.splice(0..0, self.data.drain(at.filled..self.filled));
        (to.filled, to.used) = (self.filled - at.filled, self.used);
        to.pieces.extend(self.pieces[at.pieces..].iter().map(|piece| Piece {
            draft: piece.draft.map(|draft| draft - at.draft as u32),
            chunk: if piece.draft.is_some() { 0 } else { piece.chunk - at.filled as u32 },
            ..*piece
        }));
        self.truncate(at);
    }

    /// The next bytes that are spilled begin a chunk: what is before them belongs to what is before a savepoint.
    pub(super) fn cut(&mut self) {
        self.used = u64::MAX;
    }

    /// It has bytes for this range.
    pub(super) fn meets(&self, file: u32, target: u64, len: u64) -> bool {
        self.pieces.iter().any(|piece| {
            piece.file == file && piece.target < target + len && target < piece.target + u64::from(piece.len)
        })
    }

    /// Its pieces of an entry.
    pub(super) fn pieces_of(&self, entry: usize) -> std::ops::Range<usize> {
        let start = self.pieces.partition_point(|piece| piece.entry < entry);
        start..start + self.pieces[start..].partition_point(|piece| piece.entry == entry)
    }

    /// The bytes of a piece.
    pub(super) fn bytes(&self, piece: &Piece) -> Result<&[u8]> {
        let len = piece.len as usize;
        Ok(match piece.draft {
            Some(at) => &self.draft[at as usize..][..len],
            None => self.data[piece.chunk as usize].area.bytes(piece.at.into(), len)?,
        })
    }

    /// Notes bytes that wait in memory, in pieces that fit into a chunk each. All but `piece`'s place and length is said there.
    pub(super) fn keep(&mut self, data: &[u8], mut piece: Piece, chunk_bytes: u64) {
        let mut at = self.draft.len();
        self.draft.extend_from_slice(data);
        for run in data.chunks(chunk_bytes as usize) {
            (piece.len, piece.draft) = (run.len() as u32, Some(at as u32));
            self.pieces.push(piece);
            (piece.from, piece.target, at) =
                (piece.from + run.len() as u64, piece.target + run.len() as u64, at + run.len());
        }
    }

    /// Changes bytes of a piece.
    pub(super) fn edit(&mut self, index: usize, within: u64, data: &[u8]) -> Result<()> {
        let piece = &mut self.pieces[index];
        match piece.draft {
            Some(at) => self.draft[at as usize + within as usize..][..data.len()].copy_from_slice(data),
            None => {
                piece.is_stored = false; // flushed again
                let area = &mut self.data[piece.chunk as usize].area;
                area.bytes_mut(u64::from(piece.at) + within, data.len())?.copy_from_slice(data);
            }
        }
        Ok(())
    }

    /// Bytes behind the line.
    fn room(&self) -> u64 {
        self.slot.as_ref().map_or(0, |slot| slot.len() - LINE)
    }

    /// Gives what is in memory its places in the log: in the slot behind the metadata, if both fit there; what does not, in chunks behind those that are filled. Returns how many chunks are
    /// needed then.
    pub(super) fn place(&mut self, chunk_bytes: u64) -> usize {
        let (room, meta) = (self.room(), (self.pieces.len() as u64 * ENTRY).next_multiple_of(LINE));
        self.is_inline = meta <= room;
        let (mut in_slot, end) = (LINE + meta, if self.is_inline { LINE + room } else { 0 });
        let (mut chunks, mut used) = (self.filled, chunk_bytes);
        for piece in self.pieces.iter_mut().filter(|piece| piece.draft.is_some()) {
            let len = u64::from(piece.len).next_multiple_of(LINE);
            if in_slot + len <= end {
                (piece.chunk, piece.at) = (SLOT, in_slot as u32);
                in_slot += len;
                continue;
            }
            if used + u64::from(piece.len) > chunk_bytes {
                (chunks, used) = (chunks + 1, 0);
            }
            (piece.chunk, piece.at) = (chunks as u32 - 1, used as u32);
            used = (used + u64::from(piece.len)).next_multiple_of(LINE);
        }
        chunks
    }

    /// Everything is in the log, on its way to media; checksummed, if there is a key for that.
    pub(super) fn store(&mut self, key: Option<&ChecksumKey>) -> Result<()> {
        for piece in &mut self.pieces {
            let area = match piece.chunk {
                SLOT => self.slot.as_mut().ok_or(Error::Stopped)?,
                chunk => &mut self.data[chunk as usize].area,
            };
            let at = u64::from(piece.at);
            let bytes = piece.draft.map(|from| &self.draft[from as usize..][..piece.len as usize]);
            piece.checksum = match (bytes, key) {
                (Some(bytes), Some(key)) => area.put_checksumming(at, key, bytes)?,
                (Some(bytes), None) => area.put_lines(at, bytes).map(|_| 0)?,
                (None, key) => {
                    if !piece.is_stored {
                        area.flush(at, piece.len.into())?;
                    }
                    match key {
                        Some(key) => key.checksum(area.bytes(at, piece.len as usize)?),
                        None => 0,
                    }
                }
            };
        }
        Ok(())
    }

    /// Says in the metadata chunks where the pieces go to, and starts their way to media; returns the checksum of what stands there.
    pub(super) fn checksum(&mut self, keys: &Keys, chunk_bytes: u64, entries: u32) -> Result<u64> {
        const { assert!(ENTRY == 32) };
        let mut checksums = SmallVec::<[u64; 4]>::new();
        let chunks = self.pieces.chunks(if self.is_inline { usize::MAX } else { entries as usize - 1 });
        let last = chunks.len() - 1;
        for (index, pieces) in chunks.enumerate() {
            self.image.clear();
            for piece in pieces {
                let log = match piece.chunk {
                    SLOT => INLINE | u64::from(piece.at),
                    chunk => u64::from(self.data[chunk as usize].number) * chunk_bytes + u64::from(piece.at),
                };
                let Piece { target, file, len, checksum, .. } = *piece;
                self.image.extend_from_slice(pmem::bytes_of(&Entry { target, log, checksum, file, len }));
            }
            if index < last {
                let link =
                    Entry { target: 0, log: self.meta[index + 1].number.into(), checksum: 0, file: LINK, len: 0 };
                self.image.extend_from_slice(pmem::bytes_of(&link));
            }
            checksums.push(keys.part.checksum(&self.image));
            if self.is_inline {
                self.slot.as_mut().ok_or(Error::Stopped)?.put_lines(LINE, &self.image)?;
            } else {
                self.meta[index].area.put_lines(0, &self.image)?;
            }
        }
        Ok(keys.part.checksum_list(checksums.into_iter()))
    }
}
