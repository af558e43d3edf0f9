//! The file domain: shared syncs, what one sync writes, a full disk, and a sync that fails.

use std::fs;
use std::path::Path;
use std::sync::Barrier;

use crash::{Config, Model, Violation, explore};
use pmem::{Action, Error, Objects, ObjectsOptions, Options, PPtr, Pool, TwoSlot};

use crate::support::{child, disk, fails, in_20_mib, role, succeed, synced};

#[path = "../../examples/vm_worker/bytes.rs"]
#[allow(dead_code, reason = "the worker compares other ways to fill a file, too")]
mod bytes;

const MIB: u64 = 1 << 20;

// ---- what a sync costs -------------------------------------------------------------------------------------------

/// Drains of `threads` threads at once, and the syncs that served them.
fn drains_and_syncs(pool: &Pool, threads: u64, each: u64) -> (u64, u64) {
    let before = pool.stats();
    let start = Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let name = format!("{threads} {thread}");
            let mut area = pool.add_region(&name, 4096).unwrap().into_area().unwrap();
            let start = &start;
            scope.spawn(move || {
                start.wait();
                for n in 1..=each {
                    area.publish(8 * (n % 512), n).unwrap();
                }
            });
        }
    });
    let spent = pool.stats() - before;
    (spent.drains, spent.syncs)
}

#[test]
fn drains_of_many_threads_share_syncs() {
    let dir = disk();
    let pool = synced(MIB).create(dir.path().join("pool")).unwrap();
    let regions = |threads| 2 * threads; // each is a mirrored update of the header, made by one thread
    let (drains, syncs) = drains_and_syncs(&pool, 1, 20);
    assert_eq!((drains, syncs), (20 + regions(1), 20 + regions(1)), "alone, a drain is a sync");
    for (threads, each) in [(4, 50), (16, 25)] {
        let (drains, syncs) = drains_and_syncs(&pool, threads, each);
        println!("{threads} threads: {drains} drains by {syncs} syncs");
        assert_eq!(drains, threads * each + regions(threads));
        let (drains, syncs) = (drains - regions(threads), syncs - regions(threads));
        assert!(syncs >= each, "a thread's own drains never share one");
        assert!(syncs < drains);
        if threads == 16 && bytes::statistics(dir.path()).is_some() {
            assert!(2 * syncs < drains, "{syncs} syncs for {drains} drains of 16 threads");
        }
    }
}

/// A dirty line in a large page-cache folio costs the whole folio, one or two MiB. Other writers of the device count too, so
/// the least of several rounds is held to the bound.
#[test]
fn sync_of_one_line_writes_little() {
    const MAX: f64 = (64 << 10) as f64;
    let dir = disk();
    let Some(stat) = bytes::statistics(dir.path()) else {
        println!("skipped: the device of {} has no statistics", dir.path().display());
        return;
    };
    bytes::header();
    let mut least = Vec::new();
    for _ in 0..10 {
        let round = bytes::pools(dir.path(), &stat, 1).unwrap();
        if least.is_empty() {
            least = round;
        } else {
            least.iter_mut().zip(round).for_each(|(least, now)| least.1 = least.1.min(now.1));
        }
        if least.iter().all(|(_, bytes, _)| *bytes <= MAX) {
            break;
        }
    }
    for (what, bytes, _) in least {
        println!("{what}: {bytes:.0} bytes per sync");
        assert!(bytes >= 64.0, "{what}: {bytes:.0} bytes per sync: the statistics saw nothing");
        assert!(bytes <= MAX, "{what}: {bytes:.0} bytes per sync");
    }
}

// ---- a full disk -------------------------------------------------------------------------------------------------

const OBJECT: u64 = 60_000;
type Table = [PPtr<u8>; 512];

/// Fills the pool until the disk is full, then goes on as far as that goes. At least 8 and at most 24 MiB fit the disk.
fn meet_full_disk(path: &Path) {
    let pool = synced(2 * MIB).create(path).unwrap();
    let options = ObjectsOptions { heap_bytes: MIB, log_bytes: 32 << 10, ..ObjectsOptions::default() };
    let objects = Objects::create(&pool, options).unwrap();
    let table = objects.reserve_value::<Table>(&[PPtr::NULL; 512]).unwrap();
    let root = table.ptr::<Table>();
    let slot = |n: usize| PPtr::<u64>::new(root.tag(), root.offset() + 8 * n as u64);
    objects.lock().publish(&mut [Action::Alloc(table), Action::root(root)]).unwrap();

    let put = |n: usize, byte: u8| -> pmem::Result<PPtr<u8>> {
        let mut object = objects.reserve(OBJECT, 8)?;
        object.bytes_mut()?.fill(byte);
        let ptr = object.ptr::<u8>();
        objects.lock().publish(&mut [Action::Alloc(object), Action::Set(slot(n), ptr.raw())])?;
        Ok(ptr)
    };
    let mut all = Vec::new();
    let error = loop {
        assert!(all.len() < 512, "the disk never was full");
        match put(all.len(), all.len() as u8) {
            Ok(ptr) => all.push(ptr),
            Err(error) => break error,
        }
    };
    fails::<()>(Err(error), &[path.to_str().unwrap(), "no space for", "free objects in the pool"]);
    assert!(all.len() as u64 * OBJECT > 4 * MIB, "only {} objects fit", all.len());

    // Still the old length, still usable.
    assert_eq!(fs::metadata(path).unwrap().len(), pool.size());
    assert!(matches!(pool.add_region("large", 512 * MIB), Err(Error::NoSpace { .. })));
    assert!(matches!(objects.reserve(512 * MIB, 8).map(drop), Err(Error::NoSpace { .. })));
    assert_eq!(fs::metadata(path).unwrap().len(), pool.size());
    for (n, &ptr) in all.iter().enumerate() {
        assert!(objects.lock().bytes(ptr, OBJECT).unwrap().iter().all(|&b| b == n as u8));
    }
    for n in (0..all.len()).step_by(2) {
        let free = Action::Free(all[n].cast());
        objects.lock().publish(&mut [free, Action::Set(slot(n), 0)]).unwrap();
    }
    for n in (0..all.len()).step_by(4) {
        put(n, 200).unwrap(); // where another was
    }
    objects.close().unwrap();
    pool.close().unwrap();

    let pool = Options::new().domain(pmem::DomainChoice::File).open(path).unwrap();
    assert!(pool.was_clean());
    let objects = Objects::open(&pool).unwrap();
    let session = objects.lock();
    let table = *session.get(session.root::<Table>().unwrap()).unwrap();
    for n in 0..all.len() {
        let expected = [Some(200), Some(n as u8), None, Some(n as u8)][n % 4];
        assert_eq!(!table[n].is_null(), expected.is_some());
        if let Some(byte) = expected {
            assert!(session.bytes(table[n], OBJECT).unwrap().iter().all(|&b| b == byte), "object {n}");
        }
    }
    drop(session);

    let none = path.with_file_name("none");
    let error =
        fails(synced(512 * MIB).create(&none), &[none.to_str().unwrap(), "536870912 bytes", "file system is full"]);
    assert!(matches!(error, Error::NoSpace { wanted, .. } if wanted == 512 * MIB));
    assert!(!error.to_string().contains("objects"), "there are none to be freed: {error}");
    assert!(!none.exists());
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nor a half-made file under another name");
}

/// What children of these tests do; nothing in the suite's own process.
#[test]
fn as_child() {
    let Some((role, path)) = role() else { return };
    if role == "limited" {
        let limit = libc::rlimit { rlim_cur: 20 << 20, rlim_max: 20 << 20 };
        // SAFETY: both change settings of this process, which runs this test alone.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
        }
    }
    meet_full_disk(&path.join("pool"));
    println!("met a full disk");
}

#[test]
fn file_size_limit_is_no_space_and_leaves_the_pool_usable() {
    let dir = disk();
    let text = succeed(child("file_domain::as_child", "limited", dir.path()));
    assert!(text.contains("met a full disk"), "{text}");
}

/// A file system of 20 MiB, mounted for one child alone. Only root may.
#[test]
fn full_file_system_is_no_space_and_leaves_the_pool_usable() {
    let dir = disk();
    if let Some(text) = in_20_mib(child("file_domain::as_child", "small", dir.path()), dir.path()) {
        assert!(text.contains("met a full disk"), "{text}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "the mount is gone with the child");
    }
}

// ---- a failed sync -----------------------------------------------------------------------------------------------

/// From here on `fdatasync` of this thread fails, as it does when the device is gone. False if the kernel has no such filter.
fn break_syncs_of_this_thread() -> bool {
    break_calls_of_this_thread(libc::SYS_fdatasync, 0, 0..=u32::MAX)
}

/// From here on this system call fails in this thread if the argument of that number lies in `range`.
fn break_calls_of_this_thread(call: libc::c_long, argument: u32, range: std::ops::RangeInclusive<u32>) -> bool {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    // Where a comparison fails, on to the last statement.
    let test = |with: u32, k: u32, jt: u8, jf: u8| libc::sock_filter {
        code: (libc::BPF_JMP | with | libc::BPF_K) as u16,
        jt,
        jf,
        k,
    };
    let load = |at: u32| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at);
    let mut filter = [
        load(0), // number of the system call
        test(libc::BPF_JEQ, call as u32, 0, 4),
        load(16 + 8 * argument), // its lower half
        test(libc::BPF_JGE, *range.start(), 0, 2),
        test(libc::BPF_JGT, *range.end(), 1, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EIO as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program lives until the call returns; both settings concern this thread alone.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}

#[test]
fn failed_sync_poisons_the_pool_for_every_thread() {
    let dir = disk();
    let path = dir.path().join("pool");
    let pool = synced(2 * MIB).create(&path).unwrap();
    let mut area = pool.add_region("data", 4096).unwrap().into_area().unwrap();
    let mut cell = TwoSlot::create(pool.add_region("cell", 4096).unwrap().into_area().unwrap(), &1u64).unwrap();
    let heap = pmem::HeapOptions::chunk_bytes(4096).unwrap();
    let options = ObjectsOptions { heap_bytes: 64 << 10, log_bytes: 8 << 10, heap };
    let objects = Objects::create(&pool, options).unwrap();
    area.publish(0, 7).unwrap();
    let broken = std::thread::scope(|scope| {
        let work = || {
            let can = break_syncs_of_this_thread();
            can.then(|| (area.publish(0, 8).map(drop), area.drain().map(drop)))
        };
        scope.spawn(work).join().unwrap()
    });
    let Some((first, second)) = broken else {
        println!("skipped: system calls cannot be filtered here");
        return;
    };
    let error = fails(first, &["sync failed", "may be lost", "open again"]);
    assert!(matches!(error, Error::Sync { source } if source.raw_os_error() == Some(libc::EIO)));
    assert!(matches!(second, Err(Error::Poisoned)));

    // The syncs of this thread would succeed, and prove nothing.
    let publish = |object| objects.lock().publish(&mut [Action::Alloc(object)]);
    let published = objects.reserve(64, 8).and_then(publish);
    let refused = [
        published,
        area.drain().map(drop),
        area.publish(0, 9).map(drop),
        cell.update(&2),
        pool.add_region("more", 4096).map(drop),
        pool.shrink_to_fit().map(drop),
        objects.close(),
    ];
    for (n, result) in refused.into_iter().enumerate() {
        let error = fails(result, &["earlier sync", "close the pool and open it again"]);
        assert!(matches!(error, Error::Poisoned), "call {n}");
    }
    assert_eq!(*area.get::<u64>(8).unwrap(), 0, "reading goes on");
    drop((area, cell));
    assert!(matches!(pool.close(), Err(Error::Poisoned)));

    let pool = synced(0).open(&path).unwrap();
    assert!(!pool.was_clean());
    assert!([7, 8, 9].contains(pool.region("data").unwrap().into_area().unwrap().get::<u64>(0).unwrap()));
    let (cell, _) = TwoSlot::<u64>::open(pool.region("cell").unwrap().into_area().unwrap()).unwrap();
    assert!([1, 2].contains(&cell.get()));
}

/// A page of the header that the device does not return is replaced through the file, from the other copy.
#[test]
fn unreadable_header_page_is_replaced() {
    use std::os::unix::fs::FileExt;
    let dir = disk();
    let path = dir.path().join("pool");
    for lost in [0u32, 4096] {
        let pool = synced(MIB).layout("shop").create(&path).unwrap();
        pool.add_region("data", 4096).unwrap().into_area().unwrap().publish(0, 7).unwrap();
        pool.close().unwrap();
        // What cannot be read holds nothing: only a copy that was written anew can be whole afterwards.
        fs::File::options().write(true).open(&path).unwrap().write_all_at(&[0xee; 4096], lost.into()).unwrap();
        let opened = std::thread::scope(|scope| {
            let work = || {
                let can = break_calls_of_this_thread(libc::SYS_pread64, 3, lost..=lost + 4095);
                can.then(|| {
                    let reader = synced(0).open_read_only(&path).unwrap();
                    assert!(reader.was_repaired() && reader.was_clean());
                    drop(reader);
                    synced(0).layout("shop").open(&path).map(|pool| (pool.was_repaired(), pool.generation()))
                })
            };
            scope.spawn(work).join().unwrap()
        });
        let Some(opened) = opened else {
            println!("skipped: system calls cannot be filtered here");
            return;
        };
        assert_eq!(opened.unwrap(), (true, 2));
        let pool = synced(0).open(&path).unwrap();
        assert!(!pool.was_repaired(), "both copies are whole");
        assert_eq!(*pool.region("data").unwrap().into_area().unwrap().get::<u64>(0).unwrap(), 7);
        drop(pool);
        fs::remove_file(&path).unwrap();
    }
    // Both: the error says what could not be read.
    synced(MIB).create(&path).unwrap().close().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(break_calls_of_this_thread(libc::SYS_pread64, 3, 0..=8191));
            let error = fails(synced(0).open(&path), &["unreadable pool header", "restore from a copy"]);
            assert!(matches!(error, Error::Unreadable { .. }));
        });
    });
}

/// Publishes 1, 2, 3, ... as root object and cell until the device fails; returns what was acknowledged.
fn publish_until_it_fails(
    sim: &std::sync::Arc<crash::Sim>,
    mut acknowledge: impl FnMut(u64, bool),
) -> Result<(), String> {
    let text = |e: Error| e.to_string();
    let pool = Options::new().open_on(sim.clone()).map_err(text)?;
    let objects = Objects::open(&pool).map_err(text)?;
    let (mut cell, _) =
        TwoSlot::<u64>::open(pool.region("cell").and_then(pmem::Region::into_area).map_err(text)?).map_err(text)?;
    for n in 1..=3 {
        acknowledge(n, false);
        let object = objects.reserve_value::<u64>(&n).map_err(text)?;
        let root = object.ptr::<u64>();
        let done =
            objects.lock().publish(&mut [Action::Alloc(object), Action::root(root)]).and_then(|()| cell.update(&n));
        match done {
            Ok(()) => acknowledge(n, true),
            Err(Error::Sync { .. }) => break,
            Err(error) => return Err(format!("not the failure of the device: {error}")),
        }
        if n == 3 {
            return Ok(()); // the failure is to come in a later drain than these
        }
    }
    // From here on nothing may report success.
    let published = objects.reserve(16, 8).and_then(|o| objects.lock().publish(&mut [Action::Alloc(o)]));
    let after = [
        published,
        pool.drain().map(drop),
        cell.update(&9),
        cell.update_mirrored(&9),
        pool.add_region("more", 4096).map(drop),
        objects.close(),
    ];
    drop(cell);
    for result in after.into_iter().chain([pool.close()]) {
        assert!(matches!(result, Err(Error::Poisoned)), "after a failed sync: {result:?}");
    }
    Ok(())
}

/// What stays readable is at least what was acknowledged, whichever drain fails and whatever the device kept of it.
fn explore_failing_drain(model: Model, n: u64) {
    // Without kills: what a failed sync leaves in the page cache alone is dropped by a real open, see `forget_cached`.
    let report = explore(Config::seeded(n).model(model).budget(3_000).depth(1).kills(false).fail_drain(n))
        .setup(|sim| {
            let pool = Options::new().size(16 << 10).create_on(sim.clone())?;
            TwoSlot::create(pool.add_region("cell", 4096)?.into_area()?, &0u64)?;
            let heap = pmem::HeapOptions::chunk_bytes(4096)?;
            Objects::create(&pool, ObjectsOptions { heap_bytes: 12 << 10, log_bytes: 8 << 10, heap })?;
            Ok(())
        })
        .workload(|sim, ack| {
            let mut ticket = None;
            let acknowledge = |n: u64, done: bool| {
                if done {
                    ticket.take().into_iter().for_each(|t| ack.commit(t));
                } else {
                    ticket = Some(ack.begin(n));
                }
            };
            Ok(publish_until_it_fails(sim, acknowledge)?)
        })
        .check(|sim, history| {
            let pool = Options::new().open_on(sim.clone()).map_err(Violation::detected)?;
            let objects = Objects::open(&pool).map_err(Violation::detected)?;
            let area = pool.region("cell").and_then(pmem::Region::into_area).map_err(Violation::detected)?;
            let (cell, _) = TwoSlot::<u64>::open(area).map_err(Violation::detected)?;
            let session = objects.lock();
            let root = session.root::<u64>().map_err(Violation::detected)?;
            let object = if root.is_null() { 0 } else { *session.get(root).map_err(Violation::detected)? };
            let least = history.acknowledged.last().copied().unwrap_or(0);
            for found in [object, cell.get()] {
                // 9 was stored after the failure and refused: in doubt, as everything refused is.
                if found < least || (found > 3 && found != 9) {
                    return Err(Violation::new(format!("{found} found, {least} had been acknowledged")));
                }
            }
            Ok((object, cell.get()))
        })
        .run();
    report.expect_clean();
    println!("{model:?}, drain {n} fails: {} states", report.states);
}

#[test]
fn failed_sync_is_never_followed_by_a_false_success() {
    for model in [Model::Words, Model::File { sector: 512 }] {
        // The workload has eleven; behind the last, none fails.
        (1..=12).for_each(|n| explore_failing_drain(model, n));
    }
}
