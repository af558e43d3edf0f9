//! What is told of what a command has done: by its name, from the keys that it has changed.

use std::collections::BTreeSet;

use super::notice::{Change, Noticing};
use super::{Event, class};
use crate::data::stored;
use crate::engine::Result;
use crate::form::{Form, flag, is};
use crate::request::Arguments;

type Name = (u32, &'static str);

const DEL: Name = (class::GENERIC, "del");
const EXPIRE: Name = (class::GENERIC, "expire");
const NEW: Name = (class::NEW, "new");

struct Made(Vec<Event>);

impl Made {
    fn add(&mut self, (class, name): Name, key: &[u8]) {
        self.0.push(Event { class, name, key: key.to_vec() });
    }

    /// What has become of a key by a command whose event this is.
    fn change(&mut self, change: &Change, name: Name) {
        if change.was.is_none() && change.is.is_none() {
            return;
        }
        if change.is_new() {
            self.add(NEW, &change.key);
        }
        self.add(name, &change.key);
        if change.is_gone() {
            self.add(DEL, &change.key);
        }
    }
}

/// Events of a command, in their order.
pub(super) fn events(
    command: &Form,
    args: &Arguments<'_>,
    db: u8,
    noticed: &Noticing<'_>,
    answer: &[u8],
) -> Result<Vec<Event>> {
    let mut made = Made(Vec::new());
    let missed = (class::MISSED, "keymiss");
    noticed.missed.borrow().iter().for_each(|key| made.add(missed, key));
    for key in sources(command, args).into_iter().map(|key| stored(db, key)) {
        if !noticed.was_there(&key)? {
            made.add(missed, &key);
        }
    }
    let all = &noticed.changes;
    let key = |at: usize| stored(db, args.get(at));
    let of = |key: &[u8]| all.iter().find(|change| change.key == key);
    match command.name {
        "del" | "unlink" | "getdel" => gone(&mut made, all),
        "rename" | "renamenx" | "copy" if !all.is_empty() => {
            // To a key that was there as well: what it had goes without a word, and it is made anew.
            let to = all.iter().find(|change| change.puts > 0).map_or_else(|| key(2), |change| change.key.clone());
            made.add(NEW, &to);
            if command.name == "copy" {
                made.add((class::GENERIC, "copy_to"), &to);
            } else {
                made.add((class::GENERIC, "rename_from"), &key(1));
                made.add((class::GENERIC, "rename_to"), &to);
            }
        }
        // What it had goes without a word, and it is made anew, unless it had expired before it came.
        "restore" => {
            for change in all {
                if change.is_gone() {
                    made.add(DEL, &change.key);
                } else if change.is.is_some() {
                    made.add(NEW, &change.key);
                    made.add((class::GENERIC, "restore"), &change.key);
                }
            }
        }
        "move" => {
            let to = all.iter().find(|change| change.is_new());
            for (name, key) in to.map(|to| (NEW, &to.key)).into_iter().chain(
                all.iter().find(|change| change.is_gone()).map(|from| ((class::GENERIC, "move_from"), &from.key)),
            ) {
                made.add(name, key);
            }
            if let Some(to) = to {
                made.add((class::GENERIC, "move_to"), &to.key);
            }
        }
        "expire" | "expireat" | "pexpire" | "pexpireat" | "getex" | "persist" => {
            for change in all {
                match (change.was, change.is) {
                    (Some(_), None) => made.add(DEL, &change.key),
                    (_, Some(is)) if is.expires => made.add(EXPIRE, &change.key),
                    (Some(was), _) if was.expires => made.add((class::GENERIC, "persist"), &change.key),
                    _ => {}
                }
            }
        }
        "lmove" | "blmove" | "rpoplpush" | "brpoplpush" => moved(&mut made, command, args, &key(1), &key(2), all),
        "smove" => {
            if let Some(change) = of(&key(1)) {
                made.change(change, (class::SET, "srem"));
            }
            if let Some(change) = of(&key(2)).filter(|_| args.get(1) != args.get(2)) {
                made.change(change, (class::SET, "sadd"));
            }
        }
        "xadd" => {
            for change in all {
                made.change(change, (class::STREAM, "xadd"));
                let counts = change.was.map_or(0, |was| was.count) + 1;
                if change.is.is_some_and(|is| is.count < counts) {
                    made.add((class::STREAM, "xtrim"), &change.key);
                }
            }
        }
        "xtrim" | "xdel" => {
            let fewer = |change: &&Change| change.is.map(|is| is.count) < change.was.map(|was| was.count);
            let name = if command.name == "xdel" { "xdel" } else { "xtrim" };
            all.iter().filter(fewer).for_each(|change| made.add((class::STREAM, name), &change.key));
        }
        "xgroup" => group(&mut made, args, &key(2), noticed, answer),
        "setbit" | "bitfield" => {
            all.iter().for_each(|change| made.change(change, (class::STRING, "setbit")));
        }
        "mset" | "msetnx" if !all.is_empty() => {
            let mut told = BTreeSet::new();
            for key in (1..args.len()).step_by(2).map(key) {
                if told.insert(key.clone()) && of(&key).is_some_and(Change::is_new) {
                    made.add(NEW, &key);
                }
                made.add((class::STRING, "set"), &key);
            }
        }
        // Also if nothing of it goes.
        "ltrim" if all.is_empty() => {
            if noticed.was_there(&key(1))? {
                made.add((class::LIST, "ltrim"), &key(1));
            }
        }
        "xreadgroup" | "xclaim" | "xautoclaim" => {
            let mut keys: Vec<Vec<u8>> = command.keys(args).iter().map(|key| stored(db, key)).collect();
            // One that is named twice has the consumer from the first time on.
            let mut named = BTreeSet::new();
            keys.retain(|key| named.insert(key.clone()));
            for key in noticed.consumed(keys.iter().map(Vec::as_slice))? {
                made.add((class::STREAM, "xgroup-createconsumer"), key);
            }
        }
        _ => {
            let Some(name) = name_of(command, args) else { return Ok(made.0) };
            // What stores nothing says only that what was there is gone.
            let stores = command.name.ends_with("store")
                || matches!(command.name, "bitop" | "georadius" | "georadiusbymember" | "sort");
            for change in all {
                match change {
                    change if stores && change.is_gone() => made.add(DEL, &change.key),
                    change => made.change(change, name),
                }
                if change.is.is_some() && expires(command, args) {
                    made.add(EXPIRE, &change.key);
                }
            }
        }
    }
    Ok(made.0)
}

/// Keys that a command which writes reads only: whether they are there is told as of one that reads.
fn sources<'b>(command: &Form, args: &Arguments<'b>) -> Vec<&'b [u8]> {
    match command.name {
        "bitfield" if !args.from(2).any(|arg| is(arg, "SET") || is(arg, "INCRBY")) => vec![args.get(1)],
        "copy" | "getdel" | "getset" | "getex" | "xack" | "xclaim" | "xautoclaim" => vec![args.get(1)],
        "restore" if !args.from(4).any(|arg| is(arg, "REPLACE")) => vec![args.get(1)],
        "set" if args.from(3).any(|arg| is(arg, "GET")) => vec![args.get(1)],
        "zrangestore" | "geosearchstore" => vec![args.get(2)],
        "georadius" | "georadiusbymember" | "sort" => vec![args.get(1)],
        "bitop" => args.from(3).collect(),
        "pfmerge" => args.from(1).collect(),
        "sinterstore" | "sunionstore" | "sdiffstore" => args.from(2).collect(),
        "zunionstore" | "zinterstore" | "zdiffstore" => command.keys(args).split_off(1),
        _ => Vec::new(),
    }
}

fn gone(made: &mut Made, all: &[Change]) {
    all.iter().filter(|change| change.is_gone()).for_each(|change| made.add(DEL, &change.key));
}

/// An element has come to one list from another.
fn moved(made: &mut Made, command: &Form, args: &Arguments<'_>, from: &[u8], to: &[u8], all: &[Change]) {
    if all.is_empty() {
        return;
    }
    let (pops_left, pushes_left) = match command.name {
        "lmove" | "blmove" => (is(args.get(3), "LEFT"), is(args.get(4), "LEFT")),
        _ => (false, true),
    };
    if all.iter().any(|change| change.key == to && change.is_new()) {
        made.add(NEW, to);
    }
    made.add((class::LIST, if pushes_left { "lpush" } else { "rpush" }), to);
    made.add((class::LIST, if pops_left { "lpop" } else { "rpop" }), from);
    gone(made, all);
}

/// What groups do is not seen at their stream's head: the answer says it.
fn group(made: &mut Made, args: &Arguments<'_>, key: &[u8], noticed: &Noticing<'_>, answer: &[u8]) {
    let word = args.get(1);
    let names: [(&str, &[u8], &'static str); 5] = [
        ("CREATE", b"+OK", "xgroup-create"),
        ("SETID", b"+OK", "xgroup-setid"),
        ("DESTROY", b":1", "xgroup-destroy"),
        ("CREATECONSUMER", b":1", "xgroup-createconsumer"),
        ("DELCONSUMER", b":", "xgroup-delconsumer"),
    ];
    let found = names.iter().find(|(name, said, _)| is(word, name) && answer.starts_with(said));
    if let Some((.., name)) = found {
        if *name == "xgroup-delconsumer" && !noticed.dropped_consumer {
            return;
        }
        noticed.changes.iter().filter(|change| change.is_new()).for_each(|change| made.add(NEW, &change.key));
        made.add((class::STREAM, name), key);
    }
}

/// Whether a string is set with an expiry.
fn expires(command: &Form, args: &Arguments<'_>) -> bool {
    let option = |arg: &[u8]| ["EX", "PX", "EXAT", "PXAT"].iter().any(|name| is(arg, name));
    matches!(command.name, "setex" | "psetex") || command.name == "set" && args.from(3).any(option)
}

/// The event of a command that changes the keys it names, each in the same way.
fn name_of(command: &Form, args: &Arguments<'_>) -> Option<Name> {
    let any = |name: &str| args.from(2).any(|arg| is(arg, name));
    Some(match command.name {
        "sort" => (class::LIST, "sortstore"),
        "set" | "setex" | "psetex" | "setnx" | "getset" | "mset" | "msetnx" | "bitop" => (class::STRING, "set"),
        "incr" | "incrby" | "decr" | "decrby" => (class::STRING, "incrby"),
        "pfadd" | "pfmerge" => (class::STRING, "pfadd"),
        "lpush" | "lpushx" => (class::LIST, "lpush"),
        "rpush" | "rpushx" => (class::LIST, "rpush"),
        "lpop" | "blpop" => (class::LIST, "lpop"),
        "rpop" | "brpop" => (class::LIST, "rpop"),
        "lmpop" | "blmpop" => (class::LIST, if any("LEFT") { "lpop" } else { "rpop" }),
        "hset" | "hmset" | "hsetnx" => (class::HASH, "hset"),
        "zadd" if any("INCR") => (class::SORTED, "zincr"),
        "zincrby" => (class::SORTED, "zincr"),
        "geoadd" => (class::SORTED, "zadd"),
        "bzpopmin" => (class::SORTED, "zpopmin"),
        "bzpopmax" => (class::SORTED, "zpopmax"),
        "zmpop" | "bzmpop" => (class::SORTED, if any("MIN") { "zpopmin" } else { "zpopmax" }),
        "georadius" | "georadiusbymember" => (class::SORTED, "georadiusstore"),
        "geosearchstore" => (class::SORTED, "geosearchstore"),
        // By their own names.
        name => (class_of(command)?, name),
    })
}

fn class_of(command: &Form) -> Option<u32> {
    let classes = [
        (flag::STRING | flag::BITMAP, class::STRING),
        (flag::LIST, class::LIST),
        (flag::SET, class::SET),
        (flag::HASH, class::HASH),
        (flag::SORTED, class::SORTED),
        (flag::STREAM, class::STREAM),
    ];
    classes.iter().find(|(flags, _)| command.is(*flags)).map(|(_, class)| *class)
}
