//! Commits of a replicated store whose log is full: they wait for room, not for ever, and nothing of one that is refused is anywhere.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use kv::{Error, Options, Store};
use pmem::ErrorKind;

use crate::replicated::{Site, all, await_commits, log_of};

const LOG: u64 = 64 << 10;
/// A commit of a full log is tried so often at once, and is refused when it has waited so long.
const AT_ONCE: usize = 8;
const WAITS: Duration = Duration::from_secs(5);

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Puts values until one is refused; what it says.
fn fill(store: &Store, model: &mut Model) -> Error {
    for n in 0..1000_u32 {
        let (key, value) = (n.to_be_bytes().to_vec(), vec![n as u8; 1000]);
        match store.put(&key, &value) {
            Ok(_) => drop(model.insert(key, value)),
            Err(error) => return error,
        }
    }
    panic!("a log of {LOG} bytes has room for a million");
}

/// Holds the log for so many looks; returns how long commits would have waited at each of them.
fn hold(looks: usize) -> Rc<RefCell<Vec<Duration>>> {
    let waits = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&waits);
    kv::hold_log(move |wait| {
        let mut seen = seen.borrow_mut();
        if seen.len() < looks {
            seen.push(wait);
            return true;
        }
        false
    });
    waits
}

fn let_go() {
    kv::hold_log(|_| false);
}

#[test]
fn a_commit_waits_for_room_in_the_log_and_is_refused_when_none_comes() {
    let site = Site::new();
    let (one, two) = (site.follow(1), site.follow(2));
    let options = Options::new().replicated(&site.copies(&[&one, &two]), &log_of(LOG));
    let store = options.create(site.store(0)).unwrap();
    let mut model = Model::new();
    let waits = hold(usize::MAX);
    let refused = fill(&store, &mut model);
    assert!(matches!(refused, Error::LogFull { live, capacity: LOG } if live > LOG / 2), "{refused:?}");
    assert_eq!(refused.kind(), ErrorKind::Full);
    let text = refused.to_string();
    assert!(["the log is full", "does not keep up", "next: "].iter().all(|part| text.contains(part)), "{text}");
    // Each commit behind the middle of the log has looked once before it was tried; the last one again and again, and so long.
    let last = {
        let waits = waits.borrow();
        let ended = waits.iter().rposition(|wait| !wait.is_zero()).map_or(0, |at| at + 1);
        assert_eq!((waits.len(), waits.iter().sum()), (ended, WAITS), "the last looks are those of the one that waits");
        waits.iter().filter(|wait| !wait.is_zero()).count()
    };
    assert_eq!(all(&store), model);

    // Nothing of several changes is there, either: not for readers, not in the log, and their keys are free.
    waits.borrow_mut().clear();
    let refused = store.transact(|tx| {
        tx.put(b"one", b"1")?;
        tx.delete(&0_u32.to_be_bytes())?;
        tx.put(b"two", &[2; 2000])
    });
    assert!(matches!(refused, Err(Error::LogFull { .. })), "{refused:?}");
    assert_eq!(waits.borrow().len(), 1 + AT_ONCE + last);
    assert_eq!(all(&store), model);
    let commits = model.len() as u64;
    for follower in [&one, &two] {
        await_commits(follower, commits);
        assert_eq!(all(follower.store()), model);
    }
    store.abandon();
    std::fs::remove_file(site.store(0)).unwrap();
    let_go();
    let store = options.open_or_create(site.store(0)).unwrap();
    assert_eq!(all(&store), model, "the store is made anew of the log");
    store.put(b"one", b"1").unwrap();
    model.insert(b"one".to_vec(), b"1".to_vec());
    assert_eq!(all(&store), model);
    store.close().unwrap();
}

/// The thread that removes what has expired makes checkpoints and room, too.
#[test]
fn what_has_expired_does_not_wait_for_room_in_the_log() {
    let site = Site::new();
    let (one, two) = (site.follow(1), site.follow(2));
    let options = Options::new().background(false).replicated(&site.copies(&[&one, &two]), &log_of(LOG));
    let store = options.create(site.store(0)).unwrap();
    store.put_until(b"expired", b"1", 1).unwrap();
    let waits = hold(usize::MAX);
    fill(&store, &mut Model::new());
    // To the brim: what removes a key is shorter.
    while store.put(b"brimful", b"1").is_ok() {}
    waits.borrow_mut().clear();
    let refused = store.sweep();
    assert!(matches!(refused, Err(Error::LogFull { .. })), "{refused:?}");
    assert_eq!(*waits.borrow(), [Duration::ZERO; 1 + AT_ONCE], "it is tried at once, and put off");
    let_go();
    assert_eq!(store.sweep().unwrap(), 1);
    store.close().unwrap();
}

#[test]
fn a_commit_goes_on_when_the_log_has_room_again() {
    let site = Site::new();
    let (one, two) = (site.follow(1), site.follow(2));
    let options = Options::new().replicated(&site.copies(&[&one, &two]), &log_of(LOG));
    let store = options.create(site.store(0)).unwrap();
    let mut model = Model::new();
    hold(usize::MAX);
    assert!(matches!(fill(&store, &mut model), Error::LogFull { .. }));
    // Beyond those that come at once.
    for looks in [AT_ONCE / 2, AT_ONCE + 5] {
        let waits = hold(looks);
        store
            .transact(|tx| {
                tx.put(b"held", &(looks as u32).to_be_bytes())?;
                tx.put(&0_u32.to_be_bytes(), &[9; 1000])
            })
            .unwrap();
        assert_eq!(waits.borrow().len(), looks, "it has looked before each try");
        model.insert(b"held".to_vec(), (looks as u32).to_be_bytes().to_vec());
        model.insert(0_u32.to_be_bytes().to_vec(), vec![9; 1000]);
        assert_eq!(all(&store), model);
        // Full again.
        hold(usize::MAX);
        assert!(matches!(fill(&store, &mut model), Error::LogFull { .. }));
    }
    let_go();
    store.put(b"last", b"1").unwrap();
    model.insert(b"last".to_vec(), b"1".to_vec());
    store.close().unwrap();
    let store = options.open(site.store(0)).unwrap();
    assert_eq!(all(&store), model);
    for follower in [&one, &two] {
        crate::replicated::await_that(follower, || all(follower.store()) == model);
    }
    store.close().unwrap();
}
