//! Pages that are lost, and pages that go back in time: what is kept twice is on two pages, and the watermark tells of the records that were.

use log::{Error, Follower, Options};

/// A page of the file.
const PAGE: usize = 4096;
/// Where the log's region begins: behind both pages of the pool's header.
const FRONT: usize = 2 * PAGE;
/// Records at the end of a log that was not closed, of which nothing may tell that they were there.
const UNNOTICED: usize = 16;

fn options() -> Options {
    Options::new().bytes(64 << 10).idle(None)
}

fn payload(n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(5)
}

/// A log with 100 records that was closed, and the same with 200, closed or not.
fn made(records: [u64; 2], closed: bool) -> (Vec<u8>, Vec<u8>) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("l");
    let log = options().create(&path).unwrap();
    (1..=records[0]).for_each(|n| assert_eq!(log.append(&payload(n)).unwrap().get(), n));
    log.close().unwrap();
    let old = std::fs::read(&path).unwrap();
    let (log, _) = options().open(&path).unwrap();
    (records[0] + 1..=records[1]).for_each(|n| assert_eq!(log.append(&payload(n)).unwrap().get(), n));
    if closed {
        log.close().unwrap()
    } else {
        log.abandon()
    }
    (old, std::fs::read(&path).unwrap())
}

/// What a process beside reads, and what there is when it is opened, and again with a record more.
fn read(bytes: &[u8]) -> Result<usize, Error> {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("l");
    std::fs::write(&path, bytes).unwrap();
    let mut follower = Follower::open(&path)?.eager();
    let mut followed = 0;
    while let Some((lsn, found)) = follower.wait(std::time::Duration::ZERO)? {
        followed += 1;
        assert_eq!((lsn.get(), found), (followed, payload(followed)));
    }
    let (log, found) = options().open(&path)?;
    assert_eq!(found.records, followed);
    let next = log.append(&payload(found.next.get()))?;
    log.abandon();
    let (log, found) = options().open(&path)?;
    assert_eq!((found.records, found.next.get()), (followed + 1, next.get() + 1), "what was acknowledged is there");
    let mut iter = log.iter();
    let mut read = 0;
    while let Some(record) = iter.next()? {
        read += 1;
        assert_eq!(record.payload, payload(read));
    }
    assert_eq!(read, followed + 1);
    Ok(followed as usize)
}

#[test]
fn a_page_of_the_superline_is_lost_or_goes_back_in_time() {
    for closed in [true, false] {
        let (old, new) = made([100, 200], closed);
        for page in 0..3 {
            let at = FRONT + page * PAGE..FRONT + (page + 1) * PAGE;
            let mut zeroed = new.clone();
            zeroed[at.clone()].fill(0);
            assert_eq!(read(&zeroed).unwrap(), 200, "page {page} zeroed, closed {closed}");
            let mut stale = new.clone();
            stale[at.clone()].copy_from_slice(&old[at]);
            assert_eq!(read(&stale).unwrap(), 200, "page {page} stale, closed {closed}");
        }
    }
}

#[test]
fn a_page_near_the_end_is_lost_or_goes_back_in_time() {
    for closed in [true, false] {
        let (old, new) = made([205, 300], closed);
        let mut named = 0;
        for page in FRONT / PAGE + 3..new.len() / PAGE {
            let at = page * PAGE..(page + 1) * PAGE;
            let mut zeroed = new.clone();
            zeroed[at.clone()].fill(0);
            let mut stale = new.clone();
            stale[at.clone()].copy_from_slice(&old[at]);
            for (what, bytes) in [("zeroed", zeroed), ("stale", stale)] {
                if bytes == new {
                    continue;
                }
                match read(&bytes) {
                    Ok(found) => assert!(!closed && found + UNNOTICED >= 300, "page {page} {what}: {found} of 300"),
                    Err(Error::Lost { .. }) => named += 1,
                    Err(other) => panic!("page {page} {what}: {other}"),
                }
            }
        }
        assert!(named > 3, "{named}");
    }
}

/// Two pages at once, each zeroed or as it was at any earlier time: of a log that was closed nothing goes unnoticed, though both copies of its superline tell of an earlier end.
#[test]
fn two_pages_are_lost_or_go_back_in_time() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("l");
    let (mut looks, mut last) = (Vec::new(), 0);
    for session in 0..4 {
        let log = if session == 0 { options().create(&path).unwrap() } else { options().open(&path).unwrap().0 };
        // Fewer than make the watermark move, and more.
        for _ in 0..[8, 30, 5, 9][session] {
            last += 1;
            assert_eq!(log.append(&payload(last)).unwrap().get(), last);
        }
        log.close().unwrap();
        looks.push(std::fs::read(&path).unwrap());
    }
    let new = looks.pop().unwrap();
    looks.push(vec![0; new.len()]);
    let pages = FRONT / PAGE..FRONT / PAGE + 5;
    let mut outcomes = [0, 0];
    for (one, other) in pages.clone().flat_map(|one| (one + 1..pages.end).map(move |other| (one, other))) {
        for (at, then) in (0..looks.len()).flat_map(|at| (0..looks.len()).map(move |then| (at, then))) {
            let mut bytes = new.clone();
            for (page, look) in [(one, at), (other, then)] {
                bytes[page * PAGE..][..PAGE].copy_from_slice(&looks[look][page * PAGE..][..PAGE]);
            }
            let found = read(&bytes);
            outcomes[usize::from(found.is_err())] += 1;
            assert!(
                found.as_ref().map_or(true, |found| *found == 52),
                "pages {one}, {other} of {at}, {then}: {found:?}"
            );
        }
    }
    assert!(outcomes.iter().all(|&count| count > 20), "{outcomes:?}");
}

/// Nothing was appended yet: what is left of the superline says that the log was made.
#[test]
fn a_new_log_without_one_of_its_pages_is_a_log() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("l");
    for closed in [true, false] {
        let log = options().create(&path).unwrap();
        if closed {
            log.close().unwrap()
        } else {
            log.abandon()
        }
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for page in 0..3 {
            let mut zeroed = bytes.clone();
            zeroed[FRONT + page * PAGE..][..PAGE].fill(0);
            assert_eq!(read(&zeroed).unwrap(), 0, "page {page}");
        }
    }
}

/// A log that is idle says of all its records that they were there.
#[test]
fn when_idle_nothing_goes_unnoticed() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("l");
    let log = options().create(&path).unwrap();
    (1..=7).for_each(|n| assert_eq!(log.append(&payload(n)).unwrap().get(), n));
    log.idle().unwrap();
    log.abandon();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[FRONT + 3 * PAGE..][..PAGE].fill(0);
    assert!(matches!(read(&bytes), Err(Error::Lost { through, .. }) if through.get() == 7));
}

/// A log in format 1 is used as it is, and written anew under the same numbers.
#[test]
fn a_log_of_format_1_stays_one_until_it_is_converted() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let log = options().format_1().create(&old).unwrap();
    for n in 1..=900 {
        assert_eq!(log.append(&payload(n)).unwrap().get(), n);
        if n > 700 {
            log.truncate_to(log::Lsn::new(n - 600)).unwrap();
        }
    }
    log.reserve(5).unwrap(); // given up: 901
    log.append(&payload(902)).unwrap();
    log.idle().unwrap();
    log.abandon();
    let (log, found) = options().open(&old).unwrap();
    let expected = crate::basics::records(&log);
    assert_eq!((found.next.get(), expected.last().unwrap().0), (904, 902));
    log.close().unwrap();
    let size = std::fs::metadata(&old).unwrap().len();
    assert_eq!(size, (64 << 10) + 4096 + 16384, "opening does not rewrite it");

    let done = options().convert(&old, &new).unwrap();
    assert_eq!((done.records, done.next.get(), done.head), (expected.len() as u64, 904, found.head));
    let again = options().convert(&old, &new).unwrap_err();
    assert!(again.to_string().contains("convert to"), "{again}");
    let mut bytes = std::fs::read(&new).unwrap();
    for path in [&old, &new] {
        let (log, _) = options().open(path).unwrap();
        assert_eq!(crate::basics::records(&log), expected);
        assert_eq!(log.append(b"one more").unwrap().get(), 904);
    }
    bytes[FRONT..][..PAGE].fill(0);
    std::fs::write(&new, bytes).unwrap();
    let (log, found) = options().open(&new).unwrap();
    assert!(found.superline_repaired);
    assert_eq!(crate::basics::records(&log), expected);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing else is left");
}
