//! A key and its value in one block, behind the words that link it to others. What a hash map's buckets lead to has no such words, a list's
//! node has one, a search tree's two.

use pmem::PPtr;
use tx::{Range, Result, Transaction, Typed};

use crate::media::{Link, behind, damaged, held, word};

/// Longest key of a [`SortedList`](crate::SortedList) or a [`SearchTree`](crate::SearchTree).
pub const ENTRY_KEY_MAX: u64 = 1 << 16;

/// Bytes between links and key: the key's length, where the value begins, the value's length.
const HEADER: usize = 16;
/// Byte behind the links of the value's length.
const VALUE_LEN: u64 = 8;
/// From this length on a value begins on a line.
const LINE_FROM: usize = 512;

/// Where a value of `value` bytes begins behind `links` bytes and a key, and the alignment its block needs for that.
fn value_at(links: usize, key: usize, value: usize) -> (u64, u64) {
    let align = if value >= LINE_FROM { pmem::LINE } else { 8 };
    (((links + HEADER + key) as u64).next_multiple_of(align), align)
}

/// An entry's block, taken apart.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'t> {
    pub(crate) key: &'t [u8],
    pub(crate) value: &'t [u8],
    value_at: u64,
    room: u64,
}

/// Where an entry's value is in its block.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    value_at: u64,
    len: u64,
    room: u64,
}

impl<'t> Entry<'t> {
    /// `None` if the lengths behind `links` bytes contradict each other or the block.
    #[inline]
    pub(crate) fn parse(block: &'t [u8], links: usize) -> Option<Self> {
        let lens = word(block, links)?;
        let (key_len, value_at) = ((lens & 0xffff_ffff) as usize, (lens >> 32) as usize);
        let value_len = usize::try_from(word(block, links + VALUE_LEN as usize)?).ok()?;
        let key = block.get(links + HEADER..)?.get(..key_len)?;
        let value = block.get(value_at..)?.get(..value_len)?;
        let apart = value_at >= links + HEADER + key_len;
        apart.then_some(Self { key, value, value_at: value_at as u64, room: block.len() as u64 })
    }

    pub(crate) fn layout(&self) -> Layout {
        Layout { value_at: self.value_at, len: self.value.len() as u64, room: self.room }
    }

    /// Writes an entry into its new block.
    fn fill(block: &mut [u8], value_at: u64, links: &[u64], key: &[u8], value: &[u8]) {
        let head = 8 * links.len();
        for (bytes, link) in block.chunks_exact_mut(8).zip(links) {
            bytes.copy_from_slice(&link.to_le_bytes());
        }
        let lens = key.len() as u64 | value_at << 32;
        block[head..][..8].copy_from_slice(&lens.to_le_bytes());
        block[head + VALUE_LEN as usize..][..8].copy_from_slice(&(value.len() as u64).to_le_bytes());
        block[head + HEADER..][..key.len()].copy_from_slice(key);
        block[value_at as usize..][..value.len()].copy_from_slice(value);
    }
}

pub(crate) fn new_entry<X: Transaction + ?Sized>(
    tx: &mut X,
    links: &[u64],
    key: &[u8],
    value: &[u8],
) -> Result<PPtr<u8>> {
    let (value_at, align) = value_at(8 * links.len(), key.len(), value.len());
    let len = value_at + value.len() as u64;
    let at = tx.alloc_bytes(len, align)?;
    Entry::fill(tx.bytes_mut(at, len)?, value_at, links, key, value);
    Ok(at)
}

/// Gives the entry at `at` another value: there, if it fits; else in a new block, to which the word `slot` leads from then on.
pub(crate) fn overwrite<X: Transaction + ?Sized>(
    tx: &mut X,
    slot: PPtr<u64>,
    at: PPtr<u8>,
    layout: Layout,
    links: &[u64],
    key: &[u8],
    value: &[u8],
) -> Result<()> {
    let len = value.len() as u64;
    let in_place = Range::new(behind(at, layout.value_at), len);
    if len == layout.len {
        return put_bytes(tx, in_place, value);
    }
    let needed = layout.value_at + len;
    // A block that would be more than half empty goes back.
    if needed <= layout.room && needed * 2 >= layout.room {
        let len_at = behind(at, 8 * links.len() as u64 + VALUE_LEN);
        let ranges = [Range::new(len_at, 8), in_place];
        tx.intend(if value.is_empty() { &ranges[..1] } else { &ranges })?;
        tx.bytes_mut(len_at, 8)?.copy_from_slice(&len.to_le_bytes());
        return put_bytes(tx, in_place, value);
    }
    let entry = new_entry(tx, links, key, value)?;
    let word = tx.write(slot)?;
    *word = Link::new(entry, Link(*word).bits()).0;
    tx.free(at)
}

/// An empty value may end where its block ends: no place to point to.
fn put_bytes<X: Transaction + ?Sized>(tx: &mut X, range: Range, value: &[u8]) -> Result<()> {
    if !value.is_empty() {
        tx.put_bytes(range.at, value)?;
    }
    Ok(())
}

/// An entry with `N` links before it.
#[derive(Clone, Copy)]
pub(crate) struct Node<'t, const N: usize> {
    pub(crate) links: [u64; N],
    pub(crate) entry: Entry<'t>,
}

impl<'t, const N: usize> Node<'t, N> {
    /// The node at `at`.
    #[inline]
    pub(crate) fn read<X: Transaction + ?Sized>(tx: &'t X, what: &'static str, at: PPtr<u8>) -> Result<Self> {
        let block = held(what, at, tx.rest(at))?;
        Self::parse(block)
            .filter(|_| at.offset().is_multiple_of(8))
            .ok_or_else(|| damaged(what, at, "its links or lengths contradict each other or its block"))
    }

    #[inline]
    fn parse(block: &'t [u8]) -> Option<Self> {
        let mut links = [0; N];
        for (index, link) in links.iter_mut().enumerate() {
            *link = word(block, 8 * index).filter(|&link| Link(link).bits() == 0)?;
        }
        Some(Self { links, entry: Entry::parse(block, 8 * N)? })
    }

    /// Where link `index` leads, null for nowhere.
    #[inline]
    pub(crate) fn next(&self, index: usize, tag: u16) -> PPtr<u8> {
        to(self.links[index], tag)
    }
}

/// Where a link without other bits leads, null for nowhere.
#[inline]
pub(crate) fn to(link: u64, tag: u16) -> PPtr<u8> {
    if link == 0 { PPtr::NULL } else { PPtr::new(tag, link) }
}

/// Where the word at `slot` leads, null for nowhere.
#[inline]
pub(crate) fn follow<X: Transaction + ?Sized>(tx: &X, what: &'static str, slot: PPtr<u64>) -> Result<PPtr<u8>> {
    let link = Link(*held(what, slot, tx.read(slot))?);
    if link.bits() != 0 {
        return Err(damaged(what, slot, "no link"));
    }
    Ok(to(link.0, slot.tag()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_contradicts_itself_is_none() {
        for links in [&[][..], &[1 << 20, 0]] {
            let head = 8 * links.len();
            let (at, _) = value_at(head, 3, 5);
            let mut block = vec![0; at as usize + 5];
            Entry::fill(&mut block, at, links, b"key", b"value");
            let entry = Entry::parse(&block, head).unwrap();
            assert_eq!((entry.key, entry.value), (&b"key"[..], &b"value"[..]));
            for (byte, bits) in [(0, 0xff), (3, 0x80), (4, 16), (7, 0x80), (8, 1), (15, 0x80)] {
                let mut block = block.clone();
                block[head + byte] |= bits;
                block[head + byte] ^= if byte == 4 { 8 } else { 0 }; // the value inside the key, or beyond the block
                let parsed = Entry::parse(&block, head).map(|e| (e.key.to_vec(), e.value.to_vec()));
                assert!(parsed.is_none() || byte == 8, "{byte}: {parsed:?}");
            }
            assert!(Entry::parse(&block[..head + 15], head).is_none() && Entry::parse(&[], head).is_none());
        }
    }

    #[test]
    fn a_link_with_other_bits_is_no_link() {
        let (at, _) = value_at(16, 3, 5);
        let mut block = vec![0; at as usize + 5];
        Entry::fill(&mut block, at, &[64, 128], b"key", b"value");
        assert_eq!(Node::<2>::parse(&block).map(|node| node.links), Some([64, 128]));
        block[15] = 1;
        assert!(Node::<2>::parse(&block).is_none());
    }

    #[test]
    fn long_values_begin_on_a_line() {
        assert_eq!((value_at(8, 3, 511), value_at(8, 3, 512)), ((32, 8), (64, 64)));
    }
}
