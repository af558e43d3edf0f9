//! `cairn array`.

use super::{cairn, feed, temp};

#[test]
fn what_is_written_is_read() {
    let dir = temp();
    let run = cairn(dir.path(), "array create a b --bytes 1M --log 1M --domain file");
    assert_eq!((run.code, run.out.as_str()), (0, "pages: 1.0 MiB in stripes of 64.0 KiB over 2 members\n"), "{run:?}");
    let page: String = ('a'..='z').cycle().take(200_000).collect();
    let run = feed(dir.path(), "array write b a --offset 1000", page.as_bytes());
    assert_eq!((run.code, run.out.as_str()), (0, "200000 bytes at 1000 of pages\n"), "{run:?}");
    let run = cairn(dir.path(), "array read a b --offset 1000 --len 200000");
    assert!(run.code == 0 && run.out == page, "{}", run.err);
    let json = cairn(dir.path(), "array status a b --json").json();
    assert_eq!(
        (&json["members"], &json["last"], &json["files"][0]["bytes"]),
        (&2.into(), &1.into(), &(1 << 20).into())
    );
    assert!(cairn(dir.path(), "array status a b").out.contains("file          pages: 1.0 MiB"));
    let run = cairn(dir.path(), "array check a b");
    assert_eq!(
        (run.code, run.out.as_str()),
        (0, "2 members, 1 files, 1 commits; 0 applied now, 0 dropped\n"),
        "{run:?}"
    );
}

#[test]
fn errors_say_where_and_what_next() {
    let dir = temp();
    assert_eq!(cairn(dir.path(), "array create a b --bytes 1M --log 1M").code, 0);
    for (line, said) in [
        ("array read a", "member 1 of 2"),
        ("array read a a b", "a"),
        ("array read a b --file other", "no file \"other\""),
        ("array read a b --offset 2M", "not in file"),
        ("array read a b --len 2M", "not in file"),
        ("array status a c", "c"),
        ("array create a --bytes 1M", "a"),
        ("array create c --bytes 0", "bytes of a file"),
        ("array create d --bytes 1M --file x/y", "cannot be called"),
    ] {
        let run = cairn(dir.path(), line);
        assert!(run.code == 2 && run.err.contains(said) && run.err.contains("\nnext: "), "{line}: {run:?}");
    }
    assert!(!dir.path().join("c").exists() && !dir.path().join("d").exists());
    let long = feed(dir.path(), "array write a b --offset 1000K", &[1; 100_000]);
    assert!(long.code == 2 && long.err.contains("not in file"), "{long:?}");
    assert_eq!(cairn(dir.path(), "array read a b --offset 1000K --len 10").out, "\0".repeat(10));
}

/// A process that is killed leaves an array that a check is told to recover.
#[test]
fn a_check_recovers_when_it_is_told_to() {
    let dir = temp();
    let paths = ["a", "b"].map(|name| dir.path().join(name));
    let array = eaw::array::Options::new().log_bytes(1 << 20).create(&paths).unwrap();
    let pages = array.create_file("pages", 1 << 20).unwrap();
    array.atomic_write(&pages, 0, &[b'x'; 100_000]).unwrap();
    array.abandon();
    let run = cairn(dir.path(), "array check a b");
    assert!(run.code == 2 && run.err.contains("next: cairn array check --recover a b"), "{run:?}");
    let run = cairn(dir.path(), "array check --recover a b");
    assert_eq!(
        (run.code, run.out.as_str()),
        (0, "2 members, 1 files, 1 commits; 1 applied now, 0 dropped\n"),
        "{run:?}"
    );
    assert_eq!(cairn(dir.path(), "array check a b").code, 0);
    assert_eq!(cairn(dir.path(), "array read a b --len 100000").out, "x".repeat(100_000));
}

/// What was closed is not opened for writing: no byte of it changes, and others may have it open for reading.
#[test]
fn what_only_reads_changes_nothing() {
    let dir = temp();
    let paths = ["a", "b"].map(|name| dir.path().join(name));
    assert_eq!(cairn(dir.path(), "array create a b --bytes 1M --log 1M").code, 0);
    assert_eq!(feed(dir.path(), "array write a b", &[b'x'; 100_000]).code, 0);
    let bytes = || paths.each_ref().map(|path| std::fs::read(path).unwrap());
    let before = bytes();
    let reader = eaw::array::Options::new().open_read_only(&paths).unwrap();
    for (line, said) in
        [("array read a b --len 5", "xxxxx"), ("array status a b", "members       2"), ("array check a b", "2 members")]
    {
        let run = cairn(dir.path(), line);
        assert!(run.code == 0 && run.out.contains(said), "{line}: {run:?}");
        assert!(bytes() == before, "{line} has changed a member");
    }
    let write = feed(dir.path(), "array write a b", b"y");
    assert!(write.code == 2 && write.err.contains("\nnext: "), "{write:?}");
    reader.close().unwrap();
    assert!(bytes() == before);
}
