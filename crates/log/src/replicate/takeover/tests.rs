//! Tests of the takeover alone: what it asks, by what it was answered.

use super::super::message::State;
use super::*;

fn at(lsn: u64) -> At {
    At { lsn, position: lsn * 64, epoch: 1 }
}

/// What a replica says that promises: of epoch 0 it is new.
fn promise(me: u64, log_epoch: u32, config: &Config) -> Heard {
    promise_from(me, log_epoch, config, Origin::default())
}

fn promise_from(me: u64, log_epoch: u32, config: &Config, origin: Origin) -> Heard {
    let formed = Formed {
        layout: Layout { log: 7, key: 9, segment_bytes: 4096, segments: 8, checksums: 2 },
        me,
        promised: 2,
        owner: 1,
        log_epoch,
        config: (log_epoch > 0).then(|| config.clone()),
        origin,
        head: at(1),
        next: 1,
        knows: false,
    };
    Heard::Reply(Reply::State(State { formed: Some(formed) }))
}

fn begin(ids: &[u64], lost: &[u64]) -> Takeover {
    let (ids, lost, failpoints) = (ids.to_vec(), lost.to_vec(), Failpoints::default());
    Takeover::begin(Plan {
        epoch: 2,
        owner: 1,
        ids,
        image_counts: true,
        make: None,
        accept_doubt: false,
        lost,
        failpoints,
    })
    .0
}

/// Every replica that is asked says this.
fn all_say(takeover: &mut Takeover, what: impl Fn(usize) -> Heard) -> Result<Progress> {
    let mut waiting = takeover.waiting().to_vec();
    let last = waiting.pop().expect("somebody is asked");
    for replica in waiting {
        assert!(matches!(takeover.hear(replica, what(replica))?, Progress::Ask(more) if more.is_empty()));
    }
    takeover.hear(last, what(last))
}

#[test]
fn what_the_image_has_whole_is_not_fetched() {
    let config = Config::of(vec![1, 2], 1);
    let mut takeover = begin(&[1, 2], &[]);
    all_say(&mut takeover, |replica| promise(replica as u64 + 1, 1, &config)).expect("promised");
    let ends = [at(5), at(8)];
    let mut asked = Vec::new();
    while takeover.phase == Phase::Walk {
        let walked = |replica: usize| Walked {
            end: if ends[replica].lsn > takeover.end.lsn { ends[replica] } else { takeover.end },
            doubt: false,
            through: 0,
        };
        let said: Vec<Walked> = (0..2).map(walked).collect();
        let Progress::Ask(commands) =
            all_say(&mut takeover, |replica| Heard::Reply(Reply::Walked(said[replica]))).expect("walked")
        else {
            panic!("taken at once")
        };
        asked = commands;
    }
    let span = Span { from: at(5).position, to: at(8).position };
    let wanted: Vec<Command> = (0..2).map(|replica| Command::Ask(replica, Request::Digest { span })).collect();
    assert_eq!(asked, wanted);
}

/// Four replicas, any three of which must have a record, and any two of which can be read: the fourth is lost, a fifth is to take its place. These promise.
fn with_a_new_one(promised: &[usize]) -> (Result<Progress>, Takeover) {
    let config = Config::of(vec![1, 2, 3, 4], 3);
    let ids = [1, 2, 3, 5];
    let mut takeover = begin(&ids, &[4]);
    let said = |replica| match promised.contains(&replica) {
        true => promise(ids[replica], u32::from(replica < 3), &config),
        false => Heard::Lost("gone".into()),
    };
    (all_say(&mut takeover, said), takeover)
}

#[test]
fn a_replica_is_replaced_when_all_the_others_have_promised() {
    let (promised, mut takeover) = with_a_new_one(&[0, 1, 2, 3]);
    assert!(promised.is_ok());
    let nothing = Walked { end: at(1), doubt: false, through: 0 };
    all_say(&mut takeover, |_| Heard::Reply(Reply::Walked(nothing))).expect("walked");
    all_say(&mut takeover, |_| Heard::Reply(Reply::Walked(nothing))).expect("verified");
    assert_eq!(takeover.phase, Phase::Install);
    let joint = takeover.config();
    assert_eq!(joint.before, Some(Quorum { ids: vec![1, 2, 3], write_quorum: 2 }));
    all_say(&mut takeover, |_| Heard::Reply(Reply::Installed)).expect("installed");
    assert_eq!(takeover.phase, Phase::Conclude);
    let Ok(Progress::Taken(taken)) = all_say(&mut takeover, |_| Heard::Reply(Reply::Installed)) else {
        panic!("all have heard of it")
    };
    assert_eq!((taken.config.ids, taken.config.write_quorum), (vec![1, 2, 3, 5], 3));
    // The first, the second and the new one would make a write quorum. But the third, with the lost one, was a read quorum, and may have promised more.
    let (outcome, _) = with_a_new_one(&[0, 1, 3]);
    let Err(Error::QuorumUnavailable { missing, .. }) = outcome else { panic!("nobody asked the third") };
    assert_eq!(missing, [3]);
    let (outcome, _) = with_a_new_one(&[0, 1, 2]);
    assert!(matches!(&outcome, Err(Error::QuorumUnavailable { why, .. }) if why.contains("no new replica")));
}

/// Of three replicas, two of which must have a record, the leader was cut off when a fourth alone knew that it had joined. What a takeover says that has heard of the first, the
/// second and the fourth, and installs the log at the first and the fourth; the third, with the second, may be led by a leader that has never heard of the
/// fourth.
fn after_a_join_was_cut_short(without: Option<Step>) -> Result<Progress> {
    let old = Config::of(vec![1, 2, 3], 2);
    let joint = old.towards(vec![1, 2, 3, 4]);
    let ids = [1, 2, 4];
    let mut takeover = begin(&ids, &[]);
    takeover.plan.failpoints = Failpoints(without);
    all_say(&mut takeover, |c| promise(ids[c], 1, if c == 2 { &joint } else { &old })).expect("promised");
    let nothing = Walked { end: at(1), doubt: false, through: 0 };
    all_say(&mut takeover, |_| Heard::Reply(Reply::Walked(nothing))).expect("walked");
    all_say(&mut takeover, |_| Heard::Reply(Reply::Walked(nothing))).expect("verified");
    assert_eq!(takeover.phase, Phase::Install);
    let without_the_second = |c| if c == 1 { Heard::Lost("gone".into()) } else { Heard::Reply(Reply::Installed) };
    all_say(&mut takeover, without_the_second)
}

#[test]
fn a_change_that_may_not_be_committed_needs_quorums_of_both() {
    let outcome = after_a_join_was_cut_short(None);
    let Err(Error::QuorumUnavailable { missing, .. }) = outcome else { panic!("two led at once") };
    assert_eq!(missing, [2, 3]);
    for step in [Step::BothQuorums, Step::InstallJoint] {
        assert!(after_a_join_was_cut_short(Some(step)).is_ok(), "{step:?} is not tested by this");
    }
}

/// Of three replicas, two of which must have a record, the second was to be removed while the third was dead: the first knows of the change, and the leader is gone. The first two stand.
fn after_a_removal_was_cut_short(promised: &[usize], said: [&Config; 3], without: Option<Step>) -> Result<Takeover> {
    let mut takeover = begin(&[1, 2, 3], &[]);
    takeover.plan.failpoints = Failpoints(without);
    let say = |c: usize| match promised.contains(&c) {
        true => promise(c as u64 + 1, 1, said[c]),
        false => Heard::Lost("gone".into()),
    };
    all_say(&mut takeover, say)?;
    let nothing = Walked { end: at(1), doubt: false, through: 0 };
    all_say(&mut takeover, |_| Heard::Reply(Reply::Walked(nothing)))?;
    all_say(&mut takeover, |_| Heard::Reply(Reply::Walked(nothing)))?;
    assert_eq!(takeover.phase, Phase::Install);
    Ok(takeover)
}

#[test]
fn a_change_that_cannot_be_completed_is_withdrawn() {
    let old = Config::of(vec![1, 2, 3], 2);
    let joint = old.towards(vec![1, 3]);
    let mut takeover = after_a_removal_was_cut_short(&[0, 1], [&joint, &old, &old], None).expect("two of three");
    assert_eq!(takeover.config().before, joint.before, "as joint first, or a later one would not meet it");
    all_say(&mut takeover, |_| Heard::Reply(Reply::Installed)).expect("installed");
    assert_eq!(takeover.phase, Phase::Conclude);
    let Ok(Progress::Taken(taken)) = all_say(&mut takeover, |_| Heard::Reply(Reply::Installed)) else {
        panic!("two of three lead")
    };
    assert_eq!((taken.config.ids, taken.config.before), (vec![1, 2, 3], None));
    assert_eq!((taken.config.write_quorum, taken.live), (2, vec![0, 1]));
}

#[test]
fn a_change_that_one_knows_to_be_complete_is_not_withdrawn() {
    let old = Config::of(vec![1, 2, 3], 2);
    let (joint, concluded) = (old.towards(vec![1, 3]), old.towards(vec![1, 3]).concluded());
    let outcome = after_a_removal_was_cut_short(&[0, 1], [&concluded, &joint, &old], None);
    assert!(matches!(outcome, Err(Error::QuorumUnavailable { missing, .. }) if missing == [3]));
}

/// What would be lost: the third has the replicas behind a change that was withdrawn without it. Alone it is a read quorum of those, and its log would be the newest.
#[test]
fn who_could_not_lead_installs_nothing() {
    let old = Config::of(vec![1, 2, 3], 2);
    let concluded = old.towards(vec![1, 3]).concluded();
    let third = |without| {
        let mut takeover = begin(&[3], &[]);
        takeover.plan.failpoints = Failpoints(without);
        all_say(&mut takeover, |_| promise(3, 1, &concluded))?;
        Ok(takeover.phase)
    };
    let outcome: Result<Phase> = third(None);
    assert!(matches!(outcome, Err(Error::QuorumUnavailable { missing, .. }) if missing == [1]));
    assert_eq!(third(Some(Step::CanWriteFirst)).ok(), Some(Phase::Walk), "it is not tested by this");
}

#[test]
fn of_two_changes_the_later_counts_though_the_first_was_given_up() {
    let old = Config::of(vec![1, 2, 3], 2);
    let (given_up, later) = (old.towards(vec![1, 2, 3, 4]), old.burned().towards(vec![1, 2, 3, 5]));
    for [first, second] in [[&given_up, &later], [&later, &given_up]] {
        let mut takeover = begin(&[1, 2, 3], &[]);
        let said = [&old, first, second];
        all_say(&mut takeover, |c| promise(c as u64 + 1, 1, said[c])).expect("promised");
        assert_eq!(takeover.before.as_ref(), Some(&later));
    }
}

/// Three replicas that all must have a record. Two were each taken over alone, as epoch 3, at different ends: neither led. The third is still of epoch 1.
fn after_two_who_did_not_lead(ends: [At; 3]) -> (Result<Progress>, Takeover) {
    let config = Config::of(vec![1, 2, 3], 3);
    let mut takeover = begin(&[1, 2, 3], &[]);
    let from = |taken| Origin { base: 1, taken };
    let said = [(3, from(5)), (3, from(8)), (1, Origin::default())];
    let mut last =
        all_say(&mut takeover, |replica| promise_from(replica as u64 + 1, said[replica].0, &config, said[replica].1));
    while last.is_ok() && takeover.phase == Phase::Walk {
        let now = takeover.end;
        let walked = |replica: usize| Walked {
            end: if ends[replica].lsn > now.lsn { ends[replica] } else { now },
            doubt: false,
            through: 0,
        };
        last = all_say(&mut takeover, |replica| Heard::Reply(Reply::Walked(walked(replica))));
    }
    (last, takeover)
}

#[test]
fn who_has_been_there_all_the_time_is_believed_after_two_who_did_not_lead() {
    // The second is damaged behind record 5 since; the third has all of them.
    let (last, takeover) = after_two_who_did_not_lead([at(5), at(6), at(8)]);
    assert!(last.is_ok());
    assert_eq!((takeover.end, takeover.origin), (at(8), Origin { base: 1, taken: 8 }));
    assert_eq!(takeover.in_doubt, None);
}

#[test]
fn who_was_not_asked_may_have_acknowledged_what_was_taken_over() {
    let (_, takeover) = after_two_who_did_not_lead([at(5), at(8), at(8)]);
    let nobody_walked = |lsn| [0, 1, 2].map(|replica| takeover.may_have_had(replica, Lsn(lsn), &[]));
    // The first was installed without record 6, but may have had it before; the second was installed with it.
    assert_eq!(nobody_walked(6), [true, true, true]);
    assert_eq!(nobody_walked(8), [false, false, false], "it was not in the log that was taken over");
    let sound = Walked { end: at(6), doubt: false, through: 0 };
    let walked = [0, 1, 2].map(|replica| takeover.may_have_had(replica, Lsn(6), &[(replica, sound)]));
    assert_eq!(walked, [false, true, false], "who looked and never had it");
}

#[test]
fn the_origin_stays_while_nothing_was_appended() {
    for (end, origin) in [
        (6, Origin { base: 1, taken: 6 }), // less than what was taken over: damage
        (8, Origin { base: 1, taken: 8 }),
        (9, Origin { base: 3, taken: 9 }), // appended by epoch 3
    ] {
        let (last, mut takeover) = after_two_who_did_not_lead([at(end), at(end), at(end.min(8))]);
        assert!(last.is_ok());
        let asked = takeover.install();
        let Some(Command::Ask(_, Request::Install { origin: said, .. })) = asked.first() else { panic!("{asked:?}") };
        assert_eq!(*said, origin, "the log ends before {end}");
    }
}

#[test]
fn a_record_of_what_was_taken_over_that_only_the_newest_lost_is_in_doubt() {
    let config = Config::of(vec![1, 2, 3], 2);
    let mut takeover = begin(&[1, 2, 3], &[]);
    // The second and the third are of a leader before the one that the newest was taken over from: they are not asked, and may have acknowledged all of it.
    let said = [(3, Origin { base: 2, taken: 8 }), (1, Origin::default()), (1, Origin::default())];
    all_say(&mut takeover, |replica| promise_from(replica as u64 + 1, said[replica].0, &config, said[replica].1))
        .expect("promised");
    while takeover.phase == Phase::Walk {
        assert_eq!(takeover.waiting(), [0]);
        let walked = Walked { end: at(6), doubt: false, through: 0 };
        all_say(&mut takeover, |_| Heard::Reply(Reply::Walked(walked))).expect("walked");
    }
    assert_eq!(takeover.in_doubt, Some(Lsn(6)));
}

/// The second and the third lack what the first has; the third has something else still when it was written. At the end it is checked which replicas are there.
#[test]
fn what_was_written_into_a_replica_is_compared_before_it_counts() {
    let config = Config::of(vec![1, 2, 3], 2);
    let mut takeover = begin(&[1, 2, 3], &[]);
    all_say(&mut takeover, |replica| promise(replica as u64 + 1, 1, &config)).expect("promised");
    let mut compared = 0;
    while takeover.phase != Phase::Install {
        let (phase, end) = (takeover.phase, takeover.end);
        let say = |replica: usize| match phase {
            Phase::Walk if replica == IMAGE && end.lsn < 8 => {
                Reply::Walked(Walked { end: at(8), doubt: false, through: 0 })
            }
            Phase::Walk | Phase::Verify => Reply::Walked(Walked { end, doubt: false, through: 0 }),
            Phase::CompareOthers => {
                let wrong = replica == 2 || replica == 1 && compared == 0;
                Reply::Digests(vec![if wrong { 666 } else { 7 }])
            }
            _ => panic!("{phase:?}"),
        };
        let said: Vec<Reply> = (0..3).map(say).collect();
        compared += u32::from(phase == Phase::CompareOthers);
        all_say(&mut takeover, |replica| Heard::Reply(said[replica].clone())).expect("two of three");
    }
    assert_eq!(compared, 2);
    assert_eq!(takeover.waiting(), [0, 1]);
}
