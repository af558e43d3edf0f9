//! A store that a later server has written: it is refused, with what to do next, and left as it is.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use pmem::DomainChoice;
use server::engine::{Engine, Keys};
use server::{Chunks, Config, Server, Settings};

use crate::support::{Client, Reply, Store, usual};

const RECORD: &[u8] = b"\xf3seed";
/// The note of a removal in steps that was not ended.
const UNFINISHED: &[u8] = b"\xf3flush";

fn open(store: Store, path: &Path) -> Box<dyn Engine> {
    store.open(path, pmem::Options::new().domain(DomainChoice::Emulated))
}

/// Strings of some bytes lie in chunks.
fn config() -> Config {
    Config { settings: Settings { chunks: Chunks { whole: 48, chunk: 16 }, ..Settings::default() }, ..usual() }
}

fn serve(store: Store, path: &Path, run: impl FnOnce(&mut Client)) {
    let server = Server::start(config(), open(store, path)).unwrap();
    run(&mut Client::to(server.redis()[0]));
    server.stop();
    server.join().unwrap();
}

/// All pairs there are.
fn all(store: Store, path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let engine = open(store, path);
    let mut pairs = BTreeMap::new();
    let read = engine.read(&mut |tx| {
        tx.scan(Keys::all(), &mut |key, value| {
            pairs.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        })
    });
    read.unwrap();
    engine.close().unwrap();
    pairs
}

fn put(store: Store, path: &Path, key: &[u8], value: &[u8]) {
    let engine = open(store, path);
    engine.write(&mut |tx| tx.put(key, value, None)).unwrap();
    engine.close().unwrap();
}

fn fill(client: &mut Client) {
    let long = "x".repeat(100);
    for line in
        ["SET short 1", &format!("SET long {long}"), "SADD set a b c", "SWAPDB 0 3", "SET other 1", "RPUSH list a"]
    {
        assert!(!matches!(client.say(line), Reply::Error(_)), "{line}");
    }
}

#[test]
fn a_store_of_a_later_server_is_refused_and_left_as_it_is() {
    for store in Store::ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        serve(store, &path, fill);
        let known = all(store, &path)[RECORD].clone();
        // The seed, the form, and the map of the databases.
        assert_eq!(known.len(), 8 + 1 + 16, "{store:?}");
        let (seed, map) = (&known[..8], &known[9..]);
        let unknown_form = |form: u8| [seed, &[form], map].concat();
        let forms = (0..=255).filter(|form| *form != known[8]).map(unknown_form);
        // Form without a map, more behind what is known, and a map of other databases.
        let others = [
            [seed, &[2]].concat(),
            [seed, &[0]].concat(),
            [&known[..], &[0]].concat(),
            [seed, &[1, 1]].concat(),
            [&known[..], map].concat(),
            [seed, &[2; 200]].concat(),
        ];
        let few = forms.enumerate().filter(|(at, _)| at % 50 < 2).map(|(_, form)| form);
        put(store, &path, UNFINISHED, &[3]);
        for later in few.chain(others) {
            put(store, &path, RECORD, &later);
            let before = all(store, &path);
            let shown = later.escape_ascii();
            let Err(refused) = Server::start(config(), open(store, &path)) else {
                panic!("{store:?}: it serves {shown}")
            };
            let text = refused.to_string();
            let says = ["a newer server has written", "; next: ", "a later one"];
            assert!(says.iter().all(|part| text.contains(part)), "{store:?}: {text}");
            assert!(all(store, &path) == before, "{store:?}: it has written to {shown}");
        }
        let engine = open(store, &path);
        engine.write(&mut |tx| tx.delete(UNFINISHED).map(drop)).unwrap();
        engine.close().unwrap();
        // With that server, or when that one has taken it back, all is there.
        put(store, &path, RECORD, &known);
        serve(store, &path, |client| {
            assert_eq!((client.say("GET other"), client.say("SELECT 3")), (Reply::text("1"), Reply::ok()));
            assert_eq!((client.say("GET short"), client.say("SCARD set")), (Reply::text("1"), Reply::Int(3)));
            assert_eq!(client.say("STRLEN long"), Reply::Int(100));
        });
    }
}
