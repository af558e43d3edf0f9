//! The steps of a transaction, and its end.

use std::collections::BTreeSet;

use super::*;

impl Run<'_> {
    // ---- steps of transactions -----------------------------------------------------------------------------------

    pub(super) fn step<'s>(&mut self, mut one: Open<'s>, others: &BTreeSet<Key>) -> Option<Open<'s>> {
        let actor = one.actor;
        if let Some(snapshot) = &one.snapshot {
            let op = [
                "Snapshot::get",
                "Snapshot::scan",
                "Snapshot::expires",
                "Snapshot::backup",
                "drop",
                "Table::get",
                "Table::scan",
                "Table::range",
                "Table::prefix",
            ][self.seed.below(9)];
            let (n, key) = self.key();
            let (numbers, range) = self.range();
            let result = match op {
                "Snapshot::get" => snapshot
                    .get(&key)
                    .map(|value| assert_eq!(value.map(<[u8]>::to_vec), one.sees(&key).map(|seen| seen.0))),
                "Snapshot::expires" => {
                    snapshot.expires(&key).map(|at| assert_eq!(at, one.sees(&key).and_then(|seen| seen.1)))
                }
                "Table::get" => self
                    .table
                    .get(snapshot, &n)
                    .map(|value| assert_eq!(value.map(<[u8]>::to_vec), one.sees(&key).map(|seen| seen.0))),
                "Snapshot::scan" => {
                    pairs(snapshot.scan(keys(&range, false))).map(|found| assert_eq!(found, one.sees_in(&range)))
                }
                "Table::scan" | "Table::range" | "Table::prefix" => {
                    let entries = match op {
                        "Table::scan" => self.table.scan(snapshot),
                        "Table::range" => self.table.range(snapshot, numbers.clone()),
                        _ => self.table.prefix(snapshot, &(n.0,)),
                    };
                    let found: kv::Result<Vec<_>> =
                        entries.map(|entry| entry.map(|(n, value)| (self.table.raw_key(&n), value.to_vec()))).collect();
                    let wanted: Vec<_> = match op {
                        "Table::scan" => one.sees_in(&(b"t\0".to_vec(), b"t\x01".to_vec())),
                        "Table::range" => one.sees_in(&range),
                        _ => one.sees_in(&self.like(n)),
                    };
                    found.map(|found| assert_eq!(found, wanted))
                }
                "Snapshot::backup" => {
                    let to = self.copy();
                    let result = snapshot
                        .backup(&to, |_| ())
                        .map(|backup| assert_eq!(backup.pairs, one.sees_in(&(vec![0], vec![255])).len() as u64));
                    std::fs::remove_file(&to).ok();
                    result
                }
                _ => Ok(()),
            };
            let touched = match op {
                "Snapshot::get" | "Snapshot::expires" | "Table::get" => vec![key],
                "Table::prefix" => self.within(&self.like(n)),
                "Snapshot::scan" | "Table::range" => self.within(&range),
                _ => self.all_keys(),
            };
            assert_eq!(result.is_err(), one.over && op != "drop", "{op}: {result:?}");
            self.note(op, actor, &touched);
            return (op != "drop").then_some(one);
        }
        let op = [
            "Transaction::get",
            "Transaction::prefetch",
            "Transaction::scan",
            "Transaction::put",
            "Transaction::put_until",
            "Transaction::delete",
            "Transaction::delete_range",
            "Transaction::expires",
            "Transaction::version",
            "Transaction::commit",
            "Transaction::commit_async",
            "Transaction::commit_async_told",
            "Transaction::abort",
            "drop",
            "Table::get",
            "Table::scan",
            "Table::range",
            "Table::prefix",
            "Table::put",
            "Table::put_until",
            "Table::delete",
            "Table::delete_range",
            "Scan::expires",
            "Transaction::put",
            "Transaction::get",
            "Transaction::commit",
        ][self.seed.below(26)];
        if op.starts_with("Transaction::commit") || matches!(op, "Transaction::abort" | "drop") {
            self.end(one, op);
            return None;
        }
        let (n, key) = self.key();
        let (numbers, range) = self.range();
        let mut tx = one.tx.take().unwrap();
        let (value, at) = (self.value(), self.expires());
        let mut touched = vec![key.clone()];
        // Whether it failed, and whether it was to.
        let (failed, conflict) = match op {
            "Transaction::get" | "Table::get" => {
                let found = if op == "Table::get" { self.table.get(&tx, &n) } else { tx.get(&key) };
                let found = found.map(|value| value.map(<[u8]>::to_vec));
                if let (Ok(found), false) = (&found, one.over) {
                    assert_eq!(*found, one.sees(&key).map(|seen| seen.0));
                    one.reads(&key);
                }
                (found.err(), false)
            }
            "Transaction::expires" => {
                let found = tx.expires(&key);
                if let (Ok(found), false) = (&found, one.over) {
                    assert_eq!(*found, one.sees(&key).and_then(|seen| seen.1));
                    one.reads(&key);
                }
                (found.err(), false)
            }
            "Transaction::version" => {
                let found = tx.version(&key);
                if let (Ok(found), false) = (&found, one.over) {
                    let committed = !one.own.contains_key(&key) && one.sees(&key).is_some();
                    assert_eq!(found.is_some(), committed);
                    assert!(found.is_none_or(|at| at <= one.began));
                    one.reads(&key);
                }
                (found.err(), false)
            }
            "Transaction::prefetch" => {
                tx.prefetch(&[&key]);
                (one.over.then_some(Error::Doomed { first: String::new() }), false)
            }
            "Transaction::scan" | "Scan::expires" | "Table::scan" | "Table::range" | "Table::prefix" => {
                let reverse = op == "Transaction::scan" && self.seed.below(2) == 0;
                let range = match op {
                    "Table::scan" => (b"t\0".to_vec(), b"t\x01".to_vec()),
                    "Table::prefix" => self.like(n),
                    _ => range,
                };
                let found: kv::Result<Vec<_>> = match op {
                    "Transaction::scan" => pairs(tx.scan(keys(&range, reverse))),
                    "Scan::expires" => {
                        let mut scan = tx.scan(keys(&range, false));
                        let mut found = Vec::new();
                        loop {
                            match scan.next() {
                                None => break Ok(found),
                                Some(Err(error)) => break Err(error),
                                Some(Ok((key, value))) => {
                                    let (key, value) = (key.to_vec(), value.to_vec());
                                    assert_eq!(scan.expires(), one.sees(&key).and_then(|seen| seen.1));
                                    found.push((key, value));
                                }
                            }
                        }
                    }
                    _ => {
                        let entries = match op {
                            "Table::scan" => self.table.scan(&tx),
                            "Table::range" => self.table.range(&tx, numbers),
                            _ => self.table.prefix(&tx, &(n.0,)),
                        };
                        entries.map(|entry| entry.map(|(n, value)| (self.table.raw_key(&n), value.to_vec()))).collect()
                    }
                };
                touched = self.within(&range);
                if let (Ok(found), false) = (&found, one.over) {
                    let mut wanted = one.sees_in(&range);
                    if reverse {
                        wanted.reverse();
                    }
                    assert_eq!(*found, wanted);
                    if one.level > Isolation::Snapshot {
                        one.scans.push(range);
                    }
                }
                (found.err(), false)
            }
            "Transaction::delete_range" | "Table::delete_range" => {
                let found = if op == "Table::delete_range" {
                    self.table.delete_range(&mut tx, numbers)
                } else {
                    tx.delete_range(keys(&range, false))
                };
                touched = self.within(&range);
                if one.over {
                    (found.err(), false)
                } else {
                    let doomed = one.sees_in(&range);
                    if one.level > Isolation::Snapshot {
                        one.scans.push(range);
                    }
                    let all =
                        doomed.iter().try_for_each(|(key, _)| one.writes(key, None, &self.model, others).map(drop));
                    if let Ok(count) = found {
                        assert_eq!(count, doomed.len() as u64);
                    }
                    (found.err(), all.is_none())
                }
            }
            _ => {
                let found = match op {
                    "Transaction::put" => tx.put(&key, &value),
                    "Transaction::put_until" => tx.put_until(&key, &value, at),
                    "Transaction::delete" => tx.delete(&key),
                    "Table::put" => self.table.put(&mut tx, &n, &value),
                    "Table::put_until" => self.table.put_until(&mut tx, &n, &value, at),
                    _ => self.table.delete(&mut tx, &n),
                };
                if one.over {
                    (found.err(), false)
                } else {
                    let written = match op {
                        "Transaction::put" | "Table::put" => Some((value, None)),
                        "Transaction::put_until" | "Table::put_until" => Some((value, Some(at))),
                        _ => None,
                    };
                    let had = one.writes(&key, written, &self.model, others);
                    if let Ok(found) = found {
                        assert_eq!(Some(found), had, "{op}");
                    }
                    (found.err(), had.is_none())
                }
            }
        };
        assert_eq!(failed.is_some(), conflict || one.over, "{op}: {failed:?}");
        assert!(!conflict || failed.is_some_and(|error| error.is_conflict()));
        one.over |= conflict;
        one.tx = Some(tx);
        self.note(op, actor, &touched);
        Some(one)
    }

    pub(super) fn end(&mut self, mut one: Open<'_>, op: &str) {
        let touched: BTreeSet<Key> = one.own.keys().chain(&one.reads).chain(&one.locked).cloned().collect();
        let touched: Vec<_> = touched.into_iter().collect();
        let Some(tx) = one.tx.take() else { return };
        match op {
            "Transaction::commit" | "Transaction::commit_async" | "Transaction::commit_async_told" => {
                let result = match op {
                    "Transaction::commit" => tx.commit(),
                    "Transaction::commit_async" => tx.commit_async().wait(),
                    _ => tx.commit_async_told(|_| ()).wait(),
                };
                let fails = one.over || !one.own.is_empty() && !one.is_valid(&self.model);
                assert_eq!(result.is_err(), fails, "{op}: {result:?}");
                if !fails {
                    self.model.commit(&one.own);
                } else if !one.over {
                    assert!(result.is_err_and(|error| error.is_conflict()));
                }
            }
            "Transaction::abort" => tx.abort(),
            _ => drop(tx),
        }
        self.note(op, one.actor, &touched);
    }

    // ---- operations of the store ---------------------------------------------------------------------------------
}
