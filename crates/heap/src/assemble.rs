//! The parts of a heap: made, put together, and put together anew for another policy.

use std::sync::atomic::AtomicU64;

use pmem::sync::{Mutex, OwnMutex};
use pmem::{Allocator, Domain, Door, Error as PoolError, FlushSet, Intent, Persist, Pool, Ring, TwoSlot};
use tx::{Result, Slots};

use crate::cell;
use crate::copies::Copies;
use crate::core::{Core, Counters};
use crate::failpoints::Step;
use crate::follower::Follower;
use crate::ground::Ground;
use crate::growth::AHEAD;
use crate::lock::SLOTS_MAX;
use crate::log::Log;
use crate::options::{Options, Policy};
use crate::partial;
use crate::queue::Queue;
use crate::raw::{self, Claim, PerSlot};
use crate::regions::{BACKUP, MARKS, ZONES, areas};
use crate::space::Space;
use crate::state::TxState;
use crate::zones::{Active, Zones};

/// What the heap says about itself, in a cell of the pool. Written last when a heap is made: without it there is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Persist)]
pub(crate) struct State {
    pub(crate) policy: u64,
    /// 1 if the backup follows main; under another policy it does not.
    pub(crate) backup: u64,
    pub(crate) slots: u64,
    pub(crate) log_bytes: u64,
    pub(crate) zone_bytes: u64,
    /// Offset of the block that holds the root pointer.
    pub(crate) root: u64,
}

impl State {
    pub(crate) fn is_sound(&self) -> bool {
        let zones = self.zone_bytes.is_power_of_two() && self.zone_bytes >= 4096;
        zones && (1..=SLOTS_MAX as u64).contains(&self.slots) && self.backup <= 1
    }
}

/// What is found of a heap in a pool, or made there.
pub(crate) struct Parts {
    pub(crate) alloc: Allocator,
    pub(crate) rings: Vec<Ring>,
    pub(crate) backup: Follower,
}

/// The block that holds the root pointer, null at first. One barrier; a crash leaves it unreferenced, with the rest of the heap.
pub(crate) fn make_root(pool: &Pool, alloc: &Allocator) -> Result<u64> {
    let block = alloc.reserve(size_of::<[u64; 2]>() as u64, 16)?;
    // reserved just now, and named nowhere.
    raw::bytes_mut(Claim::Reserved, pool, pool, block.offset(), block.len())?.fill(0);
    pool.flush(block.offset(), block.len())?;
    let mut lines = FlushSet::default();
    alloc.apply(&Intent::alloc(&block), &mut lines)?;
    pool.flush_set(&mut lines)?;
    pool.drain()?;
    Ok(block.offset())
}

/// Regions for the backup and the zone table, large enough for main as it is, or to be made so by [`Ground::grow_backup`]. What is there already
/// is from another policy's time, or from a change of policy that did not come to its end.
pub(crate) fn add_backup(pool: &Pool, alloc: &Allocator, state: &State) -> Result<Follower> {
    let main: u64 = alloc.spaces().iter().map(|s| s.end - s.start).sum();
    let take = |name, bytes| match pool.region(name) {
        Err(PoolError::NoRegion { .. }) => pool.add_region(name, bytes),
        found => found,
    };
    let backup = take(BACKUP, main)?;
    let zones = take(ZONES, Zones::table_bytes(state.zone_bytes, backup.len()))?;
    // A heap of an earlier build gets none: that build may open it again.
    let marks = cell::are_apart(pool).then(|| take(MARKS, AHEAD * 8 * backup.len().div_ceil(state.zone_bytes)));
    Ok(Follower::Backup(backup, zones, marks.transpose()?))
}

pub(crate) fn assemble(pool: &Pool, options: &Options, policy: Policy, state: &State, parts: Parts) -> Core {
    let slots = state.slots as usize;
    let (main, backup) = (Space::new(), Space::new());
    main.update(parts.alloc.spaces().into_iter());
    let of_domain = if pool.domain() == Domain::File { 256 << 20 } else { 1 << 30 };
    let bytes_max = options.max_bytes.unwrap_or((main.len().saturating_mul(16)).max(1 << 30));
    let budget = options.recovery_bytes.unwrap_or(of_domain);
    let zones = Zones::new(pool, state.zone_bytes, budget, options.intents, options.failpoints);
    let mut copies = None;
    match &parts.backup {
        Follower::Nothing => {}
        Follower::Backup(region, table, seconds) => {
            backup.update(areas(region));
            zones.table.update(areas(table));
            zones.seconds.update(seconds.iter().flat_map(areas));
        }
        Follower::Copies(region, cell) => {
            let line = Space::new();
            line.update(areas(region));
            copies = Some(Copies::new(pool, cell.get().epoch, line, options.failpoints));
        }
    }
    let ground = Ground {
        policy,
        intents: options.intents,
        pool: pool.clone(),
        alloc: parts.alloc,
        main,
        backup,
        zones,
        copies,
        growing: Mutex::new(parts.backup),
        bytes_max,
        batch: options.batch,
        extents: AtomicU64::new(0),
        trouble: Mutex::new(None),
        failpoints: options.failpoints,
    };
    Core {
        ground,
        slots: Slots::new(slots),
        queue: Queue::default(),
        logs: parts.rings.into_iter().map(|ring| OwnMutex::new(Log::new(ring))).collect(),
        active: (0..slots).map(|_| Active::default()).collect(),
        states: PerSlot::new(slots, TxState::default),
        counters: (0..slots).map(|_| Counters::default()).collect(),
        checksum_max: options.checksum_max,
        root: state.root,
        cleaned: AtomicU64::new(0),
        door: Door::default(),
    }
}

/// Copies all of main to the backup. Nothing else uses the heap.
pub(crate) fn rebuild(core: &Core) -> Result<()> {
    if core.failpoints.skips(Step::Rebuild) {
        return Ok(());
    }
    for space in core.alloc.spaces() {
        core.copy_to_backup(space.start, space.end - space.start)?;
    }
    // Its barrier is for the copies too.
    core.zones.clean_all(core.main.len().div_ceil(core.zones.bytes()), |zone| crate::scrub::sums(core, zone))
}

/// Goes over to another policy. Recovered: no record of the old one is left.
pub(crate) fn switch(
    mut core: Core,
    cell: &mut TwoSlot<State>,
    state: &mut State,
    wanted: Policy,
    options: &Options,
) -> Result<Core> {
    // Told when all that it needs is there: until then, and after an error, the old policy is in force. The backup does not follow main from here on, or is made anew.
    (state.policy, state.backup) = (wanted.code(), 0);
    let pool = core.pool.clone();
    match wanted {
        Policy::InPlace => {
            let backup = add_backup(&pool, &core.alloc, state)?;
            core = reassemble(core, options, wanted, state, backup);
            core.grow_backup()?;
            rebuild(&core)?;
            state.backup = 1;
            cell.update_mirrored(state)?;
        }
        Policy::InPlacePartial => {
            let (region, copies) = partial::regions(&pool, options.share().unwrap_or(partial::SHARE))?;
            core = reassemble(core, options, wanted, state, Follower::Copies(region, copies));
            core.ground.begin_copies(options.share())?; // before the policy is told: copies of an earlier time are void
            cell.update_mirrored(state)?;
        }
        Policy::None | Policy::Undo | Policy::Eaw => {
            cell.update_mirrored(state)?;
            core = reassemble(core, options, wanted, state, Follower::Nothing);
        }
    }
    Ok(core)
}

fn reassemble(core: Core, options: &Options, policy: Policy, state: &State, backup: Follower) -> Core {
    let pool = core.pool.clone();
    let rings = core.logs.into_iter().map(|log| log.into_inner().ring).collect();
    assemble(&pool, options, policy, state, Parts { alloc: core.ground.alloc, rings, backup })
}
