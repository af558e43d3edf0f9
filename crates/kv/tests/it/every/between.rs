//! What is done with the store between the steps of its transactions.

use super::*;

impl Run<'_> {
    pub(super) fn between<'s>(&mut self, store: &'s Store, open: &mut Vec<Open<'s>>, feed: &mut Option<Changes<'s>>) {
        let actor = self.actor();
        let op = OPS[self.seed.below(OPS.len())];
        let (n, key) = self.key();
        let locked: BTreeSet<Key> = open.iter().flat_map(|one| one.locked.iter().cloned()).collect();
        let free = !locked.contains(&key);
        let (value, at) = (self.value(), self.expires());
        let had = self.model.live(&key).cloned();
        let bytes = had.as_ref().map(|value| value.bytes.clone());
        let put = |value: &[u8], expires| Change::from([(key.clone(), Some((value.to_vec(), expires)))]);
        let on = self.table.on(store);
        let mut touched = vec![key.clone()];
        match op {
            "Store::get" => assert_eq!(store.get(&key).unwrap(), bytes),
            "TableOn::get" => assert_eq!(on.get(&n).unwrap(), bytes),
            "Store::view" => assert_eq!(store.view(&key, |value| value.map(<[u8]>::to_vec)).unwrap(), bytes),
            "TableOn::view" => assert_eq!(on.view(&n, |value| value.map(<[u8]>::to_vec)).unwrap(), bytes),
            "Store::put" | "TableOn::put" if free => {
                let found = if op == "Store::put" { store.put(&key, &value) } else { on.put(&n, &value) };
                assert_eq!(found.unwrap(), had.is_some());
                self.model.commit(&put(&value, None));
            }
            "Store::put_until" | "TableOn::put_until" if free => {
                let found = if op == "Store::put_until" {
                    store.put_until(&key, &value, at)
                } else {
                    on.put_until(&n, &value, at)
                };
                assert_eq!(found.unwrap(), had.is_some());
                self.model.commit(&put(&value, Some(at)));
            }
            "Store::delete" | "TableOn::delete" if free => {
                let found = if op == "Store::delete" { store.delete(&key) } else { on.delete(&n) };
                assert_eq!(found.unwrap(), had.is_some());
                if self.model.state.contains_key(&key) {
                    self.model.commit(&Change::from([(key.clone(), None)]));
                }
            }
            "Store::compare_and_set" if free => {
                let expected = if self.seed.below(4) > 0 { bytes.clone() } else { Some(b"other".to_vec()) };
                let new = (self.seed.below(3) > 0).then_some(&value[..]);
                let done = store.compare_and_set(&key, expected.as_deref(), new).unwrap();
                assert_eq!(done, expected == bytes);
                if done && let Some(value) = new {
                    self.model.commit(&put(value, None));
                } else if done && self.model.state.contains_key(&key) {
                    self.model.commit(&Change::from([(key.clone(), None)]));
                }
            }
            "Store::write" if free => {
                let mut batch = Batch::new();
                batch.put(&key, b"").put_until(&key, &value, at);
                assert_eq!(batch.len(), 2);
                store.write(&batch).unwrap();
                self.model.commit(&put(&value, Some(at)));
            }
            "Store::load" if free => {
                assert_eq!(store.load([(&key, &value)]).unwrap().pairs, 1);
                self.model.commit(&put(&value, None));
            }
            "Store::loader" if free => {
                let mut loader = store.loader();
                loader.put(&key, &value, Some(FUTURE)).unwrap();
                assert_eq!(loader.loaded().pairs, 0);
                assert_eq!(loader.finish().unwrap().pairs, 1);
                self.model.commit(&put(&value, Some(FUTURE)));
            }
            "Store::transact" | "Store::transact_at" if free => {
                let body = |tx: &mut Transaction<'_>| {
                    let found = tx.get(&key)?.map(<[u8]>::to_vec);
                    tx.put(&key, &value)?;
                    Ok(found)
                };
                let found = match op {
                    "Store::transact" => store.transact(body),
                    _ => store.transact_at(Isolation::ALL[self.seed.below(3)], body),
                };
                assert_eq!(found.unwrap(), bytes);
                self.model.commit(&put(&value, None));
            }
            _ => {
                touched = self.all_keys();
                if !self.whole(op, store, open, feed, &locked) {
                    return;
                }
            }
        }
        self.note(op, actor, &touched);
    }

    /// Operations about all keys; false if it is none, or cannot be now.
    pub(super) fn whole<'s>(
        &mut self,
        op: &str,
        store: &'s Store,
        open: &mut [Open<'s>],
        feed: &mut Option<Changes<'s>>,
        locked: &BTreeSet<Key>,
    ) -> bool {
        let live = self.model.state.values().filter(|value| value.is_live()).count() as u64;
        match op {
            "Store::checkpoint" => store.checkpoint().unwrap(),
            "Store::scan" | "Store::prefix" => {
                let begin = if op == "Store::scan" { &b""[..] } else { b"t" };
                let live = self.model.state.iter().filter(|(key, value)| key.starts_with(begin) && value.is_live());
                let mut right: VecDeque<_> = live.map(|(key, value)| (key.clone(), value.bytes.clone())).collect();
                let mut found =
                    if op == "Store::scan" { store.scan(Keys::all()) } else { store.prefix(begin) }.unwrap();
                while !right.is_empty() {
                    let (shown, expected) = match self.seed.below(2) {
                        0 => (found.next(), right.pop_front()),
                        _ => (found.next_back(), right.pop_back()),
                    };
                    assert_eq!(shown.unwrap().unwrap(), expected.unwrap());
                }
                assert!(found.next().is_none() && found.next_back().is_none());
            }
            "Store::sync" => {
                store.sync().unwrap();
                assert_eq!(store.at_risk(), 0);
            }
            "Store::stats" => {
                let stats = store.stats();
                assert_eq!(stats.active, open.len() + usize::from(feed.is_some()));
                assert!(stats.entries >= self.model.state.len() as u64);
            }
            "Store::check" => {
                let checked = store.check(|_| ()).unwrap();
                assert!(checked.is_sound() && checked.keys == self.model.state.len() as u64, "{checked:?}");
            }
            "Store::drop_damaged" => assert!(store.drop_damaged().unwrap().is_empty()),
            "Store::sweep" => {
                let expired = self.model.state.iter().filter(|(key, value)| !value.is_live() && !locked.contains(*key));
                let change: Change = expired.map(|(key, _)| (key.clone(), None)).collect();
                assert_eq!(store.sweep().unwrap(), change.len() as u64);
                // In one transaction, or key by key where another transaction holds one of them.
                if self.model.state.iter().all(|(key, value)| value.is_live() || !locked.contains(key)) {
                    self.model.commit(&change);
                } else {
                    change.into_iter().for_each(|(key, value)| self.model.commit(&Change::from([(key, value)])));
                }
            }
            "Store::expire_before" => {
                drop(feed.take());
                let oldest = open.iter().map(|one| one.began).max();
                // Those that are not there yet, too: they do not concern a transaction that begins later.
                let others = [store.stats().now, u64::MAX.into()];
                let Some(limit) = others.into_iter().chain(oldest).nth(self.seed.below(3)) else {
                    *feed = Some(store.changes().unwrap());
                    self.model.untold.clear();
                    return false;
                };
                store.expire_before(limit);
                for one in open.iter_mut().filter(|one| one.began < limit) {
                    one.over = true;
                }
                *feed = Some(store.changes().unwrap());
                self.model.untold.clear();
            }
            "Store::backup" | "restore" => {
                let (to, again) = (self.copy(), self.copy());
                assert_eq!(store.backup(&to).unwrap().pairs, live);
                if op == "restore" {
                    assert_eq!(kv::restore(&to, &again, |_| ()).unwrap().pairs, live);
                }
                self.agree(&Options::new().open_read_only(if op == "restore" { &again } else { &to }).unwrap());
                [to, again].iter().for_each(|copy| drop(std::fs::remove_file(copy)));
            }
            "Changes::next" => self.told(feed.as_mut().unwrap()),
            _ => return false,
        }
        true
    }

    pub(super) fn copy(&mut self) -> PathBuf {
        self.copies += 1;
        self.dir.join(format!("copy{}", self.copies))
    }

    pub(super) fn reopen(&mut self, store: Store) -> Store {
        let at = self.dir.join("store");
        let actor = self.actor();
        let all = self.all_keys();
        if self.seed.below(2) == 0 {
            store.close().unwrap();
            self.note("Store::close", actor, &all);
            if self.seed.below(2) == 0 {
                let store = self.options.clone().open_read_only(&at).unwrap();
                self.agree(&store);
                store.close().unwrap();
                let actor = self.actor();
                self.note("Options::open_read_only", actor, &all);
            }
        } else {
            store.abandon();
        }
        let salvage = self.seed.below(2) == 0;
        let store = self.options.clone().salvage(salvage).open(&at).unwrap();
        let actor = self.actor();
        self.note(if salvage { "Options::salvage" } else { "Options::open" }, actor, &all);
        self.agree(&store);
        store
    }
}
