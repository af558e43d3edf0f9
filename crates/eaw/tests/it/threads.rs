//! Several threads.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use eaw::array::Options;

use super::{create, members, options, read};

/// Each transaction writes the same four places; a reader of all of them sees one transaction.
#[test]
fn readers_see_all_of_a_transaction_or_nothing() {
    readers_see_all_or_nothing(&options());
    readers_see_all_or_nothing(&options().late(true).slot_bytes(4096));
}

#[expect(clippy::unwrap_used, reason = "what a test does twice")]
fn readers_see_all_or_nothing(options: &Options) {
    let dir = tempfile::tempdir().unwrap();
    let array = create(dir.path(), options);
    let pages = array.file("pages").unwrap();
    let offsets = [0, 70_000, 140_000, 210_000];
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (1..4_u8)
            .map(|n| {
                let (array, pages) = (&array, &pages);
                scope.spawn(move || {
                    for _ in 0..300 {
                        let mut tx = array.begin().unwrap();
                        for offset in offsets {
                            tx.log_write(pages, offset, &[n; 1000]).unwrap();
                        }
                        let committed = tx.commit().unwrap();
                        if n == 1 {
                            std::thread::yield_now(); // readers see to what is not in the files yet
                        }
                        drop(committed);
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let mut bytes = vec![0; 211_000];
            while !is_over.load(Relaxed) {
                array.read(&pages, 0, &mut bytes).unwrap();
                let seen: Vec<u8> =
                    offsets.iter().flat_map(|offset| bytes[*offset as usize..][..1000].to_vec()).collect();
                assert!(seen.iter().all(|byte| *byte == seen[0]), "half of a transaction was read");
            }
        });
        let ended: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Relaxed);
        reader.join().unwrap();
        ended.into_iter().for_each(|writer| writer.unwrap());
    });
    let last = read(&array, 0, 1);
    array.abandon();
    let array = options.open(&members(dir.path())).unwrap();
    assert!(offsets.iter().all(|offset| read(&array, *offset, 1000) == vec![last[0]; 1000]));
}

/// A few more TIDs than threads, and logs that are still needed at many members: no transaction is refused, and what was committed is read at once.
#[test]
fn tids_of_what_is_committed_are_free_again() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pmem::Options::new().domain(pmem::DomainChoice::Emulated);
    let pool = pool.size(16 << 20).create(dir.path().join("pool")).unwrap();
    let array = options().transactions(12).stripe_bytes(4096).create_in(&vec![pool; 6]).unwrap();
    let pages = array.create_file("pages", 1 << 20).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (array, pages) = (&array, &pages);
            scope.spawn(move || {
                for n in 0..500_u64 {
                    // Places of its own, on two members.
                    let offset = (n * 7 % 60 * 4 + thread) * 4096 + 4000;
                    let bytes = [n.to_le_bytes(); 25].concat();
                    array.atomic_write(pages, offset, &bytes).unwrap();
                    let mut back = [0; 200];
                    array.read(pages, offset, &mut back).unwrap();
                    assert_eq!(back[..], bytes[..]);
                }
            });
        }
    });
    array.close().unwrap();
}

/// Writers never stop, and always write what is read: a reader waits for a few of them, not for all.
#[test]
fn readers_come_to_their_turn() {
    let dir = tempfile::tempdir().unwrap();
    let array = create(dir.path(), &options());
    let pages = array.file("pages").unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for n in 1..6_u8 {
            let (array, pages, is_over) = (&array, &pages, &is_over);
            scope.spawn(move || {
                while !is_over.load(Relaxed) {
                    let mut tx = array.begin().unwrap();
                    for offset in [0, 70_000] {
                        tx.log_write(pages, offset, &[n; 500]).unwrap();
                    }
                    tx.commit().unwrap();
                }
            });
        }
        let mut bytes = vec![0; 70_500];
        for _ in 0..2000 {
            array.read(&pages, 0, &mut bytes).unwrap();
            assert!(bytes[..500] == bytes[70_000..], "half of a transaction was read");
        }
        is_over.store(true, Relaxed);
    });
}
