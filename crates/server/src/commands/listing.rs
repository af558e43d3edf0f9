//! `COMMAND LIST`, `COMMAND GETKEYS` and `COMMAND GETKEYSANDFLAGS`: which commands there are, and which keys a request has.

use super::flag::{READ, SCRIPTING, STREAM};
use super::{COMMANDS, Command, KeysAt, Outcome, SYNTAX, find, is};
use crate::form::Fit;
use crate::glob;
use crate::reply::Reply;
use crate::request::{Arguments, number};
use crate::users::Category;

/// What `FILTERBY` asks for.
enum Filter {
    Any,
    /// There are no modules.
    Module,
    /// None for a category that there is not.
    Category(Option<Category>),
    /// In small letters.
    Pattern(Vec<u8>),
}

impl Filter {
    fn passes(&self, command: &Command, name: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Module => false,
            Self::Category(category) => category.is_some_and(|category| category.has(command)),
            Self::Pattern(pattern) => glob::matches(pattern, name),
        }
    }
}

pub(super) fn list(args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let filter = match args.len() {
        2 => Filter::Any,
        5 if is(args.get(2), "FILTERBY") => {
            let wanted = args.get(4).to_ascii_lowercase();
            match args.get(3) {
                kind if is(kind, "MODULE") => Filter::Module,
                kind if is(kind, "ACLCAT") => {
                    let name = std::str::from_utf8(&wanted).ok().filter(|name| *name != "all");
                    Filter::Category(name.and_then(Category::of))
                }
                kind if is(kind, "PATTERN") => Filter::Pattern(wanted),
                _ => return Err(SYNTAX.into()),
            }
        }
        _ => return Err(SYNTAX.into()),
    };
    let mut names = Vec::new();
    for command in COMMANDS.iter() {
        let seconds = command.second_names().map(|second| format!("{}|{second}", command.name));
        let all = std::iter::once(command.name.to_owned()).chain(seconds);
        names.extend(all.filter(|name| filter.passes(command, name.as_bytes())));
    }
    reply.array(names.len());
    names.iter().for_each(|name| reply.bulk(name.as_bytes()));
    Ok(())
}

/// The keys of the request that stands behind the second name; with what becomes of them, if that is asked for.
pub(super) fn keys(args: &Arguments<'_>, with_flags: bool, reply: &mut Reply) -> Outcome {
    let (_, command) = find(args.get(2)).ok_or("ERR Invalid command specified")?;
    let inner = args.behind(2);
    let fit = command.fit(&inner);
    if matches!(fit, Fit::Unknown(_)) {
        return Err("ERR Invalid command specified".into());
    }
    let none = "ERR The command has no key arguments";
    // Help of a command that has keys has none.
    if command.keys == KeysAt::None || is(inner.get(1), "HELP") && command.is(STREAM) {
        return Err(none.into());
    }
    if fit.error(command).is_some() {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    // A script may have none, and what is wrong with its number of them it says itself.
    let wrong = match command.keys {
        KeysAt::Counted(at) | KeysAt::Stored(at) => {
            let count = number(inner.get(at)).and_then(|count| usize::try_from(count).ok());
            count.is_none_or(|count| count == 0 || count >= inner.len() - at)
        }
        KeysAt::Streams => command.keys(&inner).is_empty(),
        _ => false,
    };
    if wrong && !command.is(SCRIPTING) {
        return Err("ERR Invalid arguments specified for command".into());
    }
    let keys = if wrong { Vec::new() } else { command.keys(&inner) };
    if keys.is_empty() && !command.is(SCRIPTING) {
        return Err(none.into());
    }
    reply.array(keys.len());
    for (at, key) in keys.iter().enumerate() {
        if with_flags {
            reply.array(2);
        }
        reply.bulk(key);
        if with_flags {
            let flags = access(command, &inner, at);
            reply.set(flags.len());
            flags.iter().for_each(|flag| reply.simple(flag));
        }
    }
    Ok(())
}

/// What becomes of a key: whether it is read, written (`RW`), overwritten (`OW`) or removed (`RM`), and what of its value is used.
type Access = &'static [&'static str];

const LOOK: Access = &["RO"];
const ACCESS: Access = &["RO", "access"];
const UPDATE: Access = &["RW", "update"];
const ACCESS_UPDATE: Access = &["RW", "access", "update"];
const INSERT: Access = &["RW", "insert"];
const DELETE: Access = &["RW", "delete"];
const ACCESS_DELETE: Access = &["RW", "access", "delete"];
const OVERWRITE: Access = &["OW", "update"];
const REMOVE: Access = &["RM", "delete"];

/// As Redis 7.0 says of the key that is `at` in the order of keys.
fn access(command: &Command, args: &Arguments<'_>, at: usize) -> Access {
    let first = at == 0;
    let first_or = |this: Access, others: Access| if first { this } else { others };
    match command.name {
        "exists" | "hexists" | "hlen" | "hstrlen" | "llen" | "memory" | "object" | "scard" | "sismember" | "strlen"
        | "touch" | "type" | "watch" | "xlen" | "zcard" => LOOK,
        "expire" | "expireat" | "geoadd" | "hmset" | "hset" | "lset" | "persist" | "pexpire" | "pexpireat"
        | "setrange" | "xack" | "xadd" | "xclaim" | "xsetid" | "zadd" => UPDATE,
        "hdel" | "lrem" | "ltrim" | "srem" | "xautoclaim" | "xdel" | "xtrim" | "zrem" | "zremrangebylex"
        | "zremrangebyrank" | "zremrangebyscore" => DELETE,
        "append" | "hsetnx" | "linsert" | "lpush" | "lpushx" | "pfadd" | "rpush" | "rpushx" | "sadd" => INSERT,
        "getdel" | "lpop" | "rpop" | "spop" | "zpopmax" | "zpopmin" | "blpop" | "brpop" | "bzpopmax" | "bzpopmin"
        | "blmpop" | "bzmpop" | "lmpop" | "zmpop" => ACCESS_DELETE,
        "blmove" | "brpoplpush" | "lmove" | "rpoplpush" | "smove" => first_or(ACCESS_DELETE, INSERT),
        "psetex" | "restore" | "setex" | "mset" => OVERWRITE,
        "zdiffstore" | "zinterstore" | "zunionstore" | "geosearchstore" | "zrangestore" | "sdiffstore"
        | "sunionstore" | "bitop" => first_or(OVERWRITE, ACCESS),
        "sinterstore" => first_or(UPDATE, ACCESS),
        "copy" | "georadius" | "georadiusbymember" | "sort" => first_or(ACCESS, OVERWRITE),
        "del" | "unlink" => REMOVE,
        "eval_ro" | "evalsha_ro" | "fcall_ro" | "xreadgroup" => ACCESS,
        "msetnx" | "setnx" => &["OW", "insert"],
        "pfcount" => &["RW", "access"],
        "pfmerge" => first_or(&["RW", "access", "insert"], ACCESS),
        "rename" => first_or(ACCESS_DELETE, OVERWRITE),
        "renamenx" => first_or(ACCESS_DELETE, &["OW", "insert"]),
        "set" if args.from(3).any(|option| is(option, "GET")) => ACCESS_UPDATE,
        "set" => OVERWRITE,
        "bitfield" if only_reads(args) => ACCESS,
        "xgroup" => match args.get(1) {
            word if is(word, "SETID") => UPDATE,
            word if is(word, "CREATE") || is(word, "CREATECONSUMER") => INSERT,
            _ => DELETE,
        },
        _ if command.is(READ) => ACCESS,
        _ => ACCESS_UPDATE,
    }
}

/// Whether a `BITFIELD` has nothing but `GET` and `OVERFLOW`.
fn only_reads(args: &Arguments<'_>) -> bool {
    let mut at = 2;
    while at < args.len() {
        at += match args.get(at) {
            word if is(word, "GET") => 3,
            word if is(word, "OVERFLOW") => 2,
            _ => return false,
        };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::flag::MAY_WRITE;
    use super::*;

    #[test]
    fn keys_of_commands_that_read_are_read() {
        let args = crate::request::Batch::default();
        for command in COMMANDS.iter().filter(|command| command.keys != KeysAt::None) {
            let flags = access(command, &args.arguments(0, &[]), 0);
            let reads = flags.first() == Some(&"RO");
            // `PFCOUNT` may write down what it has counted.
            assert!(!command.is(READ) || command.is(MAY_WRITE) || reads, "{}: {flags:?}", command.name);
        }
    }
}
