//! Scrubbing: one test per row of the table in `scrub.rs`, and one beside running transactions.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use heap::{Heap, Options, Policy, Scrubbed};
use pmem::{Allocator, DomainChoice, PPtr};
use tempfile::TempDir;
use tx::{Engine, Error, Isolation, Transaction, Typed};

use crate::support::{Object, Rng, memory, quiet};

const ZONE: u64 = 64 << 10;
const KEEP: usize = 600;

fn options() -> Options {
    quiet(Policy::InPlace, DomainChoice::Emulated).bytes(4 << 20).zone_bytes(ZONE).slots(8)
}

// ---- the rows of the table ------------------------------------------------------------------------------------------

/// A heap's file with two pages of objects of a line each, closed, or left as a crash leaves it when the last one opened it.
struct Closed {
    dir: TempDir,
    objects: Vec<PPtr<Object>>,
    /// What is in the objects.
    number: u64,
    /// Where the chunks of main begin, and their bytes on the backup.
    main: u64,
    backup: u64,
}

/// One of the two copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copy {
    Main,
    Backup,
}

impl Closed {
    fn new() -> Self {
        Self::made_under(Policy::InPlace)
    }

    /// Of a heap that was made with this policy, and changed it.
    fn made_under(policy: Policy) -> Self {
        let dir = memory();
        let heap = Heap::create(dir.path().join("p"), &options().policy(policy)).unwrap();
        let objects = heap
            .transact(Isolation::Strict, |tx| (0..PAGES * 64).map(|_| tx.alloc(&[1; 8])).collect::<tx::Result<_>>())
            .unwrap();
        heap.close().unwrap();
        Heap::open(dir.path().join("p"), &options()).unwrap().close().unwrap();
        let pool = pmem::Options::new().layout("heap").domain(DomainChoice::Emulated);
        let pool = pool.open_read_only(dir.path().join("p")).unwrap();
        let main = Allocator::open(&pool, "heap").unwrap().spaces()[0].start;
        let backup = pool.region("heap.backup").unwrap().areas()[0].offset();
        Self { dir, objects, number: 1, main, backup }
    }

    /// Every object is written since the last checksum, and the heap neither closed nor in need of recovery.
    fn written_since() -> Self {
        let mut this = Self::new();
        let heap = this.open();
        this.number = 2;
        heap.transact(Isolation::Strict, |tx| {
            this.objects.iter().try_for_each(|&o| -> tx::Result<()> {
                *tx.write(o)? = [2; 8];
                Ok(())
            })
        })
        .unwrap();
        heap.apply_pending().unwrap();
        heap.abandon();
        drop(this.open()); // clean now, and not summed
        this
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("p")
    }

    fn open(&self) -> Heap {
        Heap::open(self.path(), &options()).unwrap()
    }

    /// Where in the file an object is.
    fn place(&self, copy: Copy, object: usize) -> u64 {
        match copy {
            Copy::Main => self.objects[object].offset(),
            Copy::Backup => self.objects[object].offset() - self.main + self.backup,
        }
    }

    /// Overwrites objects in the closed file.
    fn damage(&self, copy: Copy, objects: Range<usize>) {
        let file = File::options().write(true).open(self.path()).unwrap();
        for object in objects {
            file.write_all_at(&[0xee; 64], self.place(copy, object)).unwrap();
        }
    }

    /// What scrubbing says, then what comparing and scrubbing again says must be nothing, and every object holds what it should.
    #[track_caller]
    fn scrub(&self, expected: (u64, u64)) {
        let heap = self.open();
        let counts = |s: &Scrubbed| (s.main_repaired, s.backup_repaired);
        let compared = heap.compare().unwrap();
        let scrubbed = heap.scrub().unwrap();
        assert_eq!(counts(&scrubbed), expected);
        assert_eq!((&compared, compared.busy), (&scrubbed, 0));
        for found in [heap.scrub().unwrap(), heap.compare().unwrap()] {
            assert_eq!((counts(&found), found.zones), ((0, 0), scrubbed.zones));
        }
        self.check(&heap);
        heap.close().unwrap();
        let heap = self.open();
        assert_eq!(counts(&heap.scrub().unwrap()), (0, 0), "on media");
        self.check(&heap);
    }

    #[track_caller]
    fn check(&self, heap: &Heap) {
        let tx = heap.begin(Isolation::Strict).unwrap();
        assert!(self.objects.iter().all(|&o| *tx.read(o).unwrap() == [self.number; 8]));
    }
}

/// Pages of objects.
const PAGES: usize = 3;

/// A backup that was made from main, and never written to since, has checksums of its pages.
#[test]
fn a_new_backup_tells_which_copy_is_right() {
    for policy in [Policy::Undo, Policy::Eaw, Policy::None, Policy::InPlacePartial] {
        for copy in [Copy::Main, Copy::Backup] {
            let closed = Closed::made_under(policy);
            closed.damage(copy, 3..9);
            closed.scrub(if copy == Copy::Main { (6 * 64, 0) } else { (0, 6 * 64) });
        }
    }
}

/// Before the second copy is given up, the heap looks which of the two is right.
#[test]
fn what_goes_to_another_engine_is_what_is_right() {
    for copy in [Copy::Main, Copy::Backup] {
        let closed = Closed::new();
        closed.damage(copy, 3..9);
        let heap = Heap::open(closed.path(), &options().policy(Policy::Eaw)).unwrap();
        closed.check(&heap);
        heap.close().unwrap();

        let closed = Closed::new();
        closed.damage(copy, 3..9);
        closed.open().hand_over().unwrap().close().unwrap();
        let heap = closed.open();
        assert_eq!(heap.compare().unwrap().main_repaired + heap.compare().unwrap().backup_repaired, 0);
        closed.check(&heap);
    }
}

/// Where nothing tells which, it stays with its engine, closed, and both copies stay.
#[test]
fn what_is_unclear_goes_to_nobody() {
    let closed = Closed::written_since();
    closed.damage(Copy::Main, 3..9);
    closed.open().close().unwrap();
    let is_damaged = |error: &Error| matches!(error, Error::Damaged { what: "page", .. });
    for policy in [Policy::Undo, Policy::Eaw, Policy::None, Policy::InPlacePartial] {
        let error = Heap::open(closed.path(), &options().policy(policy)).unwrap_err();
        assert!(is_damaged(&error), "{error}");
        let pool = pmem::Options::new().layout("heap").domain(DomainChoice::Emulated);
        assert!(pool.open_read_only(closed.path()).unwrap().was_clean(), "{policy:?}");
    }
    assert!(is_damaged(&closed.open().hand_over().unwrap_err()));
    let heap = closed.open();
    assert!(heap.recovery().was_clean() && heap.policy() == Policy::InPlace);
    assert!(is_damaged(&heap.scrub().unwrap_err()));
}

#[test]
fn nothing_is_repaired_where_nothing_is_wrong() {
    let closed = Closed::new();
    let heap = closed.open();
    heap.scrub().unwrap(); // zones that were not used so far get their checksums
    let before = heap.pool().stats();
    heap.scrub().unwrap();
    assert_eq!((heap.pool().stats() - before).media_bytes(), 0, "nothing to be kept anew");
    heap.abandon();
    closed.scrub((0, 0));
}

#[test]
fn main_is_repaired_from_a_backup_that_is_as_kept() {
    let closed = Closed::new();
    closed.damage(Copy::Main, 70..73);
    closed.scrub((3 * 64, 0));
}

#[test]
fn the_backup_is_repaired_from_main_where_a_checksum_was_kept() {
    let closed = Closed::new();
    closed.damage(Copy::Backup, 70..72);
    closed.scrub((0, 2 * 64));
}

#[test]
fn both_are_repaired_in_different_pages() {
    let closed = Closed::new();
    closed.damage(Copy::Main, 3..4);
    closed.damage(Copy::Backup, 140..141);
    closed.scrub((64, 64));
}

#[test]
fn nobody_can_tell_where_the_page_was_written_since() {
    for copy in [Copy::Main, Copy::Backup] {
        let closed = Closed::written_since();
        closed.damage(copy, 70..71);
        let heap = closed.open();
        for _ in 0..2 {
            for found in [heap.scrub(), heap.compare()] {
                assert!(matches!(found, Err(Error::Damaged { what: "page", .. })), "{copy:?}: {found:?}");
            }
        }
    }
}

/// What one page leaves open is no reason to leave another one damaged.
#[test]
fn pages_behind_an_unclear_one_are_repaired() {
    let closed = Closed::new();
    let heap = closed.open();
    let far = heap.transact(Isolation::Strict, |tx| tx.alloc_bytes(3 * ZONE, 8)).unwrap();
    heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
        tx.bytes_mut(far, 3 * ZONE)?.fill(7);
        Ok(())
    })
    .unwrap();
    heap.close().unwrap();
    let heap = closed.open();
    heap.transact(Isolation::Strict, |tx| {
        closed.objects.iter().try_for_each(|&o| -> tx::Result<()> {
            *tx.write(o)? = [1; 8];
            Ok(())
        })
    })
    .unwrap();
    let before = heap.stats().dirty_zones;
    assert!(before > 0);
    heap.apply_pending().unwrap();
    heap.abandon();
    drop(closed.open());
    closed.damage(Copy::Backup, 70..71);
    let file = File::options().write(true).open(closed.path()).unwrap();
    file.write_all_at(&[0xee; 64], far.offset() + 2 * ZONE).unwrap();
    let heap = closed.open();
    assert!(heap.scrub().is_err());
    let tx = heap.begin(Isolation::Strict).unwrap();
    assert!(tx.bytes(far, 3 * ZONE).unwrap().iter().all(|b| *b == 7));
}

#[test]
fn checksums_are_kept_anew_where_the_page_was_written_since() {
    let closed = Closed::written_since();
    let heap = closed.open();
    assert_eq!(heap.scrub().unwrap().busy, 0);
    heap.abandon(); // not closed: what is known now, scrubbing has kept
    closed.damage(Copy::Main, 0..1);
    closed.damage(Copy::Backup, 70..71);
    closed.scrub((64, 64));
}

#[test]
fn what_a_transaction_is_in_is_left_alone_and_found_later() {
    let closed = Closed::new();
    closed.damage(Copy::Main, 70..71);
    let heap = closed.open();
    let mut tx = heap.begin(Isolation::Strict).unwrap();
    tx.write(closed.objects[0]).unwrap()[0] = 1;
    let found = heap.scrub().unwrap();
    assert_eq!((found.main_repaired, found.busy), (0, 1));
    tx.abort().unwrap();
    drop(heap);
    // A reader of the damaged object keeps it from being repaired; a reader of another one does not.
    let closed = Closed::new(); // of the other's zone no checksum is of the present backup
    closed.damage(Copy::Main, 70..71);
    let heap = closed.open();
    let tx = heap.begin(Isolation::Strict).unwrap();
    assert_eq!(tx.read(closed.objects[70]).unwrap()[0], 0xeeee_eeee_eeee_eeee);
    let found = heap.scrub().unwrap();
    assert_eq!((found.main_repaired, found.busy), (0, 1));
    tx.commit().unwrap();
    let tx = heap.begin(Isolation::Strict).unwrap();
    tx.read(closed.objects[71]).unwrap();
    let found = heap.scrub().unwrap();
    assert_eq!((found.main_repaired, found.busy), (64, 0));
    drop(tx);
    closed.check(&heap);
    heap.close().unwrap();
    closed.scrub((0, 0));
}

/// Of a heap open for reading, too.
#[test]
fn comparing_changes_nothing() {
    let closed = Closed::new();
    closed.damage(Copy::Main, 70..71);
    let before = std::fs::read(closed.path()).unwrap();
    let options = options();
    let pool = pmem::Options::new().layout("heap").domain(DomainChoice::Emulated).open_read_only(closed.path());
    let heap = Heap::open_in(&pool.unwrap(), &options).unwrap();
    assert_eq!(heap.compare().unwrap().main_repaired, 64);
    heap.abandon();
    assert!(before == std::fs::read(closed.path()).unwrap());
    closed.scrub((64, 0));
}

#[test]
fn other_policies_have_nothing_to_compare_with() {
    for policy in [Policy::None, Policy::Undo] {
        let dir = memory();
        let heap = Heap::create(dir.path().join("p"), &options().policy(policy)).unwrap();
        assert_eq!(heap.scrub().unwrap(), Scrubbed::default());
    }
}

// ---- beside running transactions ------------------------------------------------------------------------------------

/// One transaction: allocates and gives up or commits, frees, or writes so many objects that its record is kept among the blocks.
fn step(heap: &Heap, rng: &mut Rng, kept: &[PPtr<Object>], mine: &mut Vec<PPtr<u8>>) -> tx::Result<()> {
    let mut tx = heap.begin(Isolation::Strict)?;
    match rng.below(16) {
        0..8 if mine.len() < 20 => {
            let len = 2000 + rng.below(20_000);
            let object = tx.alloc_bytes(len, 8)?;
            tx.bytes_mut(object, len)?.fill(rng.word() as u8);
            if rng.below(3) == 0 {
                return tx.abort();
            }
            tx.commit()?;
            mine.push(object);
        }
        8..11 => {
            let Some(&object) = mine.last() else { return Ok(()) };
            tx.free_bytes(object)?;
            tx.commit()?;
            mine.pop();
        }
        _ => {
            for &object in kept {
                *tx.write(object.cast::<u64>())? += 1;
            }
            tx.commit()?;
        }
    }
    Ok(())
}

#[test]
fn beside_transactions_nothing_is_taken_for_damage() {
    let dir = memory();
    let heap = Heap::create(dir.path().join("p"), &options().log_bytes(4096).recovery_budget(ZONE)).unwrap();
    let kept: Vec<PPtr<Object>> =
        heap.transact(Isolation::Strict, |tx| (0..KEEP).map(|_| tx.alloc(&[0; 8])).collect::<tx::Result<_>>()).unwrap();
    heap.scrub().unwrap();
    let (stop, steps) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut looked_at, mut scrubs, mut repaired) = (0, 0, (0, 0));
    let found = std::thread::scope(|scope| {
        for thread in 0..2 {
            let (heap, stop, steps, kept) = (&heap, &stop, &steps, &kept[thread * KEEP / 2..][..KEEP / 2]);
            scope.spawn(move || {
                let (mut rng, mut mine) = (Rng(thread as u64), Vec::new());
                while !stop.load(SeqCst) {
                    match step(heap, &mut rng, kept, &mut mine) {
                        Ok(()) => drop(steps.fetch_add(1, SeqCst)),
                        Err(Error::Conflict { .. }) => {} // with the other's made-up pointers none, with scrubbing a few
                        Err(e) => {
                            stop.store(true, SeqCst);
                            panic!("{e}");
                        }
                    }
                }
            });
        }
        let mut found = Ok(());
        while found.is_ok() && !stop.load(SeqCst) && repaired == (0, 0) && (steps.load(SeqCst) < 4000 || scrubs < 200) {
            scrubs += 1;
            found = heap.scrub().map(|scrubbed| {
                looked_at += scrubbed.zones;
                repaired = (scrubbed.main_repaired, scrubbed.backup_repaired);
            });
        }
        stop.store(true, SeqCst);
        found
    });
    println!("{scrubs} scrubs beside {} transactions, {looked_at} zones looked at", steps.load(SeqCst));
    found.unwrap();
    assert_eq!(repaired, (0, 0));
    assert!(looked_at > 0);
    heap.close().unwrap();
}

// ---- two faults -----------------------------------------------------------------------------------------------------

/// One object is bad in main and another, of the same page, in the backup: neither good copy is overwritten by the bad one.
#[test]
fn each_object_of_a_page_is_repaired_from_its_good_copy() {
    for (main, backup) in [(70..71, 72..73), (70..71, 100..103), (64..67, 69..70)] {
        let closed = Closed::new();
        closed.damage(Copy::Main, main.clone());
        closed.damage(Copy::Backup, backup.clone());
        closed.scrub((main.count() as u64 * 64, backup.count() as u64 * 64));
    }
}

/// Where no choice verifies, both files stay as they are.
#[test]
fn nothing_is_changed_where_neither_copy_verifies() {
    // Main and backup of one object, and free bytes of the backup beside an object of main.
    let both = |closed: &Closed| {
        closed.damage(Copy::Main, 70..71);
        closed.damage(Copy::Backup, 70..71);
        let file = File::options().write(true).open(closed.path()).unwrap();
        file.write_all_at(&[0xdd; 64], closed.place(Copy::Backup, 70)).unwrap();
    };
    let many = |closed: &Closed| {
        closed.damage(Copy::Main, 64..80);
        closed.damage(Copy::Backup, 90..100);
    };
    for (what, damage) in [("one object", &both as &dyn Fn(&Closed)), ("many objects", &many)] {
        let closed = Closed::new();
        damage(&closed);
        let copies = || {
            let bytes = std::fs::read(closed.path()).unwrap();
            [Copy::Main, Copy::Backup].map(|c| {
                let at = closed.place(c, 0) as usize;
                bytes[at..at + PAGES * 4096].to_vec()
            })
        };
        let before = copies();
        let heap = closed.open();
        let found = heap.scrub();
        assert!(matches!(found, Err(Error::Damaged { what: "page", .. })), "{what}: {found:?}");
        heap.close().unwrap();
        assert!(copies() == before, "{what}");
        let found = closed.open().scrub();
        assert!(found.is_err(), "{what}: forgotten: {found:?}");
    }
}

/// A page of the backup that went back to what it held when an earlier checksum was kept.
#[test]
fn an_earlier_checksum_proves_no_backup_right() {
    let closed = Closed::written_since();
    let at = closed.place(Copy::Backup, 64);
    let page = at / 4096 * 4096;
    let mut then = std::fs::read(closed.path()).unwrap()[page as usize..page as usize + 4096].to_vec();
    for word in then.chunks_exact_mut(8).filter(|w| **w == 2u64.to_le_bytes()) {
        word.copy_from_slice(&1u64.to_le_bytes());
    }
    let file = File::options().write(true).open(closed.path()).unwrap();
    file.write_all_at(&then, page).unwrap();
    let heap = closed.open();
    let found = heap.scrub();
    assert!(matches!(found, Err(Error::Damaged { what: "page", .. })), "{found:?}");
    closed.check(&heap);
}

/// What went bad before a zone was written to is in both a closed heap's copies as it was: neither is the truth because a clean close came by.
#[test]
fn a_close_takes_no_damage_for_the_truth() {
    for copy in [Copy::Main, Copy::Backup] {
        let closed = Closed::new();
        closed.damage(copy, 70..71);
        closed.damage(Copy::Backup, 5..6);
        let heap = closed.open();
        heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
            *tx.write(closed.objects[5])? = [1; 8];
            *tx.write(closed.objects[130])? = [1; 8];
            Ok(())
        })
        .unwrap();
        heap.close().unwrap();
        let file = || std::fs::read(closed.path()).unwrap();
        let before = file();
        let heap = closed.open();
        for found in [heap.compare(), heap.scrub()] {
            assert!(matches!(found, Err(Error::Damaged { what: "page", .. })), "{copy:?}: {found:?}");
        }
        heap.close().unwrap();
        for copy in [Copy::Main, Copy::Backup] {
            let (at, after) = (closed.place(copy, 0) as usize, file());
            assert!(after[at..at + PAGES * 4096] == before[at..at + PAGES * 4096], "{copy:?}");
        }
    }
}
