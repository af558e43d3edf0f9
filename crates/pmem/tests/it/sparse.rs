//! Sparse copies of pools: an open for writing allocates what they lack, or is refused.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use pmem::{Error, Options};

use crate::support::{Rng, child, disk, fails, in_20_mib, memory, role};

const PAGE: usize = 4096;
const MIB: u64 = 1 << 20;

/// A closed pool of `size` bytes, of whose region some pages are not zeros.
fn made(path: &Path, size: u64, rng: &mut Rng) {
    let pool = Options::new().size(size).create(path).unwrap();
    let len = size / 2;
    let mut area = pool.add_region("data", len).unwrap().into_area().unwrap();
    for page in (0..len / PAGE as u64).filter(|_| rng.below(3) == 0).collect::<Vec<_>>() {
        area.put(page * PAGE as u64, &7u64).unwrap();
        area.flush(page * PAGE as u64, 8).unwrap();
    }
    pool.drain().unwrap();
    drop(area);
    pool.close().unwrap();
}

/// As `cp --sparse=always` does it, or as something does it that leaves some of the zeros.
fn sparse_copy(from: &Path, to: &Path, mut is_kept: impl FnMut() -> bool) {
    let bytes = fs::read(from).unwrap();
    let file = File::create(to).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    for (at, page) in (0..).step_by(PAGE).zip(bytes.chunks(PAGE)) {
        if is_kept() || page.iter().any(|byte| *byte != 0) {
            file.write_all_at(page, at).unwrap();
        }
    }
    file.sync_all().unwrap();
}

/// Bytes that have blocks.
fn allocated(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

/// Any pages of a file may be missing, and whichever they are, an open for writing brings them.
#[test]
fn an_open_for_writing_leaves_no_hole() {
    const SIZE: u64 = 2 * MIB;
    for dir in [disk(), memory()] {
        for seed in 0..8 {
            println!("{}, seed {seed}", dir.path().display());
            let mut rng = Rng(seed);
            let (path, copy) = (dir.path().join(format!("pool{seed}")), dir.path().join(format!("copy{seed}")));
            made(&path, SIZE, &mut rng);
            let of = [1, 2, 30, 200][seed as usize % 4];
            sparse_copy(&path, &copy, || rng.below(of) != 0);
            let before = allocated(&copy);
            assert!(before < SIZE, "this file system knows no holes");

            drop(Options::new().open_read_only(&copy).unwrap());
            assert_eq!(allocated(&copy), before, "to read takes no space");
            let contents = fs::read(&copy).unwrap();
            let pool = Options::new().open(&copy).unwrap();
            assert!(allocated(&copy) >= SIZE, "{before}, then {} of {SIZE} bytes", allocated(&copy));
            assert!(fs::read(&copy).unwrap()[2 * PAGE..] == contents[2 * PAGE..], "all but the header is as it was");
            pool.close().unwrap();
        }
    }
}

/// What the child of the next test does, in a file system of 20 MiB.
fn meet_a_full_disk(dir: &Path) {
    let (path, copy) = (dir.join("pool"), dir.join("copy"));
    made(&path, 8 * MIB, &mut Rng(1));
    sparse_copy(&path, &copy, || false);
    fs::remove_file(&path).unwrap();
    let rest = (0..20).take_while(|n| fs::write(dir.join(format!("other{n}")), vec![1; MIB as usize]).is_ok());
    assert!(rest.count() > 8, "the other file does not fill it");

    let open = || Options::new().open(&copy);
    let error =
        fails(open(), &[copy.to_str().unwrap(), "no space", "sparse", "the file system is full", "open it again"]);
    assert!(matches!(error, Error::NoSpace { .. }), "{error:?}");
    Options::new().open_read_only(&copy).unwrap().close().unwrap();

    for n in 0..20 {
        let _ = fs::remove_file(dir.join(format!("other{n}")));
    }
    let pool = open().unwrap();
    assert!(pool.was_clean(), "the open that was refused has changed nothing");
    let mut n = 0;
    while fs::write(dir.join(format!("other{n}")), vec![1; MIB as usize]).is_ok() {
        n += 1;
    }
    let mut area = pool.region("data").unwrap().into_area().unwrap();
    for at in (0..4 * MIB).step_by(PAGE) {
        area.put(at, &9u64).unwrap();
        area.flush(at, 8).unwrap();
    }
    pool.drain().unwrap();
    drop(area);
    pool.close().unwrap();
}

/// What the child does; nothing in the suite's own process.
#[test]
fn as_child() {
    let Some((_, dir)) = role() else { return };
    meet_a_full_disk(&dir);
    println!("wrote to every page");
}

#[test]
fn a_sparse_copy_on_a_full_disk_is_refused_and_dies_of_no_signal() {
    let dir = disk();
    if let Some(text) = in_20_mib(child("sparse::as_child", "sparse", dir.path()), dir.path()) {
        assert!(text.contains("wrote to every page"), "{text}");
    }
}
