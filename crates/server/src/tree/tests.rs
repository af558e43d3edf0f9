use std::cell::Cell;
use std::ops::ControlFlow;

use tx::Keys;

use super::*;
use crate::engine::Tx;

thread_local! {
    static CLOCK: Cell<u64> = const { Cell::new(0) };
}

fn small() -> Options {
    Options::new().bytes(1 << 20).slots(4).pool(pmem::Options::new().domain(pmem::DomainChoice::Emulated))
}

/// A tree whose clock is the test's.
fn open(path: &Path) -> Tree {
    let mut tree = Tree::open_or_create(path, &small()).unwrap();
    tree.clock = || CLOCK.get();
    tree
}

fn fresh() -> (tempfile::TempDir, Tree) {
    CLOCK.set(1000);
    let dir = tempfile::tempdir().unwrap();
    let tree = open(&dir.path().join("tree"));
    (dir, tree)
}

fn read<T>(tree: &Tree, mut look: impl FnMut(&dyn Tx) -> Result<T>) -> T {
    let mut found = None;
    tree.read(&mut |tx| {
        found = Some(look(tx)?);
        Ok(())
    })
    .unwrap();
    found.unwrap()
}

fn get(tree: &Tree, key: &[u8]) -> Option<Vec<u8>> {
    read(tree, |tx| Ok(tx.get(key)?.map(<[u8]>::to_vec)))
}

fn put(tree: &Tree, key: &[u8], value: &[u8], expires: Option<u64>) {
    tree.write(&mut |tx| tx.put(key, value, expires)).unwrap();
}

fn keys(tree: &Tree, keys: &Keys) -> Vec<Vec<u8>> {
    read(tree, |tx| {
        let mut found = Vec::new();
        tx.scan(keys.clone(), &mut |key, _| {
            found.push(key.to_vec());
            ControlFlow::Continue(())
        })?;
        Ok(found)
    })
}

#[test]
fn what_has_expired_is_not_there() {
    let (_dir, tree) = fresh();
    put(&tree, b"a", b"1", Some(2000));
    put(&tree, b"b", b"2", None);
    put(&tree, b"c", b"3", Some(0));
    assert_eq!((get(&tree, b"a"), get(&tree, b"c")), (Some(b"1".to_vec()), None));
    assert_eq!(read(&tree, |tx| tx.expires(b"a")), Some(2000));
    assert_eq!(read(&tree, |tx| tx.expires(b"b")), None);
    CLOCK.set(1999);
    assert_eq!(keys(&tree, &Keys::all()), [b"a", b"b"]);
    CLOCK.set(2000);
    assert_eq!(get(&tree, b"a"), None);
    assert_eq!(read(&tree, |tx| Ok((tx.expires(b"a")?, tx.version(b"a")?))), (None, None));
    assert_eq!(keys(&tree, &Keys::all()), [b"b"]);
    tree.write(&mut |tx| {
        // All of a transaction sees one moment.
        tx.put(b"d", b"4", Some(2500))?;
        CLOCK.set(3000);
        assert!(!tx.delete(b"a")? && tx.delete(b"b")? && tx.get(b"d")?.is_some());
        Ok(())
    })
    .unwrap();
    assert_eq!(keys(&tree, &Keys::all()), [b""; 0]);
    put(&tree, b"d", b"5", None);
    assert_eq!(get(&tree, b"d"), Some(b"5".to_vec()));
}

#[test]
fn versions_are_those_of_commits() {
    let (_dir, tree) = fresh();
    let version = |key: &[u8]| read(&tree, |tx| tx.version(key));
    assert_eq!(version(b"a"), None);
    put(&tree, b"a", b"1", None);
    put(&tree, b"b", b"1", None);
    let (a, b) = (version(b"a"), version(b"b"));
    assert!(a.is_some() && b.is_some() && a != b && version(b"a") == a);
    tree.write(&mut |tx| {
        assert_eq!(tx.version(b"a")?, a);
        tx.put(b"a", b"1", None)?;
        assert_eq!((tx.version(b"a")?, tx.version(b"b")?), (None, b));
        tx.delete(b"b")?;
        assert_eq!(tx.version(b"b")?, None);
        Ok(())
    })
    .unwrap();
    assert!(version(b"a").is_some_and(|now| Some(now) != a) && version(b"b").is_none());
    // One that fails leaves all as it was.
    let a = version(b"a");
    let failed = tree.write(&mut |tx| {
        tx.put(b"a", b"2", None)?;
        Err(Error::Other("no".to_owned()))
    });
    assert_eq!(failed, Err(Error::Other("no".to_owned())));
    assert_eq!((version(b"a"), get(&tree, b"a")), (a, Some(b"1".to_vec())));
}

#[test]
fn scans_keep_to_their_bounds() {
    let (_dir, tree) = fresh();
    tree.write(&mut |tx| {
        (0..500u32).try_for_each(|n| {
            let expires = if n % 3 == 0 { Some(500) } else { None };
            tx.put(format!("k{n:03}").as_bytes(), &n.to_le_bytes(), expires)
        })
    })
    .unwrap();
    let expected = |range: std::ops::Range<u32>| -> Vec<Vec<u8>> {
        range.filter(|n| n % 3 != 0).map(|n| format!("k{n:03}").into_bytes()).collect()
    };
    assert_eq!(keys(&tree, &Keys::all()), expected(0..500));
    assert_eq!(keys(&tree, &Keys::prefix(b"k12")), expected(120..130));
    assert_eq!(keys(&tree, &Keys::from(b"k490")), expected(490..500));
    let mut reversed = keys(&tree, &Keys::from(b"k100").until(b"k200").reverse());
    reversed.reverse();
    assert_eq!(reversed, expected(100..200));
    let mut some = 0;
    read(&tree, |tx| {
        some = 0;
        tx.scan(Keys::all(), &mut |_, _| {
            some += 1;
            if some < 7 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    });
    assert_eq!(some, 7);
}

#[test]
fn a_sweep_removes_what_has_expired_and_nothing_else() {
    let (_dir, tree) = fresh();
    for some in (0..3000u32).collect::<Vec<_>>().chunks(100) {
        tree.write(&mut |tx| {
            some.iter().try_for_each(|n| {
                let expires = [None, Some(2000), Some(9000)][*n as usize % 3];
                tx.put(format!("k{n:04}").as_bytes(), b"x", expires)
            })
        })
        .unwrap();
    }
    let swept = |now| (0..4).filter(|_| tree.sweep(now).unwrap()).count();
    assert_eq!((swept(1999), tree.counts().entries), (0, 3000));
    assert_eq!((swept(2000), tree.counts().entries), (3, 2000));
    CLOCK.set(2000);
    assert_eq!(keys(&tree, &Keys::all()).len(), 2000);
    assert_eq!(swept(9000), 3, "a pass of 2000 is three calls");
    assert_eq!(tree.counts().entries, 1000);
    // When nothing expires any more, no pass looks.
    (0..4).for_each(|_| drop(tree.sweep(9000)));
    let looks = tree.heap.stats().read_only;
    assert!(!tree.sweep(9000).unwrap() && tree.heap.stats().read_only == looks);
    put(&tree, b"k", b"x", Some(9500));
    assert!((0..4).any(|_| tree.sweep(9500).unwrap()));
    assert_eq!(tree.counts().entries, 1000);
}

#[test]
fn all_is_there_again() {
    let (dir, tree) = fresh();
    let path = dir.path().join("tree");
    put(&tree, b"a", b"1", Some(2000));
    put(&tree, b"b", &[7; 5000], None);
    let version = read(&tree, |tx| tx.version(b"b"));
    Box::new(tree).close().unwrap();
    let tree = open(&path);
    assert_eq!((get(&tree, b"a"), get(&tree, b"b")), (Some(b"1".to_vec()), Some(vec![7; 5000])));
    assert_eq!((read(&tree, |tx| tx.version(b"b")), tree.counts().entries), (version, 2));
    put(&tree, b"b", b"new", None);
    assert!(read(&tree, |tx| tx.version(b"b")) > version);
    tree.heap.abandon(); // not closed
    let tree = open(&path);
    assert_eq!((get(&tree, b"a"), get(&tree, b"b")), (Some(b"1".to_vec()), Some(b"new".to_vec())));
    CLOCK.set(2000);
    assert_eq!(get(&tree, b"a"), None);
}

#[test]
fn what_is_no_tree_is_refused() {
    CLOCK.set(1000);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other");
    let refused = |why: &str| match Tree::open_or_create(&path, &small()) {
        Err(error) => assert!(error.to_string().contains(why), "{error}"),
        Ok(tree) => panic!("{tree:?}"),
    };
    let engine = || engine_of(&path, &pmem::Options::new()).unwrap();
    assert_eq!(engine(), None);

    kv::Options::new().create(&path).unwrap().abandon(); // not closed
    assert_eq!(engine().as_deref(), Some("kv"));
    refused("holds a store of engine kv");
    assert_eq!(kv::Options::new().open(&path).unwrap().get(b"a").unwrap(), None, "it was left alone");
    fs::remove_file(&path).unwrap();

    Heap::create(&path, &heap::Options::new().bytes(1 << 20)).unwrap().close().unwrap();
    assert_eq!(engine().as_deref(), Some(""));
    refused("no tree of engine heap");
    fs::remove_file(&path).unwrap();

    let heap = Heap::create(&path, &small().heap()).unwrap();
    heap.close().unwrap();
    refused("has no tree");
    let heap = Heap::open(&path, &small().heap()).unwrap();
    heap.transact(Isolation::Serializable, |tx| {
        let other = tx.alloc(&7u64)?;
        tx.set_root(other)
    })
    .unwrap();
    heap.close().unwrap();
    refused("root type");
    fs::remove_file(&path).unwrap();

    // What a crash has left of one that was being made is made anew.
    let making = dir.path().join("other.making");
    Heap::create(&making, &small().heap()).unwrap().abandon();
    let tree = open(&path);
    assert_eq!((get(&tree, b"a"), making.exists()), (None, false));
    assert_eq!(engine_of(&path, &pmem::Options::new()).err().map(|_| ()), Some(()), "somebody has it");
    drop(tree);
    assert_eq!(engine().as_deref(), Some("heap"));
    let refused = kv::Options::new().open(&path).unwrap_err().to_string();
    assert!(refused.contains("heap") && refused.contains("kv"), "{refused}");
    // Something else of that name is not touched.
    fs::remove_file(&path).unwrap();
    fs::write(&making, "mine").unwrap();
    assert!(Tree::open_or_create(&path, &small()).is_err());
    assert_eq!(fs::read(&making).unwrap(), b"mine");
}

#[test]
fn one_inside_another_is_refused() {
    let (_dir, tree) = fresh();
    tree.write(&mut |tx| {
        tx.put(b"a", b"1", None)?;
        assert!(tree.read(&mut |_| Ok(())).is_err() && tree.write(&mut |_| Ok(())).is_err());
        Ok(())
    })
    .unwrap();
    assert_eq!(get(&tree, b"a"), Some(b"1".to_vec()));
    assert!(tree.read(&mut |tx| tx.put(b"a", b"2", None)).is_err());
    // Neither does an error that is ignored.
    let ignored = tree.write(&mut |tx| {
        tx.put(b"a", b"2", None)?;
        drop(tx.put(&[0; KEY_MAX + 1], b"", None));
        Ok(())
    });
    assert!(matches!(ignored, Err(Error::Limit(why)) if why.contains("2001 is more than 2000")));
    assert_eq!(get(&tree, b"a"), Some(b"1".to_vec()));
}

#[test]
fn more_threads_than_slots_get_their_turn() {
    let (_dir, tree) = fresh();
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                for _ in 0..25 {
                    tree.write(&mut |tx| {
                        let count = tx.get(b"count")?.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
                        tx.put(b"count", &(count + 1).to_le_bytes(), None)
                    })
                    .unwrap();
                }
            });
        }
    });
    assert_eq!(get(&tree, b"count"), Some(1000u64.to_le_bytes().to_vec()));
}
