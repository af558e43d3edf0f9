//! Storing and checksumming in one pass.

use pmem::{Error, LINE};

use crate::support::{emulated, memory, synced};

const HEAD: usize = 24;

/// Whatever the place, the length, the domain and the format: head, body, and zeros to the line's end, checksummed as by two passes.
#[test]
fn what_is_stored_while_it_is_checksummed_is_what_two_passes_store() {
    let dir = memory();
    let sides = [emulated(1 << 16), emulated(1 << 16).format_1(), synced(1 << 16)];
    let text: Vec<u8> = (0..5000).map(|i| (i * 31 % 251) as u8).collect();
    for (n, options) in sides.into_iter().enumerate() {
        let pool = options.create(dir.path().join(n.to_string())).unwrap();
        let mut area = pool.add_region("r", 8192).unwrap().into_area().unwrap();
        let key = pool.checksum_key(area.offset());
        for at in [0, 8, 40, 64] {
            for len in [0, 1, 39, 40, 41, 103, 104, 105, 240, 300, 1023, 1064, 1065, 3000, 4096, 4200] {
                area.bytes_mut(0, 8192).unwrap().fill(0xaa);
                let body = &text[len % 7..][..len];
                let before = pool.stats();
                let head = |sum| {
                    let mut head = [0x11; HEAD];
                    head[..8].copy_from_slice(&key.checksum_with(sum, [1, 2, len as u64]).to_le_bytes());
                    head
                };
                // SAFETY: `area` owns the bytes, and nothing of it is borrowed.
                unsafe { pool.store_checksummed(area.offset() + at, &key, body, head).unwrap() };
                pool.drain().unwrap();
                let stats = pool.stats();

                let mut expected = head(key.sum(body)).to_vec();
                expected.extend_from_slice(body);
                let end = (at + expected.len() as u64).next_multiple_of(LINE);
                expected.resize((end - at) as usize, 0);
                let found = area.bytes(0, 8192).unwrap();
                let (what, at, end) = (format!("side {n}, {len} bytes at {at}"), at as usize, end as usize);
                assert!(found[at..end] == expected, "{what}");
                assert!(found[..at].iter().chain(&found[end..]).all(|byte| *byte == 0xaa), "{what}: outside");
                if n < 2 {
                    let lines = stats.flushed_lines - before.flushed_lines + (stats.nt_bytes - before.nt_bytes) / LINE;
                    assert_eq!(lines, pmem::lines(at as u64, (end - at) as u64), "{what}: each line leaves once");
                }
            }
        }
    }
}

/// The same of a body behind a part that is stored elsewhere, or not at all.
#[test]
fn a_body_is_checksummed_with_what_comes_before_it() {
    let dir = memory();
    let sides = [emulated(1 << 16), emulated(1 << 16).format_1(), synced(1 << 16)];
    let text: Vec<u8> = (0..6000).map(|i| (i * 31 % 251) as u8).collect();
    for (n, options) in sides.into_iter().enumerate() {
        let pool = options.create(dir.path().join(n.to_string())).unwrap();
        let mut area = pool.add_region("r", 8192).unwrap().into_area().unwrap();
        let key = pool.checksum_key(area.offset());
        for at in [0, 40, 64] {
            for (front, len) in
                [(0, 0), (120, 64), (120, 904), (120, 905), (120, 968), (248, 3000), (1024, 700), (9, 4096)]
            {
                area.bytes_mut(0, 8192).unwrap().fill(0xaa);
                let (before, body) = text[..front + len].split_at(front);
                let stats = pool.stats();
                // SAFETY: `area` owns the bytes, and nothing of it is borrowed.
                let checksum = unsafe { pool.store_checksumming(area.offset() + at, &key, before, body).unwrap() };
                pool.drain().unwrap();
                let stats = pool.stats() - stats;

                let what = format!("side {n}, {len} bytes behind {front} at {at}");
                assert_eq!(checksum, key.checksum(&text[..front + len]), "{what}");
                let end = (at + len as u64).next_multiple_of(if len > 0 || at % LINE > 0 { LINE } else { 1 });
                let mut expected = body.to_vec();
                expected.resize((end - at) as usize, 0);
                let found = area.bytes(0, 8192).unwrap();
                let (from, to) = (at as usize, end as usize);
                assert!(found[from..to] == expected, "{what}");
                assert!(found[..from].iter().chain(&found[to..]).all(|byte| *byte == 0xaa), "{what}: outside");
                if n < 2 {
                    let lines = stats.flushed_lines + stats.nt_bytes / LINE;
                    assert_eq!(lines, pmem::lines(at, end - at), "{what}: each line leaves once");
                }
            }
        }
    }
}

#[test]
fn nothing_is_stored_out_of_bounds() {
    let dir = memory();
    let pool = emulated(1 << 16).create(dir.path().join("p")).unwrap();
    let before = std::fs::read(pool.path()).unwrap();
    let key = pool.checksum_key(0);
    for at in [(1 << 16) - 64, 1 << 16, u64::MAX - 63] {
        // SAFETY: it is refused.
        let refused = unsafe { pool.store_checksummed(at, &key, &[7; 300], |_| [0; HEAD]) };
        assert!(matches!(refused, Err(Error::OutOfBounds { .. })), "{at:#x}: {refused:?}");
        // SAFETY: as above.
        let refused = unsafe { pool.store_checksumming(at, &key, &[7; 100], &[7; 3000]) };
        assert!(matches!(refused, Err(Error::OutOfBounds { .. })), "{at:#x}: {refused:?}");
    }
    assert!(std::fs::read(pool.path()).unwrap() == before);
}
