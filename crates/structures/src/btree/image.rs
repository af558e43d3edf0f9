//! A node that is being changed: its bytes in DRAM, and which of them are new.

use std::ops::Range;

use pmem::{PPtr, bytes_of};

use super::layout::{COUNTS, HEADER, NODE_KIND, NodeHeader, SLOT, Slot, common, head_of};
use super::node::{Bad, Node, Shape};

/// A key and what belongs to it.
pub(super) type Record<'r> = (&'r [u8], &'r [u8]);

/// Bytes a record takes in a node.
pub(super) fn cost((key, tail): Record<'_>) -> usize {
    SLOT + key.len() + tail.len()
}

pub(super) struct Image {
    bytes: Vec<u8>,
    header: NodeHeader,
    shape: Shape,
    dirty: Vec<Range<usize>>,
}

impl Image {
    pub(super) fn of(node: &Node<'_>) -> Self {
        Self { bytes: node.bytes.to_vec(), header: node.header, shape: node.shape, dirty: Vec::with_capacity(4) }
    }

    /// An empty node; all of it is new.
    pub(super) fn new(shape: Shape, level: u16, first: PPtr<u8>) -> Self {
        let capacity = shape.capacity(level);
        let heap = capacity as u16;
        let header = NodeHeader { kind: NODE_KIND, level, prefix: 0, count: 0, heap, garbage: 0, reserved: 0, first };
        let mut image = Self { bytes: vec![0; capacity], header, shape, dirty: Vec::with_capacity(4) };
        image.put_header(0..HEADER);
        image
    }

    /// A node with these records.
    pub(super) fn build(shape: Shape, level: u16, first: PPtr<u8>, records: &[Record<'_>]) -> Result<Self, Bad> {
        let mut image = Self::new(shape, level, first);
        if let [(one, _), .., (last, _)] = records {
            image.header.prefix = common(one, last) as u16;
        } else if let [(only, _)] = records {
            image.header.prefix = Self::lone_prefix(only);
        }
        for (index, (key, tail)) in records.iter().enumerate() {
            if !image.push(index, key, tail) {
                return Err("its records are larger than a node");
            }
        }
        image.put_header(0..HEADER);
        Ok(image)
    }

    /// Keys that follow a lone one are expected to differ in the last bytes.
    fn lone_prefix(key: &[u8]) -> u16 {
        key.len().saturating_sub(4) as u16
    }

    pub(super) fn node(&self) -> Node<'_> {
        Node { bytes: &self.bytes, header: self.header, shape: self.shape }
    }

    pub(super) fn level(&self) -> u16 {
        self.header.level
    }

    pub(super) fn count(&self) -> usize {
        self.header.count.into()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> usize {
        self.bytes.len().saturating_sub(self.gap() + usize::from(self.header.garbage))
    }

    /// Bytes between slots and records.
    fn gap(&self) -> usize {
        usize::from(self.header.heap) - HEADER - SLOT * self.count()
    }

    pub(super) fn records(&self) -> Result<Vec<Record<'_>>, Bad> {
        let node = self.node();
        (0..node.count()).map(|index| node.record(index)).collect()
    }

    /// Inserts a record; false if there is no room.
    pub(super) fn insert(&mut self, index: usize, key: &[u8], tail: &[u8]) -> Result<bool, Bad> {
        if self.gap() < cost((key, tail)) {
            if self.gap() + usize::from(self.header.garbage) < cost((key, tail)) {
                return Ok(false);
            }
            self.compact()?;
        }
        if self.count() == 0 {
            self.set_prefix(Self::lone_prefix(key))?;
        } else {
            let shared = common(self.node().key(0)?, key) as u16;
            if shared < self.header.prefix {
                self.set_prefix(shared)?;
            }
        }
        let fits = self.push(index, key, tail);
        self.put_header(COUNTS);
        Ok(fits)
    }

    /// Takes the record out.
    pub(super) fn remove(&mut self, index: usize) -> Result<(), Bad> {
        let (key, tail) = self.node().record(index)?;
        let (at, freed) = (self.node().slot(index)?.at, (key.len() + tail.len()) as u16);
        if at == self.header.heap {
            self.header.heap += freed;
        } else {
            self.header.garbage =
                self.header.garbage.checked_add(freed).ok_or("more bytes are unused than there are")?;
        }
        let end = HEADER + SLOT * self.count();
        let from = HEADER + SLOT * index;
        self.bytes.copy_within(from + SLOT..end, from);
        self.dirty.push(from..end - SLOT);
        self.header.count -= 1;
        self.put_header(COUNTS);
        Ok(())
    }

    /// Keeps the first records only.
    pub(super) fn truncate(&mut self, count: usize) -> Result<(), Bad> {
        for index in count..self.count() {
            let (key, tail) = self.node().record(index)?;
            let freed = (key.len() + tail.len()) as u16;
            self.header.garbage =
                self.header.garbage.checked_add(freed).ok_or("more bytes are unused than there are")?;
        }
        self.header.count = count as u16;
        self.put_header(COUNTS);
        Ok(())
    }

    /// Takes out child `index`; there is another.
    pub(super) fn remove_child(&mut self, index: usize) -> Result<(), Bad> {
        match index.checked_sub(1) {
            Some(index) => self.remove(index),
            None => {
                self.header.first = self.node().child(1)?;
                self.put_header(0..HEADER);
                self.remove(0)
            }
        }
    }

    /// Puts all free bytes in one place. What stood there before stays on media: nothing looks at it.
    fn compact(&mut self) -> Result<(), Bad> {
        let header = self.header;
        let compact = Self::build(self.shape, header.level, header.first, &self.records()?)?;
        *self = compact;
        Ok(())
    }

    fn set_prefix(&mut self, prefix: u16) -> Result<(), Bad> {
        self.header.prefix = prefix;
        for index in 0..self.count() {
            let slot = Slot { head: head_of(self.node().key(index)?, prefix.into()), ..self.node().slot(index)? };
            self.put_slot(index, slot);
        }
        self.put_header(0..HEADER);
        self.dirty.push(HEADER..HEADER + SLOT * self.count());
        Ok(())
    }

    /// As `insert`, where prefix and space are known to do; the header's bytes are left behind.
    fn push(&mut self, index: usize, key: &[u8], tail: &[u8]) -> bool {
        if self.gap() < cost((key, tail)) {
            return false;
        }
        let heap = usize::from(self.header.heap);
        let at = heap - key.len() - tail.len();
        self.bytes[at..][..key.len()].copy_from_slice(key);
        self.bytes[heap - tail.len()..heap].copy_from_slice(tail);
        self.dirty.push(at..heap);

        let end = HEADER + SLOT * self.count();
        let from = HEADER + SLOT * index;
        self.bytes.copy_within(from..end, from + SLOT);
        self.dirty.push(from..end + SLOT);
        let head = head_of(key, self.header.prefix.into());
        self.put_slot(index, Slot { head, at: at as u16, key_len: key.len() as u16 });
        self.header.heap = at as u16;
        self.header.count += 1;
        true
    }

    fn put_slot(&mut self, index: usize, slot: Slot) {
        self.bytes[HEADER + SLOT * index..][..SLOT].copy_from_slice(bytes_of(&slot));
    }

    fn put_header(&mut self, dirty: Range<usize>) {
        self.bytes[..HEADER].copy_from_slice(bytes_of(&self.header));
        self.dirty.push(dirty);
    }

    /// New bytes: ranges in order that do not touch each other.
    pub(super) fn dirty(&self) -> Vec<Range<usize>> {
        let mut dirty: Vec<_> = self.dirty.iter().filter(|range| !range.is_empty()).cloned().collect();
        dirty.sort_unstable_by_key(|range| range.start);
        dirty.dedup_by(|next, range| {
            let touch = next.start <= range.end;
            if touch {
                range.end = range.end.max(next.end);
            }
            touch
        });
        dirty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { leaf: 256, inner: 256, inline_max: 16 };

    fn tail(value: &[u8]) -> Vec<u8> {
        [&(value.len() as u32).to_le_bytes(), value].concat()
    }

    fn keys(image: &Image) -> Vec<String> {
        let records = image.records().unwrap();
        records.iter().map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect()
    }

    #[test]
    fn inserts_keep_order_and_shrink_the_prefix() {
        let mut image = Image::new(SHAPE, 0, PPtr::NULL);
        for key in ["user-0007", "user-0001", "user-0100", "use", "v", "user-0003"] {
            let at = image.node().search(key.as_bytes()).unwrap().unwrap_err();
            assert!(image.insert(at, key.as_bytes(), &tail(b"x")).unwrap());
            assert_eq!(image.node().search(key.as_bytes()), Ok(Ok(at)));
        }
        assert_eq!(keys(&image), ["use", "user-0001", "user-0003", "user-0007", "user-0100", "v"]);
        assert_eq!(image.header.prefix, 0);
    }

    #[test]
    fn room_is_what_is_free_wherever_it_lies() {
        let mut image = Image::new(SHAPE, 0, PPtr::NULL);
        let mut fits = 0;
        while image.insert(fits, format!("{fits:02}").as_bytes(), &tail(b"0123456789")).unwrap() {
            fits += 1;
        }
        let used = image.used();
        image.remove(3).unwrap();
        image.remove(0).unwrap();
        assert_eq!(image.used(), used - 2 * (SLOT + 2 + 4 + 10));
        assert!(image.insert(0, b"00", &tail(b"0123456789")).unwrap());
        assert!(image.insert(fits - 1, b"99", &tail(b"012345678")).unwrap());
        assert!(!image.insert(0, b"!", &tail(b"0123456789")).unwrap());
        assert_eq!(keys(&image).len(), fits);
    }

    #[test]
    fn only_what_changed_is_dirty() {
        let records: Vec<_> = (0..8).map(|i| (format!("key{i}"), tail(b"v"))).collect();
        let records: Vec<Record> = records.iter().map(|(key, tail)| (key.as_bytes(), &tail[..])).collect();
        let whole = Image::build(SHAPE, 0, PPtr::NULL, &records).unwrap();
        let before = whole.bytes().to_vec();
        for change in [
            |image: &mut Image| assert!(image.insert(5, b"key45", &tail(b"v")).unwrap()),
            |image: &mut Image| image.remove(2).unwrap(),
            |image: &mut Image| image.truncate(4).unwrap(),
            |image: &mut Image| assert!(image.insert(0, b"k", &tail(b"v")).unwrap()),
            |image: &mut Image| {
                image.remove(1).unwrap();
                image.compact().unwrap();
            },
        ] {
            let mut image = Image::of(&whole.node());
            change(&mut image);
            let dirty = image.dirty();
            assert!(dirty.windows(2).all(|pair| pair[0].end < pair[1].start), "{dirty:?}");
            let mut replayed = before.clone();
            for range in dirty {
                replayed[range.clone()].copy_from_slice(&image.bytes()[range]);
            }
            let node = Node::parse(&replayed, SHAPE).unwrap();
            assert_eq!((node.header, keys(&Image::of(&node))), (image.header, keys(&image)));
            assert_eq!(Image::of(&node).records(), image.records());
        }
    }
}
