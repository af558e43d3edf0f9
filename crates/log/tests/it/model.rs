//! Random programs against a list.

use log::{Error, Lsn, Options};
use proptest::prelude::*;

use crate::basics::records;

#[derive(Clone, Debug)]
enum Op {
    Append(usize),
    Batch(Vec<usize>),
    CleanTo(usize),
    Clean(usize),
    Grow,
    Close,
    Crash,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0usize..300).prop_map(Op::Append),
        3 => prop::collection::vec(0usize..200, 1..5).prop_map(Op::Batch),
        2 => (0usize..20).prop_map(Op::CleanTo),
        2 => (0usize..20).prop_map(Op::Clean),
        1 => Just(Op::Grow),
        1 => Just(Op::Close),
        1 => Just(Op::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Records come back in order, whole, and none that is needed is missing.
    #[test]
    fn a_log_is_a_list(ops in prop::collection::vec(op(), 1..80), frequency in 1u32..5) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l");
        let options = Options::new().bytes(4096).segment_bytes(512).idle(None).frequency(frequency);
        let mut log = options.create(&path).unwrap();
        // All records ever, and whether each is discarded.
        let mut all: Vec<(Vec<u8>, bool)> = Vec::new();
        for op in ops {
            match op {
                Op::Append(len) => {
                    let payload = vec![all.len() as u8; len];
                    match log.append(&payload) {
                        Ok(lsn) => {
                            all.push((payload, false));
                            prop_assert_eq!(lsn.get(), all.len() as u64);
                        }
                        Err(Error::Full { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                Op::Batch(lens) => {
                    for len in lens {
                        match log.reserve(len) {
                            Ok(mut record) => {
                                record.fill(all.len() as u8);
                                all.push((record.to_vec(), false));
                                record.complete().unwrap();
                            }
                            Err(Error::Full { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    log.force_now(Lsn::new(all.len() as u64)).unwrap();
                }
                Op::CleanTo(back) => {
                    let to = log.forced().get().saturating_sub(back as u64);
                    log.truncate_to(Lsn::new(to)).unwrap();
                    all[..to as usize].iter_mut().for_each(|r| r.1 = true);
                }
                Op::Clean(back) => {
                    let lsn = log.forced().get().saturating_sub(back as u64);
                    if lsn > 0 {
                        log.discard(Lsn::new(lsn)).unwrap();
                        all[lsn as usize - 1].1 = true;
                    }
                }
                Op::Grow => match log.grow(1) {
                    Ok(_) | Err(Error::GrownTooOften { .. }) => {}
                    Err(error) => panic!("{error}"),
                },
                Op::Close => {
                    log.close().unwrap();
                    log = options.open(&path).unwrap().0;
                }
                Op::Crash => {
                    log.force_now(Lsn::new(all.len() as u64)).unwrap();
                    log.abandon();
                    log = options.open(&path).unwrap().0;
                }
            }
            let forced = log.forced().get() as usize;
            let needed = all[..forced].iter().position(|r| !r.1).unwrap_or(forced);
            let found = records(&log);
            prop_assert!(found.len() >= forced - needed, "{} of {}", found.len(), forced - needed);
            for (back, (lsn, payload)) in found.iter().rev().enumerate() {
                prop_assert_eq!(*lsn as usize, forced - back);
                prop_assert_eq!(payload, &all[forced - back - 1].0);
            }
        }
    }
}
