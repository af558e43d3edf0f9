//! Damage: what it hits is told, the rest is there.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use eaw::array::{Array, Options, Step};

use super::{create, members, options, read};

/// Where a region begins.
fn region(path: &Path, name: &str) -> u64 {
    let pool = pmem::Options::new().engine("array", [0; 64]).open(path).expect("works");
    pool.info().regions.iter().find(|region| region.name == name).expect("works").offset
}

fn damage(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("works");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("works");
    file.write_all_at(&[byte[0] ^ 4], at).expect("works");
}

/// Four transactions at one place, then others elsewhere, until the mark has passed the four in one slot.
fn passed_once(dir: &Path, options: &Options) -> Array {
    let array = create(dir, options);
    let pages = array.file("pages").expect("works");
    (1..5).for_each(|n| array.atomic_write(&pages, 0, &[n; 64]).expect("works"));
    (1..7).for_each(|n| array.atomic_write(&pages, 4096, &[n; 64]).expect("works"));
    array
}

/// The log of a transaction is used again when both slots of the mark have passed it: the loss of one loses nothing.
#[test]
fn a_lost_slot_of_the_mark_loses_nothing() {
    for (options, is_sound) in [(options(), true), (options().without(Step::MarkTwice), false)] {
        let dir = tempfile::tempdir().unwrap();
        let options = options.transactions(32);
        passed_once(dir.path(), &options).abandon();
        let path = &members(dir.path())[0];
        let table = region(path, "0:table");
        // Behind the header and 32 lines of the table, a page each.
        let slots = [table + 8192, table + 12288];
        let file = OpenOptions::new().read(true).open(path).unwrap();
        let retired = slots.map(|at| {
            let mut word = [0; 8];
            file.read_exact_at(&mut word, at + 8).unwrap();
            u64::from_le_bytes(word)
        });
        let newer = usize::from(retired[1] > retired[0]);
        assert_eq!((retired[newer], retired[1 - newer]), (4, 0), "the workload has not come to where it matters");
        damage(path, slots[newer] + 8);
        let array = options.open(&members(dir.path())).unwrap();
        let is_there = read(&array, 0, 64) == [4; 64] && read(&array, 4096, 64) == [6; 64];
        assert_eq!(is_there && array.recovered().lost.is_empty(), is_sound, "{:?}", array.recovered());
    }
}

/// The rest recovers, and the loss is named.
#[test]
fn a_damaged_log_loses_its_transaction_alone() {
    let dir = tempfile::tempdir().unwrap();
    let array = create(dir.path(), &options());
    let pages = array.file("pages").unwrap();
    let stripe = 64 << 10;
    for n in 0..3_u8 {
        let mut tx = array.begin().unwrap();
        tx.log_write(&pages, u64::from(n) * 1000, &[n + 1; 100]).unwrap();
        tx.log_write(&pages, stripe + u64::from(n) * 1000, &[n + 1; 100]).unwrap();
        tx.commit().unwrap();
    }
    array.abandon();
    let [one, other] = members(dir.path());
    // As if the files had not got anything yet.
    for (path, name) in [(&one, "0/pages"), (&other, "1/pages")] {
        let at = region(path, name);
        OpenOptions::new().write(true).open(path).unwrap().write_all_at(&[0; 4096], at).unwrap();
    }
    // The second one's data on the second member: the second chunk.
    damage(&other, region(&other, "1:log.0") + (16 << 10) + 50);
    let array = options().open(&[&one, &other]).unwrap();
    let found = array.recovered();
    assert_eq!((found.applied, found.dropped, found.in_doubt, found.lost.len()), (2, 0, 0, 1), "{found:?}");
    let loss = &found.lost[0];
    assert_eq!((loss.sequence, loss.member, loss.why), (2, Some(1), "data that does not verify"));
    let mut ranges = loss.ranges.clone();
    ranges.sort();
    assert_eq!(ranges, [("pages".to_owned(), 1000, 100), ("pages".to_owned(), stripe + 1000, 100)]);
    for (n, there) in [(0, 1), (1, 0), (2, 3)] {
        assert_eq!(read(&array, n * 1000, 100), vec![there; 100]);
        assert_eq!(read(&array, stripe + n * 1000, 100), vec![there; 100]);
    }
}

/// A line of the transaction table, of one that later ones know to have been durable.
#[test]
fn a_damaged_line_is_a_loss_or_in_doubt() {
    let dir = tempfile::tempdir().unwrap();
    let array = create(dir.path(), &options());
    let pages = array.file("pages").unwrap();
    (1..4).for_each(|n| array.atomic_write(&pages, u64::from(n) * 100, &[n; 64]).unwrap());
    array.abandon();
    let one = &members(dir.path())[0];
    let table = region(one, "0:table") + 4096;
    damage(one, table + 8); // the first transaction's
    damage(one, table + 2 * 64 + 8); // the last one's
    let array = options().open(&members(dir.path())).unwrap();
    let found = array.recovered();
    assert_eq!((found.applied, found.in_doubt), (1, 2), "{found:?}");
    assert_eq!(found.lost.iter().map(|loss| loss.sequence).collect::<Vec<_>>(), [1]);
    drop(array);
    let array = options().open(&members(dir.path())).unwrap();
    assert_eq!((array.recovered().in_doubt, array.recovered().lost.len()), (0, 0)); // told once
}

/// No panic, and no false success, whatever stands in the table, the metadata and the marks.
#[test]
fn hostile_bytes_are_refused_or_told() {
    hostile_bytes(&options(), false);
    hostile_bytes(&options().late(true).slot_bytes(256), true);
}

#[expect(clippy::unwrap_used, reason = "what a test does twice")]
fn hostile_bytes(options: &Options, is_late: bool) {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), options).abandon();
    let [one, other] = members(dir.path());
    let array = options.open(&[&one, &other]).unwrap();
    let pages = array.file("pages").unwrap();
    (0..5).for_each(|n| array.atomic_write(&pages, (64 << 10) - 100 + n, &[1; 200]).unwrap());
    array.abandon();
    let whole = [&one, &other].map(|path| std::fs::read(path).unwrap());
    let starts = [region(&one, "0:table"), region(&one, "0:meta.0"), region(&one, "0:log.0")];
    let mut random = 7_u64;
    for _ in 0..300 {
        [&one, &other].iter().zip(&whole).for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
        for _ in 0..4 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = starts[(random >> 33) as usize % 3] + (random >> 40) % 16384;
            damage(&one, at);
        }
        if let Ok(array) = options.open(&[&one, &other]) {
            let bytes = read(&array, (64 << 10) - 100, 204);
            let is_whole = bytes.iter().all(|byte| *byte == 1);
            let found = array.recovered();
            // The last one, if it is damaged, is one that the crash cut short: nothing says that it was durable.
            let is_told = !found.lost.is_empty() || found.in_doubt > 0 || is_late && found.dropped == 1;
            assert!(is_whole || is_told, "{found:?}");
            array.abandon();
        }
    }
}
