//! Several versions of each object: every rule, with what notices that it is left out.

use crash::{Config, Model};
use mvcc::{Options, Step};
use pmem::HeapOptions;
use scenarios::{Crossed, CrossedOp, EveryVersion, VersionAct, VersionKind, VersionOp};
use tx::Isolation;

use super::missed;

/// Actors of one thread.
fn alone() -> Vec<missed::Workload<EveryVersion>> {
    let every = || EveryVersion::new("mvcc-every");
    let config = |seed| Config::seeded(seed).shrink(false).schedules(60).budget(8_000);
    // Many that hardly crash, for what a transaction sees; then fewer, for what a crash leaves.
    let mut all =
        vec![("alone", every(), config(1).schedules(600).point_budget(2).nested_budget(1).kills_at_flushes(0))];
    let act = |kind, word| (0, VersionAct { kind, on: 0, range: (1, 0), word });
    let torn = vec![VersionOp::Together(vec![act(VersionKind::Alloc, 3), act(VersionKind::Commit, 3)])];
    let deep = Config::seeded(1).shrink(false).budget(30_000).point_budget(300).nested_budget(100);
    all.push(("torn", every().script(torn), deep));
    all.push(("gone back", every().script(vec![VersionOp::Together(gone_back())]), config(1).schedules(1).depth(1)));
    for seed in 2..6 {
        all.push(("alone", every(), config(seed).point_budget(20).depth(1)));
        all.push((
            "alone, in a file",
            every(),
            config(seed).point_budget(20).depth(1).model(Model::File { sector: 512 }),
        ));
        all.push(("alone, twice", every(), config(seed).point_budget(8).nested_budget(16)));
    }
    all
}

/// What one has seen under a lock that it gave up is changed by another one, before it commits.
fn gone_back() -> Vec<(usize, VersionAct)> {
    use VersionKind::{Alloc, Back, Commit, Save, Write};
    let act = |(actor, kind, on)| (actor, VersionAct { kind, on, range: (1, 0), word: 1 });
    let first = [(0, Alloc, 0), (0, Alloc, 0), (0, Commit, 0), (0, Save, 0), (0, Write, 0), (0, Back, 0)];
    first.into_iter().chain([(1, Write, 0), (1, Commit, 0), (0, Write, 1), (0, Commit, 0)]).map(act).collect()
}

/// Chunks so large that the bits of one have several lines. A pass flushes those that it sets.
fn wide(options: Options) -> Options {
    let blocks = HeapOptions::chunk_bytes(32 << 10).expect("a power of two");
    options.blocks(blocks).bytes(blocks.region_bytes(6)).max_bytes(384 << 10)
}

/// Actors of one thread, and calls of procedures.
fn calling() -> Vec<missed::Workload<EveryVersion>> {
    let calling = || EveryVersion::calling("mvcc-calls");
    let config = |seed| Config::seeded(seed).shrink(false).schedules(60).budget(8_000);
    let act = |kind, word| (0, VersionAct { kind, on: 0, range: (3, 0), word });
    use VersionKind::{Alloc, Commit, Crumb, Fill, Write, WriteBack};
    let acts = [(Alloc, 5), (Commit, 5), (Fill, 7), (WriteBack, 7), (Write, 8), (Commit, 8), (Fill, 7), (WriteBack, 7)];
    // Recovery makes a new span, and writes behind what it had flushed.
    let made = [(Alloc, 5), (Commit, 5), (WriteBack, 5)].map(|(kind, word)| act(kind, word)).to_vec();
    let crumbs = [(Crumb, 9), (Commit, 9), (Fill, 7)].map(|(kind, word)| act(kind, word)).to_vec();
    let span = vec![
        VersionOp::Together(made),
        VersionOp::Together(crumbs),
        VersionOp::Reopen(false),
        VersionOp::Together(vec![act(WriteBack, 1)]),
    ];
    let back = vec![VersionOp::Together(acts.map(|(kind, word)| act(kind, word)).to_vec())];
    let mut all = vec![
        ("new span", calling().adjust(wide).script(span), config(1).point_budget(200).nested_budget(100).schedules(1)),
        ("back again", calling().script(back), config(1).point_budget(60)),
        ("calling, many", calling(), config(1).schedules(800).point_budget(2).depth(1).kills_at_flushes(0)),
    ];
    for seed in 1..6 {
        all.push(("calling", calling(), config(seed).point_budget(20).depth(1)));
        all.push((
            "calling, in a file",
            calling(),
            config(seed).point_budget(20).depth(1).model(Model::File { sector: 512 }),
        ));
        all.push(("calling, twice", calling(), config(seed).point_budget(8).nested_budget(16)));
    }
    all
}

/// Two threads.
fn crossed() -> Vec<missed::Workload<Crossed>> {
    let config = |seed| Config::seeded(seed).budget(3_000).point_budget(4).nested_budget(2).schedules(400).stretch(24);
    // Whole passes between two steps of a reader, which are rarely drawn.
    let overtaken = (0..6).flat_map(|_| {
        [(0, CrossedOp::Look(false)), (1, CrossedOp::Pair(Isolation::Snapshot)), (1, CrossedOp::WriteBack)]
    });
    let overtaken = Crossed::new("mvcc-2").script(overtaken.collect());
    let mut all = vec![("overtaken", overtaken, config(1).schedules(2_000).point_budget(1).nested_budget(1))];
    all.extend((1..9).map(|seed| ("crossed", Crossed::new("mvcc-2"), config(seed))));
    all
}

pub(crate) mod in_turns {
    use super::*;

    missed::steps! {
        FirstCommitter, Validate, BornLater, ChecksumNew, VerifyChecksum, VoidFirst, KFirst, WaitRunning, SaveMaster, NothingAboveK, WFirst, FreedStays, SkipBelowW,
        DecideFirst, CommitOrder, IntentOrder, HeaderStays, SeenStays,
    }

    pub(crate) fn each_step_is_missed_when_it_is_left_out() {
        missed::each_step(&alone(), STEPS, EveryVersion::adjust, &["panicked"]);
    }
}

mod with_calls {
    use super::*;

    // `RetireCopies` needs more room than is explored: in the tests of the crate.
    missed::steps! {
        CopyCalled, CopyWhole, FlushFilled, CopiesByK, CopiesInOrder, CallsBehindK,
    }

    #[test]
    fn each_step_is_missed_when_it_is_left_out() {
        missed::each_step(&calling(), STEPS, EveryVersion::adjust, &["panicked"]);
    }
}

mod crossing {
    use super::*;

    missed::steps! {
        SeatFirst, AnnounceFirst, WaitPreparing, PublishFirst,
    }

    #[test]
    fn each_step_is_missed_when_it_is_left_out() {
        missed::each_step(&crossed(), STEPS, Crossed::adjust, &["deadlock", "panicked"]);
    }
}

const REDUNDANT: &[missed::Redundant] = &[(
    "recovery.rs",
    "let persisted = core.pool.drain()?; // the decision",
    "both copies of the cell are equal when one thread alone was committing, and it has a barrier before it changes then, of its own accord",
)];

const UNREACHED: &[missed::Redundant] =
    &[("mvcc.rs", "pool.drain()?;", "the block of the root, when a store is made: no crash point")];

pub(crate) fn every_barrier_is_missed_when_it_is_gone() {
    let sources = missed::Sources { of: "mvcc/src", whole: "mvcc/src", redundant: REDUNDANT, unreached: UNREACHED };
    let quiet = |(name, subject, config): missed::Workload<EveryVersion>| {
        (name, subject, config.flushed_outlives(false).kills_at_flushes(0))
    };
    missed::each_barrier(&alone().into_iter().chain(calling()).map(quiet).collect::<Vec<_>>(), &sources);
}
