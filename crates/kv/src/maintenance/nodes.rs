//! Where nodes of the index are on media: which are free, which are named by the durable checkpoint.

use std::collections::BTreeMap;

use pmem::{ChecksumKey, Pool};

use crate::error::{Error, Result};
use crate::media::node::{FANOUT, FENCE_INLINE, NODE, Node, per_segment};
use crate::media::uses::Use;
use crate::raw::{self, Claim};
use crate::space::Space;
use crate::space::need::Need;

/// Which nodes are in use.
#[derive(Default)]
pub(super) struct Nodes {
    /// For each segment with nodes: a bit for each that is in use, and how many are.
    segments: BTreeMap<u32, Used>,
    /// Where to look first.
    hint: u32,
    /// What is in segments from here on is to move away.
    pub(super) far: Option<u32>,
}

struct Used {
    bits: Vec<u64>,
    count: u32,
}

/// Where a node is.
pub(crate) fn offset(space: &Space, number: u32) -> u64 {
    let per = per_segment(space.segment_bytes);
    space.offset(number / per) + u64::from(number % per) * NODE
}

impl Used {
    fn new(per: u32) -> Self {
        Self { bits: vec![0; per.div_ceil(64) as usize], count: 0 }
    }

    fn has(&self, at: u32) -> bool {
        self.bits[at as usize / 64] >> (at % 64) & 1 == 1
    }

    fn set(&mut self, at: u32, used: bool) {
        let bit = 1 << (at % 64);
        let word = &mut self.bits[at as usize / 64];
        match (*word & bit != 0, used) {
            (false, true) => self.count += 1,
            (true, false) => self.count -= 1,
            _ => {}
        }
        *word = if used { *word | bit } else { *word & !bit };
    }

    /// `count` free ones in a row, from `from` on.
    fn find(&self, per: u32, from: u32, count: u32) -> Option<u32> {
        let mut start = from;
        let mut at = from;
        while at < per {
            if at.is_multiple_of(64) && self.bits[at as usize / 64] == u64::MAX {
                at += 64;
                start = at;
                continue;
            }
            if self.has(at) {
                start = at + 1;
            } else if at + 1 - start == count {
                return Some(start);
            }
            at += 1;
        }
        None
    }
}

impl Nodes {
    /// Notes that nodes are in use; false if one of them is already.
    pub(super) fn mark(&mut self, space: &Space, number: u32, count: u32) -> bool {
        let per = per_segment(space.segment_bytes);
        let used = self.segments.entry(number / per).or_insert_with(|| Used::new(per));
        let at = number % per;
        if at + count > per || (at..at + count).any(|at| used.has(at)) {
            return false;
        }
        (at..at + count).for_each(|at| used.set(at, true));
        true
    }

    /// `count` nodes in a row, taken.
    pub(super) fn take(&mut self, space: &Space, count: u32) -> Result<u32> {
        let per = per_segment(space.segment_bytes);
        let (segment, at) = (self.hint / per, self.hint % per);
        let far = self.far.unwrap_or(u32::MAX);
        let here = self
            .segments
            .get(&segment)
            .filter(|_| segment < far)
            .and_then(|used| Some((segment, used.find(per, at, count)?)));
        let found = here.or_else(|| {
            let room = self.segments.range(..far).filter(|(_, used)| used.count + count <= per);
            room.map(|(segment, used)| (*segment, used)).find_map(|(s, used)| Some((s, used.find(per, 0, count)?)))
        });
        let (segment, at) = match found {
            Some(found) => found,
            None if count > per => {
                return Err(Error::Limit { what: "nodes for a key", found: u64::from(count), max: u64::from(per) });
            }
            None => {
                let segment = space.take(Use::Nodes, 1, Need::Checkpoint)?.first;
                space.flush_words(segment, 1)?;
                if self.is_far(segment) {
                    self.far = None; // there is nothing nearer
                }
                self.segments.insert(segment, Used::new(per));
                (segment, 0)
            }
        };
        let number = segment * per + at;
        self.hint = number + count;
        if let Some(used) = self.segments.get_mut(&segment) {
            (at..at + count).for_each(|at| used.set(at, true));
        }
        Ok(number)
    }

    pub(super) fn free(&mut self, space: &Space, number: u32, count: u32) {
        let per = per_segment(space.segment_bytes);
        if let Some(used) = self.segments.get_mut(&(number / per)) {
            (number % per..number % per + count).for_each(|at| used.set(at, false));
        }
    }

    /// Whether what is in a segment is to move away.
    pub(super) fn is_far(&self, segment: u32) -> bool {
        self.far.is_some_and(|far| segment >= far)
    }

    /// Whether a segment has nodes in use.
    pub(super) fn has_segment(&self, segment: u32) -> bool {
        self.segments.contains_key(&segment)
    }

    /// Nodes that there are segments for, and those of them that are free.
    pub(super) fn room(&self, segment_bytes: u64) -> (u64, u64) {
        let all = self.segments.len() as u64 * u64::from(per_segment(segment_bytes));
        let used: u64 = self.segments.values().map(|used| u64::from(used.count)).sum();
        (all, all - used)
    }

    /// Gives segments back in which nothing is in use, but for one.
    pub(super) fn give_back(&mut self, space: &Space) {
        let empty: Vec<u32> = self.segments.iter().filter(|(_, used)| used.count == 0).map(|(s, _)| *s).collect();
        let kept = empty.iter().copied().find(|segment| !self.is_far(*segment));
        for segment in empty.into_iter().filter(|segment| Some(*segment) != kept) {
            self.segments.remove(&segment);
            // Not counted twice.
            space.reserve.note_gone(per_segment(space.segment_bytes));
            space.give_back(segment);
        }
    }
}

/// Writes a node, and the rest of its fence behind it; persistent after the next drain. Returns its checksum.
pub(super) fn write(
    pool: &Pool,
    key: &ChecksumKey,
    space: &Space,
    number: u32,
    node: &mut Node,
    rest: &[u8],
) -> Result<u64> {
    node.checksum = node.checksum_at(key, number, rest);
    let at = offset(space, number);
    raw::store(Claim::Checkpoint, pool, at, pmem::bytes_of(node))?;
    if !rest.is_empty() {
        raw::store(Claim::Checkpoint, pool, at + NODE, rest)?;
    }
    Ok(node.checksum)
}

/// Reads a node, with its fence, and checks it.
pub(crate) fn read(pool: &Pool, key: &ChecksumKey, space: &Space, number: u32, kind: u32) -> Result<(Node, Vec<u8>)> {
    let at = offset(space, number);
    let damaged = |why: &str| Error::Damaged { what: "node of the index", offset: at, why: why.to_owned() };
    let beyond = |error| match error {
        Error::Pool(pmem::Error::OutOfBounds { .. }) => damaged("it would end behind the pool"),
        other => other,
    };
    let bytes = raw::bytes(Claim::Opening, pool, pool, at, NODE).map_err(beyond)?;
    let node: Node = pmem::from_bytes(bytes).ok_or_else(|| damaged("it does not begin where nodes do"))?;
    let inline = (node.fence_len as usize).min(FENCE_INLINE);
    let rest_len = node.fence_len as usize - inline;
    if node.fence_len as usize > crate::media::key::KEY_MAX || node.count as usize > FANOUT {
        return Err(damaged("its lengths cannot be"));
    }
    let rest = raw::bytes(Claim::Opening, pool, pool, at + NODE, rest_len as u64).map_err(beyond)?;
    if node.checksum != node.checksum_at(key, number, rest) {
        return Err(damaged("its checksum does not verify"));
    }
    if node.kind != kind {
        return Err(damaged("it is of another kind than what leads to it says"));
    }
    let fence = [&node.fence[..inline], rest].concat();
    Ok((node, fence))
}
