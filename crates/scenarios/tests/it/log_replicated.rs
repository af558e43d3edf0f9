//! Copies and leaders of a replicated log, explored; and for each step of the protocol that a crash asks for it is shown that exploring fails without it.

use super::missed;
use crash::{Config, FaultKind, Model, Report};
use log::{Options, Step};
use scenarios::{Copied, CopyOp, Led, LedOp};

fn shallow(seed: u64) -> Config {
    Config::seeded(seed).depth(1).budget(1_500).point_budget(100).shrink(false)
}

fn deep(seed: u64) -> Config {
    Config::seeded(seed).budget(1_500).point_budget(30).nested_budget(20).shrink(false)
}

fn file(config: Config) -> Config {
    config.model(Model::File { sector: 512 })
}

fn faults(seed: u64) -> Config {
    let kinds = vec![FaultKind::Flip, FaultKind::Poison];
    Config::seeded(seed).depth(1).budget(1_000).point_budget(15).faults(40).fault_kinds(kinds).shrink(false)
}

/// Of one or the other kind.
#[derive(Clone)]
enum Subject {
    Copy(Copied),
    Led(Led),
}

impl Subject {
    fn run(&self, config: &Config) -> Report {
        match self {
            Self::Copy(copied) => crash::run(copied.clone(), config),
            Self::Led(led) => crash::run(led.clone(), config),
        }
    }
}

type Workload = (&'static str, Subject, Config);

/// From cheap to thorough.
fn workloads() -> Vec<Workload> {
    use CopyOp::{Format, Head, Install, Members, Persist, Promise, Restart, Write};
    let mut all: Vec<Workload> = Vec::new();
    let mut copy = |name, ops: Vec<CopyOp>, configs: &[Config]| {
        let subject = Subject::Copy(Copied::script(ops));
        all.extend(configs.iter().map(|config| (name, subject.clone(), config.clone())));
    };
    copy("made", vec![Format, Promise, Format], &[shallow(1), deep(2), file(shallow(3)), faults(4)]);
    copy("installed", vec![Format, Promise, Install(0, 2)], &[shallow(1), deep(2), file(shallow(3)), faults(4)]);
    copy(
        "written",
        vec![Format, Promise, Install(0, 1), Write(vec![9, 40]), Persist, Write(vec![70]), Write(vec![0, 8]), Persist],
        &[shallow(1), deep(2), file(shallow(3)), faults(4)],
    );
    copy(
        "repaired",
        vec![
            Format,
            Promise,
            Install(0, 2),
            Write(vec![30, 9]),
            Persist,
            Write(vec![20, 20]),
            Promise,
            Promise,
            Install(2, 2),
            Write(vec![16]),
            Persist,
        ],
        &[shallow(1), deep(2), file(shallow(3)), faults(4)],
    );
    copy(
        "members",
        vec![
            Format,
            Promise,
            Install(0, 1),
            Members,
            Write(vec![9]),
            Persist,
            Members,
            Promise,
            Install(0, 0),
            Members,
        ],
        &[shallow(1), deep(2), file(shallow(3)), faults(4)],
    );
    // What torn records and those of leaders before left, at the places of those to come.
    copy(
        "stale",
        vec![
            Format,
            Promise,
            Install(0, 1),
            Write(vec![8, 8, 8]),
            Persist,
            Promise,
            Install(3, 0),
            Write(vec![8, 8]),
            Persist,
        ],
        &[shallow(1), deep(2), deep(3)],
    );
    let lap = [Write(vec![80, 60, 90]), Persist, Head(0)];
    let laps = [&[Format, Promise, Install(0, 0)], &lap[..], &lap, &lap];
    copy("laps", laps.concat(), &[shallow(1), deep(2), faults(3)]);
    copy(
        "restarted",
        vec![Format, Restart, Promise, Install(0, 2), Write(vec![9]), Restart, Promise, Install(1, 1), Restart],
        &[shallow(1), deep(2), file(shallow(3))],
    );
    use LedOp::{Again, Append, Other, Reclaim};
    let mut led = |name, ops: Vec<LedOp>, configs: &[Config]| {
        let subject = Subject::Led(Led::script(ops));
        all.extend(configs.iter().map(|config| (name, subject.clone(), config.clone())));
    };
    led("led", vec![Append(vec![10]), Append(vec![20, 30, 9])], &[shallow(1), deep(2), file(shallow(3))]);
    led(
        "led in turn",
        vec![Append(vec![10, 20]), Other, Append(vec![30]), Again, Append(vec![8, 8])],
        &[shallow(1), deep(2)],
    );
    let lap = [Append(vec![80, 60, 90]), Reclaim(1)];
    led("led for long", [&lap[..], &lap, &lap, &[Append(vec![50])]].concat(), &[shallow(1), deep(2)]);
    let any = [deep(11), deep(12), shallow(13).model(Model::Lines), file(shallow(14))];
    for config in any {
        all.push(("any, copy", Subject::Copy(Copied::new("log-copy")), config.clone()));
        all.push(("any, led", Subject::Led(Led::new("log-leader")), config));
    }
    all.extend([21, 22].map(|seed| ("any, copy", Subject::Copy(Copied::new("log-copy")), faults(seed))));
    all
}

missed::steps! { PersistFirst, TwoEpochs, PromiseFirst, ConfigFirst, EraseTorn, }

#[test]
fn each_step_is_missed_when_it_is_left_out() {
    let of_copies = |(name, subject, config): Workload| match subject {
        Subject::Copy(copied) => Some((name, copied, config)),
        Subject::Led(_) => None,
    };
    let workloads: Vec<_> = workloads().into_iter().filter_map(of_copies).collect();
    missed::each_step(&workloads, STEPS, Copied::adjust, &["panicked"]);
}

/// With all of them nothing is violated; each flush and each drain is left out in turn, by source line, and some workload must notice.
#[test]
fn every_barrier_of_a_replicated_log_is_missed_when_it_is_gone() {
    let sources = missed::Sources { of: "log/src", whole: "log/src/replicate", redundant: &[], unreached: &[] };
    missed::each_barrier_of(&workloads(), Subject::run, &sources);
}
