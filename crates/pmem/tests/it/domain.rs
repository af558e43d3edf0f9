//! Domains: what was asked for is what one gets, and what it survives is said.

use std::path::Path;
use std::time::Duration;

use pmem::{Domain, DomainChoice, Latency, Options};

use crate::support::{disk, emulated, memory, synced};

const MIB: u64 = 1 << 20;

#[test]
fn domain_asked_for_by_name_is_the_one_used() {
    for (dir, options, expected) in [
        (memory(), emulated(MIB), Domain::Emulated),
        (memory(), synced(MIB), Domain::File),
        (disk(), emulated(MIB), Domain::Emulated),
        (disk(), synced(MIB), Domain::File),
    ] {
        let path = dir.path().join("pool");
        let pool = options.create(&path).unwrap();
        assert_eq!((pool.domain(), pool.info().domain), (expected, expected));
        let mut area = pool.add_region("data", 4096).unwrap().into_area().unwrap();
        let before = pool.stats();
        area.publish(0, 7).unwrap();
        let spent = pool.stats() - before;
        assert_eq!((spent.drains, spent.flushed_lines), (1, 1));
        assert_eq!(spent.syncs, u64::from(expected == Domain::File), "a barrier is a sync in the file domain alone");
        drop((area, pool));
        // The choice is of this open, not of the pool.
        let other = if expected == Domain::File { DomainChoice::Emulated } else { DomainChoice::File };
        let pool = Options::new().domain(other).open(&path).unwrap();
        assert_ne!(pool.domain(), expected);
        assert_eq!(*pool.region("data").unwrap().into_area().unwrap().get::<u64>(0).unwrap(), 7);
    }
}

#[test]
fn domains_have_names_and_say_what_they_survive() {
    for (name, choice) in [
        ("auto", DomainChoice::Auto),
        ("pmem", DomainChoice::Pmem),
        ("emulated", DomainChoice::Emulated),
        ("file", DomainChoice::File),
    ] {
        assert_eq!(name.parse(), Ok(choice));
    }
    assert!("disk".parse::<DomainChoice>().unwrap_err().contains("auto, pmem, emulated or file"));
    assert_eq!(Domain::Pmem.survives(), "power loss");
    assert!(Domain::Emulated.survives().contains("not power loss"));
    assert!(Domain::File.survives().contains("fdatasync"));
    assert_eq!(Domain::PmemEadr.to_string(), "pmem-eadr");
}

/// The model adds at least what it was told to; how much more is the machine's affair.
#[test]
#[expect(clippy::disallowed_methods, reason = "the model waits in real time")]
fn latency_model_waits() {
    let dir = memory();
    let latency: Latency = "drain=2000000,line=1000000".parse().unwrap();
    let pool = emulated(MIB).latency(latency).create(dir.path().join("pool")).unwrap();
    let mut area = pool.add_region("data", 4096).unwrap().into_area().unwrap();
    let started = std::time::Instant::now();
    area.persist(0, 3 * 64).unwrap();
    assert!(started.elapsed() >= Duration::from_millis(5), "two for the drain and one for each line");
    let started = std::time::Instant::now();
    area.copy_nt(0, &[1; 256]).unwrap();
    assert!(started.elapsed() >= Duration::from_millis(4), "streamed lines too");
}

/// Bytes of a file's mapping that this process has in memory.
fn resident(path: &Path) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let path = path.to_str().unwrap();
    let lines = maps.lines().skip_while(|line| !line.ends_with(path));
    let of = |line: &str| line.strip_prefix("Rss:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok();
    lines.filter_map(of).next().unwrap() << 10
}

/// Whether all of a file's mappings ask for large pages.
fn asks_for_large_pages(path: &Path) -> bool {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let path = path.to_str().unwrap();
    let (mut ours, mut found) = (false, Vec::new());
    for line in maps.lines() {
        if line.starts_with(|c: char| c.is_ascii_hexdigit() && !c.is_ascii_uppercase()) {
            ours = line.ends_with(path);
        } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| ours) {
            found.push(flags.split_whitespace().any(|flag| flag == "hg"));
        }
    }
    assert!(!found.is_empty(), "{path} is not mapped");
    found.into_iter().all(|asks| asks)
}

/// What is added later, too. A kernel that has none says nothing.
#[test]
fn large_pages_are_asked_for_in_memory_and_not_on_a_disk() {
    if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        return;
    }
    let dir = memory();
    for (choice, asks) in [(DomainChoice::Emulated, true), (DomainChoice::File, false)] {
        let path = dir.path().join(format!("{choice:?}"));
        Options::new().domain(choice).size(4 << 20).create(&path).unwrap().close().unwrap();
        let pool = Options::new().domain(choice).open(&path).unwrap();
        assert_eq!(asks_for_large_pages(&path), asks, "{choice:?}");
        pool.add_region("more", 16 << 20).unwrap();
        assert_eq!(asks_for_large_pages(&path), asks, "{choice:?}, grown");
    }
}

#[test]
fn populated_pages_are_there_in_memory_and_left_alone_on_a_disk() {
    const SIZE: u64 = 8 << 20;
    let dir = memory();
    for (choice, there) in [(DomainChoice::Emulated, true), (DomainChoice::File, false)] {
        let path = dir.path().join(format!("{choice:?}"));
        // A mapping that was made before the file had its name goes without it.
        Options::new().domain(choice).size(SIZE).create(&path).unwrap().close().unwrap();
        let pool = Options::new().domain(choice).open(&path).unwrap();
        let before = resident(&path);
        pool.populate(SIZE / 2 + 5, SIZE / 4);
        let more = resident(&path) - before;
        assert_eq!((SIZE / 4..SIZE / 2).contains(&more), there, "{choice:?}: {more}");
        // Any range will do.
        pool.populate(SIZE - 1, 2);
        pool.populate(u64::MAX, u64::MAX);
    }
}
