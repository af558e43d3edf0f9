//! `cairn bench kv` and the other experiments on stores of keys and values.

use bench::experiments::{KvOpen, KvRun, KvSpace, Midas, space as files};
use bench::kv_sides::Field;
use bench::{Row, Watch};

use super::{QUICK_KEYS, choose, measured_as, must_take_part, plan, print, print_place, restart_with};
use crate::args::{self, CompareStores};
use crate::commands::Outcome;
use crate::failure::Failure;
use crate::output::say;

pub fn run(args: &args::KvStores) -> Outcome {
    let mut what = KvRun { key_bytes: args.key_bytes, ..KvRun::default() };
    if args.compare.run.output.quick {
        (what.keys, what.value_bytes) = (vec![QUICK_KEYS], vec![1024]);
    }
    choose(&mut what.workloads, &args.workload);
    choose(&mut what.keys, &args.keys);
    choose(&mut what.value_bytes, &args.value_bytes);
    compare(&args.compare, print, |field, watch| what.measure(field, watch))
}

pub fn midas(args: &args::Midas) -> Outcome {
    let mut what = Midas { value_bytes: args.value_bytes, ..Midas::default() };
    choose(&mut what.scenarios, &args.scenario);
    choose(&mut what.isolations, &args.isolation);
    compare(&args.compare, print, |field, watch| what.measure(field, watch))
}

pub fn open(args: &args::KvOpen) -> Outcome {
    let mut what = KvOpen { key_bytes: args.key_bytes, value_bytes: args.value_bytes, ..KvOpen::default() };
    if args.compare.run.output.quick {
        what.keys = vec![QUICK_KEYS];
    }
    choose(&mut what.keys, &args.keys);
    compare(&args.compare, print, |field, watch| what.measure(field, watch))
}

pub fn space(args: &args::KvSpace) -> Outcome {
    let mut what = KvSpace { looks: args.looks, value_bytes: args.value_bytes, ..KvSpace::default() };
    if args.compare.run.output.quick {
        (what.keys, what.overwrites) = (1_000, 50_000);
    }
    what.keys = args.keys.unwrap_or(what.keys);
    what.overwrites = args.overwrites.unwrap_or(what.overwrites);
    let show = |rows: &[Row]| {
        say!("{}", files::table(rows))?;
        print_place(rows)
    };
    compare(&args.compare, show, |field, watch| what.measure(field, watch))
}

/// What all comparisons of stores have in common: who, where, and what becomes of the rows.
fn compare(
    args: &CompareStores,
    show: impl FnOnce(&[Row]) -> Result<(), Failure>,
    measure: impl FnOnce(&Field, &dyn Watch) -> bench::Result<Vec<Row>>,
) -> Outcome {
    let mut field = Field::here(plan(&args.run.output, &args.run.rounds));
    field.who = args.engine.iter().chain(&args.peer).copied().collect();
    field.threads.clone_from(&args.threads);
    (field.baseline, field.seed) = (args.baseline, args.seed);
    if let Some(dir) = &args.run.dir {
        field.dir.clone_from(dir);
    }
    must_take_part(args.baseline, &field.who, "--engine")?;
    restart_with(field.who.iter().map(|who| who.environment(&field.dir)))?;
    measured_as(show, &args.run.output, |watch| measure(&field, watch))
}
