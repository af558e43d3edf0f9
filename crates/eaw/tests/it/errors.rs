//! Bad input: each its own error, and nothing lost.

use eaw::Error;
use eaw::array::Options;
use pmem::ErrorKind;

use super::{create, members, options, read};

#[test]
fn what_is_not_there_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let array = create(dir.path(), &options());
    let pages = array.file("pages").unwrap();
    assert!(matches!(array.file("images"), Err(Error::NoFile { .. })));
    assert!(matches!(array.create_file("pages", 1), Err(Error::FileExists { .. })));
    for name in ["", "a/b", "a:b", "123456789012345678901"] {
        assert!(matches!(array.create_file(name, 1), Err(Error::BadName { .. })), "{name}");
    }
    assert!(matches!(array.create_file("empty", 0), Err(Error::Limit { .. })));
    for (offset, len) in [(1 << 20, 1), ((1 << 20) - 1, 2), (u64::MAX, 1), (0, (1 << 20) + 1)] {
        let refused = array.atomic_write(&pages, offset, &vec![1; len]);
        assert!(matches!(refused, Err(Error::OutOfFile { .. })), "{offset} {len}");
        let refused = array.read(&pages, offset, &mut vec![1; len]);
        assert!(matches!(refused, Err(Error::OutOfFile { .. })), "{offset} {len}");
    }
    let mut tx = array.begin().unwrap();
    let entry = tx.log_write(&pages, 0, b"abc").unwrap();
    assert!(matches!(tx.edit(&entry, 1, b"abc"), Err(Error::OutOfEntry { .. })));
    assert!(matches!(tx.edit(&entry, u64::MAX, b"abc"), Err(Error::OutOfEntry { .. })));
    let savepoint = tx.savepoint();
    let gone = tx.log_write(&pages, 100, b"abc").unwrap();
    let later = tx.savepoint();
    tx.rollback_to(savepoint).unwrap();
    assert!(matches!(tx.edit(&gone, 0, b"a"), Err(Error::Foreign { what: "entry" })));
    assert!(matches!(tx.rollback_to(later), Err(Error::Foreign { what: "savepoint" })));
    let mut other = array.begin().unwrap();
    other.log_write(&pages, 0, b"abc").unwrap();
    assert!(matches!(other.edit(&entry, 0, b"a"), Err(Error::Foreign { .. })));
    assert!(matches!(other.rollback_to(savepoint), Err(Error::Foreign { .. })));
    tx.log_write(&pages, 2, b"x").unwrap();
    assert!(matches!(tx.nested_top(savepoint), Err(Error::OuterWrite { offset: 2, end: 3, .. })));
    tx.commit().unwrap();
    drop(other);
    assert_eq!(read(&array, 0, 4), b"abx\0");
}

#[test]
fn tids_and_logs_have_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let array = create(dir.path(), &options().transactions(4).log_bytes(64 << 10).log_max(128 << 10));
    let pages = array.file("pages").unwrap();
    let open: Vec<_> = (0..4).map(|_| array.begin().unwrap()).collect();
    let refused = array.begin().unwrap_err();
    assert!(matches!(refused, Error::TooManyTransactions { max: 4 }));
    assert_eq!(refused.kind(), ErrorKind::InUse);
    drop(open);
    // Each member's log may hold 128 KiB.
    let mut tx = array.begin().unwrap();
    let kept = tx.log_write(&pages, 0, &vec![1; 200_000]).unwrap();
    let refused = tx.log_write(&pages, 300_000, &vec![2; 200_000]).unwrap_err();
    assert!(matches!(refused, Error::LogFull { .. }), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::Full);
    tx.edit(&kept, 199_999, &[3]).unwrap();
    tx.commit().unwrap();
    let bytes = read(&array, 0, 500_000);
    assert!(bytes[..199_999].iter().all(|byte| *byte == 1) && bytes[199_999] == 3);
    assert!(bytes[200_000..].iter().all(|byte| *byte == 0));
    // And there is room again.
    (0..100).for_each(|_| array.atomic_write(&pages, 0, &vec![4; 100_000]).unwrap());
}

#[test]
fn members_are_known_by_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let paths = members(dir.path());
    let array = create(dir.path(), &options());
    array.atomic_write(&array.file("pages").unwrap(), 100, b"here").unwrap();
    array.close().unwrap();
    for path in &paths {
        assert!(pmem::Options::new().engine("array", [0; 64]).open_read_only(path).unwrap().was_clean());
    }
    let open = |paths: &[&std::path::Path]| Options::new().open(paths);
    assert!(matches!(open(&[&paths[0]]), Err(Error::MissingMember { member: 1, members: 2 })));
    assert!(matches!(open(&[&paths[1]]), Err(Error::MissingMember { member: 0, members: 2 })));
    assert!(matches!(open(&[]), Err(Error::Limit { .. })));
    let copy = dir.path().join("copy");
    std::fs::copy(&paths[1], &copy).unwrap();
    assert!(matches!(open(&[&paths[0], &paths[1], &copy]), Err(Error::NotAMember { .. })));
    let foreign = dir.path().join("foreign");
    let other = options().create(&[&foreign]).unwrap();
    other.close().unwrap();
    assert!(matches!(open(&[&paths[0], &foreign]), Err(Error::NotAMember { .. })));
    let pool = dir.path().join("pool");
    pmem::Options::new().size(1 << 20).create(&pool).unwrap().close().unwrap();
    assert!(open(&[&paths[0], &pool]).is_err());
    // In any order.
    let array = open(&[&paths[1], &paths[0]]).unwrap();
    assert_eq!(read(&array, 100, 4), b"here");
    drop(array);
    let array = open(&[&paths[0], &paths[1]]).unwrap();
    assert_eq!((array.recovered().applied, read(&array, 100, 4)), (0, b"here".to_vec()));
}

/// Taken for its own it would be checksummed and acknowledged, and could not be applied.
#[test]
fn a_file_of_another_array_is_refused() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [one, other] = [&dirs[0], &dirs[1]].map(|dir| create(dir.path(), &options()));
    let foreign = other.create_file("larger", 8 << 20).unwrap();
    let mut tx = one.begin().unwrap();
    assert!(matches!(tx.log_write(&foreign, 4 << 20, b"x"), Err(Error::Foreign { what: "file" })));
    assert!(matches!(tx.read(&other.file("pages").unwrap(), 0, &mut [0]), Err(Error::Foreign { what: "file" })));
    assert!(matches!(one.atomic_write(&other.file("pages").unwrap(), 0, b"x"), Err(Error::Foreign { .. })));
}

/// A name that could not be used on all members can be, later.
#[test]
fn a_file_that_one_member_has_no_room_for() {
    let dir = tempfile::tempdir().unwrap();
    let paths = members(dir.path());
    let small = pmem::Options::new().max_size(24 << 20);
    let array = options().pool(small.clone()).create(&paths).unwrap();
    assert!(array.create_file("large", 1 << 30).is_err());
    assert!(matches!(array.file("large"), Err(Error::NoFile { .. })));
    array.create_file("small", 1 << 20).unwrap();
    array.close().unwrap();
    let array = options().pool(small).open(&paths).unwrap();
    assert_eq!(array.files().len(), 1);
    array.atomic_write(&array.file("small").unwrap(), 0, b"x").unwrap();
}

/// Opened for reading it is read by several at once, and no byte of it changes.
#[test]
fn an_array_that_is_opened_to_be_read_is_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let paths = members(dir.path());
    let array = create(dir.path(), &options());
    array.atomic_write(&array.file("pages").unwrap(), 65_000, &[7; 1000]).unwrap();
    array.close().unwrap();
    let bytes = || paths.each_ref().map(|path| std::fs::read(path).unwrap());
    let before = bytes();
    let [one, other] = [(); 2].map(|()| Options::new().open_read_only(&paths).unwrap());
    let twice = Options::new().open_read_only(&[&paths[0], &paths[0], &paths[1]]).unwrap_err();
    assert!(matches!(twice, Error::NotAMember { .. }), "{twice}");
    let pages = one.file("pages").unwrap();
    assert_eq!((read(&one, 65_000, 1000), read(&other, 65_000, 1000)), (vec![7; 1000], vec![7; 1000]));
    assert_eq!((one.status().last, one.recovered().applied), (1, 0));
    let refused = [
        one.atomic_write(&pages, 0, b"x").unwrap_err(),
        one.create_file("more", 4096).unwrap_err(),
        one.checkpoint().unwrap_err(),
        one.begin().unwrap_err(),
    ];
    assert!(refused.iter().all(|error| matches!(error, Error::Pool(pmem::Error::ReadOnly))), "{refused:?}");
    let busy = Options::new().open(&paths).unwrap_err();
    assert!(matches!(busy, Error::Pool(pmem::Error::Busy { .. } | pmem::Error::AlreadyOpen { .. })), "{busy}");
    one.close().unwrap();
    drop(other);
    assert!(bytes() == before);
    // One that was not closed has to be recovered first.
    let array = Options::new().open(&paths).unwrap();
    array.atomic_write(&array.file("pages").unwrap(), 0, b"x").unwrap();
    array.abandon();
    let before = bytes();
    let needs = Options::new().open_read_only(&paths).unwrap_err();
    assert!(matches!(needs, Error::Pool(pmem::Error::NeedsRecovery { .. })), "{needs}");
    assert!(bytes() == before);
    Options::new().open(&paths).unwrap().close().unwrap();
    assert_eq!(read(&Options::new().open_read_only(&paths).unwrap(), 0, 1), b"x");
}
