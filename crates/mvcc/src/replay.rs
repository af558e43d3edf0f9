//! Runs calls again that are durable and above K, with what was committed between them.
//!
//! Masters hold the state at K by then, and everything above it becomes versions, as it was before the crash: no master changes before the copies of what calls have changed are
//! durable, and K says so. A crash in between finds the same logs and masters again, with some allocation bits set that it would set, too.

use std::collections::VecDeque;

use pmem::{FlushSet, Intent, PPtr};
use tx::{Error, Isolation, Result, Transaction};

use crate::calls::Registered;
use crate::core::Core;
use crate::durable::{Commit, What};
use crate::pass::Progress;
use crate::procedures::{Names, refused};
use crate::record::{Body, Call};
use crate::transaction::Tx;

/// An error, before anything is changed, if a procedure is not there.
pub(crate) fn check(core: &Core, names: &Names, procedures: &[Registered], commits: &[Commit]) -> Result<()> {
    commits.iter().filter_map(Commit::call).try_for_each(|call| find(core, names, procedures, call).map(drop))
}

/// Which of this program's procedures it is.
fn find(core: &Core, names: &Names, procedures: &[Registered], call: &Call) -> Result<Registered> {
    let known = names.get(call.procedure).ok_or_else(|| Error::Damaged {
        what: "table of procedures",
        offset: core.root,
        why: format!("a log has a call of number {}, which it does not name", call.procedure),
    })?;
    let found = procedures.iter().find(|here| here.known.name == known.0 && here.known.version == known.1);
    found.copied().ok_or_else(|| refused(known, "this program has no such procedure"))
}

/// Carries the commits out, in their order, and writes all of them back.
pub(crate) fn run(core: &Core, names: &Names, procedures: &[Registered], commits: &[Commit]) -> Result<()> {
    let mut lines = FlushSet::default();
    for intent in commits.iter().flat_map(Commit::intents).filter(|intent| intent.is_alloc()) {
        core.alloc.apply(intent, &mut lines)?; // before anything is resolved
    }
    core.pool.flush_set(&mut lines)?; // the pass below does bits again, and not all of a new span's
    for commit in commits {
        core.tx_slots.skip(commit.stamp - 1);
        match &commit.what {
            What::Values(body) => values(core, commit, body)?,
            What::Call(call) => again(core, names, find(core, names, procedures, call)?, commit, call)?,
        }
        core.tx_slots.skip(commit.stamp);
    }
    while core.upkeep()? == Progress::Done && core.called.load(std::sync::atomic::Ordering::Relaxed) > 0 {}
    Ok(())
}

fn values(core: &Core, commit: &Commit, body: &Body) -> Result<()> {
    let mut tx = Tx::begin(core, Isolation::Snapshot)?;
    let ptr = |offset| PPtr::new(core.pool.tag(), offset);
    let mut data = &body.data[..];
    for &(offset, len) in &body.ranges {
        let (bytes, rest) = data.split_at(len as usize);
        tx.bytes_mut(ptr(offset), len)?.copy_from_slice(bytes);
        data = rest;
    }
    for intent in body.intents.iter().filter(|intent| !intent.is_alloc()) {
        tx.free_bytes(ptr(intent.offset()))?;
    }
    tx.end_again(commit, &body.intents, |_| Ok(()))
}

fn again(core: &Core, names: &Names, procedure: Registered, commit: &Commit, call: &Call) -> Result<()> {
    let known = || names.get(call.procedure).unwrap_or_default();
    let mut tx = Tx::begin(core, procedure.known.isolation)?;
    let blocks: VecDeque<Intent> = call.intents.iter().filter(|intent| intent.is_alloc()).copied().collect();
    tx.allocate_again(blocks);
    (procedure.replay)(&mut tx, &call.args).map_err(|error| refused(known(), error.to_string()))?;
    tx.end_again(commit, &call.intents, |digest| {
        let differs = "it does something else than it did: it depends on more than its arguments and what it reads";
        if digest == Some(call.digest) { Ok(()) } else { Err(refused(known(), differs)) }
    })
}
