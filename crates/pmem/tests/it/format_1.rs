//! Pools of format version 1, of which an earlier build left one without closing it, are used as they are.

use pmem::{Error, FORMAT_VERSION, Observer, Options, Pool, Ring, TwoSlot};

use crate::left::left;
use crate::support::{emulated, memory};

const LENGTHS: [usize; 5] = [0, 5, 100, 300, 700];

fn payload() -> Vec<u8> {
    (0..700).map(|i| (i * 7) as u8).collect()
}

fn bytes_of_pool(pool: &Pool) -> (TwoSlot<[u64; 40]>, Ring, pmem::Recovered, pmem::Area) {
    let (cell, _) = TwoSlot::<[u64; 40]>::open(pool.region("cell").unwrap().into_area().unwrap()).unwrap();
    let (ring, data) = pool.region("ring").unwrap().into_area().unwrap().split_at(8192).unwrap();
    let (ring, found) = Ring::open(ring).unwrap();
    (cell, ring, found, data)
}

/// Every kind of checksum in it verifies: cells, records, checksums of one run and of many.
#[test]
fn a_pool_of_an_earlier_build_is_recovered_and_written() {
    let dir = memory();
    let path = left(dir.path(), include_str!("format_1.txt"));
    let payload = payload();
    for round in 0..3 {
        assert_eq!(
            Observer::open(&path).unwrap().cell::<[u64; 40]>(8192).unwrap(),
            Some(std::array::from_fn(|i| (3 + round) * i as u64))
        );
        let pool = emulated(0).layout("golden").open(&path).unwrap();
        assert_eq!(pool.info().format_version, 1, "it stays what it is");
        let (mut cell, mut ring, found, data) = bytes_of_pool(&pool);
        assert_eq!(cell.get(), std::array::from_fn(|i| (3 + round) * i as u64));
        assert_eq!(found.records.len() as u64, 7 + round);
        for (record, len) in found.records.iter().zip(LENGTHS) {
            assert_eq!((ring.payload(record).unwrap(), record.outside), (&payload[..len], None));
        }
        assert_eq!(ring.payload(&found.records[5]).unwrap(), b"one run");
        let outside = ring.outside_checksum([data.bytes(0, 700).unwrap()].into_iter());
        assert_eq!(found.records[5].outside, Some(outside));
        assert_eq!(ring.payload(&found.records[6]).unwrap(), b"runs");
        let runs = (0..20).map(|i| &payload[i * 30..i * 30 + 20 + i]);
        assert_eq!(found.records[6].outside, Some(ring.outside_checksum(runs)));

        cell.update(&std::array::from_fn(|i| (4 + round) * i as u64)).unwrap();
        ring.append(&[&payload]).unwrap();
        ring.force().unwrap();
        drop((cell, ring, data));
        if round == 1 { pool.close().unwrap() } else { drop(pool) }
    }
}

/// Both formats by the same steps; in neither does anything of the other verify.
#[test]
fn each_format_has_checksums_of_its_own() {
    let dir = memory();
    let mut files = Vec::new();
    for (name, options) in [("one", emulated(64 << 10).format_1()), ("two", emulated(64 << 10))] {
        let path = dir.path().join(name);
        let pool = options.create(&path).unwrap();
        let area = pool.add_region("cell", 4096).unwrap().into_area().unwrap();
        TwoSlot::create(area, &[7_u64; 40]).unwrap();
        pool.close().unwrap();
        files.push(std::fs::read(&path).unwrap());
    }
    for (version, bytes) in (1..).zip(&files) {
        let path = dir.path().join("as it is");
        std::fs::write(&path, bytes).unwrap();
        let pool = Options::new().open_read_only(&path).unwrap();
        assert_eq!(pool.info().format_version, version);
        assert!(version <= FORMAT_VERSION);
        let area = pool.region("cell").unwrap().into_area().unwrap();
        assert_eq!(TwoSlot::<[u64; 40]>::open(area).unwrap().0.get(), [7; 40]);
    }
    // The cell of one in the file of the other: its bytes are the same but for the checksums.
    let mut mixed = files[0].clone();
    mixed[8192..12288].copy_from_slice(&files[1][8192..12288]);
    let path = dir.path().join("mixed");
    std::fs::write(&path, mixed).unwrap();
    let pool = Options::new().open_read_only(&path).unwrap();
    let found = TwoSlot::<[u64; 40]>::open(pool.region("cell").unwrap().into_area().unwrap());
    assert!(matches!(found, Err(Error::Damaged { .. })));
}
