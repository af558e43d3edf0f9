//! Where a followed log stands, and bytes of it.

use pmem::{ChecksumKey, Observer, RegionInfo};

use crate::at::At;
use crate::circle::Circle;
use crate::error::{Error, Result};
use crate::front::{Front, REGION_KIND, WATERMARK_BYTES, decode};
use crate::record::RECORD_HEADER;
use crate::superline::{Superline, observed};

/// Bytes read at once: few where the end may be near, more with each record found.
const CHUNK_MIN: u64 = 1 << 12;
const CHUNK_MAX: u64 = 1 << 18;

/// The superline, and what follows from it.
#[derive(Debug)]
pub(super) struct View {
    pub(super) superline: Superline,
    pub(super) circle: Circle,
    pub(super) key: ChecksumKey,
    /// First byte and number of segments of each extent.
    pub(super) extents: Vec<(u64, u64)>,
    /// Everything through here was durable when this was read, by the watermark.
    pub(super) marked: u64,
}

impl View {
    /// Reads it, and the pool's header again if the superline says more than there was room for then.
    pub(super) fn look(observer: &mut Observer, name: &str) -> Result<Self> {
        match Self::read(observer, name) {
            Err(Error::BadSuperline { .. }) => {
                observer.refresh()?;
                Self::read(observer, name)
            }
            other => other,
        }
    }

    fn read(observer: &Observer, name: &str) -> Result<Self> {
        let extents = observer.region(name)?;
        let offset = extents[0].offset;
        let none = |why| Err(Error::NotALog { region: name.to_owned(), offset, why });
        if extents[0].kind != REGION_KIND || extents[0].len <= Front::One.bytes() {
            return none("the directory says it is something else");
        }
        // Before the superline: of an epoch that is not in it, it must say nothing.
        let mut watermark = [0; WATERMARK_BYTES];
        let watermark_at = Front::Two.watermark_at().filter(|at| at + WATERMARK_BYTES as u64 <= extents[0].len);
        if let Some(at) = watermark_at {
            observer.read_at(offset + at, &mut watermark)?;
        }
        let Some((front, superline)) = observed(observer, offset)? else {
            let mut start = vec![0; (Front::Two.bytes() + 64).min(extents[0].len) as usize];
            observer.read_at(offset, &mut start)?;
            if start.iter().all(|&b| b == 0) {
                return none("it has neither a superline nor a record: making it was cut short, make it again");
            }
            return Err(pmem::Error::Damaged { what: "superline of a log", offset, found: 0, expected: 1 }.into());
        };
        if extents[0].len <= front.bytes() {
            return none("the directory says it is something else");
        }
        let bytes = superline.segment_bytes.max(1);
        let of_extent = |(n, e): (usize, &RegionInfo)| {
            let skipped = if n == 0 { front.bytes() } else { 0 };
            (e.offset + skipped, (e.len - skipped) / bytes)
        };
        let extents: Vec<(u64, u64)> = extents.iter().enumerate().map(of_extent).collect();
        let room = extents.iter().map(|e| e.1).sum::<u64>();
        superline.validate(front, offset, name, room.saturating_mul(superline.segment_bytes))?;
        if superline.is_replica() {
            return Err(Error::IsReplica { region: name.to_owned() });
        }
        let key = observer.checksum_key(offset).derived(superline.id);
        let has_watermark = front == Front::Two && !superline.is_replica();
        let marked = if has_watermark { decode(&key, &watermark, superline.head_lsn) } else { 0 };
        Ok(Self { key, circle: superline.circle(), superline, extents, marked })
    }

    pub(super) fn head(&self) -> At {
        let Superline { head_lsn: lsn, head_position: position, head_epoch: epoch, .. } = self.superline;
        At { lsn, position, epoch }
    }

    pub(super) fn durable(&self) -> u64 {
        let by_superline =
            if self.superline.closed == 1 { self.superline.tail_lsn } else { self.superline.head_lsn } - 1;
        by_superline.max(self.marked)
    }

    // ---- where things stand, as `Geometry` for the writer -----------------------------------------------------

    pub(super) fn offset(&self, segment: u64) -> u64 {
        let mut index = self.circle.physical(segment);
        for &(offset, segments) in &self.extents {
            if index < segments {
                return offset + index * self.superline.segment_bytes;
            }
            index -= segments;
        }
        unreachable!("the superline was validated against the region")
    }

    pub(super) fn locate(&self, position: u64) -> u64 {
        self.offset(position / self.superline.segment_bytes) + position % self.superline.segment_bytes
    }

    pub(super) fn rest(&self, position: u64) -> u64 {
        self.superline.segment_bytes - position % self.superline.segment_bytes
    }

    pub(super) fn candidates(&self, position: u64) -> impl Iterator<Item = u64> + use<> {
        let rest = self.rest(position);
        let here = (rest >= RECORD_HEADER).then_some(position);
        let next = (!position.is_multiple_of(self.superline.segment_bytes)).then(|| position + rest);
        here.into_iter().chain(next)
    }
}

/// Bytes of one segment, read together.
#[derive(Debug)]
pub(super) struct Chunk {
    start: u64,
    bytes: Vec<u8>,
    /// Bytes to read next time.
    size: u64,
    /// Where the record was that was taken last.
    pub(super) taken: u64,
}

impl Chunk {
    pub(super) fn new() -> Self {
        Self { start: 0, bytes: Vec::new(), size: CHUNK_MIN, taken: 0 }
    }

    pub(super) fn forget(&mut self) {
        self.bytes.clear();
        self.size = CHUNK_MIN;
    }

    pub(super) fn holds(&self, at: u64, len: u64) -> bool {
        at >= self.start && at + len <= self.start + self.bytes.len() as u64
    }

    /// Bytes that it [holds](Self::holds), as they were when they were read.
    pub(super) fn get(&self, at: u64, len: u64) -> &[u8] {
        if !self.holds(at, len) {
            return &[];
        }
        &self.bytes[(at - self.start) as usize..][..len as usize]
    }

    /// Reads at least `len` bytes at a position, all of them in its segment.
    pub(super) fn read(&mut self, observer: &Observer, view: &View, at: u64, len: u64) -> Result<()> {
        let size = self.size.max(len).min(view.rest(at));
        self.start = at;
        self.bytes.resize(size as usize, 0);
        if let Err(error) = observer.read_at(view.locate(at), &mut self.bytes) {
            self.bytes.clear();
            return Err(error.into());
        }
        self.size = (self.size * 2).min(CHUNK_MAX);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pmem::{Persist, bytes_of_mut};

    use super::*;
    use crate::follower::Follower;
    use crate::{Lsn, Options};

    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *state >> 29
    }

    /// Superlines that verify and say anything: an error or nothing, never a panic, and never a record that was not there.
    #[test]
    fn hostile_superlines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l");
        let emulated = pmem::Options::new().domain(pmem::DomainChoice::Emulated);
        let log =
            Options::new().bytes(64 << 10).segment_bytes(4096).idle(None).pool(emulated.clone()).create(&path).unwrap();
        for n in 1..=30 {
            log.append(&[n; 300]).unwrap();
        }
        log.close().unwrap();
        let pool = emulated.open(&path).unwrap();
        let parts = Front::Two.split(pool.region(crate::NAME).unwrap()).unwrap();
        let (mut cell, _) = Front::Two.open::<Superline>(parts.superline).unwrap();
        let good = cell.get();
        let mut rng = 5;
        let mut opened = 0;
        for round in 0..600 {
            let mut bad = good;
            let words = Superline::LAYOUT.size / 8;
            for _ in 0..1 + random(&mut rng) % 3 {
                let word = random(&mut rng) as usize % if round % 2 == 0 { 12 } else { words };
                let to = match random(&mut rng) % 4 {
                    0 => random(&mut rng) << 32 | random(&mut rng),
                    1 => random(&mut rng) % 100,
                    2 => 4096 * (random(&mut rng) % 40),
                    _ => 1 << (random(&mut rng) % 64),
                };
                bytes_of_mut(&mut bad)[word * 8..][..8].copy_from_slice(&to.to_le_bytes());
            }
            cell.update_mirrored(&bad).unwrap();
            if let Ok(mut follower) = Follower::open(&path) {
                opened += 1;
                for _ in 0..60 {
                    match follower.wait(Duration::ZERO) {
                        Ok(Some((lsn, bytes))) => assert_eq!(bytes, [lsn.get() as u8; 300]),
                        Ok(None) => break,
                        Err(Error::Lost { .. }) if follower.skip_lost().unwrap().is_some() => {}
                        Err(_) => break,
                    }
                }
                let _ = follower.from(Lsn::new(random(&mut rng) % 40));
            }
            cell.update_mirrored(&good).unwrap();
        }
        assert!(opened > 50, "{opened}");
    }
}
