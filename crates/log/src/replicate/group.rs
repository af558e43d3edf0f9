//! A leader's replicas while it leads: which replica has which records, what is committed, which have failed. A state machine: acknowledgements, losses and time
//! come in.
//!
//! A batch is a range of records that was claimed for a force, and posted to every live replica in the order of its records. It is committed when the leader's own
//! image has it, if that counts, and a write quorum; and all batches before it are.

use std::collections::VecDeque;

use crate::failpoints::{Failpoints, Step};
use crate::window::Claimed;

/// How a replica is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaHealth {
    /// It has every record that was forced, or is about to.
    Live,
    /// It was given up, for this reason. It counts again when it was repaired.
    Failed(String),
}

struct Peer {
    id: u64,
    state: ReplicaHealth,
    /// It has all records through this one.
    acked: u64,
    /// It knows that the log begins here, or further on: a position.
    head: u64,
}

/// Why nothing is committed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    QuorumLost { live: usize, needed: usize },
    Fenced { epoch: u32, owner: u64 },
}

/// Whether a thread flushes a batch in the leader's own image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Local {
    Nobody,
    Somebody,
    Done,
}

/// What of the replicas a thread waits for. Also over once nothing is committed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// Everything through this record is committed.
    Committed(u64),
    /// Enough replicas have it, whatever the leader's own image has.
    Remote(u64),
    /// The leader's own image has everything through this record, whatever the replicas have.
    Own(u64),
    /// Every live replica knows that the log begins at this position, or further on.
    Head(u64),
}

/// What replicas lack: any of `heard` of those that are behind `through` has to say something first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lacking {
    pub(super) through: u64,
    pub(super) heard: usize,
}

struct Batch {
    claimed: Claimed,
    local: Local,
    /// When it was posted, by the caller's clock.
    posted: u64,
}

pub(super) struct Group {
    peers: Vec<Peer>,
    /// The leader's own image is one of the replicas that count.
    counts: bool,
    write_quorum: usize,
    batches: VecDeque<Batch>,
    over: Option<Over>,
    failpoints: Failpoints,
}

/// What a step brought.
#[derive(Default)]
pub(super) struct Advance {
    /// These records are committed.
    pub(super) committed: Option<Claimed>,
}

impl Group {
    /// The remote replicas that are live, all through record `last` and with the head at `head`. With too few of them it is over before it begins: there may be
    /// no replica whose loss would show it.
    pub(super) fn new(
        ids: &[u64],
        last: u64,
        head: u64,
        counts: bool,
        write_quorum: usize,
        failpoints: Failpoints,
    ) -> Self {
        let peer = |&id| Peer { id, state: ReplicaHealth::Live, acked: last, head };
        let live = ids.len() + usize::from(counts);
        let too_few = live < write_quorum && !failpoints.skips(Step::WriteQuorum);
        Self {
            peers: ids.iter().map(peer).collect(),
            counts,
            write_quorum,
            batches: VecDeque::new(),
            over: too_few.then_some(Over::QuorumLost { live, needed: write_quorum }),
            failpoints,
        }
    }

    pub(super) fn skips(&self, step: Step) -> bool {
        self.failpoints.skips(step)
    }

    pub(super) fn failpoints(&self) -> Failpoints {
        self.failpoints
    }

    pub(super) fn over(&self) -> Option<Over> {
        self.over
    }

    pub(super) fn live(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.peers.len()).filter(|&p| self.peers[p].state == ReplicaHealth::Live)
    }

    pub(super) fn is_live(&self, peer: usize) -> bool {
        self.peers[peer].state == ReplicaHealth::Live
    }

    pub(super) fn live_ids(&self) -> Vec<u64> {
        self.live().map(|p| self.peers[p].id).collect()
    }

    pub(super) fn states(&self) -> Vec<(u64, ReplicaHealth, u64)> {
        self.peers.iter().filter(|p| p.id != 0).map(|p| (p.id, p.state.clone(), p.acked)).collect()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.batches.is_empty()
    }

    // ---- batches ----------------------------------------------------------------------------------------------

    /// A batch was posted to all live replicas, behind those before it.
    pub(super) fn posted(&mut self, claimed: Claimed, now: u64) {
        self.batches.push_back(Batch { claimed, local: Local::Nobody, posted: now });
    }

    /// Through which record all was posted, if anything is under way.
    pub(super) fn last_posted(&self) -> Option<u64> {
        self.batches.back().map(|b| b.claimed.to())
    }

    /// The batches that no thread flushes in the leader's own image yet, all in one: the caller does. They are the last ones.
    pub(super) fn take_local(&mut self) -> Option<Claimed> {
        let mut taken = None;
        for batch in self.batches.iter_mut().rev().take_while(|b| b.local == Local::Nobody) {
            batch.local = Local::Somebody;
            taken = Some(batch.claimed.through(taken.as_ref()));
        }
        taken
    }

    /// These are in the leader's own image.
    pub(super) fn local(&mut self, done: &Claimed) -> Advance {
        for batch in self.batches.iter_mut().filter(|b| done.contains(&b.claimed)) {
            batch.local = Local::Done;
        }
        self.advance()
    }

    /// True if enough replicas have this batch and all before it, whatever the leader's own image has.
    pub(super) fn has_remote(&self, through: u64) -> bool {
        let needed = self.write_quorum - usize::from(self.counts).min(self.write_quorum);
        self.over.is_some() || self.have(through) >= needed
    }

    /// Through which record the leader's own image has all, if what is `committed` is in it: a batch that a thread still flushes holds up those behind it.
    pub(super) fn own_through(&self, committed: u64) -> u64 {
        let here = self.batches.iter().take_while(|b| b.local == Local::Done || self.skips(Step::OwnInOrder));
        here.last().map_or(committed, |b| b.claimed.to())
    }

    fn advance(&mut self) -> Advance {
        let mut advance = Advance::default();
        while self.over.is_none()
            && let Some(front) = self.batches.front()
            && front.local == Local::Done
        {
            let through = front.claimed.to();
            if self.have(through) + usize::from(self.counts) < self.write_quorum
                && !self.failpoints.skips(Step::WriteQuorum)
            {
                break;
            }
            let last = self.batches.pop_front().map(|b| b.claimed);
            advance.committed = advance.committed.map_or(last.clone(), |first| Some(first.through(last.as_ref())));
        }
        advance
    }

    // ---- waiting ----------------------------------------------------------------------------------------------

    /// What replicas lack for that; none if it is nothing, whatever the leader's own image lacks.
    ///
    /// A batch that lacks `k` acknowledgements, of the `m` live replicas that have not given theirs, lacks one at least of any `m - k + 1` of them: to hear those alone is
    /// never too late, and wakes a thread once where each acknowledgement would. That many are as many as the live replicas exceed what is needed, and one. Only the
    /// first batch that lacks any counts: those behind it lack as much.
    pub(super) fn lacking(&self, until: Until) -> Option<Lacking> {
        let lsn = match until {
            Until::Committed(lsn) | Until::Remote(lsn) => lsn,
            Until::Own(_) => return None,
            Until::Head(_) => return Some(Lacking { through: u64::MAX, heard: usize::MAX }),
        };
        let needed = self.write_quorum.saturating_sub(usize::from(self.counts));
        for batch in &self.batches {
            let through = batch.claimed.to();
            if self.have(through) < needed {
                return Some(Lacking { through, heard: (self.live().count() + 1).saturating_sub(needed) });
            }
            if through >= lsn {
                break;
            }
        }
        None
    }

    /// A live replica that does not have this record.
    pub(super) fn is_behind(&self, peer: usize, lsn: u64) -> bool {
        self.is_live(peer) && self.peers[peer].acked < lsn
    }

    /// How many live replicas have this record.
    fn have(&self, lsn: u64) -> usize {
        self.live().filter(|&p| self.peers[p].acked >= lsn).count()
    }

    // ---- replicas ----------------------------------------------------------------------------------------

    /// The record that a replica acknowledges with these low bits of its number. It is not far behind the one before.
    pub(super) fn lsn_of(&self, peer: usize, low: u32) -> u64 {
        let acked = self.peers[peer].acked;
        let further = low.wrapping_sub(acked as u32);
        if further < 1 << 31 { acked + u64::from(further) } else { acked }
    }

    /// A replica has all records through `lsn`.
    pub(super) fn acknowledged(&mut self, peer: usize, lsn: u64) -> Advance {
        let peer = &mut self.peers[peer];
        if peer.state == ReplicaHealth::Live {
            peer.acked = peer.acked.max(lsn);
        }
        self.advance()
    }

    /// A replica knows where the log begins.
    pub(super) fn head_moved(&mut self, peer: usize, position: u64) {
        self.peers[peer].head = self.peers[peer].head.max(position);
    }

    /// True if every live replica knows that the log begins here or further on: only then what is before is used again.
    pub(super) fn all_know_head(&self, position: u64) -> bool {
        self.live().all(|p| self.peers[p].head >= position)
    }

    /// The live replicas that do not know it.
    pub(super) fn live_without_head(&self, position: u64) -> Vec<usize> {
        self.live().filter(|&p| self.peers[p].head < position).collect()
    }

    /// How many live replicas there are beyond those that a write quorum needs.
    pub(super) fn spare(&self) -> usize {
        (self.live().count() + usize::from(self.counts)).saturating_sub(self.write_quorum)
    }

    /// A replica is given up; returns whether it was live.
    pub(super) fn lost(&mut self, peer: usize, why: String) -> bool {
        if self.peers[peer].state != ReplicaHealth::Live {
            return false;
        }
        tracing::warn!(replica = %format_args!("{:x}", self.peers[peer].id), why, "a replica of the log is given up");
        self.peers[peer].state = ReplicaHealth::Failed(why);
        let live = self.live().count() + usize::from(self.counts);
        if live < self.write_quorum && !self.failpoints.skips(Step::WriteQuorum) {
            self.over.get_or_insert(Over::QuorumLost { live, needed: self.write_quorum });
        }
        true
    }

    /// Another leader has the promise of a replica.
    pub(super) fn fenced(&mut self, epoch: u32, owner: u64) {
        self.over = Some(Over::Fenced { epoch, owner });
    }

    /// Nothing is committed any more.
    pub(super) fn end(&mut self, over: Over) {
        self.over.get_or_insert(over);
    }

    /// The live replicas that have not acknowledged what was posted before `posted`.
    pub(super) fn late(&self, posted: u64) -> Vec<usize> {
        let Some(late) = self.batches.iter().rev().find(|b| b.posted <= posted) else { return Vec::new() };
        self.live().filter(|&p| self.peers[p].acked < late.claimed.to()).collect()
    }

    /// A replica that was repaired through record `last` is live, again or for the first time. Under a new number: what is still heard of it under the old one means
    /// nothing.
    pub(super) fn joined(&mut self, id: u64, last: u64, head: u64) -> usize {
        for old in self.peers.iter_mut().filter(|p| p.id == id) {
            (old.id, old.state) = (0, ReplicaHealth::Failed("it came back".into()));
        }
        self.peers.push(Peer { id, state: ReplicaHealth::Live, acked: last, head });
        self.peers.len() - 1
    }

    /// A replica is not one any more; the own image neither, if that was it.
    pub(super) fn removed(&mut self, id: u64) {
        for peer in self.peers.iter_mut().filter(|p| p.id == id) {
            (peer.id, peer.state) = (0, ReplicaHealth::Failed("it was removed".into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(counts: bool, remotes: u64, quorum: usize) -> Group {
        Group::new(&(1..=remotes).collect::<Vec<_>>(), 0, 0, counts, quorum, Failpoints::default())
    }

    fn post(group: &mut Group, from: u64, to: u64) {
        group.posted(Claimed::new(from, to), from);
        let taken = group.take_local().expect("posted");
        assert!(group.local(&taken).committed.is_none() || group.write_quorum == 1);
    }

    fn through(advance: &Advance) -> Option<u64> {
        advance.committed.as_ref().map(Claimed::to)
    }

    #[test]
    fn a_batch_needs_its_quorum_and_those_before_it() {
        let mut group = group(true, 2, 2);
        post(&mut group, 1, 3);
        post(&mut group, 4, 5);
        assert_eq!(through(&group.acknowledged(0, 2)), None);
        assert_eq!(through(&group.acknowledged(1, 3)), Some(3));
        assert_eq!(through(&group.acknowledged(1, 3)), None, "once");
        assert_eq!(through(&group.acknowledged(0, 5)), Some(5));
        assert!(group.is_idle());
    }

    #[test]
    fn nothing_commits_before_it_is_in_the_own_image() {
        let mut group = group(true, 1, 1);
        group.posted(Claimed::new(1, 1), 0);
        assert_eq!(through(&group.acknowledged(0, 1)), None);
        let taken = group.take_local().expect("posted");
        assert!(group.take_local().is_none(), "one flushes it");
        assert_eq!(through(&group.local(&taken)), Some(1));
    }

    /// Two threads flush, each a batch; the later one is done first.
    #[test]
    fn the_own_image_has_what_is_in_it_with_all_before() {
        let mut group = group(true, 2, 2);
        group.posted(Claimed::new(1, 3), 0);
        let first = group.take_local().expect("posted");
        group.posted(Claimed::new(4, 5), 0);
        let second = group.take_local().expect("posted");
        assert_eq!(group.own_through(0), 0);
        assert!(group.local(&second).committed.is_none());
        assert_eq!(group.own_through(0), 0, "those before it are not");
        assert!(group.local(&first).committed.is_none());
        assert_eq!(group.own_through(0), 5);
        assert_eq!(through(&group.acknowledged(0, 5)), Some(5));
        assert_eq!(group.own_through(5), 5, "all that is committed");
    }

    #[test]
    fn lost_replicas_do_not_count_and_too_few_end_it() {
        let mut group = group(true, 2, 2);
        post(&mut group, 1, 1);
        assert!(group.lost(0, "gone".into()));
        assert!(!group.lost(0, "gone".into()));
        assert_eq!(through(&group.acknowledged(0, 1)), None, "a late word of a replica that was given up");
        assert_eq!(group.over(), None);
        assert!(group.lost(1, "gone".into()));
        assert_eq!(group.over(), Some(Over::QuorumLost { live: 1, needed: 2 }));
        group.joined(1, 5, 0);
        assert_eq!(through(&group.local(&Claimed::new(1, 1))), None, "what was lost stays lost for this leader");
    }

    /// However the others answer, nothing is committed before one of those who are heard has said something; and they are few.
    #[test]
    fn who_is_heard_is_enough() {
        for (remotes, quorum, acks) in
            (1..6_usize).flat_map(|n| (1..=n).flat_map(move |q| (0..1 << n).map(move |a| (n, q, a))))
        {
            let new = || {
                let mut group = group(false, remotes as u64, quorum);
                post(&mut group, 1, 1);
                let committed =
                    (0..remotes).any(|p| acks >> p & 1 == 1 && group.acknowledged(p, 1).committed.is_some());
                (group, committed)
            };
            let (first, committed) = new();
            let Some(Lacking { through, heard }) = first.lacking(Until::Committed(1)) else {
                assert!(committed, "{remotes}, {quorum}, {acks:b}");
                continue;
            };
            let behind: Vec<usize> = (0..remotes).filter(|&p| first.is_behind(p, through)).collect();
            assert_eq!((through, heard), (1, remotes - quorum + 1));
            assert!(heard <= behind.len());
            let others = &behind[..behind.len() - heard];
            let (mut group, _) = new();
            assert!(
                others.iter().all(|&p| group.acknowledged(p, 1).committed.is_none()),
                "{remotes}, {quorum}, {acks:b}"
            );
            let last = group.acknowledged(behind[behind.len() - 1], 1);
            assert_eq!(through, last.committed.expect("each one less would be too few").to());
        }
    }

    #[test]
    fn a_record_is_known_by_the_low_bits_of_its_number() {
        let mut group = group(true, 1, 2);
        let mut lsn = (7 << 32) - 1500;
        group.acknowledged(0, lsn);
        for further in [0, 1, 1024, 1024, 1 << 31] {
            assert_eq!(group.lsn_of(0, (lsn + further) as u32), if further < 1 << 31 { lsn + further } else { lsn });
            lsn = group.lsn_of(0, (lsn + further) as u32);
            group.acknowledged(0, lsn);
        }
        assert_eq!(group.lsn_of(0, (lsn - 1) as u32), lsn, "an old one says nothing new");
    }

    #[test]
    fn who_is_late_is_known_by_the_batch() {
        let mut group = group(true, 2, 3);
        post(&mut group, 1, 1);
        post(&mut group, 2, 2);
        group.acknowledged(0, 1);
        assert_eq!(group.late(0), [] as [usize; 0]);
        assert_eq!(group.late(1), [1]);
        assert_eq!(group.late(2), [0, 1]);
    }
}
