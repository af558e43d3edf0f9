//! What streams have, and their groups, goes out of a full store, by every command that takes something out.

use super::*;

use crate::support::scarce;

const ENTRIES: u64 = 12_000;

/// Not neighbours.
fn some() -> impl Iterator<Item = u64> {
    (1..=ENTRIES).filter(|n| n % 5 > 0)
}

fn ids(words: &str, numbers: impl Iterator<Item = u64>) -> Vec<String> {
    with(words, numbers, |n| vec![n.to_string()])
}

/// A stream, all of which was sent to two groups.
fn add(client: &mut Client, entries: u64) {
    for group in ["g", "h"] {
        assert_eq!(client.say(&format!("XGROUP CREATE s {group} 0 MKSTREAM")), Reply::ok());
    }
    for from in (1..=entries).step_by(500) {
        (from..from + 500).for_each(|id| client.send(format!("XADD s {id} field value{id}\r\n").as_bytes()));
        (from..from + 500).for_each(|id| assert_eq!(client.reply(), Reply::text(&format!("{id}-0"))));
        for group in ["g", "h"] {
            let read = client.say(&format!("XREADGROUP GROUP {group} one COUNT 500 STREAMS s >"));
            assert!(matches!(read, Reply::Array(_)), "{read:?}");
        }
    }
}

#[test]
fn what_streams_have_goes_out_of_a_full_store() {
    let dir = memory();
    let path = dir.path().join("store");
    let steps = Arc::new(AtomicU64::new(0));
    let (server, mut client) = counted(&path, steps.clone());
    add(&mut client, ENTRIES);
    let mut more = 0;
    let gone = some().count() as u64;
    let rest = ENTRIES - gone;
    for (words, count) in [
        (ids("XACK s g", some()), gone),
        (ids("XGROUP DELCONSUMER s g one", std::iter::empty()), rest),
        (ids("XGROUP DESTROY s h", std::iter::empty()), 1),
        (ids("XDEL s", some()), gone),
        (ids("XTRIM s MAXLEN 7", std::iter::empty()), rest - 7),
    ] {
        top_up(&mut client, &mut more);
        assert_eq!(ask(&mut client, &words), Reply::Int(count as i64), "{}", words[..3].join(" "));
    }
    assert!(steps.load(SeqCst) >= 2 * 3, "{steps:?}: there was room for all of it at once");
    stop(server);
    let (server, mut client) = serve(&path);
    assert_eq!(int(client.say("XLEN s")), 7);
    let Reply::Array(left) = client.say("XRANGE s - +") else { panic!("no entries") };
    assert_eq!(left.len(), 7);
    let Reply::Array(first) = &left[0] else { panic!("{left:?}") };
    assert_eq!(first[0], Reply::text(&format!("{}-0", ENTRIES - 30)));
    let Reply::Array(groups) = client.say("XINFO GROUPS s") else { panic!("no groups") };
    let Reply::Array(group) = &groups[0] else { panic!("{groups:?}") };
    assert_eq!(
        (groups.len(), &group[3], &group[5]),
        (1, &Reply::Int(0), &Reply::Int(0)),
        "no consumer, nothing pending"
    );
    top_up(&mut client, &mut more);
    assert_eq!(client.say("DEL s"), Reply::Int(1));
    assert_eq!(client.say("XLEN s"), Reply::Int(0));
    stop(server);
}

/// What there is no room to note is taken out at once.
#[test]
fn a_group_goes_where_there_is_no_room_for_a_note_of_it() {
    let dir = memory();
    let path = dir.path().join("store");
    let no_room = |key: &[u8], sets: bool, _: usize| sets && key.first() == Some(&0xf4);
    let server = start(None, usual(), scarce(Box::new(Kv::new(open(&path))), Box::new(no_room)));
    let mut client = Client::to(server.redis()[0]);
    add(&mut client, 500);
    assert_eq!(client.say("XGROUP DESTROY s h"), Reply::Int(1));
    assert!(client.say("XPENDING s h").error().starts_with("NOGROUP"));
    stop(server);
    let store = open(&path);
    let elements = store.snapshot().unwrap().scan(kv::Keys::prefix(&[0xf0])).count();
    // Entries, two for each that is pending, the other group with its consumer, and the count of groups.
    assert_eq!(elements, 500 + 2 * 500 + 3 + 1);
    store.close().unwrap();
}
