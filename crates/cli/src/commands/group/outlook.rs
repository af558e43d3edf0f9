//! What the loss of a machine would mean, from what the leader knows of the replicas.
//!
//! The leader appended all records before `next`, so its own replica counts as having them. An acknowledged record is on a write quorum `W` of replicas; so the last that can be
//! acknowledged is the `W`-th highest of what the replicas have acknowledged, those among them that are away by now. What these have does not count: their disks may be gone.

use kv::LeaderStatus;

/// What becomes of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// No replica of it takes part now.
    Unchanged,
    GoOn,
    /// ... when another machine leads.
    GoOnElsewhere,
    /// Until it is back, or another one.
    Stop {
        live: usize,
        needed: usize,
    },
}

/// What happens if a machine goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    pub writes: Writes,
    /// At most so many acknowledged records no other live replica has. None if there is no other, and it is not known how many.
    pub only_here: Option<u64>,
    /// At most so many are then on fewer live replicas than the write quorum, though enough replicas are live.
    pub too_few: u64,
}

/// The ids of all replicas that count.
pub fn ids(status: &LeaderStatus) -> Vec<u64> {
    let own = (status.own != 0).then_some(status.own);
    own.into_iter().chain(status.copies.iter().map(|copy| copy.id)).collect()
}

/// If the machine goes that has this replica, or none that counts.
pub fn outlook(status: &LeaderStatus, copy: Option<u64>, leads: bool) -> Outlook {
    let own = (status.own != 0).then(|| (status.own, status.next.saturating_sub(1)));
    let live = status.copies.iter().filter(|copy| copy.live).map(|copy| (copy.id, copy.through));
    let live: Vec<(u64, u64)> = own.into_iter().chain(live).collect();
    let left: Vec<u64> = live.iter().filter(|(id, _)| Some(*id) != copy).map(|live| live.1).collect();
    if left.len() == live.len() && !leads {
        return Outlook { writes: Writes::Unchanged, only_here: Some(0), too_few: 0 };
    }
    let quorum = status.write_quorum as usize;
    // A machine that takes over reads one replica of any write quorum.
    let to_read = (ids(status).len() + 1).saturating_sub(quorum);
    let needed = if leads { quorum.max(to_read) } else { quorum };
    let writes = match left.len() {
        live if live < needed => Writes::Stop { live, needed },
        _ if leads => Writes::GoOnElsewhere,
        _ => Writes::GoOn,
    };
    let all: Vec<u64> = own.map(|own| own.1).into_iter().chain(status.copies.iter().map(|copy| copy.through)).collect();
    let acknowledged = highest(&all, quorum).unwrap_or(0);
    Outlook {
        writes,
        only_here: highest(&left, 1).map(|most| acknowledged.saturating_sub(most)),
        too_few: highest(&left, quorum).map_or(0, |enough| acknowledged.saturating_sub(enough)),
    }
}

/// The n-th highest, if there are so many.
fn highest(of: &[u64], n: usize) -> Option<u64> {
    let mut of = of.to_vec();
    of.sort_unstable_by(|a, b| b.cmp(a));
    of.get(n.checked_sub(1)?).copied()
}

impl Outlook {
    /// For a person.
    pub fn describe(&self) -> String {
        let writes = match self.writes {
            Writes::Unchanged => "nothing changes: no replica of it takes part".to_owned(),
            Writes::GoOn => "writes go on".to_owned(),
            Writes::GoOnElsewhere => "writes go on when another machine leads".to_owned(),
            Writes::Stop { live, needed } => {
                format!("no writes until it is back: too few replicas ({live} live, {needed} needed)")
            }
        };
        let records = match (self.only_here, self.too_few) {
            (None, _) => "; no other live replica has what was acknowledged last".to_owned(),
            (Some(0), 0) => String::new(),
            (Some(0), few) => format!("; up to {few} acknowledged records that only it and too few others have"),
            (Some(only), _) => format!("; up to {only} acknowledged records that no other live replica has"),
        };
        writes + &records
    }
}

#[cfg(test)]
mod tests {
    use kv::CopyStatus;

    use super::*;

    /// The leader's own replica is 1; others are 2, 3, ..., live with so many records, or away.
    fn group(write_quorum: u32, others: &[Option<u64>]) -> LeaderStatus {
        let mut status = LeaderStatus::default();
        (status.next, status.write_quorum, status.own) = (101, write_quorum, 1);
        for (id, through) in (2..).zip(others) {
            let mut copy = CopyStatus::default();
            (copy.id, copy.live, copy.through) = (id, through.is_some(), through.unwrap_or(80));
            status.copies.push(copy);
        }
        status
    }

    fn of(status: &LeaderStatus, copy: u64) -> (Writes, Option<u64>, u64) {
        let Outlook { writes, only_here, too_few } = outlook(status, Some(copy), copy == 1);
        (writes, only_here, too_few)
    }

    #[test]
    fn any_one_of_three_may_go() {
        let all = group(2, &[Some(100), Some(100)]);
        assert_eq!(of(&all, 1), (Writes::GoOnElsewhere, Some(0), 0));
        assert_eq!(of(&all, 2), (Writes::GoOn, Some(0), 0));
        assert_eq!(outlook(&all, None, false).writes, Writes::Unchanged, "a machine that has no part");
        assert_eq!(outlook(&all, Some(9), false).writes, Writes::Unchanged, "nor has this one");
    }

    #[test]
    fn what_a_slow_copy_does_not_have_is_on_too_few_without_another() {
        let one_slow = group(2, &[Some(100), Some(90)]);
        assert_eq!(of(&one_slow, 2), (Writes::GoOn, Some(0), 10));
        assert_eq!(of(&one_slow, 1), (Writes::GoOnElsewhere, Some(0), 10));
        assert_eq!(of(&one_slow, 3), (Writes::GoOn, Some(0), 0));
        // Nothing is acknowledged that only the leader has.
        let both_slow = group(2, &[Some(95), Some(90)]);
        assert_eq!(of(&both_slow, 1), (Writes::GoOnElsewhere, Some(0), 5));
        assert_eq!(of(&both_slow, 2), (Writes::GoOn, Some(0), 5));
    }

    #[test]
    fn of_two_that_are_left_none_may_go() {
        let one_away = group(2, &[Some(100), None]);
        let stop = Writes::Stop { live: 1, needed: 2 };
        assert_eq!((of(&one_away, 1).0, of(&one_away, 2).0), (stop, stop));
        assert_eq!(of(&one_away, 3), (Writes::Unchanged, Some(0), 0));
    }

    /// What the leader and a replica had is acknowledged, though that replica is away, and the one that is left has not got it yet.
    #[test]
    fn what_a_copy_acknowledged_before_it_went_is_acknowledged() {
        let mut slow_left = group(2, &[Some(60), None]);
        let stop = Writes::Stop { live: 1, needed: 2 };
        assert_eq!(of(&slow_left, 1), (stop, Some(20), 0));
        assert_eq!(of(&slow_left, 2), (stop, Some(0), 0));
        slow_left.copies[1].through = 0; // it has not been reached by this leader
        assert_eq!(of(&slow_left, 1), (stop, Some(0), 0));
    }

    #[test]
    fn to_take_over_more_copies_may_be_needed_than_to_write() {
        let four = group(2, &[Some(100), Some(100), None]);
        assert_eq!(of(&four, 1).0, Writes::Stop { live: 2, needed: 3 });
        assert_eq!(of(&four, 2).0, Writes::GoOn);
    }

    #[test]
    fn with_a_write_quorum_of_one_the_leader_may_have_what_nobody_has() {
        let one = group(1, &[Some(97), Some(90)]);
        assert_eq!(of(&one, 1), (Writes::Stop { live: 2, needed: 3 }, Some(3), 3));
        assert!(
            outlook(&one, Some(1), true)
                .describe()
                .contains("up to 3 acknowledged records that no other live replica has")
        );
        let alone = group(1, &[None, None]);
        assert_eq!(of(&alone, 1), (Writes::Stop { live: 0, needed: 3 }, None, 0));
    }
}
