//! The atomic cell: two checksummed copies with a sequence number (Arcadia §3, Listing 2).
//!
//! ```text
//! slot:  | value, padded to 8 bytes | sequence u64 | checksum ^ slot number u64 |    stride: a multiple of 64
//! cell:  | slot 0 | slot 1 |                      or, apart:  | slot 0 | … | slot 1 |
//! ```
//!
//! Slots on one page are lost together, and go back in time together when a write of that page is lost. What must survive either has its slots
//! [apart](crate::TwoSlot::create_apart).
//!
//! Invariant: while a slot is written, the other one is whole on media and holds the newest acknowledged value. So the update
//! goes to the older slot, a new one does not start before the last one is drained, and at open the newer whole slot wins.
//! Cost of an update: its lines and one barrier; of a mirrored one, twice that.

use crate::checksum::ChecksumKey;
use crate::cpu::LINE;
use crate::error::{Error, Result};
use crate::file::PAGE;
use crate::flush::Moment;
use crate::mapping::Mapping;
use crate::sim::here;

/// What the two slots said at open.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// use pmem::{SlotState, TwoSlot};
/// let mut cell = TwoSlot::create(pool.add_region("cell", 4096)?.into_area()?, &1u64)?;
/// let (mut cell, other_slot) = TwoSlot::<u64>::open(cell.into_area())?;
/// assert_eq!(other_slot, SlotState::Unwritten);
/// cell.update(&2)?;
/// assert_eq!(TwoSlot::<u64>::open(cell.into_area())?.1, SlotState::Stale);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Both are whole and equal: a mirrored update had finished.
    Equal,
    /// Both are whole: the newer one counts.
    Stale,
    /// The other slot was never written.
    Unwritten,
    /// The other slot is not whole: an update was interrupted before it was acknowledged, or the medium damaged a copy. If the cell
    /// is only updated mirrored, nothing acknowledged is lost either way.
    Corrupt,
}

/// The untyped cell, at an offset in a mapping.
#[derive(Debug)]
pub(crate) struct RawCell {
    offset: u64,
    value_len: u64,
    stride: u64,
    key: ChecksumKey,
    sequence: u64,
    current: u64,
    in_flight: Option<Moment>,
    /// The other slot holds a torn update. Its checksum is erased before the slot is written again: else the new update, torn too,
    /// could supply just the words the old one lacks, and an update that was already seen not to have happened would come back.
    torn: bool,
    /// The medium does not return the other slot: a store into the mapping could end the process.
    unreadable: bool,
    /// Each slot is on a page with bytes of another owner.
    shares_page: bool,
}

impl RawCell {
    fn padded(value_len: u64) -> u64 {
        value_len.next_multiple_of(8)
    }

    /// Bytes of one slot.
    pub(crate) const fn stride(value_len: u64) -> u64 {
        (value_len.next_multiple_of(8) + 16).next_multiple_of(LINE)
    }

    pub(crate) fn new(offset: u64, value_len: u64, key: ChecksumKey) -> Self {
        let stride = Self::stride(value_len);
        Self {
            offset,
            value_len,
            stride,
            key,
            sequence: 0,
            current: 1,
            in_flight: None,
            torn: false,
            unreadable: false,
            shares_page: false,
        }
    }

    /// A cell whose slots lie this far apart.
    pub(crate) fn with_stride(self, stride: u64) -> Self {
        assert!(stride >= self.stride && stride.is_multiple_of(LINE), "slots overlap");
        Self { stride, ..self }
    }

    /// A cell each of whose slots is on a page with bytes of another owner.
    pub(crate) fn on_shared_pages(self) -> Self {
        Self { shares_page: true, ..self }
    }

    /// First byte of a slot.
    fn slot_at(&self, slot: u64) -> u64 {
        self.offset + slot * self.stride
    }

    /// Reads both slots and remembers the winner; returns its value and how the other one looked.
    ///
    /// | slot 0 | slot 1 | winner |
    /// |---|---|---|
    /// | whole, sequence a | whole, b | the greater |
    /// | whole | not | slot 0 |
    /// | not | whole | slot 1 |
    /// | not | not | none: damaged |
    ///
    /// A slot that the medium does not return is not whole.
    pub(crate) fn load(&mut self, mapping: &Mapping, what: &'static str) -> Result<(Vec<u8>, SlotState)> {
        let slots = (self.read(mapping, what, 0)?, self.read(mapping, what, 1)?);
        let damaged = |found, expected| Err(Error::Damaged { what, offset: self.offset, found, expected });
        let (winner, sequence, value, other) = match slots {
            (Slot::Whole(a, value), other) if !matches!(other, Slot::Whole(b, _) if b > a) => (0, a, value, other),
            (other, Slot::Whole(b, value)) => (1, b, value, other),
            (Slot::Unreadable(error), _) | (_, Slot::Unreadable(error)) => return Err(error),
            (Slot::Broken(found, expected), _) | (_, Slot::Broken(found, expected)) => return damaged(found, expected),
            _ => return damaged(0, 1),
        };
        self.unreadable = matches!(other, Slot::Unreadable(_));
        let other_slot = match other {
            Slot::Whole(s, v) if s == sequence => {
                if v != value {
                    // Two different values under one sequence number were never written by us.
                    return damaged(s, sequence + 1);
                }
                SlotState::Equal
            }
            Slot::Whole(..) => SlotState::Stale,
            // Every update but the first has the one before it in the other slot.
            Slot::Unwritten if sequence > 1 => SlotState::Corrupt,
            Slot::Unwritten => SlotState::Unwritten,
            Slot::Broken(..) | Slot::Unreadable(_) => SlotState::Corrupt,
        };
        (self.sequence, self.current) = (sequence, winner);
        self.torn = other_slot == SlotState::Corrupt;
        // The winner may have been read from a cache that outlived its writer: it is persisted before the other slot is written.
        self.in_flight = Some(Moment::FOREIGN);
        Ok((value, other_slot))
    }

    fn read(&self, mapping: &Mapping, what: &'static str, slot: u64) -> Result<Slot> {
        let at = self.slot_at(slot);
        let used = Self::padded(self.value_len) + 16;
        let base = match mapping.probe(what, at, used).and_then(|()| mapping.access(at, used, false)) {
            Err(error @ Error::Unreadable { .. }) => return Ok(Slot::Unreadable(error)),
            other => other?,
        };
        // SAFETY: `access` checked the range; the cell's owner holds `&self`, so no thread writes it.
        let bytes = unsafe { std::slice::from_raw_parts(base.as_ptr(), used as usize) };
        Ok(self.decode(slot, bytes))
    }

    /// What these bytes of a slot say.
    fn decode(&self, slot: u64, bytes: &[u8]) -> Slot {
        let (checksummed, checksum) = bytes.split_at(bytes.len() - 8);
        let found = word(checksum);
        let sequence = word(&checksummed[checksummed.len() - 8..]);
        let expected = self.key.checksum(checksummed) ^ slot;
        // The bound leaves room to count on, even if a forger gave it a valid checksum.
        if found == expected && (1..1 << 63).contains(&sequence) {
            Slot::Whole(sequence, checksummed[..self.value_len as usize].to_vec())
        } else if bytes.iter().all(|&b| b == 0) {
            Slot::Unwritten
        } else {
            Slot::Broken(found, expected)
        }
    }

    /// Bytes from the start of the cell to the end of its second slot.
    pub(crate) fn len(&self) -> u64 {
        self.stride + Self::padded(self.value_len) + 16
    }

    /// The newest whole value in a copy of the cell's [`len`](Self::len) bytes.
    pub(crate) fn newest(&self, copy: &[u8]) -> Option<Vec<u8>> {
        let used = (Self::padded(self.value_len) + 16) as usize;
        let whole = [0, 1].map(|slot| match self.decode(slot, &copy[(slot * self.stride) as usize..][..used]) {
            Slot::Whole(sequence, value) => Some((sequence, value)),
            _ => None,
        });
        whole.into_iter().flatten().max_by_key(|found| found.0).map(|found| found.1)
    }

    /// Writes the value into the older slot and flushes it. Makes sure first that the last value staged is persistent.
    pub(crate) fn stage(&mut self, mapping: &Mapping, value: &[u8]) -> Result<Moment> {
        if let Some(last) = self.in_flight.take()
            && !mapping.is_drained_since(last)
        {
            // Else both slots would be in flight.
            self.persist_read(mapping)?;
            mapping.drain(here())?;
        }
        self.sequence += 1;
        self.current = 1 - self.current;
        self.write(mapping, self.current, value)
    }

    /// Makes what was read at open the truth with the caller's next drain: the winner, which a cache may have kept from the media, is
    /// flushed again (by this thread, whichever wrote it), a torn slot loses its checksum, and one that cannot be read is replaced.
    pub(crate) fn persist_read(&mut self, mapping: &Mapping) -> Result<()> {
        mapping.flush(self.slot_at(self.current), Self::padded(self.value_len) + 16, here())?;
        if std::mem::take(&mut self.unreadable) {
            // No more than its page: behind that may stand what can be read.
            // Of a slot that shares its page with what is no part of the cell, not even that.
            let at = self.slot_at(1 - self.current);
            let own = if self.shares_page { Self::stride(self.value_len) } else { self.stride };
            mapping.replace(at, own.min(PAGE - at % PAGE))?;
        }
        if std::mem::take(&mut self.torn) {
            self.erase_checksum(mapping, 1 - self.current)?;
        }
        self.in_flight = Some(mapping.moment());
        Ok(())
    }

    fn erase_checksum(&self, mapping: &Mapping, slot: u64) -> Result<()> {
        let checksum_at = self.slot_at(slot) + Self::padded(self.value_len) + 8;
        let checksum = mapping.access(checksum_at, 8, true)?;
        // SAFETY: in bounds and aligned, since cells start on a line; `&self` is borrowed from the only owner's `&mut`.
        unsafe { checksum.cast::<u64>().write(0) };
        mapping.flush(checksum_at, 8, here())
    }

    fn write(&mut self, mapping: &Mapping, slot: u64, value: &[u8]) -> Result<Moment> {
        let padded = Self::padded(self.value_len) as usize;
        let mut image = vec![0u8; padded + 16];
        image[..value.len()].copy_from_slice(value);
        image[padded..padded + 8].copy_from_slice(&self.sequence.to_le_bytes());
        // Of its slot: an older value that the medium puts over the newer one is not taken for it.
        let checksum = self.key.checksum(&image[..padded + 8]) ^ slot;
        image[padded + 8..].copy_from_slice(&checksum.to_le_bytes());
        let at = self.slot_at(slot);
        let base = mapping.access(at, image.len() as u64, true)?;
        // SAFETY: in bounds; `&mut self` is the only owner of the cell; `image` is ours.
        unsafe { base.as_ptr().copy_from_nonoverlapping(image.as_ptr(), image.len()) };
        mapping.flush(at, image.len() as u64, here())?;
        let moment = mapping.moment();
        self.in_flight = Some(moment);
        Ok(moment)
    }

    /// One barrier: the value is persistent.
    pub(crate) fn update(&mut self, mapping: &Mapping, value: &[u8]) -> Result<()> {
        self.stage(mapping, value)?;
        mapping.drain(here())?;
        self.in_flight = None;
        Ok(())
    }

    /// Two barriers: the value is persistent in both slots, so that damage to either is repaired from the other.
    pub(crate) fn update_mirrored(&mut self, mapping: &Mapping, value: &[u8]) -> Result<()> {
        self.update(mapping, value)?;
        self.mirror(mapping, value)
    }

    /// The second half of a mirrored update: the current value into the other slot too.
    fn mirror(&mut self, mapping: &Mapping, value: &[u8]) -> Result<()> {
        self.write(mapping, 1 - self.current, value)?;
        mapping.drain(here())?;
        self.in_flight = None;
        Ok(())
    }
}

enum Slot {
    Whole(u64, Vec<u8>),
    Unwritten,
    /// The checksum found, and the one that would fit.
    Broken(u64, u64),
    Unreadable(Error),
}

/// The word at the start of these bytes.
pub(crate) fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(word)
}
