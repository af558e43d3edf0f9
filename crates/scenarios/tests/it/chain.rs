//! Replicas of a chain, explored; and for each step of their media it is shown that exploring fails without it.

use std::collections::BTreeSet;

use ::chain::Omission;
use crash::{Barrier, Config, Model, Report};
use scenarios::{ChainOp, Chained, HeadOp, Headed};

#[derive(Clone)]
enum Subject {
    Replica(Chained),
    Head(Headed),
}

impl Subject {
    fn run(&self, config: &Config) -> Report {
        match self.clone() {
            Self::Replica(subject) => crash::run(subject, config),
            Self::Head(subject) => crash::run(subject, config),
        }
    }

    fn without(&self, omission: Omission) -> Self {
        match self.clone() {
            Self::Replica(subject) => Self::Replica(subject.without(omission)),
            Self::Head(subject) => Self::Head(subject.without(omission)),
        }
    }
}

fn shallow(seed: u64) -> Config {
    Config::seeded(seed).depth(1).budget(4_000).point_budget(200).shrink(false)
}

fn deep(seed: u64) -> Config {
    Config::seeded(seed).budget(6_000).point_budget(40).nested_budget(30).shrink(false)
}

fn file(config: Config) -> Config {
    config.model(Model::File { sector: 512 })
}

/// From cheap to thorough.
fn workloads() -> Vec<(&'static str, Subject, Config)> {
    use ChainOp::{CleanUp, Records, Rejoin, RejoinWithout, Restart, Tick};
    let replica = |ops| Subject::Replica(Chained::script(ops));
    let head = |ops| Subject::Head(Headed::script(ops));
    let laps = (0..8).flat_map(|_| [Records(2), CleanUp(0)]).collect::<Vec<_>>();
    let rejoined = vec![Records(3), Rejoin, Records(2), Restart, Records(1)];
    let without = vec![Records(2), Records(1), RejoinWithout, Restart, Records(1)];
    let commits = |count| vec![HeadOp::Commit; count];
    let restarts = vec![HeadOp::Commit, HeadOp::Restart, HeadOp::Abort, HeadOp::Commit];
    vec![
        ("few", replica(vec![Records(1), Records(2), CleanUp(0), Records(1)]), shallow(1)),
        ("few", replica(vec![Records(1), Records(2), CleanUp(0), Records(1)]), deep(2)),
        ("few, file", replica(vec![Records(2), CleanUp(0), Tick, Records(1)]), file(shallow(3))),
        ("rejoined", replica(rejoined.clone()), shallow(4)),
        ("rejoined", replica(rejoined), deep(5)),
        ("without", replica(without), shallow(13)),
        ("laps", replica([laps.clone(), vec![Restart, Records(1)]].concat()), shallow(6)),
        ("laps", replica([laps, vec![Restart, Records(3)]].concat()), deep(7)),
        ("commits", head(commits(4)), shallow(8)),
        ("restarts", head(restarts.clone()), deep(9)),
        ("restarts, file", head(restarts), file(shallow(10))),
        ("any", Subject::Replica(Chained::new("chain")), deep(11)),
        ("any", Subject::Head(Headed::new("chain-head")), deep(12)),
    ]
}

fn clean(name: &str, report: &Report) {
    assert!(report.violation().is_none(), "{name}: {report}");
    assert!(report.points > 0, "{name}");
}

#[test]
fn what_a_replica_has_promised_is_there() {
    let workloads = workloads();
    super::in_parallel(workloads.len(), |at| {
        let (name, subject, config) = &workloads[at];
        clean(name, &subject.run(config));
    });
}

/// Some workload finds it.
fn found(what: &str, run: impl Fn(&(&'static str, Subject, Config)) -> Report) {
    let found = workloads().iter().any(|workload| run(workload).violation().is_some());
    assert!(found, "nothing is wrong without {what}");
}

pub(crate) fn every_step_of_a_medium_is_missed() {
    use Omission::{ExecuteBehindBarrier, FreeBehindNote, Incarnation, Note};
    let steps = [FreeBehindNote, Incarnation, ExecuteBehindBarrier, Note];
    super::in_parallel(steps.len(), |at| {
        let step = steps[at];
        found(&format!("{step:?}"), |(_, subject, config)| subject.without(step).run(config));
    });
}

pub(crate) fn every_barrier_of_a_chain_is_missed() {
    let mut barriers = BTreeSet::new();
    for (_, subject, config) in workloads() {
        barriers.extend(subject.run(&config).barriers);
    }
    let barriers: Vec<Barrier> = barriers.into_iter().filter(|barrier| barrier.file.contains("chain/src")).collect();
    assert_eq!(barriers.len(), 4, "three flushes of the image and the one drain: {barriers:?}");
    super::in_parallel(barriers.len(), |at| {
        let barrier = &barriers[at];
        found(&barrier.to_string(), |(_, subject, config)| subject.run(&config.clone().mute(barrier.clone())));
    });
}

/// Each drain fails once; the head is opened again, and goes on.
#[test]
fn a_head_withstands_failing_drains() {
    let workloads: Vec<_> =
        (31..37).flat_map(|seed| [(seed, Model::Words), (seed, Model::File { sector: 512 })]).collect();
    super::in_parallel(workloads.len(), |at| {
        let (seed, model) = workloads[at];
        let config = Config::seeded(seed).depth(1).budget(400).point_budget(8).model(model).shrink(false);
        let reports = crash::run_failing_drains(Headed::new("chain-head"), &config, 60);
        assert!(reports.len() > 3, "{} drains", reports.len());
        reports.iter().for_each(Report::expect_clean);
    });
}
