//! Single commands whose answers differed from Redis' where neither the differential test nor a client's suite goes.

use std::collections::BTreeMap;

use pmem::DomainChoice;

use crate::support::{Reply, Running};

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?}"),
    }
}

/// How often `RANDOMKEY` names each key.
fn drawn(running: &Running, times: usize) -> BTreeMap<String, usize> {
    let (mut client, mut drawn) = (running.client(), BTreeMap::new());
    for _ in 0..times {
        *drawn.entry(text(&client.say("RANDOMKEY"))).or_default() += 1;
    }
    drawn
}

#[test]
fn every_key_is_drawn() {
    for running in [Running::start(DomainChoice::Emulated), Running::tree()] {
        let mut client = running.client();
        assert_eq!(client.say("RANDOMKEY"), Reply::Null);
        client.say("MSET a 1 b 2");
        assert_eq!(drawn(&running, 100).len(), 2);
        // One that stands alone, many that begin alike, some that begin with others whole.
        (0..1000).for_each(|n| drop(client.say(&format!("MSET key:{n} 1 key:{n}:of 1"))));
        let drawn = drawn(&running, 400);
        // Of 400 out of 2002 that are drawn alike some 363 are different; the first two have one chance in a thousand each.
        assert!(drawn.len() > 250, "{} different keys", drawn.len());
        let alone = ["a", "b"].map(|key| drawn.get(key).copied().unwrap_or(0));
        assert!(alone.iter().all(|times| *times < 60), "{alone:?}");
    }
}

#[test]
fn clients_are_listed_by_id() {
    let running = Running::start(DomainChoice::Emulated);
    let (mut one, mut other) = (running.client(), running.client());
    let Reply::Int(id) = other.say("CLIENT ID") else { panic!("no id") };
    let listed = text(&one.say(&format!("CLIENT LIST ID {id} 999999")));
    assert!(listed.starts_with(&format!("id={id} ")) && listed.lines().count() == 1, "{listed}");
    assert_eq!(text(&one.say("CLIENT LIST ID 999999")), "");
    assert_eq!(text(&one.say("CLIENT LIST TYPE normal")).lines().count(), 2);
    assert_eq!(text(&one.say("CLIENT LIST TYPE pubsub")), "");
    assert_eq!(one.say("CLIENT LIST ID x").error(), "ERR Invalid client ID");
    assert_eq!(one.say("CLIENT LIST TYPE x").error(), "ERR Unknown client type 'x'");
    assert_eq!(one.say("CLIENT LIST ID").error(), "ERR syntax error");
}

#[test]
fn numbers_are_read_as_redis_reads_them() {
    let running = Running::start(DomainChoice::Emulated);
    let mut client = running.client();
    assert_eq!(client.say("INCRBYFLOAT x 0x1p3"), Reply::text("8"));
    assert_eq!(client.say("INCRBYFLOAT x 0x.8"), Reply::text("8.5"));
    assert_eq!(client.say("ZADD z 0x1.8p1 m"), Reply::Int(1));
    assert_eq!(client.say("ZSCORE z m"), Reply::text("3"));
    assert!(client.say("ZADD z 0x1p99999 m").error().contains("not a valid float"));
    assert!(matches!(client.say("SCAN -1"), Reply::Array(_)));
    assert_eq!(client.say("SCAN --1").error(), "ERR invalid cursor");
    client.say("RPUSH l a");
    assert!(client.say("LPOS l a RANK -9223372036854775808").error().starts_with("ERR value is out of range"));
}

#[test]
fn a_move_to_a_set_that_has_the_member_leaves_it_as_it_was() {
    let running = Running::start(DomainChoice::Emulated);
    let (mut one, mut other) = (running.client(), running.client());
    one.say("SADD from a b");
    one.say("SADD to a");
    for (member, goes_on) in [("a", true), ("b", false)] {
        one.say("WATCH to");
        assert_eq!(other.say(&format!("SMOVE from to {member}")), Reply::Int(1));
        one.say("MULTI");
        one.say("PING");
        assert_eq!(one.say("EXEC") != Reply::Null, goes_on, "{member}");
    }
}

/// Users are in the store: no restart would help.
#[test]
fn the_last_user_who_can_change_users_stays() {
    let running = Running::start(DomainChoice::Emulated);
    let mut client = running.client();
    for rules in ["off", "resetpass", "-acl", "-@all", "reset"] {
        let said = client.say(&format!("ACL SETUSER default {rules}"));
        assert!(said.error().contains("nobody could change users"), "{rules}: {said:?}");
    }
    client.say("ACL SETUSER ada on >lovelace +@all ~*");
    assert_eq!(client.say("ACL SETUSER default off"), Reply::ok());
    let mut ada = running.client();
    assert_eq!(ada.say("AUTH ada lovelace"), Reply::ok());
    assert!(ada.say("ACL DELUSER ada").error().contains("nobody could change users"));
    assert_eq!(ada.say("ACL SETUSER default on nopass +@all ~*"), Reply::ok());
    assert_eq!(ada.say("ACL DELUSER ada"), Reply::Int(1));
}

/// What comes while there is no room is tried again a second later.
#[test]
fn thousands_may_wait_to_be_accepted() {
    let limit = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let running = Running::start(DomainChoice::Emulated);
    let out =
        crate::support::run(std::process::Command::new("ss").args(["-ltnH", &format!("sport = :{}", running.port())]));
    // Of a socket that listens the third word is how many may wait.
    let waiting: u32 = out.split_whitespace().nth(2).unwrap().parse().unwrap();
    assert_eq!(waiting, limit.trim().parse::<u32>().unwrap().min(4096), "{out}");
}
