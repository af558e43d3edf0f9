//! Values in atomic cells, whose type is stored with them: the value of a cell begins with a word that says of which type the rest is.

use std::marker::PhantomData;

use crate::Persist;
use crate::area::Area;
use crate::cell::{RawCell, SlotState, word};
use crate::checksum::ChecksumKey;
use crate::cpu::LINE;
use crate::error::{Error, Result};
use crate::flush::Moment;
use crate::persist::{bytes_of, from_bytes};
use crate::sim::here;

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
            cell.persist_read()?;
            cell.area.mapping().drain(here())?;
        }
        Ok((cell, other_slot))
    }

    /// As [`open`](Self::open), but what was read may not be persistent before the caller's drain behind [`persist_read`](Self::persist_read).
    pub(crate) fn open_unpersisted(area: Area) -> Result<(Self, SlotState)> {
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
    pub(crate) fn persist_read(&mut self) -> Result<()> {
        self.cell.persist_read(self.area.mapping())
    }

    /// The untyped cell at `offset`, for a caller that reads it through the file.
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
        Ok(RawCell::new(first.offset(), Typed::<T>::BYTES, key).with_stride(stride).on_shared_pages())
    }
}

/// A cell whose slots lie at both ends of what they tell about.
#[derive(Debug)]
pub(crate) struct Split<T> {
    cell: RawCell,
    first: Area,
    /// Of the other slot: no other owner has it.
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

    /// The cell that was looked at. Its value may not be persistent before the caller's drain behind [`persist_read`](Self::persist_read).
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

    /// As [`TwoSlot::persist_read`].
    pub(crate) fn persist_read(&mut self) -> Result<()> {
        self.cell.persist_read(self.first.mapping())
    }
}
