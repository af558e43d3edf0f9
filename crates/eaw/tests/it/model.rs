//! Against an ordinary vector of bytes.

use proptest::prelude::*;

use super::{create, members, options};

const BYTES: u64 = 1 << 18;

#[derive(Clone, Debug)]
enum Op {
    Write(u64, u64, u8),
    Edit(usize, u64, u8),
    Savepoint,
    Rollback(usize),
    Nested(usize),
    Read(u64, u64),
    Commit,
    Abort,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let range = || (0..BYTES, 1..100_000_u64).prop_map(|(at, len)| (at, len.min(BYTES - at)));
    prop_oneof![
        6 => (range(), any::<u8>()).prop_map(|((at, len), byte)| Op::Write(at, len, byte)),
        3 => (0..8_usize, 0..100_000_u64, any::<u8>()).prop_map(|(entry, at, byte)| Op::Edit(entry, at, byte)),
        1 => Just(Op::Savepoint),
        1 => (0..3_usize).prop_map(Op::Rollback),
        1 => (0..3_usize).prop_map(Op::Nested),
        2 => range().prop_map(|(at, len)| Op::Read(at, len)),
        3 => Just(Op::Commit),
        1 => Just(Op::Abort),
        1 => Just(Op::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// What a transaction sees is what it wrote over what is committed; what is committed is what is there.
    #[test]
    fn an_array_is_a_vector_of_bytes(
        ops in prop::collection::vec(op(), 1..60),
        memory in prop_oneof![Just(0_usize), Just(30_000), Just(1 << 20)],
        (late, slot) in prop_oneof![Just((false, 0)), Just((true, 8192)), Just((true, 0)), Just((false, 1024))],
    ) {
        let dir = tempfile::tempdir().unwrap();
        let options = options().stripe_bytes(4096).checksum_max(20_000).draft_max(memory).late(late).slot_bytes(slot);
        let mut array = create(dir.path(), &options);
        let mut committed = vec![0; BYTES as usize];
        let mut at = 0;
        while at < ops.len() {
            let file = array.file("pages").unwrap();
            let mut tx = array.begin().unwrap();
            // Entries: handle, offset, bytes; savepoints: handle, entries before it.
            let mut entries: Vec<(eaw::array::Entry, u64, Vec<u8>)> = Vec::new();
            let mut savepoints: Vec<(eaw::array::Savepoint, usize)> = Vec::new();
            let mut reopen = false;
            let with = |committed: &[u8], entries: &[(eaw::array::Entry, u64, Vec<u8>)]| {
                let mut bytes = committed.to_vec();
                entries.iter().for_each(|(_, at, new)| bytes[*at as usize..][..new.len()].copy_from_slice(new));
                bytes
            };
            let mut commits = false;
            while let Some(op) = ops.get(at) {
                at += 1;
                match op {
                    Op::Write(offset, len, byte) => {
                        let bytes = vec![*byte; *len as usize];
                        entries.push((tx.log_write(&file, *offset, &bytes).unwrap(), *offset, bytes));
                    }
                    Op::Edit(entry, offset, byte) => {
                        let count = entries.len().max(1);
                        if let Some((entry, _, bytes)) = entries.get_mut(entry % count) {
                            let offset = (*offset as usize) % bytes.len();
                            let end = bytes.len().min(offset + 5000);
                            bytes[offset..end].fill(*byte);
                            tx.edit(entry, offset as u64, &bytes[offset..end]).unwrap();
                        }
                    }
                    Op::Savepoint => savepoints.push((tx.savepoint(), entries.len())),
                    Op::Rollback(index) => {
                        if let Some((savepoint, count)) = savepoints.get(*index).copied() {
                            tx.rollback_to(savepoint).unwrap();
                            entries.truncate(count);
                            savepoints.truncate(index + 1);
                        }
                    }
                    Op::Nested(index) => {
                        if let Some((savepoint, count)) = savepoints.get(*index).copied() {
                            let (outer, inner) = entries.split_at(count);
                            let meets = |a: &(eaw::array::Entry, u64, Vec<u8>), b: &(eaw::array::Entry, u64, Vec<u8>)| {
                                a.1 < b.1 + b.2.len() as u64 && b.1 < a.1 + a.2.len() as u64
                            };
                            let refused = outer.iter().any(|a| inner.iter().any(|b| meets(a, b)));
                            let done = tx.nested_top(savepoint);
                            prop_assert_eq!(done.is_err(), refused);
                            if !refused {
                                committed = with(&committed, &entries[count..]);
                                entries.truncate(count);
                                savepoints.truncate(index + 1);
                            }
                        }
                    }
                    Op::Read(offset, len) => {
                        let (offset, len) = (*offset as usize, *len as usize);
                        let mut bytes = vec![0; len];
                        tx.read(&file, offset as u64, &mut bytes).unwrap();
                        prop_assert!(bytes == with(&committed, &entries)[offset..][..len], "a transaction's own view");
                        array.read(&file, offset as u64, &mut bytes).unwrap();
                        prop_assert!(bytes == committed[offset..][..len], "what is committed");
                    }
                    Op::Commit => {
                        commits = true;
                        break;
                    }
                    Op::Abort => break,
                    Op::Reopen => {
                        reopen = true;
                        break;
                    }
                }
            }
            if commits {
                committed = with(&committed, &entries);
                tx.commit().unwrap();
            } else {
                drop(tx);
            }
            if reopen {
                array.abandon();
                array = options.open(&members(dir.path())).unwrap();
                prop_assert!(array.recovered().lost.is_empty());
            }
        }
        let mut bytes = vec![0; BYTES as usize];
        array.read(&array.file("pages").unwrap(), 0, &mut bytes).unwrap();
        prop_assert!(bytes == committed, "what is there in the end");
    }
}
