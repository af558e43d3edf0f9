//! Opening, refusing, growing and closing pools: every refusal is an error of its own that says what, where and what next.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use pmem::{
    Domain, DomainChoice, Error, FORMAT_VERSION, LAYOUT_MAX, NAME_MAX, Options, PoolInfo, REGIONS_MAX, RegionKind,
};

use crate::support::{Ram, await_word, child, disk, emulated, fails, memory, role, succeed, synced};

const MIB: u64 = 1 << 20;
/// Start of the second header copy.
const SECOND: u64 = 4096;

/// Runs a test in every domain there is on this machine.
fn everywhere(test: impl Fn(&Path, &dyn Fn(u64) -> Options)) {
    test(memory().path(), &emulated);
    test(disk().path(), &synced);
}

/// A cleanly closed pool of 1 MiB with a region `data` whose first word is 7.
fn closed(dir: &Path) -> PathBuf {
    let path = dir.join("pool");
    let pool = emulated(MIB).layout("shop").engine("kv", [7; 64]).create(&path).unwrap();
    let mut area = pool.add_region("data", 8192).unwrap().into_area().unwrap();
    area.publish(0, 7).unwrap();
    drop(area);
    pool.close().unwrap();
    path
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn poke(path: &Path, at: u64, bytes: &[u8]) {
    File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

fn read_word(path: &Path) -> u64 {
    let pool = emulated(0).open(path).unwrap();
    let area = pool.region("data").unwrap().into_area().unwrap();
    *area.get(0).unwrap()
}

// ---- who may open ------------------------------------------------------------------------------------------------

/// What children of these tests do; nothing in the suite's own process.
#[test]
fn as_child() {
    let Some((role, path)) = role() else { return };
    match role.as_str() {
        "hold" | "read" => {
            let options = emulated(0);
            let pool = if role == "hold" { options.open(&path) } else { options.open_read_only(&path) }.unwrap();
            println!("ready");
            io::stdin().read_line(&mut String::new()).unwrap();
            drop(pool);
        }
        other => panic!("{other}?"),
    }
}

#[test]
fn second_process_is_told_who_holds_the_pool() {
    let dir = memory();
    let path = closed(dir.path());
    let mut holder = child("pool::as_child", "hold", &path).spawn().unwrap();
    await_word(&mut holder, "ready");
    let pid = holder.id();
    for result in [emulated(0).open(&path), emulated(0).open_read_only(&path)] {
        let error = fails(result, &[name(&path), &format!("process {pid};"), "close it there, or wait"]);
        assert!(matches!(error, Error::Busy { pid: p, .. } if p == pid), "{error:?}");
    }
    // However the holder ends, the lock goes with it.
    holder.kill().unwrap();
    holder.wait().unwrap();
    let pool = emulated(0).open(&path).unwrap();
    assert!(!pool.was_clean());
    assert_eq!(pool.generation(), 3);
}

#[test]
fn readers_of_a_closed_pool_share_it_and_keep_writers_out() {
    let dir = memory();
    let path = closed(dir.path());
    let mut reader = child("pool::as_child", "read", &path).spawn().unwrap();
    await_word(&mut reader, "ready");
    let pool = emulated(0).open_read_only(&path).unwrap();
    assert_eq!(*pool.region("data").unwrap().into_area().unwrap().get::<u64>(0).unwrap(), 7);
    drop(pool);
    assert!(matches!(emulated(0).open(&path), Err(Error::Busy { pid, .. }) if pid == reader.id()));
    reader.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(reader.wait().unwrap().success());
    let pool = emulated(0).open(&path).unwrap();
    assert!(pool.was_clean(), "reading leaves a pool clean");
    assert_eq!(pool.generation(), 2, "and does not count as an open for writing");
}

#[test]
fn second_open_in_this_process_is_refused() {
    let dir = memory();
    let path = closed(dir.path());
    let pool = emulated(0).open(&path).unwrap();
    for result in [emulated(0).open(&path), emulated(0).open_read_only(&path), emulated(0).open_or_create(&path)] {
        let error = fails(result, &[name(&path), "already open in this process", "Clone"]);
        assert!(matches!(error, Error::AlreadyOpen { .. }), "{error:?}");
    }
    drop(pool);
    emulated(0).open(&path).unwrap();
}

#[test]
fn pool_is_refused_after_fork() {
    let dir = memory();
    let pool = emulated(MIB).create(dir.path().join("pool")).unwrap();
    let mut area = pool.add_region("data", 4096).unwrap().into_area().unwrap();
    let forked = |result: pmem::Result<()>| matches!(result, Err(Error::Forked));
    // SAFETY: the child calls nothing but checks that return before they lock or allocate, and `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let refused = [
            forked(area.bytes(0, 8).map(drop)),
            forked(area.get::<u64>(0).map(drop)),
            forked(area.bytes_mut(0, 8).map(drop)),
            forked(area.put(0, &1u64)),
            forked(area.publish(0, 1).map(drop)),
            forked(area.copy_nt(0, &[1; 64]).map(drop)),
            forked(area.persist(0, 8).map(drop)),
            forked(area.drain().map(drop)),
            forked(pool.drain().map(drop)),
            forked(pool.add_region("more", 4096).map(drop)),
            forked(pool.shrink_to_fit().map(drop)),
        ];
        let wrong = refused.iter().position(|r| !r).map_or(0, |n| n as i32 + 1);
        // SAFETY: ends the child without running what the parent's threads had planned to.
        unsafe { libc::_exit(wrong) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child was killed: {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "number of the call that was not refused");
    area.publish(0, 1).unwrap();
    fails::<()>(Err(Error::Forked), &["fork()", "open it in one process"]);
}

// ---- what it must be ---------------------------------------------------------------------------------------------

#[test]
fn file_without_write_permission_opens_for_reading_only() {
    let dir = memory();
    let path = closed(dir.path());
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    // Root may write everything: be the user `nobody`, on this thread alone, for the length of the open.
    // SAFETY: the raw calls change the credentials that this thread opens files with, and nothing in memory.
    let was = unsafe { libc::syscall(libc::SYS_setfsuid, 65534) };
    let opened = emulated(0).open(&path);
    let read = emulated(0).open_read_only(&path);
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_setfsuid, was) };
    let error = fails(opened, &[name(&path), "open failed", "denied"]);
    assert!(matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied));
    assert!(read.unwrap().is_read_only());
}

#[test]
fn read_only_pool_refuses_every_change() {
    let dir = memory();
    let path = closed(dir.path());
    let before = fs::read(&path).unwrap();
    let pool = emulated(0).layout("shop").open_read_only(&path).unwrap();
    let mut area = pool.region("data").unwrap().into_area().unwrap();
    assert_eq!(*area.get::<u64>(0).unwrap(), 7);
    let refused = [
        area.put(0, &8u64),
        area.bytes_mut(0, 1).map(drop),
        area.get_mut::<u64>(0).map(drop),
        area.publish(0, 8).map(drop),
        area.copy_nt(0, &[1; 200]).map(drop),
        area.write_checksummed(0, 1, 1, b"x").map(drop),
        area.clear().map(drop),
        pool.add_region("more", 4096).map(drop),
        pool.shrink_to_fit().map(drop),
    ];
    for result in refused {
        let error = fails(result, &["read-only", "Options::open"]);
        assert!(matches!(error, Error::ReadOnly));
    }
    drop(area);
    let mut region = pool.region("data").unwrap();
    assert!(matches!(pool.grow_region(&mut region, 4096), Err(Error::ReadOnly)));
    drop(region);
    pool.close().unwrap();
    assert!(before == fs::read(&path).unwrap(), "not a byte has changed");
}

#[test]
fn dirty_pool_needs_recovery_before_it_is_read() {
    let dir = memory();
    let path = closed(dir.path());
    drop(emulated(0).open(&path).unwrap());
    let error = fails(emulated(0).open_read_only(&path), &[name(&path), "not closed cleanly", "open it for writing"]);
    assert!(matches!(error, Error::NeedsRecovery { .. }));
    let pool = emulated(0).open(&path).unwrap();
    assert!(!pool.was_clean());
    recover(&pool);
    pool.close().unwrap();
    assert!(emulated(0).open_read_only(&path).unwrap().was_clean());
}

#[test]
fn truncated_file_is_refused_wherever_it_was_cut() {
    let dir = memory();
    let path = closed(dir.path());
    let whole = fs::read(&path).unwrap();
    let cut_at = |len: u64| {
        fs::write(&path, &whole[..len as usize]).unwrap();
        for result in [emulated(0).open(&path), emulated(0).open_read_only(&path)] {
            match fails(result, &[name(&path)]) {
                Error::Truncated { found, expected, .. } => {
                    assert!(found <= len && expected > len, "cut at {len}: {found} of {expected}");
                    assert!(len < 8192 || expected == MIB, "cut at {len}: {expected} expected");
                }
                Error::NotAPool { .. } => assert!(len < 8, "cut at {len}"),
                other => panic!("cut at {len}: {other:?}"),
            }
        }
    };
    (0..MIB).step_by(4096).for_each(cut_at);
    [1, 7, 8, 12, 100, 4095, 4096, 4108, 7376, 8191, 8193, 12_345, 500_000, MIB - 1].into_iter().for_each(cut_at);
    fs::write(&path, &whole).unwrap();
    assert_eq!(read_word(&path), 7);
    let message = Error::Truncated { path, found: 1, expected: 2 }.to_string();
    assert!(message.contains("1 bytes of 2; restore the rest"), "{message}");
}

#[test]
fn something_else_is_not_a_pool() {
    let dir = memory();
    let path = dir.path().join("pool");
    for bytes in [&b""[..], b"x", b"#!/bin/sh\n", &[0; 100_000], &b"CAIRN\r\n\x1b".repeat(2000)] {
        fs::write(&path, bytes).unwrap();
        let parts = [name(&path), "not a pool (at byte 0: found [", "43, 41, 49, 52, 4e", "check the path"];
        let error = fails(emulated(0).open(&path), &parts);
        let Error::NotAPool { found, .. } = error else { panic!("{error:?}") };
        let n = bytes.len().min(8);
        assert_eq!(found[..n], bytes[..n]);
        assert_eq!(fs::read(&path).unwrap(), bytes, "a refused file is left alone");
    }
    fs::remove_file(&path).unwrap();
    let error = fails(emulated(0).open(&path), &[name(&path), "open failed"]);
    assert!(matches!(error, Error::Io { op: "open", source, .. } if source.kind() == io::ErrorKind::NotFound));
    assert!(matches!(emulated(0).open(dir.path()), Err(Error::Io { .. })), "a directory");
}

#[test]
fn newer_version_is_refused() {
    let dir = memory();
    let path = closed(dir.path());
    let newer = FORMAT_VERSION + 6;
    poke(&path, 8, &newer.to_le_bytes());
    poke(&path, SECOND + 8, &newer.to_le_bytes());
    let parts = [name(&path), &format!("format version {newer}, this build reads up to {FORMAT_VERSION}"), "upgrade"];
    let error = fails(emulated(0).open(&path), &parts);
    assert!(
        matches!(error, Error::NewerVersion { found, supported, .. } if (found, supported) == (newer, FORMAT_VERSION))
    );
    // One copy alone is damage, and repaired.
    poke(&path, SECOND + 8, &FORMAT_VERSION.to_le_bytes());
    assert!(emulated(0).open(&path).unwrap().was_repaired());
}

#[test]
fn another_layout_or_engine_is_refused() {
    let dir = memory();
    let path = closed(dir.path());
    let error = fails(emulated(0).layout("bank").open(&path), &["layout is \"shop\"", "asked for was \"bank\""]);
    assert!(matches!(error, Error::WrongLayout { what: "layout", .. }));
    let error =
        fails(emulated(0).engine("mvcc", [0; 64]).open(&path), &["engine is \"kv\"", "\"mvcc\"", "open it with"]);
    assert!(matches!(error, Error::WrongLayout { what: "engine", .. }));
    // A refusal does not count as an open: the pool stays clean.
    let pool = emulated(0).layout("shop").engine("kv", [0; 64]).open(&path).unwrap();
    assert!(pool.was_clean());
    assert_eq!(pool.engine_options(), [7; 64], "what its maker chose");
    let PoolInfo { layout, engine, generation, .. } = pool.info();
    assert_eq!((layout.as_str(), engine.as_str(), generation), ("shop", "kv", 2));
}

#[test]
fn persistent_memory_is_refused_where_there_is_none() {
    let dir = disk();
    let path = dir.path().join("pool");
    let Err(error) = Options::new().size(MIB).domain(DomainChoice::Pmem).create(&path) else {
        println!("{} is persistent memory: nothing to refuse", dir.path().display());
        return;
    };
    assert!(error.to_string().contains("no persistent memory here") && error.to_string().contains("MAP_SYNC"));
    assert!(matches!(error, Error::Domain { .. }));
    let slow = "drain=300".parse().unwrap();
    let error = fails(synced(MIB).latency(slow).create(&path), &["no latency model here", "emulated"]);
    assert!(matches!(error, Error::Domain { .. }));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "a failed creation leaves nothing");
}

// ---- creation ----------------------------------------------------------------------------------------------------

#[test]
fn creation_is_all_or_nothing() {
    everywhere(|dir, options| {
        let path = dir.join("pool");
        let taken = |result: pmem::Result<_>| matches!(result, Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists);
        for (result, limit) in [(options(0).create(&path), 0), (options(1 << 50).create(&path), 1 << 50)] {
            let error = fails(result, &["pool size in bytes", &limit.to_string()]);
            assert!(matches!(error, Error::Limit { found, .. } if found == limit));
        }
        assert!(matches!(options(MIB).layout(&"x".repeat(LAYOUT_MAX + 1)).create(&path), Err(Error::BadName { .. })));
        assert!(matches!(options(MIB).engine("x\0y", [0; 64]).create(&path), Err(Error::BadName { .. })));
        let nowhere = dir.join("none/pool");
        let error = fails(options(MIB).create(&nowhere), &[name(&nowhere), "create failed"]);
        assert!(matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound));
        assert_eq!(fs::read_dir(dir).unwrap().count(), 0, "a failed creation leaves nothing");

        fs::write(&path, b"mine").unwrap();
        assert!(taken(options(MIB).create(&path)));
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("nowhere", &path).unwrap();
        assert!(taken(options(MIB).create(&path)), "a dangling link is a name too");
        fs::remove_file(&path).unwrap();

        let pool = options(MIB + 1).create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!((pool.size(), pool.generation(), pool.was_repaired()), (MIB + 4096, 1, false));
        assert_eq!(fs::read_dir(dir).unwrap().count(), 1, "and under no other name");
        assert_eq!(options(MIB).layout("x").open_or_create(dir.join("other")).unwrap().generation(), 1);
        fs::remove_file(&path).unwrap();
        fs::remove_file(dir.join("other")).unwrap();
    });
}

#[test]
fn threads_that_create_one_path_leave_one_pool() {
    let dir = memory();
    for round in 0..50 {
        let path = dir.path().join(format!("pool-{round}"));
        let made: Vec<pmem::Result<pmem::Pool>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| emulated(MIB).create(&path))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let mut pools = 0;
        for result in made {
            match result {
                Ok(pool) => {
                    pools += 1;
                    let mut area = pool.add_region("data", MIB / 2).unwrap().into_area().unwrap();
                    area.clear().unwrap(); // a file cut by another thread would kill this process
                }
                Err(Error::Io { source, .. }) => assert_eq!(source.kind(), io::ErrorKind::AlreadyExists),
                Err(other) => panic!("{other:?}"),
            }
        }
        assert_eq!(pools, 1);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 50);
}

#[test]
fn domain_is_found_out() {
    let dir = memory();
    if dir.path().starts_with("/dev/shm") {
        let pool = Options::new().size(MIB).create(dir.path().join("pool")).unwrap();
        assert_eq!(pool.domain(), Domain::Emulated);
        assert!(pool.info().flush_with.is_some());
    }
    let dir = disk();
    let pool = synced(MIB).create(dir.path().join("pool")).unwrap();
    assert_eq!((pool.domain(), pool.info().flush_with), (Domain::File, None));
}

// ---- regions -----------------------------------------------------------------------------------------------------

#[test]
fn directory_has_an_end() {
    let dir = memory();
    let path = dir.path().join("pool");
    let pool = emulated(MIB).create(&path).unwrap();
    for n in 0..REGIONS_MAX {
        pool.add_region(&format!("region {n}"), 1).unwrap();
    }
    let error = fails(pool.add_region("one more", 1), &["48 regions", "fewer, larger"]);
    assert!(matches!(error, Error::DirectoryFull { max: REGIONS_MAX }));
    let mut first = pool.region("region 0").unwrap();
    assert!(
        matches!(pool.grow_region(&mut first, 4096), Err(Error::DirectoryFull { .. })),
        "an extent is an entry too"
    );
    drop(first);
    let mut last = pool.region("region 47").unwrap();
    pool.grow_region(&mut last, 4096).unwrap(); // in place
    drop(last);
    pool.close().unwrap();
    assert_eq!(emulated(0).open(&path).unwrap().info().regions.len(), REGIONS_MAX);
}

#[test]
fn region_has_one_owner() {
    let dir = memory();
    let pool = emulated(MIB).create(dir.path().join("pool")).unwrap();
    let region = pool.add_region("data", 8192).unwrap();
    let in_use = |pool: &pmem::Pool| {
        let error = fails(pool.region("data"), &["region \"data\" is still in use", "drop or finish"]);
        assert!(matches!(error, Error::InUse { .. }));
    };
    in_use(&pool);
    let (one, other) = region.into_area().unwrap().split_at(64).unwrap();
    drop(one);
    in_use(&pool);
    assert!(matches!(pool.clone().close(), Err(Error::InUse { .. })), "nor is it closed under somebody");
    drop(other);
    drop(pool.region("data").unwrap());
    let clone = pool.clone();
    let error = fails(pool.close(), &["another handle of the pool"]);
    assert!(matches!(error, Error::InUse { .. }));
    clone.close().unwrap();
}

#[test]
fn region_names_and_sizes_have_limits() {
    let dir = memory();
    let path = dir.path().join("pool");
    let pool = emulated(MIB).create(&path).unwrap();
    for name in ["", &"x".repeat(NAME_MAX + 1), "a\0b"] {
        let error = fails(pool.add_region(name, 1), &["is no name: 1 to 24 bytes"]);
        assert!(matches!(error, Error::BadName { .. }));
    }
    for len in [0, u64::MAX] {
        let error = fails(pool.add_region("data", len), &["bytes of a region"]);
        assert!(matches!(error, Error::Limit { .. }));
    }
    let longest = "é".repeat(NAME_MAX / 2);
    let region = pool.add_region_as(&longest, 1, RegionKind::Other(99), 0xabc).unwrap();
    assert_eq!((region.name(), region.kind(), region.options(), region.len()), (longest.as_str(), 99, 0xabc, 4096));
    let error = fails(pool.add_region(&longest, 1), &["already has a region", &longest]);
    assert!(matches!(error, Error::RegionExists { .. }));
    let error = fails(pool.region("nobody"), &["no region \"nobody\"", "cairn info"]);
    assert!(matches!(error, Error::NoRegion { .. }));
    drop((region, pool));
    let info = emulated(0).open(&path).unwrap().info();
    assert_eq!((info.regions[0].name.as_str(), info.regions[0].kind), (longest.as_str(), RegionKind::Other(99)));
}

// ---- growth and shrinking ----------------------------------------------------------------------------------------

#[test]
fn growth_moves_nothing_and_keeps_everything() {
    everywhere(|dir, options| {
        let path = dir.join("pool");
        let pool = options(MIB).create(&path).unwrap();
        let mut first = pool.add_region("first", 256 << 10).unwrap().into_area().unwrap();
        first.bytes_mut(0, 256 << 10).unwrap().fill(1);
        let seen = first.bytes(1000, 100).unwrap();
        let mut last = pool.add_region("last", 64 << 10).unwrap();

        pool.grow_region(&mut last, 8 * MIB).unwrap(); // the last in the pool: in place
        assert_eq!((last.areas().len(), last.len()), (1, 8 * MIB + (64 << 10)));
        let before = last.areas()[0].bytes(0, 1).unwrap().as_ptr();
        pool.add_region("behind", 4096).unwrap();
        pool.grow_region(&mut last, 4 * MIB).unwrap(); // no longer the last: another extent
        assert_eq!((last.areas().len(), last.len()), (2, 12 * MIB + (64 << 10)));
        assert_eq!(last.areas()[0].bytes(0, 1).unwrap().as_ptr(), before);
        assert!(matches!(pool.region("last"), Err(Error::InUse { .. })));

        assert!(seen.iter().all(|&b| b == 1), "a reference from before the growth");
        assert_eq!(seen.as_ptr(), first.bytes(1000, 100).unwrap().as_ptr());
        assert!(pool.size() >= 12 * MIB && fs::metadata(&path).unwrap().len() == pool.size());
        let mut areas = last.into_areas();
        for (n, area) in areas.iter_mut().enumerate() {
            let len = area.len() as usize;
            assert!(area.bytes(0, len).unwrap().iter().all(|&b| b == 0), "new bytes are zero");
            area.bytes_mut(0, len).unwrap().fill(n as u8 + 2);
            area.persist(0, len as u64).unwrap();
        }
        drop((areas, first));
        drop(pool);

        let pool = options(0).open(&path).unwrap();
        let region = pool.region("last").unwrap();
        let error = fails(pool.region("last").map(drop), &["in use"]);
        assert!(matches!(error, Error::InUse { .. }));
        for (n, area) in region.areas().iter().enumerate() {
            assert!(area.bytes(0, area.len() as usize).unwrap().iter().all(|&b| b == n as u8 + 2));
        }
        let error = fails(region.into_area(), &["extents of the region: 2"]);
        assert!(matches!(error, Error::Limit { .. }));
        fs::remove_file(&path).unwrap();
    });
}

/// An extent keeps its region claimed like the first one, and another pool cannot grow it.
#[test]
fn growth_makes_no_second_owner() {
    let dir = memory();
    let pool = emulated(MIB).create(dir.path().join("pool")).unwrap();
    let mut region = pool.add_region("data", 4096).unwrap();
    pool.add_region("behind", 4096).unwrap();

    let other = emulated(MIB).create(dir.path().join("other")).unwrap();
    other.add_region("data", 4096).unwrap();
    let error = fails(other.grow_region(&mut region, 4096), &["no region \"data\""]);
    assert!(matches!(error, Error::NoRegion { .. }));
    assert_eq!(region.len(), 4096, "else it would reach into the region behind it");

    pool.grow_region(&mut region, 4096).unwrap();
    let mut areas = region.into_areas();
    let second = areas.pop().unwrap();
    drop(areas);
    assert!(matches!(pool.region("data"), Err(Error::InUse { .. })), "its second extent has an owner");
    drop(second);
    pool.region("data").unwrap();
}

#[test]
fn growth_ends_where_the_reserved_addresses_end() {
    everywhere(|dir, options| {
        let path = dir.join("pool");
        let pool = options(MIB).max_size(8 * MIB).create(&path).unwrap();
        let mut region = pool.add_region("data", 4096).unwrap();
        let (size, info) = (pool.size(), pool.info().regions);
        let error = fails(pool.grow_region(&mut region, 9 * MIB), &["8388608 are reserved", "Options::max_size"]);
        assert!(matches!(error, Error::Reserve { reserved, .. } if reserved == 8 * MIB));
        assert!(matches!(pool.add_region("more", 9 * MIB), Err(Error::Reserve { .. })));
        assert_eq!((pool.size(), pool.info().regions), (size, info));
        pool.grow_region(&mut region, 4 * MIB).unwrap();
        drop(region);
        drop(pool);
        let pool = options(0).open(&path).unwrap();
        pool.add_region("more", 9 * MIB).unwrap();
        fs::remove_file(&path).unwrap();
    });
}

#[test]
fn shrinking_gives_bytes_back_to_the_file_system() {
    everywhere(|dir, options| {
        let path = dir.join("pool");
        let pool = options(16 * MIB).create(&path).unwrap();
        let mut area = pool.add_region("data", MIB).unwrap().into_area().unwrap();
        area.publish(MIB - 8, 9).unwrap();
        let blocks = |path: &Path| fs::metadata(path).unwrap().blocks() * 512;
        assert!(blocks(&path) >= 16 * MIB, "allocated in full, so that no store meets a full disk");
        let given = pool.shrink_to_fit().unwrap();
        assert_eq!((given, pool.info().free), (15 * MIB - 8192, 0));
        assert_eq!(fs::metadata(&path).unwrap().len(), MIB + 8192);
        assert!(blocks(&path) <= 2 * MIB, "{} bytes are still allocated", blocks(&path));
        assert_eq!(pool.shrink_to_fit().unwrap(), 0);
        assert_eq!(*area.get::<u64>(MIB - 8).unwrap(), 9);

        let more = pool.add_region("more", 2 * MIB).unwrap().into_area().unwrap();
        assert!(more.bytes(0, 2 << 20).unwrap().iter().all(|&b| b == 0));
        drop((area, more));
        pool.close().unwrap();
        let pool = options(0).open(&path).unwrap();
        let area = pool.region("data").unwrap().into_area().unwrap();
        assert_eq!(*area.get::<u64>(MIB - 8).unwrap(), 9);
        drop((area, pool));
        fs::remove_file(&path).unwrap();
    });
}

#[test]
fn interrupted_growth_is_trimmed() {
    everywhere(|dir, options| {
        let path = dir.join("pool");
        let pool = options(MIB).create(&path).unwrap();
        let mut area = pool.add_region("data", 4096).unwrap().into_area().unwrap();
        area.publish(0, 7).unwrap();
        drop(area);
        drop(pool);
        for extra in [1, 4095, 4096, 3 * MIB + 5] {
            poke(&path, MIB, &vec![0xee; extra as usize]);
            let pool = options(0).open(&path).unwrap();
            assert_eq!(pool.size(), MIB);
            let area = pool.add_region(&format!("after {extra}"), 2 * MIB).unwrap().into_area().unwrap();
            assert!(area.bytes(0, 2 << 20).unwrap().iter().all(|&b| b == 0), "{extra} bytes of garbage came back");
            drop(area);
            drop(pool);
            fs::remove_file(&path).unwrap();
            let pool = options(MIB).create(&path).unwrap();
            pool.add_region("data", 4096).unwrap();
        }
        fs::remove_file(&path).unwrap();
    });
}

// ---- damage ------------------------------------------------------------------------------------------------------

#[test]
fn one_damaged_header_copy_is_repaired_from_the_other() {
    let dir = memory();
    let path = closed(dir.path());
    for at in [0, 8, 20, 100, 700, 3264, 3279, SECOND, SECOND + 9, SECOND + 100, SECOND + 3272] {
        flip(&path, at);
        let pool = emulated(0).layout("shop").open(&path).unwrap();
        assert!(pool.was_repaired(), "byte {at}");
        drop(pool);
        // The copy that was damaged is whole again: it carries the pool alone.
        let survivor = if at < SECOND { SECOND } else { 0 };
        flip(&path, survivor + 50);
        assert_eq!(read_word(&path), 7, "byte {at}");
        let pool = emulated(0).open(&path).unwrap();
        assert!(!pool.was_repaired(), "byte {at}: both are whole");
        recover(&pool);
        pool.close().unwrap();
    }
    // Read-only, it is noticed and left alone.
    flip(&path, 100);
    let before = fs::read(&path).unwrap();
    let pool = emulated(0).open_read_only(&path).unwrap();
    assert!(pool.was_repaired());
    drop(pool);
    assert!(before == fs::read(&path).unwrap());
}

/// The copies are a page apart: what a medium loses is a page.
#[test]
fn lost_page_leaves_a_copy_of_the_header() {
    everywhere(|dir, options| {
        for lost in [0, SECOND] {
            for bytes in [[0u8; 4096], [0xff; 4096], std::array::from_fn(|i| (i * 31) as u8)] {
                let path = closed(dir);
                poke(&path, lost, &bytes);
                let pool = emulated(0).layout("shop").open_read_only(&path).unwrap();
                assert!(pool.was_repaired() && pool.was_clean());
                drop(pool);

                let pool = options(0).layout("shop").engine("kv", [0; 64]).open(&path).unwrap();
                let info = pool.info();
                assert!(pool.was_repaired() && info.was_clean);
                assert_eq!((info.generation, info.size, info.regions.len()), (2, MIB, 1));
                assert_eq!(pool.engine_options(), [7; 64]);
                drop(pool);
                // Both are whole again: the other page may go.
                assert!(!emulated(0).open(&path).unwrap().was_repaired());
                poke(&path, SECOND - lost, &bytes);
                assert_eq!(read_word(&path), 7);
                assert_eq!(emulated(0).open(&path).unwrap().generation(), 5);
                fs::remove_file(&path).unwrap();
            }
        }
        let path = closed(dir);
        poke(&path, 0, &[0; 8192]);
        assert!(matches!(options(0).open(&path), Err(Error::NotAPool { .. })));
        fs::remove_file(&path).unwrap();
    });
}

#[test]
fn unreadable_page_is_replaced_from_the_other_copy() {
    let ram = Ram::new(MIB);
    drop(Options::new().size(MIB / 2).layout("shop").create_on(ram.clone()).unwrap());
    for (n, lost) in [0, SECOND, 0].into_iter().enumerate() {
        ram.lose(lost);
        let pool = Options::new().layout("shop").open_on(ram.clone()).unwrap();
        assert!(pool.was_repaired());
        assert_eq!(pool.generation(), 2 + n as u64);
        drop(pool);
    }
    // Both, one after the other, with no open between.
    ram.poke(SECOND, &[0; 4096]);
    ram.lose(0);
    let error = fails(Options::new().open_on(ram.clone()), &["unreadable", "at byte 0", "a lost page"]);
    assert!(matches!(error, Error::Unreadable { .. }));
}

#[test]
fn two_damaged_header_copies_are_an_error() {
    let dir = memory();
    let path = closed(dir.path());
    for (a, b) in [(20, 20), (100, 3000), (3272, 3264)] {
        flip(&path, a);
        flip(&path, SECOND + b);
        let error = fails(emulated(0).open(&path), &["damaged pool header at byte 0", "cairn check"]);
        assert!(matches!(error, Error::Damaged { .. }));
        flip(&path, a);
        flip(&path, SECOND + b);
    }
    assert_eq!(read_word(&path), 7);
}

#[test]
fn children_run() {
    // `as_child` must be found by this name, or the tests above would wait for no child.
    let dir = memory();
    let path = closed(dir.path());
    let text = succeed(child("pool::as_child", "read", &path));
    assert!(text.contains("ready"), "{text}");
}

/// Takes every region over, as their owners do.
fn recover(pool: &pmem::Pool) {
    for region in pool.info().regions {
        drop(pool.region(&region.name).unwrap());
    }
}

/// What its owner has not recovered may be in a cache only. A process that merely looked must not say otherwise.
#[test]
fn a_pool_closed_without_its_owner_still_needs_recovery() {
    let dir = memory();
    let path = dir.path().join("p");
    let pool = emulated(MIB).create(&path).unwrap();
    drop(pool.add_region("first", 4096).unwrap());
    drop(pool.add_region("second", 4096).unwrap());
    drop(pool); // killed
    emulated(0).open(&path).unwrap().close().unwrap();
    let pool = emulated(0).open(&path).unwrap();
    assert!(!pool.was_clean(), "nobody has recovered it");
    drop(pool.region("first").unwrap());
    pool.close().unwrap();
    fails(emulated(0).open_read_only(&path), &["recover"]);
    let pool = emulated(0).open(&path).unwrap();
    assert!(!pool.was_clean(), "one region's owner has, the other's not");
    drop((pool.region("first").unwrap(), pool.region("second").unwrap()));
    pool.close().unwrap();
    let pool = emulated(0).open(&path).unwrap();
    assert!(pool.was_clean());
    pool.close().unwrap();
    assert!(emulated(0).open(&path).unwrap().was_clean(), "a pool that was clean stays so");
}
