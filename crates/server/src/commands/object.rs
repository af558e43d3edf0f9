//! `OBJECT`: how Redis would keep a value, and how it is used.

use std::ops::ControlFlow;

use super::flag::{KEYSPACE, READ};
use super::second::second;
use super::{Command, Context, KeysAt, Outcome, data};
use crate::data::chunks::Text;
use crate::data::{Head, Kind, SMALL_SORTED};
use crate::request::{Arguments, number};

pub(super) const COMMANDS: &[Command] = &[data("object", -2, READ | KEYSPACE, KeysAt::Range(2, 2, 1), object)];

const HELP: [&str; 14] = [
    "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ENCODING <key>",
    "    Return the kind of internal representation used in order to store the value",
    "    associated with a <key>.",
    "FREQ <key>",
    "    Return the access frequency index of the <key>. The returned integer is",
    "    proportional to the logarithm of the recent access frequency of the key.",
    "IDLETIME <key>",
    "    Return the idle time of the <key>, that is the approximated number of",
    "    seconds elapsed since the last access to the key.",
    "REFCOUNT <key>",
    "    Return the number of references of the value associated with the specified",
    "    <key>.",
    "HELP",
];

/// Bytes of a string that Redis keeps with its object; elements of a hash that it keeps in one piece, bytes of each, and whole numbers of a set.
const EMBEDDED: usize = 44;
const LISTED: u64 = 512;
const LISTED_BYTES: usize = SMALL_SORTED.1;
const INTEGERS: u64 = 512;

fn object(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let which = second(args)?;
    if which == "help" {
        c.reply.array(HELP.len() + 1);
        HELP.iter().chain(&["    Prints this help."]).for_each(|line| c.reply.simple(line));
        return Ok(());
    }
    let key = c.key(args.get(2));
    let Some(value) = c.tx.get(&key)?.map(<[u8]>::to_vec) else {
        c.reply.null();
        return Ok(());
    };
    match which {
        "encoding" => {
            let encoding = encoding(c, &value)?;
            c.reply.bulk(encoding.as_bytes());
        }
        "refcount" => c.reply.int(1),
        "idletime" => {
            let idle = c.shared.evictor.idle_seconds(&key, c.now);
            let lfu = c.shared.evictor.count(&key, c.now).is_some();
            let lfu = lfu.then_some("ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.");
            let none = "ERR when keys were used is noted by the policies allkeys-lru and volatile-lru: see CONFIG SET maxmemory-policy";
            c.reply.int(idle.ok_or(lfu.unwrap_or(none))?.into());
        }
        _ => {
            let count = c.shared.evictor.count(&key, c.now);
            c.reply.int(count.ok_or("ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.")?.into());
        }
    }
    Ok(())
}

/// What Redis 7.0 says of such a value when it is set at once.
fn encoding(c: &Context<'_>, value: &[u8]) -> Outcome<&'static str> {
    if let Some(text) = Text::read(value)? {
        return Ok(match text.len() {
            1..=20 if is_integer(&text.bytes(&*c.tx)?) => "int",
            0..=EMBEDDED => "embstr",
            _ => "raw",
        });
    }
    let Some(head) = Head::read(value) else { return Ok("raw") };
    Ok(match head.kind {
        Kind::List => "quicklist",
        Kind::Stream => "stream",
        Kind::Set if head.count <= INTEGERS && all(c, &head, |member, _| is_integer(member))? => "intset",
        Kind::Hash if is_listed(c, &head)? => "listpack",
        Kind::Sorted if is_listed(c, &head)? => "listpack",
        Kind::Sorted => "skiplist",
        _ => "hashtable",
    })
}

/// As it would be written.
fn is_integer(bytes: &[u8]) -> bool {
    number(bytes).is_some_and(|number| number.to_string().as_bytes() == bytes)
}

fn is_listed(c: &Context<'_>, head: &Head) -> Outcome<bool> {
    let short = |name: &[u8], held: &[u8]| {
        name.len() <= LISTED_BYTES && (head.kind != Kind::Hash || held.len() <= LISTED_BYTES)
    };
    let most = if head.kind == Kind::Hash { LISTED } else { SMALL_SORTED.0 };
    Ok(head.count <= most && all(c, head, short)?)
}

fn all(c: &Context<'_>, head: &Head, is_so: impl Fn(&[u8], &[u8]) -> bool) -> Outcome<bool> {
    let mut so = true;
    super::names::each(c, head, 0, &mut |name, held| {
        so = is_so(name, held);
        if so { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(so)
}
