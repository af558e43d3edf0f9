//! Regions that get other names, and a ring where there was one before.

use pmem::{DomainChoice, Error, Options, Ring};

fn options() -> Options {
    Options::new().size(1 << 20).domain(DomainChoice::Emulated)
}

#[test]
fn regions_and_layout_change_together() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("p");
    let pool = options().layout("old").create(&path).unwrap();
    let mut region = pool.add_region("data", 4096).unwrap();
    drop(pool.add_region("other", 4096).unwrap());
    pool.grow_region(&mut region, 8192).unwrap(); // by an extent: it is not the last one
    let mut areas = region.into_areas();
    areas[1].put(0, &7u64).unwrap();
    areas[1].persist(0, 8).unwrap();
    assert!(matches!(pool.rename(&[("data", "new")], None), Err(Error::InUse { .. })), "somebody has it");
    drop(areas);
    // All of it, or nothing.
    let long = "x".repeat(65);
    type Case<'c> = (&'c [(&'c str, &'c str)], Option<&'c str>);
    let cases: [Case<'_>; 6] = [
        (&[("data", "new"), ("gone", "found")], None),
        (&[("data", "new"), ("other", "new")], None),
        (&[("data", "other")], None),
        (&[("data", "")], None),
        (&[("data", "a name of more than 24 bytes")], None),
        (&[("data", "new")], Some(&long)),
    ];
    for (names, layout) in cases {
        let refused = pool.rename(names, layout).unwrap_err();
        let is_told = matches!(refused, Error::NoRegion { .. } | Error::RegionExists { .. } | Error::BadName { .. });
        assert!(is_told, "{names:?}: {refused}");
        let info = pool.info();
        let found: Vec<_> = info.regions.iter().map(|region| (region.name.as_str(), region.part)).collect();
        assert_eq!((&found[..], &info.layout[..]), (&[("data", 0), ("other", 0), ("data", 1)][..], "old"), "{names:?}");
    }
    let before = pool.stats().drains;
    pool.rename(&[("data", "new"), ("other", "data")], Some("newer")).unwrap();
    assert_eq!(pool.stats().drains - before, 2);
    pool.close().unwrap();
    assert!(matches!(options().layout("old").open(&path), Err(Error::WrongLayout { .. })));
    let pool = options().layout("newer").open(&path).unwrap();
    assert_eq!((pool.region("new").unwrap().areas().len(), pool.region("data").unwrap().areas().len()), (2, 1));
    assert_eq!(*pool.region("new").unwrap().areas()[1].get::<u64>(0).unwrap(), 7);
}

/// A page of a ring goes back to what it held when another ring was there: none of its records is one of the new ring.
#[test]
fn records_of_an_earlier_ring_at_the_same_offset_are_none() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("p");
    let pool = options().create(&path).unwrap();
    let region = pool.add_region("ring", 16 << 10).unwrap();
    let at = region.areas()[0].offset() as usize;
    let mut ring = Ring::create(region.into_area().unwrap()).unwrap();
    for _ in 0..200 {
        ring.append(&[b"earlier"]).unwrap();
    }
    ring.force().unwrap();
    drop(ring);
    pool.close().unwrap();
    let earlier = std::fs::read(&path).unwrap();
    let pool = options().open(&path).unwrap();
    drop(Ring::create(pool.region("ring").unwrap().into_area().unwrap()).unwrap());
    pool.close().unwrap();
    let now = std::fs::read(&path).unwrap();
    for page in (at..at + (16 << 10)).step_by(4096) {
        let mut bytes = now.clone();
        // But the mark's slots, at both ends.
        let (from, to) = (page.max(at + 64), (page + 4096).min(at + (16 << 10) - 64));
        bytes[from..to].copy_from_slice(&earlier[from..to]);
        std::fs::write(&path, bytes).unwrap();
        let pool = options().open(&path).unwrap();
        let opened = Ring::open(pool.region("ring").unwrap().into_area().unwrap());
        assert!(opened.is_err() || opened.is_ok_and(|(_, found)| found.records.is_empty()), "page {page:#x}");
    }
}
