//! `cairn convert`, and what `create`, `info`, `check`, `scrub` and `backup` say of pools whose objects have gone from engine to engine.

use std::fs;
use std::path::Path;

use heap::{Heap, Policy};
use mvcc::Mvcc;
use structures::{BTree, BTreeOptions, Map};
use tx::{Engine, Isolation, Typed};

use super::{cairn, temp};

fn fill(engine: &impl Engine) {
    let made = engine.transact(Isolation::Serializable, |tx| -> tx::Result<()> {
        let tree = BTree::create(tx, &BTreeOptions::new())?;
        tx.set_root(tree.root())?;
        (0..100u64).try_for_each(|n| tree.put(tx, &n.to_be_bytes(), b"value").map(drop))
    });
    made.unwrap();
}

fn heap(dir: &Path, policy: Policy) -> Heap {
    let options = heap::Options::new().policy(policy).bytes(1 << 20).slots(4).coordinator(false);
    let heap = Heap::create(dir.join("p"), &options).unwrap();
    fill(&heap);
    heap
}

/// The engine, as `cairn info` says, and that `cairn check` finds all pairs.
fn is_whole(dir: &Path, engine: &str) {
    let info = cairn(dir, "info p --json");
    assert_eq!((info.code, info.json()["objects"]["engine"].as_str()), (0, Some(engine)), "{info:?}");
    assert!(cairn(dir, "info p").out.contains(&format!("objects     {engine}: ")), "{info:?}");
    let run = cairn(dir, "check p");
    assert!(run.code == 0 && run.out.contains("100 pairs"), "{run:?}");
}

#[test]
fn objects_go_to_each_engine_and_back() {
    let dir = temp();
    heap(dir.path(), Policy::Undo).close().unwrap();
    let mut before = "undo";
    for engine in ["mvcc", "inplace", "mvcc", "inplace-partial", "eaw", "mvcc", "eaw", "undo", "none", "mvcc", "undo"] {
        let run = cairn(dir.path(), &format!("convert p --engine {engine}"));
        assert_eq!(run.code, 0, "{run:?}");
        assert!(run.out.contains(&format!("of {before} before, of {engine} now")), "{run:?}");
        is_whole(dir.path(), engine);
        let again = cairn(dir.path(), &format!("convert p --engine {engine}"));
        assert!(again.code == 0 && again.out.contains("already"), "{again:?}");
        is_whole(dir.path(), engine);
        before = engine;
    }
    let run = cairn(dir.path(), "check p");
    assert!(run.out.contains("of the engine that had the objects earlier"), "{run:?}");
    let heap = Heap::open(dir.path().join("p"), &heap::Options::new()).unwrap();
    assert!(heap.recovery().was_clean() && heap.policy() == Policy::Undo);
}

/// One that was killed is recovered, and goes over; with what another engine has left in it, it is closed again.
#[test]
fn a_pool_that_was_not_closed_is_recovered_first() {
    let dir = temp();
    heap(dir.path(), Policy::InPlace).abandon();
    let run = cairn(dir.path(), "convert p --engine mvcc --slots 2 --log-bytes 64K --copy-bytes 64K");
    assert_eq!(run.code, 0, "{run:?}");
    is_whole(dir.path(), "mvcc");
    let sizes = cairn(dir.path(), "info p --json").json();
    assert_eq!((&sizes["objects"]["slots"], &sizes["objects"]["log_bytes"]), (&2.into(), &65536.into()));
    Mvcc::open(dir.path().join("p"), &mvcc::Options::new()).unwrap().abandon();
    assert_eq!(cairn(dir.path(), "check p").code, 2);
    assert_eq!(cairn(dir.path(), "check --recover p").code, 0);
    is_whole(dir.path(), "mvcc");
    Mvcc::open(dir.path().join("p"), &mvcc::Options::new()).unwrap().abandon();
    let run = cairn(dir.path(), "convert p --engine inplace");
    assert_eq!(run.code, 0, "{run:?}");
    is_whole(dir.path(), "inplace");
    let run = cairn(dir.path(), "scrub p");
    assert!(run.code == 0 && run.out.contains("zones compared"), "{run:?}");
}

#[test]
fn what_is_not_converted_is_left_as_it_was() {
    let dir = temp();
    let refused = |line: &str, what: &str| {
        let before = fs::read(dir.path().join("p")).unwrap();
        let run = cairn(dir.path(), line);
        assert!(run.code == 2 && run.failure().0.contains(what), "{run:?}");
        assert_eq!(cairn(dir.path(), "check p").code, 0, "closed, as before: {run:?}");
        assert_eq!(fs::metadata(dir.path().join("p")).unwrap().len(), before.len() as u64);
    };
    assert_eq!(cairn(dir.path(), "create p --size 1M").code, 0);
    refused("convert p --engine mvcc", "no objects under transactions");
    fs::remove_file(dir.path().join("p")).unwrap();
    assert_eq!(cairn(dir.path(), "kv create p --segment 4K").code, 0);
    refused("convert p --engine mvcc", "is none of objects under transactions");
    fs::remove_file(dir.path().join("p")).unwrap();
    heap(dir.path(), Policy::Eaw).close().unwrap();
    refused("convert p --engine eaw --alpha 0.5", "--alpha: eaw has no such thing");
    refused("convert p --engine mvcc --log-bytes 100", "bytes per log");
    is_whole(dir.path(), "eaw");
    let path = dir.path().join("p");
    let store = Mvcc::take_over(
        Heap::open(&path, &heap::Options::new()).unwrap().hand_over().unwrap(),
        &mvcc::Options::new().slots(2).log_bytes(4096).copy_bytes(4096),
    );
    let heap = Heap::take_over(store.unwrap().hand_over().unwrap(), &heap::Options::new().policy(Policy::Eaw)).unwrap();
    let program = heap.pool().add_region("program", 4096).unwrap();
    drop(program);
    heap.close().unwrap();
    refused("convert p --engine mvcc", "region \"program\" is none of objects");
}

/// Overwrites what stands first for the value of a pair: in one of the copies, or in both.
fn damage(dir: &Path, copies: usize) {
    let path = dir.join("p");
    let mut bytes = fs::read(&path).unwrap();
    let found: Vec<usize> = (0..bytes.len() - 5).filter(|at| &bytes[*at..*at + 5] == b"value").collect();
    for copy in 0..copies {
        bytes[found[copy * found.len() / 2]] ^= 1 << copy;
    }
    fs::write(path, bytes).unwrap();
}

/// What nothing tells of which copy is right stays as it is.
#[test]
fn what_is_unclear_goes_nowhere() {
    for engine in ["mvcc", "undo", "inplace-partial"] {
        let dir = temp();
        heap(dir.path(), Policy::InPlace).close().unwrap();
        damage(dir.path(), 2);
        let before = cairn(dir.path(), "check p");
        let run = cairn(dir.path(), &format!("convert p --engine {engine}"));
        assert!(run.code == 1 && run.failure().0.contains("damaged page"), "{run:?}");
        let after = cairn(dir.path(), "check p");
        assert_eq!((after.code, &after.out), (1, &before.out));
        assert_eq!(cairn(dir.path(), "info p --json").json()["objects"]["engine"], "inplace");
    }
}

/// What damage there is in one of two copies does not become what all other engines have.
#[test]
fn of_two_copies_the_right_one_goes_over() {
    for engine in ["mvcc", "eaw", "inplace-partial", "none"] {
        let dir = temp();
        heap(dir.path(), Policy::InPlace).close().unwrap();
        damage(dir.path(), 1);
        let run = cairn(dir.path(), &format!("convert p --engine {engine}"));
        assert!(run.code == 0 && run.err.contains("were damaged in one of two copies, and are repaired"), "{run:?}");
        is_whole(dir.path(), engine);
        assert!(fs::read(dir.path().join("p")).unwrap().windows(5).filter(|found| *found == b"value").count() >= 100);
        // On its way back it gets a second copy that can be told from the first.
        assert_eq!(cairn(dir.path(), "convert p --engine inplace").code, 0);
        damage(dir.path(), 1);
        let run = cairn(dir.path(), "scrub p");
        assert_eq!(run.code, 0, "{engine}: {run:?}");
        is_whole(dir.path(), "inplace");
    }
}

#[test]
fn sizes_are_chosen_once() {
    let dir = temp();
    heap(dir.path(), Policy::Undo).close().unwrap();
    let refused = |line: &str, option: &str| {
        let run = cairn(dir.path(), line);
        assert!(run.code == 2 && run.failure().0.starts_with(option), "{run:?}");
    };
    refused("convert p --engine eaw --slots 8", "--slots: ");
    refused("convert p --engine undo --log-bytes 1M", "--log-bytes: ");
    refused("convert p --engine inplace --zone-bytes 4K", "--zone-bytes: ");
    assert_eq!(cairn(dir.path(), "convert p --engine mvcc --slots 3 --log-bytes 8K --copy-bytes 16K").code, 0);
    refused("convert p --engine mvcc --copy-bytes 16K", "--copy-bytes: ");
    assert_eq!(cairn(dir.path(), "convert p --engine inplace-partial --alpha 0.25").code, 0);
    refused("convert p --engine mvcc --slots 3", "--slots: ");
    refused("convert p --engine inplace-partial --alpha 0.5", "--alpha: ");
    is_whole(dir.path(), "inplace-partial");
}

/// What there is no room for changes nothing, and leaves the pool closed.
#[test]
fn a_full_disk_leaves_the_objects_where_they_were() {
    for engine in ["inplace", "inplace-partial", "mvcc"] {
        let dir = temp();
        heap(dir.path(), Policy::Eaw).close().unwrap();
        refused_for_room(dir.path(), engine);
    }
    // There is a backup of an earlier time, which is too short.
    let dir = temp();
    heap(dir.path(), Policy::InPlace).close().unwrap();
    assert_eq!(cairn(dir.path(), "convert p --engine eaw").code, 0);
    let heap = Heap::open(dir.path().join("p"), &heap::Options::new().coordinator(false)).unwrap();
    for _ in 0..64 {
        heap.transact(Isolation::Strict, |tx| tx.alloc_slice(&[0; 64 << 10]).map(drop)).unwrap();
    }
    heap.close().unwrap();
    refused_for_room(dir.path(), "inplace");
}

fn refused_for_room(dir: &Path, engine: &str) {
    let len = fs::metadata(dir.join("p")).unwrap().len();
    let limited = format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" convert p --engine {engine}", len / 512);
    let command = ["-c", &limited, env!("CARGO_BIN_EXE_cairn")];
    let out = std::process::Command::new("sh").args(command).current_dir(dir).output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.code() == Some(2) && said.contains("no space"), "{engine}: {said}");
    is_whole(dir, "eaw");
}

#[test]
fn pools_of_each_engine_are_made() {
    for engine in ["inplace", "inplace-partial", "eaw", "undo", "none", "mvcc"] {
        let dir = temp();
        let run = cairn(dir.path(), &format!("create p --engine {engine} --size 1M --slots 4 --log-bytes 8K"));
        assert!(run.code == 0 && run.out.contains(engine), "{run:?}");
        let info = cairn(dir.path(), "info p --json").json();
        let objects = &info["objects"];
        assert_eq!((&objects["engine"], &objects["slots"]), (&engine.into(), &4.into()));
        assert_eq!((&objects["log_bytes"], &objects["live_blocks"]), (&8192.into(), &1.into()));
        match engine {
            "mvcc" => fill(&Mvcc::open(dir.path().join("p"), &mvcc::Options::new()).unwrap()),
            _ => fill(&Heap::open(dir.path().join("p"), &heap::Options::new()).unwrap()),
        }
        is_whole(dir.path(), engine);
        assert_eq!(cairn(dir.path(), "backup p copy").code, 0);
        assert!(cairn(dir.path(), "check copy").out.contains("100 pairs"));
    }
}

/// A cell with one bad copy is told, and made whole; an object has one copy.
#[test]
fn scrub_reads_all_of_a_store_and_repairs_cells() {
    let dir = temp();
    let path = dir.path().join("p");
    assert_eq!(cairn(dir.path(), "create p --engine mvcc --size 1M --slots 4 --log-bytes 8K").code, 0);
    fill(&Mvcc::open(&path, &mvcc::Options::new()).unwrap());
    let run = cairn(dir.path(), "scrub p");
    assert!(run.code == 0 && run.out.contains("repaired: 0 cells") && run.out.contains("100 pairs"), "{run:?}");
    let place = |name: &str| {
        let regions = pmem::Options::new().open_read_only(&path).unwrap().info().regions;
        regions.iter().find(|region| region.name == name).unwrap().offset as usize
    };
    let damage = |at: usize| {
        let mut bytes = fs::read(&path).unwrap();
        bytes[at..at + 64].iter_mut().for_each(|byte| *byte ^= 0x55);
        fs::write(&path, bytes).unwrap();
    };
    damage(place("mvcc.state"));
    let run = cairn(dir.path(), "check p");
    assert!(run.code == 0 && run.out.contains("note: objects with versions: one of two copies of 1 cells"), "{run:?}");
    let run = cairn(dir.path(), "scrub p");
    assert!(run.code == 0 && run.out.contains("repaired: 1 cells"), "{run:?}");
    let run = cairn(dir.path(), "check p");
    assert!(run.code == 0 && !run.out.contains("note: "), "{run:?}");
    // The other copy is whole on its own, and has been from then on.
    damage(place("mvcc.state") + 4096);
    let run = cairn(dir.path(), "check --repair p");
    assert!(run.code == 0 && run.out.contains("repaired: objects with versions: one of two copies"), "{run:?}");
    damage(place("mvcc.state"));
    damage(place("mvcc.state") + 4096);
    let run = cairn(dir.path(), "scrub p");
    assert!(run.code == 1 && run.failure().1.contains("restore"), "{run:?}");
    assert_eq!(cairn(dir.path(), "check p").code, 1, "closed, as it was: {run:?}");
    assert_eq!(cairn(dir.path(), "info p").code, 1, "and told");
}
