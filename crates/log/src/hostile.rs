//! Superlines and records that verify and make no sense: as written by an attacker who knows the keys, or by a bug.

use proptest::prelude::*;

use crate::core::key;
use crate::front::Front;
use crate::raw::{Claim, bytes_mut};
use crate::record::{Header, Kind};
use crate::superline::Superline;
use crate::{Log, Options};

fn options() -> Options {
    Options::new().bytes(4096).segment_bytes(512).idle(None)
}

fn pool(dir: &tempfile::TempDir) -> pmem::Pool {
    let pool = pmem::Options::new().size(64 << 10).create(dir.path().join("p")).expect("pool");
    let log = options().create_in(&pool, "l").expect("log");
    (0..30u8).for_each(|n| {
        let lsn = log.append(&[n; 70]).expect("append");
        log.truncate_to(crate::Lsn(lsn.get().saturating_sub(4))).expect("durable");
    });
    pool
}

/// Reads all there is, and appends: whatever the log says of itself, nothing may panic, and nothing may take for ever.
fn use_it(log: &Log) {
    let mut records = log.iter();
    while let Ok(Some(record)) = records.next() {
        assert!(record.payload.len() <= 512);
    }
    drop(records);
    for _ in 0..3 {
        if log.append(&[1; 100]).is_err() {
            break;
        }
    }
    let _ = log.truncate_to(log.forced());
    let _ = log.reclaim();
    let _ = log.grow(512);
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..4,
        Just(512),
        Just(u64::MAX),
        Just(1 << 61),
        0u64..20_000,
        any::<u64>(),
        (0u32..64).prop_map(|b| 1 << b)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn superlines_that_verify(changes in prop::collection::vec((0usize..14, number()), 1..4)) {
        let dir = tempfile::tempdir_in("/dev/shm").expect("dir");
        let pool = pool(&dir);
        {
            let parts = Front::Two.split(pool.region("l").expect("region")).expect("pages");
            let (mut cell, _) = Front::Two.open::<Superline>(parts.superline).expect("cell");
            let mut s = cell.get();
            for (field, value) in changes {
                match field {
                    0 => s.magic = value,
                    1 => s.version = value as u32,
                    2 => s.epoch = value as u32,
                    3 => s.id = value,
                    4 => s.segment_bytes = value,
                    5 => s.head_lsn = value,
                    6 => s.head_position = value,
                    7 => s.head_epoch = value as u32,
                    8 => s.closed = value as u32,
                    9 => s.tail_lsn = value,
                    10 => s.tail_position = value,
                    11 => s.growth_count = value,
                    12 => s.growths[value as usize % 16][0] = value,
                    _ => s.growths[value as usize % 3][1] = value,
                }
            }
            cell.update_mirrored(&s).expect("update");
        }
        match options().open_in(&pool, "l") {
            Ok((log, _)) => use_it(&log),
            Err(error) => prop_assert!(error.to_string().len() > 20),
        }
    }

    #[test]
    fn records_that_verify(records in prop::collection::vec(
        (0u64..4096 / 8, number(), any::<u16>(), number(), 0u32..4, number(), any::<bool>()), 1..6,
    )) {
        let dir = tempfile::tempdir_in("/dev/shm").expect("dir");
        let pool = pool(&dir);
        {
            let parts = Front::Two.split(pool.region("l").expect("region")).expect("pages");
            let region = parts.region;
            let superline = Front::Two.open::<Superline>(parts.superline).expect("cell").0.get();
            let first = region.areas()[0].offset();
            let key = key(&pool, first - Front::Two.bytes(), &superline);
            for (word, lsn, forced_back, epoch, kind, len, to_line) in records {
                let kind = [Kind::Data, Kind::Skipped, Kind::Watermark, Kind::Data][kind as usize];
                let lsn = if lsn == 0 { 1 } else if lsn < 20_000 { lsn % 40 + 1 } else { lsn };
                let header = Header { lsn, forced_back, epoch: epoch as u32, kind, len: len as u32 & 0xfff_ffff, to_line };
                let offset = first + word * 8;
                let payload = (len as usize).min((first + 4096 - offset) as usize).saturating_sub(24);
                let checksum = key.sum(&pool_bytes(&pool, offset + 24, payload));
                if offset + 24 <= first + 4096 {
                    let bytes = header.encode(&key, checksum);
                    bytes_mut(Claim::Opening, &pool, &pool, offset, 24).expect("in bounds").copy_from_slice(&bytes);
                }
            }
        }
        match options().open_in(&pool, "l") {
            Ok((log, _)) => use_it(&log),
            Err(error) => prop_assert!(error.to_string().len() > 20),
        }
    }
}

fn pool_bytes(pool: &pmem::Pool, offset: u64, len: usize) -> Vec<u8> {
    crate::raw::bytes(Claim::Opening, pool, pool, offset, len as u64).map(<[u8]>::to_vec).unwrap_or_default()
}
