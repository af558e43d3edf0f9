//! The server is killed while clients add to a stream, read from it as a group, and acknowledge, beside counts in the same transactions: nothing they were told is lost, and
//! nothing of it is there by halves.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::Command;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use crate::kill::whole;
use crate::support::{Client, Reply, request, until};

/// A client, and what it was told.
#[derive(Default)]
struct Told {
    /// Entries it has added.
    added: BTreeSet<String>,
    /// Entries it was sent, and has not acknowledged.
    sent: BTreeSet<String>,
    /// Acknowledged, and known to be.
    done: u64,
    /// What was asked last, and not answered.
    doubt: Doubt,
}

#[derive(Default)]
enum Doubt {
    #[default]
    Nothing,
    Added,
    Read,
    Done(BTreeSet<String>),
}

/// The answer to the last of so many requests; none if the server is gone.
fn ask(client: &mut Client, lines: &[Vec<u8>]) -> Option<Reply> {
    client.0.get_mut().write_all(&lines.concat()).ok()?;
    let mut last = None;
    for _ in lines {
        last = Some(client.try_reply()?);
    }
    if let Some(Reply::Error(text)) = &last {
        panic!("{text}");
    }
    last
}

fn line(text: &str) -> Vec<u8> {
    request(&text.split(' ').collect::<Vec<_>>())
}

fn ids(entries: &Reply) -> Vec<String> {
    let Reply::Array(entries) = entries else { panic!("{entries:?}") };
    let first = |entry: &Reply| match entry {
        Reply::Array(parts) => super::bulk(parts[0].clone()),
        other => panic!("{other:?}"),
    };
    entries.iter().map(first).collect()
}

fn add(client: &mut Client, told: &mut Told, at: usize) -> Option<()> {
    told.doubt = Doubt::Added;
    let lines = [line("MULTI"), line(&format!("XADD s * by {at}")), line(&format!("INCR added{at}")), line("EXEC")];
    let Reply::Array(both) = ask(client, &lines)? else { panic!("no array") };
    told.added.insert(super::bulk(both[0].clone()));
    told.doubt = Doubt::Nothing;
    Some(())
}

fn consume(client: &mut Client, told: &mut Told, at: usize) -> Option<()> {
    told.doubt = Doubt::Read;
    let read = ask(client, &[line(&format!("XREADGROUP GROUP g c{at} COUNT 3 BLOCK 50 STREAMS s >"))])?;
    told.doubt = Doubt::Nothing;
    if let Reply::Array(streams) = read {
        let Reply::Array(stream) = &streams[0] else { panic!("{streams:?}") };
        told.sent.extend(ids(&stream[1]));
    }
    // Some stay.
    let some: BTreeSet<String> = told.sent.iter().step_by(2).cloned().collect();
    if some.is_empty() {
        return Some(());
    }
    let count = some.len();
    let all = some.iter().fold("XACK s g".to_owned(), |line, id| format!("{line} {id}"));
    told.doubt = Doubt::Done(some);
    let lines = [line("MULTI"), line(&all), line(&format!("INCRBY done{at} {count}")), line("EXEC")];
    let Reply::Array(both) = ask(client, &lines)? else { panic!("no array") };
    assert_eq!(both[0], Reply::Int(count as i64), "what was sent and told is pending");
    if let Doubt::Done(some) = std::mem::take(&mut told.doubt) {
        told.sent.retain(|id| !some.contains(id));
        told.done += count as u64;
    }
    Some(())
}

fn number(client: &mut Client, key: &str) -> u64 {
    match client.say(&format!("GET {key}")) {
        Reply::Null => 0,
        text => super::bulk(text).parse().unwrap(),
    }
}

/// Holds what is there against what they were told; what was in doubt is decided from then on.
fn check(client: &mut Client, all: &mut [Told]) {
    let entries = client.say("XRANGE s - +");
    let Reply::Array(list) = &entries else { panic!("{entries:?}") };
    let there = ids(&entries);
    let by = |entry: &Reply| match entry {
        Reply::Array(parts) => parts[1].clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(client.say("XLEN s"), Reply::Int(there.len() as i64));
    let (mut pending_of_all, mut done_of_all) = (0, 0);
    for (at, told) in all.iter_mut().enumerate() {
        let own = Reply::Array(vec![Reply::text("by"), Reply::text(&at.to_string())]);
        let own: BTreeSet<String> =
            list.iter().zip(&there).filter(|(e, _)| by(e) == own).map(|(_, id)| id.clone()).collect();
        assert!(told.added.is_subset(&own), "an entry of {at} is lost");
        let more = own.len() - told.added.len();
        assert!(more <= usize::from(matches!(told.doubt, Doubt::Added)), "{more} entries of {at} too many");
        assert_eq!(number(client, &format!("added{at}")), own.len() as u64, "half of a transaction");
        told.added = own;
        let pending: BTreeSet<String> =
            ids(&client.say(&format!("XPENDING s g - + 1000000 c{at}"))).into_iter().collect();
        let done = number(client, &format!("done{at}"));
        match std::mem::take(&mut told.doubt) {
            // All or nothing of them.
            Doubt::Done(some) if done > told.done => {
                assert_eq!(done, told.done + some.len() as u64);
                told.sent.retain(|id| !some.contains(id));
                assert_eq!(pending, told.sent, "consumer {at}");
            }
            Doubt::Read => {
                assert!(told.sent.is_subset(&pending) && pending.len() <= told.sent.len() + 3, "consumer {at}")
            }
            _ => assert_eq!(pending, told.sent, "consumer {at}"),
        }
        assert!(done >= told.done);
        (told.sent, told.done) = (pending, done);
        pending_of_all += told.sent.len();
        done_of_all += told.done;
    }
    // Whatever the group has been sent is pending or done.
    let Reply::Array(groups) = client.say("XINFO GROUPS s") else { panic!("no groups") };
    let Reply::Array(group) = &groups[0] else { panic!("{groups:?}") };
    let position = super::bulk(group[7].clone());
    let sent = there.iter().position(|id| *id == position).map_or(0, |at| at + 1);
    assert_eq!(sent as u64, pending_of_all as u64 + done_of_all, "half of what a reader was sent");
    assert_eq!((&group[5], &group[9]), (&Reply::Int(pending_of_all as i64), &Reply::Int(sent as i64)));
}

type Work = fn(&mut Client, &mut Told, usize) -> Option<()>;

#[test]
fn nothing_of_a_stream_is_lost_or_there_by_halves() {
    for domain in ["emulated", "file"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let mut all: Vec<Told> = (0..4).map(|_| Told::default()).collect();
        for round in 0..6 {
            let mut served = whole(domain, &path);
            let address = served.address.parse().unwrap();
            let mut client = Client::to(address);
            if round == 0 {
                client.say("XGROUP CREATE s g $ MKSTREAM ENTRIESREAD 0");
            } else {
                check(&mut client, &mut all);
            }
            // It is killed when both have come some way, each time another one.
            let ways = [AtomicU64::new(0), AtomicU64::new(0)];
            std::thread::scope(|scope| {
                for (at, told) in all.iter_mut().enumerate() {
                    let (mut client, ways) = (Client::to(address), &ways);
                    scope.spawn(move || {
                        let (work, way) = if at < 2 { (add as Work, &ways[0]) } else { (consume as Work, &ways[1]) };
                        while work(&mut client, told, at).is_some() {
                            way.fetch_add(1, SeqCst);
                        }
                    });
                }
                let far = [20 + round * 37 % 150, 5 + round * 7 % 20];
                until("they have come some way", || (0..2).all(|of| ways[of].load(SeqCst) >= far[of]));
                let id = served.child.id().to_string();
                assert!(Command::new("kill").args(["-9", &id]).status().unwrap().success());
            });
            served.child.wait().unwrap();
        }
        let served = whole(domain, &path);
        let mut client = Client::to(served.address.parse().unwrap());
        check(&mut client, &mut all);
        let added: usize = all.iter().map(|told| told.added.len()).sum();
        assert!(
            added as u64 >= 6 * 20 && all.iter().any(|told| told.done > 0),
            "{added} added: too little to see anything"
        );
    }
}
