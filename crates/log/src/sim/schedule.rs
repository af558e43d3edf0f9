//! A random history: records, faults, elections, and in the end a check with everything repaired.

use std::time::Duration;

use super::node::Role;
use super::shape::{Coverage, Shape};
use super::world::World;
use crate::failpoints::Step;

const LINE: u64 = 64;
const RECORDS_MIN: u64 = 100;
const FAULTS_MIN: u64 = 3;
const STEPS_MAX: u64 = 60_000;

pub(super) fn run(seed: u64, shape: &Shape, without: Option<Step>) -> Result<Coverage, String> {
    let mut world = World::new(seed, *shape, without)?;
    let said = |world: &World, what: String| format!("{shape:?}, after {:?}: {what}", world.network.now());
    play(&mut world).map_err(|what| said(&world, what))?;
    do_without(&mut world).map_err(|what| said(&world, what))?;
    repair(&mut world).map_err(|what| said(&world, what))?;
    world.coverage.schedules = 1;
    Ok(world.coverage)
}

fn play(world: &mut World) -> Result<(), String> {
    // The log is made while all is well.
    let maker = world.rng.index(world.nodes.len());
    for _ in 0..50 {
        world.stand(maker, true)?;
        let mut quiet = 0;
        while world.standing() && quiet < 30 {
            quiet = if world.step()? { 0 } else { quiet + 1 };
        }
        if !world.leaders().is_empty() {
            break;
        }
        if world.standing() {
            world.time_passes(maker)?;
        }
        // Making was cut short: again from nothing.
        let (seed, shape) = (world.rng.bits(), world.shape);
        let without = world.without();
        *world = World::new(seed, shape, without)?;
    }
    if world.leaders().is_empty() {
        return Err("a log could not be made".into());
    }
    let mut steps = 0;
    while steps < STEPS_MAX {
        let enough = world.coverage.records >= RECORDS_MIN && world.coverage.faults >= FAULTS_MIN;
        // A replica that was lost is to be replaced, if any machine gets to it.
        let waits = world.coverage.wipes > world.coverage.replaced && steps < STEPS_MAX / 4;
        if enough && !waits {
            break;
        }
        steps += 1;
        act(world)?;
    }
    Ok(())
}

fn act(world: &mut World) -> Result<(), String> {
    let at = world.rng.index(world.nodes.len());
    let leaders = world.leaders();
    match world.rng.below(1000) {
        0..500 => {
            world.step()?;
        }
        500..880 => {
            if let Some(&leader) = leaders.get(world.rng.index(leaders.len().max(1))) {
                world.append(leader)?;
            } else {
                world.step()?;
            }
        }
        880..900 if world.shape.restless => {
            if let Some(&leader) = leaders.get(world.rng.index(leaders.len().max(1))) {
                change(world, leader, at)?;
            }
        }
        880..910 => {
            if let Some(&leader) = leaders.first() {
                world.truncate(leader)?;
            }
        }
        910..950 => world.time_passes(at)?,
        950..975 => {
            // Without a leader one is wanted; with one, sometimes another stands all the same.
            let wanted = leaders.is_empty() && !world.standing()
                || world.rng.chance(if world.shape.rivals { 1 } else { 0 }, 2)
                || world.rng.chance(1, 40);
            if wanted && matches!(world.nodes[at].role, Role::Serving(_) | Role::Idle) {
                world.coverage.changes += u64::from(!leaders.is_empty());
                world.stand(at, false)?;
            }
        }
        975..983 => world.up(at)?,
        983..990 => {
            if let Some(&leader) = leaders.get(world.rng.index(leaders.len().max(1))) {
                change(world, leader, at)?;
            }
        }
        990..994 => heal(world),
        _ => fault(world, at)?,
    }
    Ok(())
}

/// A replica joins, a new one first; where there are some more than the log was made with, others leave.
fn change(world: &mut World, leader: usize, at: usize) -> Result<(), String> {
    if world.shape.spares > 0 && world.rng.chance(1, 3) {
        return world.remove(leader, at);
    }
    let new = world.new_replica();
    world.join(leader, new.unwrap_or(at))
}

impl World {
    /// Something may go wrong in the middle of what takes several steps.
    pub(super) fn maybe_fault(&mut self) -> Result<(), String> {
        let at = self.rng.index(self.nodes.len());
        if self.rng.chance(1, 30) { fault(self, at) } else { Ok(()) }
    }
}

fn heal(world: &mut World) {
    world.network.heal_all();
}

fn fault(world: &mut World, at: usize) -> Result<(), String> {
    // Not too many at once, or no machine ever leads.
    if world.rng.chance(1, 2) {
        return Ok(());
    }
    world.coverage.faults += 1;
    let other = world.rng.index(world.nodes.len());
    let (a, b) = (world.nodes[at].net, world.nodes[other].net);
    match world.rng.below(11) {
        0..2 => {
            world.coverage.crashes += 1;
            world.power_fails(at);
        }
        2..4 => {
            world.coverage.crashes += 1;
            world.down(at);
        }
        4 => {
            // All at once.
            world.coverage.crashes += 1;
            (0..world.nodes.len()).for_each(|n| world.power_fails(n));
        }
        5 if a != b => {
            world.coverage.partitions += 1;
            world.network.cut(a, b);
        }
        6 if a != b => {
            world.coverage.partitions += 1;
            world.network.cut_one_way(a, b);
        }
        7 => {
            world.coverage.partitions += 1;
            let others: Vec<_> = world.nodes.iter().map(|n| n.net).filter(|&n| n != a).collect();
            others.into_iter().for_each(|n| world.network.cut(a, n));
        }
        8 if a != b => world.network.reset(a, b),
        9 if world.rng.chance(1, 4) => wipe(world, at)?,
        _ => damage(world, at),
    }
    Ok(())
}

/// A replica is lost with its medium, and an empty one stands in its place: instead of damage.
fn wipe(world: &mut World, at: usize) -> Result<(), String> {
    if world.shape.damages && world.damaged.is_none() && world.module_of(at).is_some() {
        world.damaged = Some(at);
        world.coverage.wipes += 1;
        world.wiped = true;
        world.replace_module(at)?;
    }
    Ok(())
}

/// Bits flip, always in the same replica: its records, or its superline.
fn damage(world: &mut World, at: usize) {
    let victim = world.damaged.unwrap_or(at);
    let idle = matches!(world.nodes[victim].role, Role::Down | Role::Serving(_));
    let Some(module) = world.module_of(victim).filter(|_| world.shape.damages && idle && !world.wiped) else { return };
    let Some((start, len)) = world.region_of(victim) else { return };
    world.damaged = Some(victim);
    // The page with the superline and the promise, and the segments.
    let at = if world.rng.chance(1, 12) { world.rng.below(4096) } else { 4096 + world.rng.below(len - 4096) };
    world.twice |= world.flips.iter().any(|flip| flip.abs_diff(at) < LINE);
    world.coverage.damages += 1;
    world.flips.push(at);
    let bits = 1 << world.rng.below(64);
    world.tell(|| format!("machine {victim}: bits {bits:x} flip at {} of its log's region", at / 8 * 8));
    module.damage(start + at / 8 * 8, bits);
}

/// All is well again, but for one machine that is dead: if the log's replicas can do without it, a machine can lead.
fn do_without(world: &mut World) -> Result<(), String> {
    if world.shape.damages {
        return Ok(());
    }
    restart(world, None)?;
    // What a leader has sent arrives before the replicas are asked: it may have been the second step of a change.
    for _ in 0..10_000 {
        if !world.step()? {
            break;
        }
    }
    let dead = world.rng.index(world.shape.machines());
    if !world.can_do_without(dead) {
        return Ok(());
    }
    world.down(dead);
    world.coverage.spared += 1;
    // One is refused while another stands, or has promised more.
    for _ in 0..20 {
        restart(world, Some(dead))?;
        if elect(world)? {
            return Ok(());
        }
    }
    Err(format!("nobody can lead without machine {dead}, which the replicas can do without"))
}

/// Every machine serves its replica, as far as it can be opened, but for this one.
fn restart(world: &mut World, but: Option<usize>) -> Result<(), String> {
    world.network.heal_all();
    for at in (0..world.nodes.len()).filter(|&at| Some(at) != but) {
        if !matches!(world.nodes[at].role, Role::Serving(_) | Role::Idle) {
            world.down(at);
        }
        world.up(at)?;
    }
    Ok(())
}

/// One that is able stands. Whether it leads, or would if it were told to accept that a record may be lost.
fn elect(world: &mut World) -> Result<bool, String> {
    let able: Vec<usize> =
        (0..world.nodes.len()).filter(|&n| matches!(world.nodes[n].role, Role::Serving(_) | Role::Idle)).collect();
    let at = able[world.rng.index(able.len())];
    let doubts = world.coverage.refused_in_doubt;
    world.stand(at, false)?;
    let started = world.network.now();
    while world.standing() {
        world.step()?;
        if world.network.now() > started + Duration::from_secs(2) {
            world.time_passes(at)?;
        }
    }
    Ok(!world.leaders().is_empty() || world.coverage.refused_in_doubt > doubts)
}

/// All is well again: a machine can lead, and everything is there.
fn repair(world: &mut World) -> Result<(), String> {
    for _ in 0..60 {
        restart(world, None)?;
        for at in 0..world.nodes.len() {
            // Damage has taken a replica that all the others cannot do without: the operator of this log puts an empty one in its place.
            if matches!(world.nodes[at].role, Role::Down) && world.shape.replicas == world.shape.quorum as usize {
                world.replace_module(at)?;
                world.up(at)?;
            }
        }
        elect(world)?;
        if !world.leaders().is_empty() {
            return Ok(());
        }
    }
    Err(format!("nobody can lead, though all is well: {:?}", world.coverage))
}
