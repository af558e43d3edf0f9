//! A store whose index is damaged: it is made anew.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::error::Result;
use crate::maintenance::Maintenance;
use crate::media::mark::Mark;
use crate::media::record::Record;
use crate::media::uses::Use;
use crate::open::reading::Reading;
use crate::versions::Versions;

/// Makes the index of all whole records.
pub(super) fn salvage(versions: &Versions, maintenance: &Maintenance) -> Result<()> {
    let pin = versions.pin()?;
    let none = BTreeMap::new();
    let reading =
        Reading { versions, salvages: true, pin: &pin, writer: 0, pieces: &none, at: Mark::from_word(0), link: 0 };
    let (mut dead, mut tombstones, mut clock) = (Vec::new(), Vec::new(), 0);
    all_records(versions, |record| {
        clock = clock.max(record.header.ts);
        reading.apply(record, &mut dead, &mut tombstones)
    })?;
    versions.concurrency.active.raise(clock);
    maintenance.checkpointer().inherit(dead, tombstones);
    Ok(())
}

/// Reads all that logs have of whole records, for a store whose index is damaged: of each key the newest. What was deleted or overwritten long ago and stands there
/// still may come back.
fn all_records(versions: &Versions, mut apply: impl FnMut(Record<'_>) -> Result<()>) -> Result<()> {
    for number in 0..versions.space.count() {
        let Use::Log { writer, sequence, .. } = versions.space.used(number) else { continue };
        let mut result = Ok(());
        versions.walk(number, writer, sequence, |record| {
            result = apply(record);
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        result?;
    }
    Ok(())
}
