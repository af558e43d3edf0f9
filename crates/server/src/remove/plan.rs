//! What a transaction takes out, as runs of neighbours.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use tx::Keys;

use super::record::Changes;
use super::run::{Run, common, encode};
use super::sieve::Known;
use super::{RECORD, head};
use crate::data::GARBAGE;
use crate::engine::{Result, Tx};

/// Bytes of the note of a sieve beside its cells and the keys it is between, at least.
const SIEVE: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) runs: Vec<Run>,
    /// What goes, and bytes it takes at least.
    pub(super) sizes: Vec<(Vec<u8>, u64)>,
    /// Collections whose elements have no owner from then on, by their heads' keys; and all of them.
    pub(super) garbage_of: BTreeMap<Vec<u8>, u64>,
    pub(super) garbage: Vec<u64>,
}

/// A run that has not yet come to its end.
struct Open {
    from: Vec<u8>,
    last: Vec<u8>,
    one: bool,
    abandons: Option<bool>,
}

/// The shortest key above `a`, and not above `b`.
fn between<'b>(a: &[u8], b: &'b [u8]) -> &'b [u8] {
    &b[..b.len().min(common(a, b) + 1)]
}

impl Plan {
    pub(super) fn of(tx: &dyn Tx, changes: &Changes, seed: u64) -> Result<Self> {
        let mut plan = Self::default();
        let gone: Vec<&[u8]> = changes.deleted().collect();
        for area in gone.chunk_by(|a, b| a.first() == b.first()) {
            let (runs, mut known) = (plan.runs.len(), Known::new(seed));
            plan.look_at(tx, changes, area, &mut known)?;
            plan.shorten(runs, area, known);
        }
        plan.garbage = plan.garbage_of.values().copied().collect();
        Ok(plan)
    }

    /// One run with a sieve in place of all behind a number, which are of this area, if it takes less to note it.
    fn shorten(&mut self, runs: usize, area: &[&[u8]], known: Known) {
        let (Some(first), Some(last)) = (area.first(), area.last()) else { return };
        if encode(&self.runs[runs..]).len() <= SIEVE + first.len() + last.len() + known.bytes() {
            return;
        }
        if let Some(sieve) = known.sieve() {
            let to = [last, &[0][..]].concat();
            self.runs.truncate(runs);
            self.runs.push(Run { sieve: Some(Arc::new(sieve)), ..Run::new(first.to_vec(), Some(to), false) });
        }
    }

    /// Goes through what is there from the first key that goes to the one behind the last.
    fn look_at(&mut self, tx: &dyn Tx, changes: &Changes, area: &[&[u8]], known: &mut Known) -> Result<()> {
        let (Some(first), Some(last)) = (area.first(), area.last()) else { return Ok(()) };
        // What is not of this area begins with another byte.
        let end = [first.first().map_or(0, |byte| byte + 1)];
        let range = (Bound::Included(first.to_vec()), Bound::Excluded(end.to_vec()));
        let mut set =
            changes.0.range::<Vec<u8>, _>(range).filter(|(_, put)| put.is_some()).map(|(key, _)| key).peekable();
        let mut before: Option<Vec<u8>> = None;
        let mut open: Option<Open> = None;
        tx.scan(Keys::from(first).until(&end), &mut |key, value| {
            while let Some(stays) = set.next_if(|set| set[..] < *key) {
                self.close(&mut open, before.as_deref(), stays);
                known.add(stays, None);
                before = Some(stays.clone());
            }
            if !matches!(changes.0.get(key), Some(None)) {
                known.add(key, None);
                self.close(&mut open, before.as_deref(), key);
                before = Some(key.to_vec());
                return if key > *last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            }
            self.sizes.push((key.to_vec(), RECORD.0 + (key.len() + value.len()) as u64));
            let head = head(key, value);
            let abandons = head.map(|head| {
                let note = [&[GARBAGE], &head.id.to_be_bytes()[..]].concat();
                matches!(changes.0.get(&note), Some(Some(_)))
            });
            if let Some(head) = head.filter(|_| abandons == Some(true)) {
                self.garbage_of.insert(key.to_vec(), head.id);
            }
            known.add(key, Some(abandons == Some(true)));
            // What becomes of elements is the same for all of a run.
            if let Some(run) = &open
                && let (Some(this), Some(other)) = (run.abandons, abandons)
                && this != other
            {
                let last = run.last.clone();
                self.close(&mut open, before.as_deref(), key);
                before = Some(last);
            }
            match &mut open {
                Some(run) => {
                    (run.last, run.one) = (key.to_vec(), false);
                    run.abandons = run.abandons.or(abandons);
                }
                None => {
                    let from = before.as_deref().map_or(key, |before| between(before, key)).to_vec();
                    open = Some(Open { from, last: key.to_vec(), one: true, abandons });
                }
            }
            ControlFlow::Continue(())
        })?;
        let stays = set.peek().map_or(&end[..], |stays| &stays[..]);
        self.close(&mut open, before.as_deref(), stays);
        set.for_each(|stays| known.add(stays, None));
        Ok(())
    }

    /// Ends a run before a key that is not of it.
    fn close(&mut self, open: &mut Option<Open>, before: Option<&[u8]>, next: &[u8]) {
        let Some(Open { from, last, one, abandons }) = open.take() else { return };
        let abandons = abandons.unwrap_or(false);
        // One key alone: by as much of it as no other has.
        let own = before.map_or(0, |before| common(before, &last)).max(common(&last, next)) + 1;
        let run = match last.get(..own).filter(|_| one && before.is_some()) {
            Some(prefix) => Run::new(prefix.to_vec(), None, abandons),
            None => Run::new(from, Some(between(&last, next).to_vec()), abandons),
        };
        self.runs.push(run);
    }
}
