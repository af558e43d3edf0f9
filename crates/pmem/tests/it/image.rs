//! Copies of a pool's file: nothing that was flushed is missed, nothing is left where a copy fails.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use pmem::{DomainChoice, Error, Options};

use crate::support::{Ram, child, disk, role, succeed};

const GRANULE: u64 = 4096;

fn kind(error: &Error) -> ErrorKind {
    match error {
        Error::Io { source, .. } => source.kind(),
        other => panic!("{other}"),
    }
}

fn same(a: &Path, b: &Path) -> bool {
    fs::read(a).unwrap() == fs::read(b).unwrap()
}

/// Each way of a byte to the media is noted: flushed, streamed, joined, and by growth.
#[test]
fn a_pass_copies_what_was_flushed_since() {
    for domain in [DomainChoice::Emulated, DomainChoice::File] {
        let dir = disk();
        let (pool_path, copy) = (dir.path().join("pool"), dir.path().join("copy"));
        let pool = Options::new().size(1 << 20).domain(domain).create(&pool_path).unwrap();
        let mut area = pool.add_region("r", 512 << 10).unwrap().into_area().unwrap();
        let mut image = pool.image(&copy).unwrap();
        assert_eq!(image.pass(|_, _| ()).unwrap(), 1 << 20);
        assert_eq!(image.pass(|_, _| ()).unwrap(), 0);
        let at = |area: &pmem::Area, granule: u64| ((granule + 16) * GRANULE).saturating_sub(area.offset());
        area.put(at(&area, 2), &1u64).unwrap();
        assert_eq!(image.pass(|_, _| ()).unwrap(), 0, "stored only: a crash may lose it, too");
        area.flush(at(&area, 2), 8).unwrap();
        area.publish(at(&area, 4), 7).unwrap();
        assert_eq!(image.pass(|_, _| ()).unwrap(), 2 * GRANULE);
        area.copy_nt(at(&area, 3) - 64, &[5; 256]).unwrap();
        assert_eq!(image.pass(|_, _| ()).unwrap(), 2 * GRANULE, "both that it lies in");
        drop(pool.add_region("more", 1 << 20).unwrap());
        let grown = pool.size() - (1 << 20);
        assert!(grown > 0);
        let (mut told, mut all) = (0, 0);
        let copied = image
            .pass(|copied, of| {
                assert!(copied > told && copied <= of);
                (told, all) = (copied, of);
            })
            .unwrap();
        assert_eq!((copied, told, all), (2 * GRANULE, copied, copied), "the header: what has grown is zeros");
        assert_eq!(image.cut().unwrap(), 0);
        assert!(!copy.exists());
        image.publish().unwrap();
        assert!(same(&pool_path, &copy));
        drop(area);
        pool.close().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}

/// What was cut off, and came back as zeros, is zeros in the copy.
#[test]
fn what_was_cut_off_meanwhile_does_not_stay() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (pool_path, copy) = (dir.path().join("pool"), dir.path().join("copy"));
    let pool = Options::new().size(1 << 20).domain(DomainChoice::Emulated).create(&pool_path).unwrap();
    let mut region = pool.add_region("r", 1 << 20).unwrap();
    let last = region.len() - 8;
    for again in [false, true] {
        let mut image = pool.image(&copy).unwrap();
        let area = region.areas_mut().last_mut().unwrap();
        area.put(last, &7u64).unwrap();
        area.persist(last, 8).unwrap();
        image.pass(|_, _| ()).unwrap();
        assert!(pool.cut_region(&mut region, 64 << 10).unwrap());
        if again {
            image.pass(|_, _| ()).unwrap();
        }
        pool.grow_region(&mut region, 64 << 10).unwrap();
        image.cut().unwrap();
        image.publish().unwrap();
        assert!(same(&pool_path, &copy));
        fs::remove_file(&copy).unwrap();
    }
}

/// However fast writers are, the copier catches up, and no more is left than it says.
#[test]
fn writers_wait_for_a_copier_that_holds_them_back() {
    const LEFT: u64 = 128 << 10;
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (pool_path, copy) = (dir.path().join("pool"), dir.path().join("copy"));
    let pool = Options::new().size(8 << 20).domain(DomainChoice::Emulated).create(&pool_path).unwrap();
    let areas = [0, 1].map(|n| pool.add_region(&format!("r{n}"), 2 << 20).unwrap().into_area().unwrap());
    let (stop, writes) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut image = pool.image(&copy).unwrap();
    std::thread::scope(|scope| {
        for mut area in areas {
            let (stop, writes) = (&stop, &writes);
            scope.spawn(move || {
                for number in 0.. {
                    if stop.load(SeqCst) {
                        break;
                    }
                    let at = number % (area.len() / GRANULE) * GRANULE;
                    area.put(at, &number).unwrap();
                    area.flush(at, 8).unwrap();
                    writes.fetch_add(1, SeqCst);
                }
            });
        }
        let left = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut left = Vec::new();
            for _ in 0..20 {
                image.hold_back(LEFT / 2).unwrap();
                image.allow(LEFT);
                while !image.holds_up(std::time::Duration::from_millis(1)) {}
                left.push(image.pass(|_, _| ()).unwrap());
            }
            left
        }));
        stop.store(true, SeqCst);
        drop(image); // no thread waits any more
        let left = left.unwrap();
        assert!(left.iter().all(|left| *left > LEFT / 2 && *left <= LEFT), "{left:?}");
    });
    let before = writes.load(SeqCst);
    assert!(before > 0);
    // A copy that is given up holds no thread back.
    let mut image = pool.image(&copy).unwrap();
    image.hold_back(LEFT).unwrap();
    image.cut().unwrap();
    image.publish().unwrap();
    assert!(same(&pool_path, &copy));
}

/// Threads write while a copy begins, and while it is made: when they have stopped, it becomes what the pool is.
#[test]
fn nothing_is_missed_beside_writers() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (pool_path, copy) = (dir.path().join("pool"), dir.path().join("copy"));
    let pool = Options::new().size(8 << 20).domain(DomainChoice::Emulated).create(&pool_path).unwrap();
    let areas: Vec<_> =
        (0..2).map(|n| pool.add_region(&format!("r{n}"), 2 << 20).unwrap().into_area().unwrap()).collect();
    let areas: Vec<_> = areas.into_iter().map(std::sync::Mutex::new).collect();
    let mut passes = 0;
    for round in 0..40 {
        let (stop, writes) = (AtomicBool::new(false), AtomicU64::new(0));
        let mut image = None;
        std::thread::scope(|scope| {
            for (thread, area) in areas.iter().enumerate() {
                let (stop, writes) = (&stop, &writes);
                scope.spawn(move || {
                    let area = &mut *area.lock().unwrap();
                    let mut number = thread as u64 + round * 1_000_003;
                    while !stop.load(SeqCst) {
                        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        let at = (number >> 33) % (area.len() / 1024 - 1) * 1024;
                        match number >> 62 {
                            0 => drop(area.copy_nt(at, &[number as u8; 900]).unwrap()),
                            _ => {
                                area.put(at, &number).unwrap();
                                area.flush(at, 8).unwrap();
                            }
                        }
                        writes.fetch_add(1, SeqCst);
                    }
                });
            }
            let mut begun = pool.image(&copy).unwrap();
            for _ in 0..3 {
                let before = writes.load(SeqCst);
                passes += u64::from(begun.pass(|_, _| ()).unwrap() > 0);
                while writes.load(SeqCst) == before {
                    std::thread::yield_now();
                }
            }
            stop.store(true, SeqCst);
            image = Some(begun);
        });
        let mut image = image.unwrap();
        image.cut().unwrap();
        image.publish().unwrap();
        assert!(same(&pool_path, &copy), "round {round}");
        fs::remove_file(&copy).unwrap();
    }
    assert!(passes > 60, "{passes} passes had something to copy");
}

#[test]
fn what_cannot_be_copied_is_an_error() {
    let ram = Ram::new(1 << 20);
    let pool = Options::new().size(64 << 10).create_on(ram).unwrap();
    let dir = disk();
    let copy = dir.path().join("copy");
    assert_eq!(kind(&pool.image(&copy).unwrap_err()), ErrorKind::Unsupported);
    let pool = Options::new().size(1 << 20).create(dir.path().join("pool")).unwrap();
    assert_eq!(kind(&pool.image(dir.path().join("no/copy")).unwrap_err()), ErrorKind::NotFound);
    let image = pool.image(&copy).unwrap();
    assert!(matches!(pool.image(dir.path().join("other")), Err(Error::BackupRunning { .. })));
    drop(image);
    // What failed, and what was given up, does not prevent the next.
    let mut image = pool.image(&copy).unwrap();
    image.pass(|_, _| ()).unwrap();
    image.cut().unwrap();
    let other = pool.image(dir.path().join("other")).unwrap();
    drop(image); // does not end the other one
    assert!(matches!(pool.image(&copy), Err(Error::BackupRunning { .. })));
    drop(other);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// What children of these tests do; nothing in the suite's own process.
#[test]
fn as_child() {
    let Some((_, path)) = role() else { return };
    let pool = Options::new().size(4 << 20).create(path.join("pool")).unwrap();
    let limit = libc::rlimit { rlim_cur: 5 << 20, rlim_max: 5 << 20 };
    // SAFETY: both change settings of this process, which runs this test alone.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
    let mut image = pool.image(path.join("copy")).unwrap();
    image.pass(|_, _| ()).unwrap();
    // The cut, beside which no thread commits, leaves the copy's medium alone: what that has no room for is met behind it.
    let mut area = pool.add_region("more", 2 << 20).unwrap().into_area().unwrap();
    let last = area.len() - 64;
    area.put(last, &7u64).unwrap();
    area.flush(last, 64).unwrap();
    let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
    // SAFETY: as above.
    unsafe { assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0) };
    image.cut_into_memory().unwrap();
    assert!(matches!(image.write_out(), Err(Error::NoSpace { .. })));
    drop(image);
    let mut image = pool.image(path.join("copy")).unwrap();
    let full = image.pass(|_, _| ()).unwrap_err();
    assert!(matches!(&full, Error::NoSpace { path: at, .. } if *at == path.join("copy")), "{full}");
    drop(image);
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1, "the pool alone");
    println!("met a full disk");
}

#[test]
fn a_full_disk_is_no_space_and_leaves_nothing() {
    let dir = disk();
    let text = succeed(child("image::as_child", "limited", dir.path()));
    assert!(text.contains("met a full disk"), "{text}");
}
