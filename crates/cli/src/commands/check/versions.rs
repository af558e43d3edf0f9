//! What `cairn check` says of objects with several versions.

use mvcc::{Mvcc, Options};
use pmem::{Error as PoolError, Pool};

use super::{CheckJson, Repair, transactions, usage};

/// Opens the store as a program would, which recovers it if the pool is open for writing.
///
/// # Errors
/// What is no damage: that it must be recovered.
pub(super) fn look_into(pool: &Pool, repair: Repair, report: &mut CheckJson) -> Result<Option<Mvcc>, PoolError> {
    let store = match Mvcc::open_in(pool, &Options::new().background(false)) {
        Ok(store) => store,
        Err(tx::Error::Pool(error @ PoolError::NeedsRecovery { .. })) => return Err(error),
        // Its program can.
        Err(error @ tx::Error::Replay { .. }) => {
            report.notes.push(format!("objects with versions: not recovered, and not changed: {error}"));
            return Ok(None);
        }
        Err(error) => {
            report.finding(format!("objects with versions: {error}"));
            return Ok(None);
        }
    };
    let found = store.recovery();
    if !found.was_clean() {
        let (replayed, void) = (found.replayed, found.void);
        report
            .notes
            .push(format!("recovered: {replayed} transactions carried out again, {void} had not been committed"));
    }
    report_cells(report, repair, found.cells, pool.is_read_only());
    if repair != Repair::Not {
        report.notes.push("objects with versions: there is no second copy to be repaired from".into());
    }
    match store.live_blocks(|_, _| {}) {
        Ok(used) => {
            report.checked.push(format!("objects with versions: {}", usage(used)));
            match transactions::look_into_root(&store) {
                Ok(what) => report.checked.push(format!("root of the objects: {what}")),
                Err(error) => report.finding(format!("root of the objects: {error}")),
            }
        }
        Err(error) => report.finding(format!("objects with versions: {error}")),
    }
    Ok(Some(store))
}

/// One copy of the cell with K and W, or of the table of procedures, was not whole.
fn report_cells(report: &mut CheckJson, repair: Repair, cells: u64, is_read_only: bool) {
    let what = format!("objects with versions: one of two copies of {cells} cells was not whole");
    match repair {
        _ if cells == 0 => {}
        Repair::Not if is_read_only => report.notes.push(format!("{what}; the other one was used")),
        Repair::Not | Repair::Dry | Repair::Yes => {
            report.repaired.push(format!("{what}; made anew from the other one"))
        }
    }
}
