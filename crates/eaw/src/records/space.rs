//! Which slots are free, and where records are: in memory only, found again by reading the headers of all slots.

use std::collections::BTreeMap;

use pmem::LINE;

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// Of its slot, in all data files one behind the other.
    pub(crate) at: u64,
    pub(crate) table: u32,
    pub(crate) len: u32,
}

/// No slot's place: the header of the first block is there.
const HIDDEN: u64 = 0;
/// No slot's place: two of them say that they are the record's.
const TWICE: u64 = u64::MAX;

/// A block.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// Bytes of its slots; 0: it was never used.
    slot: u32,
    free: u32,
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Space {
    /// Bytes of a block.
    block: u64,
    blocks: Vec<Block>,
    /// Those behind were never used.
    used: usize,
    /// By bytes of a slot.
    free: BTreeMap<u32, Vec<u64>>,
    /// By number; 0 is none's.
    locations: Vec<Option<Location>>,
    /// Of numbers beyond: there are more numbers than slots while some wait for the end of the transaction that deleted their records. None of them is given as a new one.
    far: BTreeMap<u64, Option<Location>>,
    free_ids: Vec<u64>,
}

/// A block that is to get slots, and the size of those it had, which were all free: 0 if it was never used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) block: u64,
    pub(crate) before: u32,
}

/// Bytes of a slot for so many, header included: multiples of a line; beyond 512 four sizes between a power of two and the next.
pub(crate) fn slot_bytes(need: usize, block: u64) -> u32 {
    let need = need as u64;
    let step = if need <= 512 { LINE } else { ((need - 1).next_power_of_two() / 8).max(LINE) };
    need.next_multiple_of(step).min(block - LINE) as u32
}

impl Space {
    pub(crate) fn new(block: u64) -> Self {
        Self { block, locations: vec![None], ..Self::default() }
    }

    // ---- as it is found ---------------------------------------------------------------------------------------

    /// So many blocks more.
    pub(crate) fn grow(&mut self, blocks: u64) {
        self.blocks.resize(self.blocks.len() + blocks as usize, Block::default());
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// This block has slots of that size, of which none is free until it is said to be.
    pub(crate) fn has_slots(&mut self, block: u64, slot: u32) {
        self.blocks[block as usize] = Block { slot, free: 0 };
        self.used = self.used.max(block as usize + 1);
    }

    /// Where the slots of a block are.
    pub(crate) fn slots(&self, block: u64, slot: u32) -> impl Iterator<Item = u64> + use<> {
        let (start, count) = (block * self.block + LINE, self.slots_of(slot));
        (0..u64::from(count)).map(move |n| start + n * u64::from(slot))
    }

    fn slots_of(&self, slot: u32) -> u32 {
        ((self.block - LINE) / u64::from(slot)) as u32
    }

    /// As many records as there can be: a number beyond takes no memory for those before it.
    fn near(&self) -> u64 {
        self.blocks() * (self.block / LINE)
    }

    fn known(&mut self, id: u64) -> &mut Option<Location> {
        match self.locations.get_mut(id as usize) {
            Some(location) => location,
            None => self.far.entry(id).or_default(),
        }
    }

    /// A record was found; false if that number is another's, too: then it is unknown which of them is right.
    pub(crate) fn found(&mut self, id: u64, location: Location) -> bool {
        if self.locations.len() <= id as usize && id <= self.near() {
            self.locations.resize(id as usize + 1, None);
        }
        let known = self.known(id);
        let is_new = known.is_none();
        *known = Some(if is_new { location } else { Location { at: TWICE, ..location } });
        is_new
    }

    /// Whether two records have this number.
    pub(crate) fn is_twice(&self, location: Location) -> bool {
        location.at == TWICE
    }

    /// Numbers that no record has can be given.
    pub(crate) fn collect_ids(&mut self) {
        self.free_ids = (1..self.locations.len() as u64).rev().filter(|id| self.location(*id).is_none()).collect();
    }

    // ---- as it is used ----------------------------------------------------------------------------------------

    fn any_location(&self, id: u64) -> Option<Location> {
        self.locations.get(id as usize).or_else(|| self.far.get(&id)).copied().flatten()
    }

    pub(crate) fn location(&self, id: u64) -> Option<Location> {
        self.any_location(id).filter(|location| location.at != HIDDEN)
    }

    /// It is not there, and its number is not free: that it was deleted is not committed yet.
    pub(crate) fn hide(&mut self, id: u64) {
        self.known(id).iter_mut().for_each(|location| location.at = HIDDEN);
    }

    pub(crate) fn set_location(&mut self, id: u64, location: Option<Location>) {
        *self.known(id) = location;
    }

    /// Numbers of a table's records from there on, in order, some of them; of those too whose deletion is not committed.
    pub(crate) fn records(&self, table: u32, from: u64) -> Vec<u64> {
        const SOME: usize = 256;
        let of = |id: &u64| self.any_location(*id).is_some_and(|location| location.table == table);
        let near = from..self.locations.len() as u64;
        near.chain(self.far.range(from..).map(|(id, _)| *id)).filter(of).take(SOME).collect()
    }

    pub(crate) fn count(&self) -> u64 {
        let all = self.locations.iter().chain(self.far.values()).flatten();
        all.filter(|location| ![HIDDEN, TWICE].contains(&location.at)).count() as u64
    }

    pub(crate) fn take_id(&mut self) -> u64 {
        if let Some(id) = self.free_ids.pop() {
            return id;
        }
        while let Some(location) = self.far.remove(&(self.locations.len() as u64)) {
            self.locations.push(location);
        }
        self.locations.push(None);
        self.locations.len() as u64 - 1
    }

    pub(crate) fn give_id(&mut self, id: u64) {
        self.free_ids.push(id);
    }

    /// Bytes of the slot at this place.
    pub(crate) fn slot_at(&self, at: u64) -> u32 {
        self.blocks[(at / self.block) as usize].slot
    }

    /// Whether a record that wants a slot of this size stays in the one at this place: it does not move for the sake of a little room.
    pub(crate) fn fits(&self, at: u64, wanted: u32) -> bool {
        let slot = self.slot_at(at);
        wanted <= slot && wanted >= slot / 2
    }

    /// Whether one of this size can be had, and a quarter of all blocks stays for what needs them.
    pub(crate) fn has_room(&self, slot: u32) -> bool {
        let is_free = self.free.get(&slot).is_some_and(|free| !free.is_empty());
        is_free || self.blocks.len() - self.used > self.blocks.len() / 4
    }

    /// A free slot of this size.
    pub(crate) fn take_slot(&mut self, slot: u32) -> Option<u64> {
        let at = self.free.get_mut(&slot).and_then(Vec::pop)?;
        self.blocks[(at / self.block) as usize].free -= 1;
        Some(at)
    }

    /// A block that can get slots of another size: no thread takes one of it until it has.
    pub(crate) fn claim(&mut self) -> Option<Claimed> {
        if self.used < self.blocks.len() {
            return Some(Claimed { block: self.used as u64, before: 0 });
        }
        let is_free = |block: &Block| block.slot > 0 && block.free == self.slots_of(block.slot);
        let block = self.blocks.iter().position(is_free)? as u64;
        let Block { slot: before, free } = &mut self.blocks[block as usize];
        *free = 0;
        let before = *before;
        if let Some(free) = self.free.get_mut(&before) {
            free.retain(|at| at / self.block != block);
        }
        Some(Claimed { block, before })
    }

    /// It has not got them.
    pub(crate) fn unclaim(&mut self, Claimed { block, before }: Claimed) {
        if before > 0 {
            self.make_slots(block, before);
        }
    }

    /// Blocks that were ever used.
    #[cfg(feature = "aries")]
    pub(crate) fn used(&self) -> u64 {
        self.used as u64
    }

    /// All slots of the block are free, and of this size.
    pub(crate) fn make_slots(&mut self, block: u64, slot: u32) {
        self.has_slots(block, slot);
        self.slots(block, slot).collect::<Vec<_>>().into_iter().rev().for_each(|at| self.give_slot(at));
    }

    pub(crate) fn give_slot(&mut self, at: u64) {
        let block = &mut self.blocks[(at / self.block) as usize];
        block.free += 1;
        self.free.entry(block.slot).or_default().push(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_waste_little() {
        for need in 1..100_000 {
            let slot = slot_bytes(need, 1 << 20) as usize;
            assert!(slot >= need && slot.is_multiple_of(64), "{need}: {slot}");
            assert!(slot <= 512 + 64 || slot <= need * 5 / 4 + 64, "{need}: {slot}");
        }
        assert_eq!(slot_bytes(192, 256), 192);
    }

    #[test]
    fn a_block_whose_slots_are_free_gets_others() {
        let mut space = Space::new(256);
        space.grow(1);
        assert_eq!(space.take_slot(64), None);
        assert_eq!(space.claim(), Some(Claimed { block: 0, before: 0 }));
        space.make_slots(0, 64);
        let slots: Vec<_> = (0..3).map(|_| space.take_slot(64)).collect();
        assert_eq!(slots, [64, 128, 192].map(Some));
        assert_eq!((space.take_slot(64), space.claim()), (None, None));
        [64, 128, 192].into_iter().for_each(|at| space.give_slot(at));
        let claimed = Claimed { block: 0, before: 64 };
        assert_eq!((space.claim(), space.take_slot(64)), (Some(claimed), None));
        space.unclaim(claimed);
        assert_eq!(space.claim(), Some(claimed));
        space.make_slots(0, 192);
        assert_eq!((space.take_slot(192), space.slot_at(64)), (Some(64), 192));
        assert_eq!((space.take_slot(64), space.claim()), (None, None));
    }

    #[test]
    fn a_number_may_be_beyond_the_number_of_slots() {
        let mut space = Space::new(256);
        space.grow(1);
        let location = Location { at: 64, table: 3, len: 3 };
        assert!(space.found(6, location) && space.found(u64::MAX, location) && !space.found(u64::MAX, location));
        space.collect_ids();
        assert_eq!((space.location(6), space.records(3, 1), space.count()), (Some(location), vec![6, u64::MAX], 1));
        // Its number is free some time, and not before.
        space.hide(6);
        assert_eq!((space.location(6), space.count()), (None, 0));
        assert_eq!([1, 2, 3, 4, 5, 7].map(|_| space.take_id()), [1, 2, 3, 4, 5, 7]);
        space.set_location(6, None);
        space.give_id(6);
        assert_eq!([6, 8].map(|_| space.take_id()), [6, 8]);
        assert!(space.locations.len() < 10);
    }

    #[test]
    fn of_two_records_of_a_number_none_is_right() {
        let mut space = Space::new(256);
        let location = Location { at: 64, table: 0, len: 3 };
        assert!(space.found(7, location) && !space.found(7, Location { at: 128, ..location }));
        assert!(space.is_twice(space.location(7).unwrap()));
        assert_eq!(space.count(), 0);
        space.collect_ids();
        assert_eq!(space.take_id(), 1);
    }
}
