//! The heap's bytes: the same on every replica, since nothing but records changes them.
//!
//! | bytes | what |
//! |---|---|
//! | 0 .. 4096 | the root cell, at 64 |
//! | 4096 .. | the map: a byte for each 32 bytes of the image; that of a block's first ones says how long it is, all others are 0 |
//! | .. end | blocks |
//!
//! A block's state is a byte of its own, so that transactions on different blocks write different bytes.

use std::ops::Range;

use pmem::{Area, PPtr};

use crate::blocks::Blocks;
use crate::size::{GRANULE, SizeCode};
use crate::writes::{Write, Writes, writes};
use crate::{Error, Result};

/// The tag of all pointers into an image.
pub(crate) const TAG: u16 = 0xc4a1;
pub(crate) const ROOT: u64 = 64;
pub(crate) const ROOT_LEN: u64 = 16;
/// Largest alignment of an object.
pub(crate) const ALIGN_MAX: u64 = PAGE;
const PAGE: u64 = 4096;
/// Bytes of an image that are copied at a time, while nothing is carried out in it.
pub(crate) const PART: u64 = 4 << 20;
/// Smallest image.
pub(crate) const CAPACITY_MIN: u64 = 4 * PAGE;

/// An image on a medium, and what follows from its map.
#[derive(Debug)]
pub(crate) struct Image {
    area: Area,
    pub(crate) blocks: Blocks,
    /// Its map is that of one number, and the blocks follow it.
    whole: bool,
}

/// The index in the map of the block that begins at this byte.
pub(crate) fn map_byte(start: u64) -> u64 {
    PAGE + start / GRANULE
}

pub(crate) fn pointer<T: ?Sized>(start: u64) -> PPtr<T> {
    PPtr::new(TAG, start)
}

impl Image {
    /// What stands in the area: records may be half in it, so that its map is not looked at before they are carried out again.
    pub(crate) fn open_unscanned(area: Area) -> Self {
        Self { area, blocks: Blocks::default(), whole: true }
    }

    #[cfg(test)]
    fn open(area: Area) -> Result<Self> {
        let mut image = Self::open_unscanned(area);
        image.scan()?;
        Ok(image)
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.area.len()
    }

    fn map(&self) -> Range<u64> {
        map(self.capacity())
    }

    pub(crate) fn heap(&self) -> Range<u64> {
        heap(self.capacity())
    }

    /// Makes the blocks anew, from the map.
    pub(crate) fn scan(&mut self) -> Result<()> {
        let heap = self.heap();
        let mut blocks = Blocks::empty(heap.clone());
        let map = self.area.bytes(map_byte(heap.start), ((heap.end - heap.start) / GRANULE) as usize)?;
        let mut end = heap.start;
        for (start, &code) in (heap.start..).step_by(GRANULE as usize).zip(map).filter(|(_, code)| **code != 0) {
            let len = SizeCode::from_byte(code).bytes();
            if start < end || start + len > heap.end {
                return Err(Error::Record { why: "blocks of its map lie in each other" });
            }
            end = start + len;
            blocks.set_live(start, len);
        }
        (self.blocks, self.whole) = (blocks, true);
        Ok(())
    }

    pub(crate) fn bytes(&self, at: u64, len: u64) -> Result<&[u8]> {
        Ok(self.area.bytes(at, len as usize)?)
    }

    /// Carries out record `n`; it is flushed.
    pub(crate) fn apply(&mut self, n: u64, record: &[u8]) -> Result<()> {
        check(record, self.capacity())?;
        for write in writes(record) {
            let write = write?;
            let range = write.range();
            if self.whole && range.start < self.map().end && range.end > self.map().start {
                self.learn(n, write)?;
            }
            let bytes = self.area.bytes_mut(range.start, (range.end - range.start) as usize)?;
            match write {
                Write::Bytes { bytes: new, .. } => bytes.copy_from_slice(new),
                Write::Zeros { .. } => bytes.fill(0),
            }
            self.area.flush(range.start, range.end - range.start)?;
        }
        Ok(())
    }

    /// The blocks follow the map.
    fn learn(&mut self, n: u64, write: Write<'_>) -> Result<()> {
        let (range, map) = (write.range(), self.map());
        for at in range.start.max(map.start)..range.end.min(map.end) {
            let new = match write {
                Write::Bytes { bytes, .. } => bytes[(at - range.start) as usize],
                Write::Zeros { .. } => 0,
            };
            let (start, old) = ((at - map.start) * GRANULE, self.area.bytes(at, 1)?[0]);
            if old != 0 && new != old {
                self.blocks.set_free(n, start);
            }
            if new != 0 && new != old {
                self.blocks.set_live(start, SizeCode::from_byte(new).bytes());
            }
        }
        Ok(())
    }

    /// Zeros, flushed.
    pub(crate) fn erase(&mut self) -> Result<()> {
        let capacity = self.capacity();
        for at in (0..capacity).step_by(PAGE as usize) {
            let len = PAGE.min(capacity - at);
            if self.area.bytes(at, len as usize)?.iter().any(|byte| *byte != 0) {
                self.area.bytes_mut(at, len as usize)?.fill(0);
                self.area.flush(at, len)?;
            }
        }
        self.scan()
    }

    /// A part of it, and whether it is the last one: the size of the whole, then what is not zero.
    pub(crate) fn copy(&self, part: u32) -> Result<(Vec<u8>, bool)> {
        let mut copy = Writes::default();
        copy.mark(self.capacity());
        let end = self.capacity().min((u64::from(part) + 1) * PART);
        for at in (u64::from(part) * PART..end).step_by(PAGE as usize) {
            let page = self.area.bytes(at, PAGE.min(end - at) as usize)?;
            if page.iter().any(|byte| *byte != 0) {
                copy.put(at, page);
            }
        }
        Ok((copy.into_bytes(), end == self.capacity()))
    }

    /// A part of an erased image becomes the copy; it is flushed. The next [`scan`](Self::scan) is behind the last one.
    pub(crate) fn restore(&mut self, copy: &[u8]) -> Result<()> {
        check_copy(copy, self.capacity())?;
        self.whole = false;
        for write in writes(copy) {
            if let Write::Bytes { at, bytes } = write? {
                self.area.bytes_mut(at, bytes.len())?.copy_from_slice(bytes);
                self.area.flush(at, bytes.len() as u64)?;
            }
        }
        Ok(())
    }
}

/// A record that came from outside may be executed in an image of this size.
pub(crate) fn check(record: &[u8], capacity: u64) -> Result<()> {
    let (map, heap) = (map(capacity), heap(capacity));
    for write in writes(record) {
        let write = write?;
        let range = write.range();
        if range.end > capacity {
            return Err(Error::Record { why: "it writes behind the heap's end" });
        }
        let Write::Bytes { bytes, .. } = write else { continue };
        for at in range.start.max(map.start)..range.end.min(map.end) {
            let (start, code) = ((at - map.start) * GRANULE, bytes[(at - range.start) as usize]);
            if code != 0 && !(heap.contains(&start) && SizeCode::from_byte(code).bytes() <= heap.end - start) {
                return Err(Error::Record { why: "it makes a block outside of the heap" });
            }
        }
    }
    Ok(())
}

fn map(capacity: u64) -> Range<u64> {
    PAGE..PAGE + capacity / GRANULE
}

fn heap(capacity: u64) -> Range<u64> {
    map(capacity).end.next_multiple_of(PAGE)..capacity / PAGE * PAGE
}

/// The same of a copy.
pub(crate) fn check_copy(copy: &[u8], capacity: u64) -> Result<()> {
    match writes(copy).next() {
        Some(Ok(Write::Bytes { at, bytes: [] })) if at == capacity => check(copy, capacity),
        _ => Err(Error::Record { why: "the heap it is a copy of has another size" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(len: u64) -> (tempfile::TempDir, pmem::Pool, Area) {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let pool = pmem::Options::new().size(4 << 20).create(dir.path().join("p")).unwrap();
        let area = pool.add_region("image", len).unwrap().into_area().unwrap();
        (dir, pool, area)
    }

    #[test]
    fn a_copy_is_the_same_to_the_byte() {
        let (_a, _pool, first) = area(1 << 20);
        let (_b, _pool2, second) = area(1 << 20);
        let (mut first, mut second) = (Image::open(first).unwrap(), Image::open(second).unwrap());
        let start = first.heap().start;
        let code = SizeCode::of(100).unwrap();
        let mut record = Writes::default();
        record.put(map_byte(start), &[code.byte()]);
        record.put(start + 3, b"abc");
        first.apply(1, &record.into_bytes()).unwrap();
        assert_eq!(first.blocks.find(start + 5), Some((start, 128)));
        second
            .apply(1, &{
                let mut other = Writes::default();
                other.put(900_000, b"something else");
                other.into_bytes()
            })
            .unwrap();
        second.erase().unwrap();
        let (copy, last) = first.copy(0).unwrap();
        second.restore(&copy).unwrap();
        second.scan().unwrap();
        assert!(last);
        assert_eq!(second.bytes(0, 1 << 20).unwrap(), first.bytes(0, 1 << 20).unwrap());
        assert_eq!(second.blocks.find(start + 5), Some((start, 128)));
    }

    #[test]
    fn nothing_is_written_outside() {
        let (_dir, _pool, area) = area(1 << 20);
        let mut image = Image::open(area).unwrap();
        for at in [(1 << 20) - 1, u64::MAX - 1, 1 << 20] {
            let mut record = Writes::default();
            record.put(0, b"first");
            record.put(at, b"ab");
            assert!(matches!(image.apply(1, &record.into_bytes()), Err(Error::Record { .. })), "{at}");
            assert_eq!(image.bytes(0, 5).unwrap(), [0; 5]);
        }
        let mut block = Writes::default();
        block.put(map_byte(0), &[1]);
        assert!(image.apply(1, &block.into_bytes()).is_err());
    }

    #[test]
    fn a_map_that_contradicts_itself_is_an_error() {
        let (_dir, _pool, area) = area(1 << 20);
        let mut image = Image::open(area).unwrap();
        let start = image.heap().start;
        let mut record = Writes::default();
        record.put(map_byte(start), &[4, 1]);
        image.apply(1, &record.into_bytes()).unwrap();
        assert!(matches!(image.scan(), Err(Error::Record { .. })));
    }
}
