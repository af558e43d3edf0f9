//! The atomic cell: two checksummed copies with a sequence number (Arcadia §3, Listing 2).
//!
//! ```text
//! slot:  | value, padded to 8 bytes | sequence u64 | checksum ^ slot number u64 |    stride: a multiple of 64
//! cell:  | slot 0 | slot 1 |                      or, apart:  | slot 0 | … | slot 1 |
//! ```
//!
//! Slots on one page are lost together, and go back in time together when a write of that page is lost. What must survive either has its slots
//! [apart](TwoSlot::create_apart).
//!
//! The value of a [`TwoSlot`] begins with a word that says of which type the rest is.
//!
//! Invariant: while a slot is written, the other one is whole on media and holds the newest acknowledged value. So the update
//! goes to the older slot, a new one does not start before the last one is drained, and at open the newer whole slot wins.
//! Cost of an update: its lines and one barrier; of a mirrored one, twice that.

use std::marker::PhantomData;

use crate::Persist;
use crate::area::Area;
use crate::checksum::ChecksumKey;
use crate::cpu::LINE;
use crate::error::{Error, Result};
use crate::file::PAGE;
use crate::flush::Moment;
use crate::mapping::Mapping;
use crate::persist::{bytes_of, from_bytes};
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

/// The untyped cell, at a place of a mapping.
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
    /// Each slot is on a page with bytes that are somebody else's.
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
        // SAFETY: `access` checked the range; the cell's owner holds `&self`, so nobody writes it.
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
            self.settle(mapping)?;
            mapping.drain(here())?;
        }
        self.sequence += 1;
        self.current = 1 - self.current;
        self.write(mapping, self.current, value)
    }

    /// Makes what was read at open the truth with the caller's next drain: the winner, which a cache may have kept from the media, is
    /// flushed again (by this thread, whoever wrote it), a torn slot loses its checksum, and one that cannot be read is replaced.
    fn settle(&mut self, mapping: &Mapping) -> Result<()> {
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
    pub(crate) fn mirror(&mut self, mapping: &Mapping, value: &[u8]) -> Result<()> {
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

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(word)
}

/// The value of a typed cell. Packed: values of any alignment follow the word at once.
#[repr(C, packed)]
#[derive(Clone, Copy, Persist)]
struct Typed<T> {
    layout: u64,
    value: T,
}

impl<T: Persist> Typed<T> {
    const BYTES: u64 = size_of::<Self>() as u64;
    /// 32 bits of the layout's hash, and above them the bytes of the value: so a cell can be read whatever type was expected.
    const LAYOUT: u64 = {
        assert!(size_of::<T>() < 1 << 32, "a two-slot cell holds less than 4 GiB");
        let hash = T::LAYOUT.hash;
        (hash ^ hash >> 32) & 0xffff_ffff | (size_of::<T>() as u64) << 32
    };

    fn new(value: &T) -> Self {
        Self { layout: Self::LAYOUT, value: *value }
    }
}

/// The error for a whole cell of another type, if there is one at the start of the area.
fn another_type(area: &Area, expected: u64, name: &str) -> Option<Error> {
    let layout = word(area.bytes(0, 8).ok()?);
    let len = (layout >> 32) + 8;
    if layout == expected || 2 * RawCell::stride(len) > area.len() {
        return None;
    }
    let mut cell = RawCell::new(area.offset(), len, area.pool().checksum_key(area.offset()));
    let (value, _) = cell.load(area.mapping(), WHAT).ok()?;
    (word(&value) == layout).then(|| Error::WrongLayout {
        what: "type of a two-slot cell",
        found: format!("{layout:016x}"),
        expected: format!("{name} ({expected:016x})"),
    })
}

const WHAT: &str = "two-slot cell";

/// A value that is replaced in one piece, whatever happens. Its type is stored with it: opening it as another is refused.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// use pmem::TwoSlot;
/// let area = pool.add_region("head", TwoSlot::<[u64; 4]>::SIZE)?.into_area()?;
/// let mut cell = TwoSlot::create(area, &[0u64; 4])?;
/// cell.update(&[1, 2, 3, 4])?; // one barrier
/// assert_eq!(cell.get(), [1, 2, 3, 4]);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct TwoSlot<T> {
    area: Area,
    cell: RawCell,
    value: T,
    of: PhantomData<T>,
}

impl<T: Persist> TwoSlot<T> {
    /// Bytes the cell needs.
    pub const SIZE: u64 = 2 * RawCell::stride(Typed::<T>::BYTES);

    /// Bytes from one slot to the next unless they lie [apart](Self::create_apart).
    const STRIDE: u64 = Self::SIZE / 2;

    /// Bytes that the cell needs with slots `stride` bytes apart.
    pub const fn size_apart(stride: u64) -> u64 {
        stride + Self::STRIDE
    }

    fn cell(area: &Area, stride: u64) -> Result<RawCell> {
        const { Typed::<T>::LAYOUT };
        if !area.offset().is_multiple_of(LINE) {
            return Err(Error::Unaligned { offset: area.offset(), align: LINE });
        }
        if stride < Self::STRIDE || !stride.is_multiple_of(LINE) {
            let what = "bytes from one slot of a cell to the other";
            return Err(Error::Limit { what, found: stride, min: Self::STRIDE, max: area.len() });
        }
        area.bytes(0, 0)?;
        let size = Self::size_apart(stride);
        if area.len() < size {
            return Err(Error::OutOfBounds { at: 0, end: size, len: area.len() });
        }
        let key = area.pool().checksum_key(area.offset());
        Ok(RawCell::new(area.offset(), Typed::<T>::BYTES, key).with_stride(stride))
    }

    /// Makes a cell holding `value` at the start of `area`. One barrier.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if the area is smaller than [`SIZE`](Self::SIZE), [`Error::Unaligned`] unless it starts on a line.
    pub fn create(area: Area, value: &T) -> Result<Self> {
        Self::create_apart(area, Self::STRIDE, value)
    }

    /// As [`create`](Self::create), with slots `stride` bytes apart, from the start of one to that of the other. On different pages the loss of
    /// one page leaves a slot, and a page that went back to what it was before is recognised by its older sequence number. What lies between
    /// the slots is no part of the cell.
    ///
    /// # Errors
    /// As [`create`](Self::create); [`Error::Limit`] unless `stride` is whole lines and no less than half of [`SIZE`](Self::SIZE).
    pub fn create_apart(mut area: Area, stride: u64, value: &T) -> Result<Self> {
        let mut cell = Self::cell(&area, stride)?;
        for slot in [0, stride] {
            area.bytes_mut(slot, Self::STRIDE as usize)?.fill(0);
            area.flush(slot, Self::STRIDE)?;
        }
        cell.update(area.mapping(), bytes_of(&Typed::new(value)))?;
        Ok(Self { area, cell, value: *value, of: PhantomData })
    }

    /// Reads the cell at the start of `area`: its newest whole value, and how the other copy looked. The value is persistent when this
    /// returns, even if only a cache had kept it: one barrier after a crash, unless both copies are equal.
    ///
    /// # Errors
    /// [`Error::Damaged`] if neither copy is whole; [`Error::WrongLayout`] if the value is of another type.
    pub fn open(area: Area) -> Result<(Self, SlotState)> {
        Self::open_apart(area, Self::STRIDE)
    }

    /// As [`open`](Self::open), of a cell that was made by [`create_apart`](Self::create_apart) with this stride.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_apart(area: Area, stride: u64) -> Result<(Self, SlotState)> {
        let (mut cell, other_slot) = Self::load_apart(area, stride)?;
        let pool = cell.area.pool();
        // Equal copies: the first was drained before the second was written.
        if other_slot != SlotState::Equal && !pool.was_clean() && !pool.mapping.is_read_only() {
            cell.settle()?;
            cell.area.mapping().drain(here())?;
        }
        Ok((cell, other_slot))
    }

    /// As [`open`](Self::open), but what was read may not be persistent before the caller's drain behind [`settle`](Self::settle).
    pub(crate) fn open_unsettled(area: Area) -> Result<(Self, SlotState)> {
        Self::load_apart(area, Self::STRIDE)
    }

    fn load_apart(area: Area, stride: u64) -> Result<(Self, SlotState)> {
        let (cell, value, other_slot) = Self::load(&area, stride)?;
        Ok((Self { area, cell, value, of: PhantomData }, other_slot))
    }

    /// The newest whole value of a cell with this stride at the start of `area`, and how the other slot looks. Changes nothing.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn look_apart(area: &Area, stride: u64) -> Result<(T, SlotState)> {
        Self::load(area, stride).map(|(_, value, other_slot)| (value, other_slot))
    }

    fn load(area: &Area, stride: u64) -> Result<(RawCell, T, SlotState)> {
        let expected = const { Typed::<T>::LAYOUT };
        let loaded = Self::cell(area, stride).and_then(|mut cell| Ok((cell.load(area.mapping(), WHAT)?, cell)));
        let ((bytes, other_slot), cell) = loaded.map_err(|e| match e {
            Error::Damaged { .. } | Error::OutOfBounds { .. } => {
                another_type(area, expected, std::any::type_name::<T>()).unwrap_or(e)
            }
            other => other,
        })?;
        let value = from_bytes(&bytes).filter(|v: &Typed<T>| v.layout == expected).map(|v| v.value);
        let value = value.ok_or_else(|| {
            let offset = area.offset();
            let damaged = Error::Damaged { what: WHAT, offset, found: word(&bytes), expected };
            another_type(area, expected, std::any::type_name::<T>()).unwrap_or(damaged)
        })?;
        Ok((cell, value, other_slot))
    }

    /// The newest value (persistent unless it is only staged).
    pub fn get(&self) -> T {
        self.value
    }

    /// Replaces the value persistently: one barrier.
    ///
    /// # Errors
    /// Those of a drain.
    pub fn update(&mut self, value: &T) -> Result<()> {
        self.cell.update(self.area.mapping(), bytes_of(&Typed::new(value)))?;
        self.value = *value;
        Ok(())
    }

    /// Replaces the value in both copies: two barriers, and damage to one copy is harmless afterwards.
    ///
    /// # Errors
    /// Those of a drain.
    pub fn update_mirrored(&mut self, value: &T) -> Result<()> {
        self.cell.update_mirrored(self.area.mapping(), bytes_of(&Typed::new(value)))?;
        self.value = *value;
        Ok(())
    }

    /// Replaces the value and flushes it: persistent after this thread's next drain, which may carry other things too.
    /// Staging again before that drain drains first.
    ///
    /// # Errors
    /// Those of a flush.
    pub fn stage(&mut self, value: &T) -> Result<Moment> {
        let moment = self.cell.stage(self.area.mapping(), bytes_of(&Typed::new(value)))?;
        self.value = *value;
        Ok(moment)
    }

    /// Flushes what [`open`](Self::open) read: with the caller's next drain it is persistent, whatever a cache had kept. Without this the
    /// first update costs a barrier more.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.cell.settle(self.area.mapping())
    }

    /// The untyped cell at `offset`, for who reads it through the file.
    pub(crate) fn untyped(offset: u64, stride: Option<u64>, key: ChecksumKey) -> RawCell {
        let stride = stride.map_or(Self::STRIDE, |stride| stride.next_multiple_of(LINE).max(Self::STRIDE));
        RawCell::new(offset, Typed::<T>::BYTES, key).with_stride(stride)
    }

    /// The value in that of the untyped cell, if it is of this type.
    pub(crate) fn typed(bytes: &[u8]) -> Option<T> {
        from_bytes::<Typed<T>>(bytes).filter(|v| v.layout == const { Typed::<T>::LAYOUT }).map(|v| v.value)
    }

    /// Gives the range back.
    pub fn into_area(self) -> Area {
        self.area
    }
}

// ---- in two areas ---------------------------------------------------------------------------------------------------

impl<T: Persist> TwoSlot<T> {
    /// Bytes of each of the two areas of a [`Split`].
    pub(crate) const HALF: u64 = Self::STRIDE;

    /// A cell with a slot at the start of each of two areas, the first one in front of the other.
    fn split_cell(first: &Area, second: &Area) -> Result<RawCell> {
        let stride = second.offset().saturating_sub(first.offset());
        if !first.offset().is_multiple_of(LINE) || first.len() < Self::HALF || second.len() < Self::HALF {
            return Err(Error::OutOfBounds { at: 0, end: Self::HALF, len: first.len().min(second.len()) });
        }
        let key = first.pool().checksum_key(first.offset());
        let cell = RawCell::new(first.offset(), Typed::<T>::BYTES, key).with_stride(stride);
        Ok(RawCell { shares_page: true, ..cell })
    }
}

/// A cell whose slots lie at both ends of what they tell about.
#[derive(Debug)]
pub(crate) struct Split<T> {
    cell: RawCell,
    first: Area,
    /// Of the other slot: nobody else's.
    _second: Area,
    value: T,
}

impl<T: Persist> Split<T> {
    /// Makes a cell holding `value`. One barrier.
    pub(crate) fn create(mut first: Area, mut second: Area, value: &T) -> Result<Self> {
        let mut cell = TwoSlot::<T>::split_cell(&first, &second)?;
        for area in [&mut first, &mut second] {
            area.bytes_mut(0, TwoSlot::<T>::HALF as usize)?.fill(0);
            area.flush(0, TwoSlot::<T>::HALF)?;
        }
        cell.update(first.mapping(), bytes_of(&Typed::new(value)))?;
        Ok(Self { cell, first, _second: second, value: *value })
    }

    /// What is there, if it is a cell of this type: the newest whole value and how the other slot looks. Nothing changes.
    pub(crate) fn look(first: &Area, second: &Area) -> Result<(RawCell, T, SlotState)> {
        let expected = const { Typed::<T>::LAYOUT };
        let mut cell = TwoSlot::<T>::split_cell(first, second)?;
        let (bytes, other_slot) = cell.load(first.mapping(), WHAT)?;
        let found = from_bytes(&bytes).filter(|v: &Typed<T>| v.layout == expected).map(|v| v.value);
        let offset = first.offset();
        let value = found.ok_or(Error::Damaged { what: WHAT, offset, found: word(&bytes), expected })?;
        Ok((cell, value, other_slot))
    }

    /// The cell that was looked at. Its value may not be persistent before the caller's drain behind [`settle`](Self::settle).
    pub(crate) fn opened(first: Area, second: Area, (cell, value): (RawCell, T)) -> Self {
        Self { cell, first, _second: second, value }
    }

    pub(crate) fn get(&self) -> T {
        self.value
    }

    /// As [`TwoSlot::stage`].
    pub(crate) fn stage(&mut self, value: &T) -> Result<Moment> {
        let moment = self.cell.stage(self.first.mapping(), bytes_of(&Typed::new(value)))?;
        self.value = *value;
        Ok(moment)
    }

    /// As [`TwoSlot::settle`].
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.cell.settle(self.first.mapping())
    }
}
