//! What a log with copies says is repeated in the store: by a follower, and by a store that takes the log over.

use log::Lsn;

use crate::copies::Log;
use crate::core::Core;
use crate::durable::leading::Leading;
use crate::durable::logged::Commit;
use crate::error::{Error, Result};
use crate::media::origin::set_origin;
use crate::space::need::Need;
use crate::txn::transaction::{Mode, Transaction};

/// How often a commit is repeated in a full store before it is said to be full, by a leader that replays its log too: others may lead meanwhile.
const TRIES: u32 = 16;

/// Everything through this commit is published: the last one, unless a writer waits for room in the log meanwhile, which may wait for the thread that asks.
pub(crate) fn published(core: &Core) -> u64 {
    let (last, mut naps) = (core.persistence.last(), 100);
    for writer in &core.versions.writers.all {
        // A commit that drew a number up to this one holds its log until it has published.
        while writer.log.try_lock().is_none() {
            if naps == 0 {
                // When these were forced, every log was looked at; and the log has all behind them.
                return core.persistence.forced();
            }
            naps -= 1;
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    last
}

/// Makes what the log's record says part of the store, if it is not; in a full one it is tried [so often](TRIES). The caller is the only one who changes the store.
/// Returns its number.
pub(crate) fn apply(core: &Core, record: &[u8], at: Lsn) -> Result<u64> {
    let Some(commit) = Commit::decode(record) else { return Err(Error::NotACommit { at }) };
    let has = core.persistence.last();
    if commit.number <= has {
        return Ok(commit.number);
    }
    if commit.number != has + 1 {
        return Err(Error::Behind { has, first: commit.number });
    }
    if !core.persistence.is_replicated() {
        return Err(Error::NotReplicated);
    }
    let (mut tries, mut most) = (crate::commit::room::Tried::default(), TRIES);
    loop {
        match apply_once(core, &commit) {
            Err(error @ Error::Full { .. }) if most > 0 => {
                most -= 1;
                if let Err(error) = core.committing().full_again(&mut tries, error, 0)
                    && core.persistence.set_cornered(true)
                {
                    return Err(error);
                }
            }
            other => {
                if core.persistence.is_cornered() {
                    core.persistence.set_cornered(!core.versions.space.is_whole(Need::Repeat));
                }
                return other.map(|()| commit.number);
            }
        }
    }
}

fn apply_once(core: &Core, commit: &Commit<'_>) -> Result<()> {
    let mode = Mode { locking: true, follows: true, ..Mode::default() };
    let mut tx = Transaction::begin(core, tx::Isolation::Snapshot, mode)?;
    for change in &commit.changes {
        match change.value {
            Some((value, Some(expires))) => tx.put_until(change.key, value, expires)?,
            Some((value, None)) => tx.put(change.key, value)?,
            None => tx.delete(change.key)?,
        };
    }
    tx.finish().map(drop)
}

/// Replays what the log has and the store has not, and leads from now on.
pub(crate) fn take_over(core: &Core, log: Log) -> Result<()> {
    if !core.persistence.is_replicated() {
        return Err(Error::NotReplicated);
    }
    set_origin(core.versions.pool(), log.id())?;
    let (mut records, mut last) = (log.iter(), None);
    while let Some(record) = records.next()? {
        last = Some((apply(core, record.payload, record.lsn)?, record.lsn));
    }
    drop(records);
    let (has, through) = (core.persistence.last(), last.map_or(0, |last| last.0));
    if through < has {
        return Err(Error::LostCommits { missing: through + 1, durable: has });
    }
    // All of it is in the store, so the log need not keep it here; followers see to themselves.
    core.persistence.force(&core.versions)?;
    let leading = Leading::new(log);
    if let Some((_, lsn)) = last {
        leading.forget_before(lsn, core.versions.medium.failpoints())?;
    }
    core.persistence.lead(leading);
    Ok(())
}
