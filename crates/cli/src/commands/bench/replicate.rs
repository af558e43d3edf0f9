//! `cairn bench log-replicate` and `cairn bench log-takeover`.

use bench::Row;
use bench::experiments::log_replicate::verdicts;
use bench::experiments::{LogReplicate, LogTakeover, RocksdbWal, Transport};

use super::{choose, measured, measured_as, plan, print};
use crate::args;
use crate::commands::Outcome;
use crate::output::say;

pub fn replicate(args: &args::LogReplicate) -> Outcome {
    let mut what = LogReplicate::here(plan(&args.run.output, &args.run.rounds));
    if args.run.output.quick {
        (what.bytes, what.transports) = (vec![64, 1024], vec![Transport::Tcp]);
    }
    choose(&mut what.backups, &args.backups);
    choose(&mut what.ways, &args.policy);
    choose(&mut what.orders, &args.order);
    choose(&mut what.placements, &args.copies);
    choose(&mut what.transports, &args.transport);
    choose(&mut what.bytes, &args.bytes);
    choose(&mut what.threads, &args.threads);
    what.room = args.room;
    if let Some(dir) = &args.run.dir {
        what.dir.clone_from(dir);
    }
    let show = |rows: &[Row]| {
        print(rows)?;
        verdicts(rows).iter().try_for_each(|verdict| say!("{verdict}"))
    };
    measured_as(show, &args.run.output, |watch| what.measure(watch))
}

pub fn takeover(args: &args::LogTakeover) -> Outcome {
    let mut what = LogTakeover::here(plan(&args.run.output, &args.run.rounds));
    if args.run.output.quick {
        what.live = vec![2 << 20, 8 << 20];
    }
    choose(&mut what.live, &args.live);
    what.backups = args.backups;
    if let Some(dir) = &args.run.dir {
        what.dir.clone_from(dir);
    }
    measured(&args.run.output, |watch| what.measure(watch))
}

pub fn rocksdb_wal(args: &args::RocksdbWal) -> Outcome {
    let mut what = RocksdbWal::here(plan(&args.run.output, &args.run.rounds));
    if args.run.output.quick {
        (what.threads, what.log_bytes, what.warm_bytes) = (vec![1], 64 << 20, 8 << 20);
    }
    choose(&mut what.value_bytes, &args.value_bytes);
    choose(&mut what.threads, &args.threads);
    if let Some(dir) = &args.run.dir {
        what.dir.clone_from(dir);
    }
    measured(&args.run.output, |watch| what.measure(watch))
}
