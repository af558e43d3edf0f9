use std::collections::BTreeMap;

use super::*;

fn pool(dir: &tempfile::TempDir) -> Pmemobj {
    Pmemobj::create(&dir.path().join("peer"), 64 << 20).unwrap()
}

/// In memory: `msync` on a disk would take minutes.
fn temp() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// xorshift64.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Holds a map against the standard library's.
fn against_a_model(map: &Map, key_bytes: usize, steps: u64) {
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let (mut state, mut out) = (0x5eed, vec![0; 256]);
    for step in 0..steps {
        let mut key = vec![b'k'; key_bytes];
        key[key_bytes - 8..].copy_from_slice(&(random(&mut state) % 700).to_be_bytes());
        let value = vec![step as u8; [16, 16, 16, 48, 0][random(&mut state) as usize % 5]];
        match random(&mut state) % 16 {
            0..8 => {
                map.put(&key, &value).unwrap();
                model.insert(key, value);
            }
            8..11 => assert_eq!(map.delete(&key).unwrap(), model.remove(&key).is_some()),
            11 => {
                let there = map.read_modify_write(&key, &mut out, &value).unwrap();
                let old = model.get_mut(&key).map(|old| std::mem::replace(old, value.clone()));
                assert_eq!(there, old.is_some());
                if let Some(old) = old {
                    let common = old.len().min(value.len());
                    assert_eq!(out[..common], old[..common]);
                }
            }
            12 if map.is_ordered() => {
                let n = random(&mut state) as usize % 90;
                let wanted: Vec<_> = model.range(key.clone()..).take(n).collect();
                assert_eq!(map.scan(&key, n, &mut out).unwrap(), wanted.len());
                if let Some((_, last)) = wanted.last() {
                    assert_eq!(out[..last.len()], **last);
                }
            }
            _ => {
                let len = map.get(&key, &mut out).unwrap();
                assert_eq!(len.map(|len| &out[..len]), model.get(&key).map(Vec::as_slice));
            }
        }
    }
    for (key, value) in &model {
        assert_eq!(map.get(key, &mut out).unwrap(), Some(value.len()));
    }
}

#[test]
fn hash_map_against_a_model() {
    let dir = temp();
    against_a_model(&pool(&dir).hash(100).unwrap(), 24, 20_000);
}

#[test]
fn tree_against_a_model() {
    let dir = temp();
    let tree = pool(&dir).tree(24).unwrap();
    against_a_model(&tree, 24, 20_000);
    assert!(tree.put(b"short", b"value").is_err());
    assert!(pool_of_64_keys().is_err());
}

fn pool_of_64_keys() -> Result<Map> {
    pool(&temp()).tree(KEY_MAX + 1)
}

/// In order, so that every split is at the right edge, and several levels deep.
#[test]
fn a_tree_of_several_levels() {
    let dir = temp();
    let tree = pool(&dir).tree(8).unwrap();
    let mut out = [0; 8];
    for i in 0..40_000_u64 {
        tree.put(&i.to_be_bytes(), &i.to_le_bytes()).unwrap();
    }
    for i in 0..40_000_u64 {
        assert_eq!(tree.get(&i.to_be_bytes(), &mut out).unwrap(), Some(8));
        assert_eq!(out, i.to_le_bytes());
    }
    assert_eq!(tree.scan(&0_u64.to_be_bytes(), 50_000, &mut out).unwrap(), 40_000);
}

#[test]
fn objects_and_lists() {
    let dir = temp();
    let peer = pool(&dir);
    let mut objects = peer.objects(100, 64).unwrap();
    objects.overwrite(&[3, 99, 0], &[7; 64]).unwrap();
    assert_eq!((objects.read(99), objects.read(98)), (vec![7; 64], vec![0; 64]));

    let (mut list, mut other) = (peer.list().unwrap(), peer.list().unwrap());
    list.push(&[1; 120]).unwrap();
    list.push(&[2; 120]).unwrap();
    assert!(!other.pop().unwrap());
    assert!(list.pop().unwrap() && list.pop().unwrap() && !list.pop().unwrap());
    assert_eq!(std::iter::from_fn(|| peer.list()).count(), LISTS_MAX - 2);
}

#[test]
fn a_full_pool_says_so_and_goes_on() {
    let dir = temp();
    let peer = Pmemobj::create(&dir.path().join("peer"), 16 << 20).unwrap();
    let map = peer.hash(64).unwrap();
    let error = (0..20_000_u64).find_map(|i| map.put(&i.to_be_bytes(), &[1; 1024]).err()).unwrap();
    assert!(error.to_string().contains("libpmemobj"), "{error}");
    assert_eq!(map.get(&0_u64.to_be_bytes(), &mut [0; 1024]).unwrap(), Some(1024));
}

#[test]
fn pools_are_found_again_and_foreign_files_refused() {
    let dir = temp();
    let path = dir.path().join("peer");
    drop(Pmemobj::create(&path, 16 << 20).unwrap());
    drop(Pmemobj::open(&path).unwrap());
    let error = Pmemobj::open(&dir.path().join("none")).err().unwrap();
    assert!(error.to_string().contains("none"), "{error}");
}

/// Two threads on the same few keys: no reader sees half of a value.
#[test]
fn writers_are_alone() {
    for ordered in [false, true] {
        let dir = temp();
        let peer = pool(&dir);
        let map = if ordered { peer.tree(8) } else { peer.hash(16) }.unwrap();
        std::thread::scope(|scope| {
            for thread in 0..2_u8 {
                let map = &map;
                scope.spawn(move || {
                    let mut out = [0; 256];
                    for i in 0..5_000_u64 {
                        map.put(&(i % 5).to_be_bytes(), &[thread; 256]).unwrap();
                        let len = map.get(&(i % 5).to_be_bytes(), &mut out).unwrap().unwrap();
                        assert!(out[..len].iter().all(|byte| *byte == out[0]));
                    }
                });
            }
        });
    }
}

/// Money moves between accounts in both directions at once: none is lost, and no thread waits in a circle.
#[test]
fn several_steps_are_one() {
    let dir = temp();
    let path = dir.path().join("pool");
    {
        let pool = Pmemobj::create(&path, 32 << 20).unwrap();
        let map = pool.hash(64).unwrap();
        let pair = |a: &'static [u8], b: &'static [u8], value: &'static [u8]| [(a, Some(value)), (b, Some(value))];
        map.transact(pair(b"a", b"b", b"start").into_iter(), &mut []).unwrap();
        std::thread::scope(|scope| {
            for steps in [pair(b"a", b"b", b"first"), pair(b"b", b"a", b"other")] {
                let map = map.clone();
                scope.spawn(move || {
                    for _ in 0..500 {
                        map.transact(steps.into_iter(), &mut []).unwrap();
                    }
                });
            }
            for _ in 0..500 {
                let mut values = [[0; 5]; 2];
                let steps = |key: &'static [u8]| [(key, None)].into_iter();
                assert_eq!(map.transact(steps(b"a").chain(steps(b"b")), &mut values[0]).unwrap(), 2);
                map.get(b"a", &mut values[1]).unwrap();
                assert!(values.iter().all(|value| [b"start", b"first", b"other"].contains(&value)), "{values:?}");
            }
        });
        let mut both = [[0; 5]; 2];
        map.get(b"a", &mut both[0]).unwrap();
        map.get(b"b", &mut both[1]).unwrap();
        assert_eq!(both[0], both[1]);
        assert!(pool.opened_tree().is_err());
    }
    let pool = Pmemobj::open(&path).unwrap();
    assert!(pool.opened_hash().unwrap().get(b"a", &mut [0; 5]).unwrap().is_some());
}
