//! What `cairn check` says of a heap of transactions.

use heap::{Heap, Options, Policy, Scrubbed};
use pmem::{Error as PoolError, Pool};
use structures::Structure;
use tx::{Engine, Isolation, Typed};

use super::{CheckJson, Repair, usage};
use crate::size;

/// Opens the heap as a program would, which recovers it if the pool is open for writing; and repairs it, if it is to.
///
/// # Errors
/// What is no damage: that it must be recovered.
pub(super) fn look_into(pool: &Pool, repair: Repair, report: &mut CheckJson) -> Result<Option<Heap>, PoolError> {
    let heap = match Heap::open_in(pool, &Options::new().coordinator(false)) {
        Ok(heap) => heap,
        Err(tx::Error::Pool(error @ PoolError::NeedsRecovery { .. })) => return Err(error),
        Err(error) => {
            report.finding(format!("heap of transactions: {error}"));
            return Ok(None);
        }
    };
    let found = heap.recovery();
    for offset in &found.in_doubt {
        report.notes.push(format!(
            "the record at byte {offset} is not whole: it was never acknowledged, or it was the last one and is damaged"
        ));
    }
    for offset in &found.copies_in_doubt {
        report.notes.push(format!(
            "the copy at byte {offset} is not whole: it was being made when the program ended, or it is damaged and its object may be half changed"
        ));
    }
    if pool.was_clean() && found.zones > 0 {
        // Else they would have been clean.
        let (zones, replaced) = (found.zones, size::human(found.restored_bytes));
        report.repaired.push(format!(
            "heap of transactions: marks of {zones} zones were damaged; the zones were compared with their backup, {replaced} replaced"
        ));
    } else if !found.was_clean() {
        let (finished, undone, zones) = (found.finished, found.undone, found.zones + found.copies);
        report.notes.push(format!(
            "recovered: {finished} transactions finished, {undone} undone, {zones} dirty zones or copies compared, {} of them replaced",
            size::human(found.restored_bytes)
        ));
    }
    let looked = heap.live_blocks(|_, _| {}).and_then(|used| {
        let compared = if repair == Repair::Yes { heap.scrub_all()? } else { heap.compare_all()? };
        Ok((used, compared))
    });
    match looked {
        Ok((used, (compared, unclear))) => {
            report_copies(report, repair, &compared);
            for page in unclear {
                report.finding(format!("heap of transactions: {page}"));
            }
            if repair != Repair::Not && heap.policy() != Policy::InPlace {
                let policy = heap.policy();
                report.notes.push(format!("policy {policy}: objects have no second copy to be repaired from"));
            }
            let zones = match heap.policy() {
                Policy::InPlace => format!("{} zones compared with the backup", compared.zones),
                Policy::InPlacePartial => "copies of what was written lately".into(),
                _ => "no backup".into(),
            };
            report.checked.push(format!("heap of transactions: {}, {}, {zones}", heap.policy(), usage(used)));
            let tree = server::tree::verify(&heap).transpose();
            let tree = tree.map(|found| {
                found.map(|tree| format!("tree of a server, {} pairs in {} blocks", tree.entries, tree.blocks))
            });
            match tree.unwrap_or_else(|| look_into_root(&heap)) {
                Ok(what) => report.checked.push(format!("root of the heap: {what}")),
                Err(error) => report.finding(format!("root of the heap: {error}")),
            }
        }
        Err(error) => report.finding(format!("heap of transactions: {error}")),
    }
    Ok(Some(heap))
}

/// Walks what the root leads to, if it is of a type that is known here.
pub fn look_into_root(engine: &impl Engine) -> tx::Result<String> {
    let tx = engine.begin(Isolation::Strict)?;
    Ok(match (Structure::at_root(&tx)?, tx.root_layout()?) {
        (Some(found), _) => {
            let entries = found.verify(&tx)?;
            format!(
                "{}, {entries} {}",
                found.name(),
                if matches!(found, Structure::Graph(_)) { "nodes" } else { "pairs" }
            )
        }
        (None, Some(layout)) => {
            format!("of a type ({layout:016x}) that this command does not know; what it leads to was not looked into")
        }
        (None, None) => "none".into(),
    })
}

fn report_copies(report: &mut CheckJson, repair: Repair, compared: &Scrubbed) {
    let copies = [("objects", compared.main_repaired), ("their backup", compared.backup_repaired)];
    for (which, bytes) in copies.into_iter().filter(|(_, bytes)| *bytes > 0) {
        let what = format!("heap of transactions: {which}: {}", size::human(bytes));
        match repair {
            Repair::Not => {
                report.finding(format!(
                    "{what} differ from the other copy, which is right; `cairn check --repair` repairs them"
                ));
            }
            Repair::Dry | Repair::Yes => report.repaired.push(format!("{what}, from the other copy")),
        }
    }
    if compared.busy > 0 {
        report.notes.push(format!("{} zones were in use, and not compared", compared.busy));
    }
}
