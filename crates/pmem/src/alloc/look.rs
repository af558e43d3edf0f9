//! What the media say of a chunk, found out when it is needed.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::alloc::allocator::{Allocator, Extent};
use crate::alloc::central::{Central, chunk_id};
use crate::alloc::chunk::{Shape, owner};
use crate::alloc::classes::HUGE;
use crate::alloc::media::{Word, mask};
use crate::error::{Error, Result};

impl Allocator {
    /// Looks at the next chunk that was not looked at yet; false if there is none. The central lock is held.
    pub(super) fn look_at_next(&self, central: &mut Central) -> Result<bool> {
        loop {
            let (index, number) = central.cursor;
            let Some(extent) = self.extents.get(index).and_then(OnceLock::get) else { return Ok(false) };
            if number >= extent.chunks.load(Acquire) {
                if self.extents.get(index + 1).and_then(OnceLock::get).is_none() {
                    return Ok(false);
                }
                central.cursor = (index + 1, 0);
                continue;
            }
            central.cursor = (index, number + 1);
            if extent.chunk(number).shape() == Shape::Unknown {
                self.look_at(central, index, extent, number)?;
                return Ok(true);
            }
        }
    }

    /// Finds out what a chunk is. The central lock is held; damage is remembered, and an error only for a caller that needs the chunk.
    pub(super) fn look_at(&self, central: &mut Central, index: usize, extent: &Extent, number: u32) -> Result<()> {
        let chunk = extent.chunk(number);
        if chunk.shape() != Shape::Unknown {
            return Ok(());
        }
        let found = match self.read_new_shape(extent, number) {
            Err(Error::Damaged { .. } | Error::Unreadable { .. }) => Shape::Damaged,
            other => other?,
        };
        if let Shape::Tail { back } = found {
            // The head decides; looking at it sets this chunk's shape too.
            return self.look_at(central, index, extent, number - back);
        }
        if let Shape::Head { class, span } = found {
            let blocks = self.classes.get(class, span).map_or(0, |c| c.blocks);
            chunk.make_bits(extent.geometry.blocks_max());
            let mut damaged = false;
            let used = chunk.reset_bits(blocks, |first| {
                let bits = extent.geometry.bits(self.mapping(), number, first, blocks, true);
                damaged |= bits.is_err();
                bits.unwrap_or(mask(blocks - first))
            });
            for back in 1..span {
                extent.chunk(number + back).set_shape(Shape::Tail { back });
            }
            if damaged {
                chunk.set_shape(Shape::Damaged);
                return self.condemn(extent, number);
            }
            chunk.set_shape(found);
            chunk.describe(class, span);
            if used == blocks {
                chunk.owner.store(owner::FULL, Release);
            } else {
                chunk.owner.store(owner::PARTIAL, Release);
                if class != HUGE {
                    central.partial[class as usize].push(chunk_id(index, number));
                }
            }
            return Ok(());
        }
        if found == Shape::Free {
            if number + 1 != central.cursor.1 || index != central.cursor.0 {
                return Ok(()); // unknown still: a damaged head before it may turn out to own it
            }
            central.free_runs().add(chunk_id(index, number), 1);
        }
        chunk.set_shape(found);
        if found == Shape::Damaged {
            self.condemn(extent, number)?;
        }
        Ok(())
    }

    /// What a damaged chunk may be the head of is not given out either: the span it says, or all up to the next head.
    fn condemn(&self, extent: &Extent, head: u32) -> Result<()> {
        let word = |number| extent.geometry.table_word(self.mapping(), number);
        let span = match word(head)? {
            Word::Tail { .. } => return Ok(()), // its head is damaged, and was condemned
            Word::Head { span, .. } => Some(span),
            Word::Unused | Word::Damaged(_) => None,
        };
        let end = head.saturating_add(span.unwrap_or(u32::MAX)).min(extent.chunks.load(Acquire));
        for number in head + 1..end {
            if span.is_none() && matches!(word(number)?, Word::Head { .. }) {
                break;
            }
            if matches!(extent.chunk(number).shape(), Shape::Unknown | Shape::Tail { .. }) {
                extent.chunk(number).set_shape(Shape::Damaged);
            }
        }
        Ok(())
    }

    /// What the media say of a chunk that was not looked at yet.
    fn read_new_shape(&self, extent: &Extent, number: u32) -> Result<Shape> {
        // A head that is in use would have said that this is its tail; its bitmap is being changed.
        let stale = match extent.geometry.table_word(self.mapping(), number)? {
            Word::Tail { back } if back <= number => {
                matches!(extent.chunk(number - back).shape(), Shape::Free | Shape::Head { .. } | Shape::Tail { .. })
            }
            _ => false,
        };
        let found = if stale { Shape::Free } else { self.read_shape(extent, number)? };
        if found == Shape::Free {
            extent.geometry.check_clear(self.mapping(), number)?;
        }
        Ok(found)
    }

    /// What the media say of a chunk.
    ///
    /// | table word | | shape |
    /// |---|---|---|
    /// | unused | no bit set | free |
    /// | head | no live block | free |
    /// | head | live blocks, span proper | head |
    /// | tail | of a head with live blocks whose span covers it | tail |
    /// | tail | otherwise | free: left from an earlier use |
    /// | fails its check, or a live span that is not proper, or a bit set where none may be, or a tail of such a head | | damaged |
    pub(super) fn read_shape(&self, extent: &Extent, number: u32) -> Result<Shape> {
        let (geometry, mapping) = (&extent.geometry, self.mapping());
        let damaged = |number, found| {
            let offset = geometry.table_offset(number);
            Error::Damaged { what: "chunk table word", offset, found, expected: 0 }
        };
        let live_head = |head: u32| -> Result<Option<(u8, u32)>> {
            let (class, span) = match geometry.table_word(mapping, head)? {
                Word::Head { class, span } => (class, span),
                Word::Damaged(found) => return Err(damaged(head, found)),
                Word::Unused => {
                    return match geometry.check_clear(mapping, head) {
                        Err(Error::Damaged { found, .. }) => Err(damaged(head, found)),
                        checked => checked.map(|()| None),
                    };
                }
                Word::Tail { .. } => return Ok(None),
            };
            let blocks = self.classes.get(class, span).map_or(1, |c| c.blocks);
            Ok(geometry.has_live(mapping, head, blocks)?.then_some((class, span)))
        };
        match geometry.table_word(mapping, number)? {
            Word::Unused => live_head(number).map(|_| Shape::Free),
            Word::Damaged(found) => Err(damaged(number, found)),
            Word::Head { .. } => match live_head(number)? {
                None => Ok(Shape::Free),
                Some((class, span)) => {
                    geometry.check_span(mapping, number, class, span, extent.chunks.load(Acquire), &self.classes)?;
                    Ok(Shape::Head { class, span })
                }
            },
            Word::Tail { back } if back <= number => match live_head(number - back)? {
                Some((class, span)) if span > back => {
                    let head = number - back;
                    geometry.check_span(mapping, head, class, span, extent.chunks.load(Acquire), &self.classes)?;
                    Ok(Shape::Tail { back })
                }
                _ => Ok(Shape::Free),
            },
            Word::Tail { .. } => Ok(Shape::Free),
        }
    }
}
