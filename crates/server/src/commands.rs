//! Commands: what they are called, how many arguments they take, what they may touch, what runs them.

mod algebra;
mod bitfield;
mod bits;
mod blocking;
mod connection;
mod decimal;
mod functions;
mod geo;
mod hashes;
mod hyperloglog;
mod keys;
mod lcs;
pub(crate) mod lists;
mod names;
mod object;
pub(crate) mod parts;
mod pubsub;
mod ranges;
pub(crate) mod replication;
mod scripts;
mod server;
mod sets;
pub(crate) mod sort;
pub(crate) mod sorted;
pub(crate) mod streams;
mod strings;
mod transactions;

use std::cell::Cell;
use std::sync::LazyLock;
use std::time::Duration;

pub(crate) use blocking::Timeout;
pub(crate) use server::REDIS_VERSION;
pub(crate) use streams::Since;

use crate::engine::{self, Tx};
use crate::events::Told;
pub(crate) use crate::numbers::{float, int};
pub(crate) use crate::outcome::{NO_KEY, NOT_FLOAT, NOT_INT, Outcome, SYNTAX, Stop, WRONG_TYPE};
use crate::reply::Reply;
use crate::request::{Arguments, number};
use crate::script;
use crate::session::Session;
use crate::shared::Shared;

/// What a command on data has.
pub(crate) struct Context<'c> {
    pub(crate) tx: &'c mut dyn Tx,
    pub(crate) reply: &'c mut Reply,
    pub(crate) db: u8,
    /// Milliseconds of Unix time.
    pub(crate) now: u64,
    pub(crate) shared: &'c Shared,
    /// Looks at keys that were there, and at those that were not.
    pub(crate) looks: Looks,
}

/// What an attempt has done so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looks {
    hits: Cell<u64>,
    misses: Cell<u64>,
    written: Cell<u64>,
    /// Bytes of strings it may write; 0 for no limit.
    most: u64,
    /// It stands between `MULTI` and `EXEC`.
    pub(crate) whole: bool,
    /// It waits for an element, and has looked before.
    pub(crate) waited: bool,
    /// A key that it waits for has become of another type.
    pub(crate) mismatched: Cell<bool>,
    /// It is a command of a script.
    pub(crate) scripted: bool,
    /// What a reader of streams waits for.
    pub(crate) since: Since,
    /// What is to be told of it when it is committed.
    pub(crate) told: Told,
}

impl Looks {
    pub(crate) fn new(most: u64) -> Self {
        Self { most, ..Self::default() }
    }

    /// A key was there, or was not: what `keyspace_hits` and `keyspace_misses` count.
    pub(crate) fn at(&self, there: bool) {
        let which = if there { &self.hits } else { &self.misses };
        which.set(which.get() + 1);
    }

    /// So many bytes are about to be written: a short request may write a long string.
    pub(crate) fn write(&self, bytes: usize) -> engine::Result<()> {
        self.written.set(self.written.get() + bytes as u64);
        if self.most > 0 && self.written.get() > self.most {
            return Err(engine::Error::Limit(format!(
                "the transaction writes more than {} bytes; write less at once",
                self.most
            )));
        }
        Ok(())
    }

    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.hits.get(), self.misses.get())
    }
}

/// A command.
pub(crate) struct Command {
    /// In small letters.
    pub(crate) name: &'static str,
    /// Arguments with the name; at least as many if negative.
    pub(crate) arity: i32,
    /// Of the constants of [`flag`].
    pub(crate) flags: u32,
    pub(crate) keys: KeysAt,
    pub(crate) run: Run,
}

/// Which arguments are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeysAt {
    None,
    /// The first, the last (from the end if negative), and the step between them.
    Range(usize, i32, usize),
    /// This argument says how many follow.
    Counted(usize),
    /// The same, and the argument before is one, too.
    Stored(usize),
    /// The first half of what stands behind `STREAMS`.
    Streams,
    /// The first argument; and what stands behind the last of these words, from this argument on.
    Behind(usize, &'static [&'static str]),
}

/// What runs a command.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// On data: in a transaction, alone or with others. It may be run again, so it must do nothing outside of its context.
    Data(fn(&mut Context<'_>, &Arguments<'_>) -> Outcome),
    /// On the connection or the server, at once. It may be run again if it stands between `MULTI` and `EXEC`.
    Session(fn(&mut Session, &Arguments<'_>, &mut Reply) -> Outcome),
    /// The same, until it finds something if it is told to block; between `MULTI` and `EXEC` once.
    Read(fn(&mut Context<'_>, &Arguments<'_>) -> Outcome),
    /// On data, until it finds something; between `MULTI` and `EXEC` once.
    Block(fn(&mut Context<'_>, &Arguments<'_>) -> Outcome, Timeout),
    /// On the server, again until the answer is good enough or its time is over; between `MULTI` and `EXEC` once.
    Await(Ask),
    /// A script: commands on data, and on the connection, in a transaction.
    Script(fn(&mut script::Env<'_>, &Arguments<'_>, &mut Reply) -> Outcome),
    /// By the connection itself: it needs what [`Session`] has not.
    Connection(Special),
}

/// Answers with what there is. What it is about is in the third argument from the first time on.
pub(crate) type Ask = fn(&Session, &Arguments<'_>, &mut Option<u64>, &mut Reply) -> Outcome<WaitLimit>;

/// How long a client waits for a better answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    /// It is as good as it was asked for.
    Enough,
    /// In all.
    For(Duration),
    Forever,
}

/// What the connection does itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Exec,
    Watch,
}

/// What commands are like, as `COMMAND` and ACL categories say.
pub(crate) mod flag {
    pub(crate) const WRITE: u32 = 1 << 0;
    pub(crate) const READ: u32 = 1 << 1;
    pub(crate) const FAST: u32 = 1 << 2;
    pub(crate) const ADMIN: u32 = 1 << 3;
    pub(crate) const DANGEROUS: u32 = 1 << 4;
    pub(crate) const KEYSPACE: u32 = 1 << 5;
    pub(crate) const STRING: u32 = 1 << 6;
    pub(crate) const HASH: u32 = 1 << 7;
    pub(crate) const LIST: u32 = 1 << 8;
    pub(crate) const SET: u32 = 1 << 9;
    pub(crate) const SORTED: u32 = 1 << 10;
    pub(crate) const CONNECTION: u32 = 1 << 11;
    pub(crate) const TRANSACTION: u32 = 1 << 12;
    pub(crate) const BITMAP: u32 = 1 << 13;
    pub(crate) const BLOCKING: u32 = 1 << 14;
    /// Of who has not said who he is, too.
    pub(crate) const NO_AUTH: u32 = 1 << 15;
    /// Not between `MULTI` and `EXEC`.
    pub(crate) const NO_MULTI: u32 = 1 << 16;
    /// At once, and not queued, between `MULTI` and `EXEC`.
    pub(crate) const NOW: u32 = 1 << 17;
    pub(crate) const PUBSUB: u32 = 1 << 18;
    /// Its answer is pushed: `CLIENT REPLY` does not keep it back.
    pub(crate) const SUBSCRIBES: u32 = 1 << 19;
    /// Of who subscribes, with version 2 of the protocol, too.
    pub(crate) const HEARING: u32 = 1 << 20;

    pub(crate) const SCRIPTING: u32 = 1 << 21;
    /// What it runs may write.
    pub(crate) const MAY_WRITE: u32 = 1 << 22;
    pub(crate) const STREAM: u32 = 1 << 23;
    pub(crate) const GEO: u32 = 1 << 24;
    pub(crate) const HYPERLOGLOG: u32 = 1 << 25;

    /// Names of ACL categories. `slow` is what is not `fast`.
    pub(crate) const CATEGORIES: [(&str, u32); 20] = [
        ("write", WRITE),
        ("read", READ),
        ("fast", FAST),
        ("admin", ADMIN),
        ("dangerous", DANGEROUS),
        ("keyspace", KEYSPACE),
        ("string", STRING),
        ("hash", HASH),
        ("list", LIST),
        ("set", SET),
        ("sortedset", SORTED),
        ("connection", CONNECTION),
        ("transaction", TRANSACTION),
        ("bitmap", BITMAP),
        ("blocking", BLOCKING),
        ("pubsub", PUBSUB),
        ("scripting", SCRIPTING),
        ("stream", STREAM),
        ("geo", GEO),
        ("hyperloglog", HYPERLOGLOG),
    ];
}

/// One key, the first argument.
pub(crate) const ONE: KeysAt = KeysAt::Range(1, 1, 1);
/// All arguments are keys.
pub(crate) const MANY: KeysAt = KeysAt::Range(1, -1, 1);

/// A command on data.
pub(crate) const fn data(
    name: &'static str,
    arity: i32,
    flags: u32,
    keys: KeysAt,
    run: fn(&mut Context<'_>, &Arguments<'_>) -> Outcome,
) -> Command {
    Command { name, arity, flags, keys, run: Run::Data(run) }
}

/// A command on the connection or the server.
pub(crate) const fn session(
    name: &'static str,
    arity: i32,
    flags: u32,
    run: fn(&mut Session, &Arguments<'_>, &mut Reply) -> Outcome,
) -> Command {
    Command { name, arity, flags, keys: KeysAt::None, run: Run::Session(run) }
}

/// All commands, in order of names.
pub(crate) static COMMANDS: LazyLock<Vec<&'static Command>> = LazyLock::new(|| {
    let groups = [
        keys::COMMANDS,
        strings::COMMANDS,
        bitfield::COMMANDS,
        bits::COMMANDS,
        blocking::COMMANDS,
        hashes::COMMANDS,
        hyperloglog::COMMANDS,
        lcs::COMMANDS,
        lists::COMMANDS,
        sets::COMMANDS,
        sort::COMMANDS,
        sorted::COMMANDS,
        streams::COMMANDS,
        ranges::COMMANDS,
        algebra::COMMANDS,
        connection::COMMANDS,
        functions::COMMANDS,
        geo::COMMANDS,
        object::COMMANDS,
        pubsub::COMMANDS,
        replication::COMMANDS,
        scripts::COMMANDS,
        server::COMMANDS,
        transactions::COMMANDS,
    ];
    let mut all: Vec<&'static Command> = groups.into_iter().flatten().collect();
    all.sort_unstable_by_key(|command| command.name);
    all
});

/// The command of that name, however it is written, and its number.
pub(crate) fn find(name: &[u8]) -> Option<(usize, &'static Command)> {
    let mut lower = [0; 20];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let at = COMMANDS.binary_search_by(|command| command.name.as_bytes().cmp(lower)).ok()?;
    Some((at, COMMANDS[at]))
}

impl Command {
    /// What runs, of a command whose second words name commands that run in different ways; itself of any other.
    pub(crate) fn of_words(&'static self, args: &Arguments<'_>) -> &'static Self {
        let split = self.is(flag::SCRIPTING) && self.name == "function" && args.len() > 1;
        if split { functions::named(args.get(1)).unwrap_or(self) } else { self }
    }

    pub(crate) fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether it runs in a transaction and is done then, whatever it finds.
    pub(crate) fn is_at_once(&self, args: &Arguments<'_>) -> bool {
        match self.run {
            Run::Data(_) => true,
            Run::Read(_) => !streams::blocks(args),
            _ => false,
        }
    }

    /// The keys among its arguments.
    pub(crate) fn keys<'b>(&self, args: &Arguments<'b>) -> Vec<&'b [u8]> {
        match self.keys {
            KeysAt::None => Vec::new(),
            KeysAt::Range(first, last, step) => {
                let end = if last < 0 {
                    args.len().saturating_sub(last.unsigned_abs() as usize - 1)
                } else {
                    last as usize + 1
                };
                (first..end.min(args.len())).step_by(step).map(|at| args.get(at)).collect()
            }
            KeysAt::Counted(at) | KeysAt::Stored(at) => {
                let count = number(args.get(at)).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
                let before = matches!(self.keys, KeysAt::Stored(_)).then(|| args.get(at - 1));
                before.into_iter().chain(args.from(at + 1).take(count)).collect()
            }
            KeysAt::Streams => streams::keys(args),
            KeysAt::Behind(from, words) => {
                let is_one = |at: &usize| words.iter().any(|word| is(args.get(*at), word));
                let behind = (from..args.len().saturating_sub(1)).rfind(is_one).map(|at| args.get(at + 1));
                args.from(1).take(1).chain(behind).collect()
            }
        }
    }
}

/// Whether `word` is `name`, however it is written.
pub(crate) fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// A name as an error shows it: what C takes for text.
fn shown(name: &[u8]) -> String {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_by_name() {
        assert!(COMMANDS.windows(2).all(|pair| pair[0].name < pair[1].name), "a name stands twice");
        for command in COMMANDS.iter() {
            assert_eq!(find(command.name.to_uppercase().as_bytes()).map(|found| found.1.name), Some(command.name));
            assert!(!command.is(flag::WRITE) || !command.is(flag::READ), "{}", command.name);
            assert_eq!(
                matches!(command.run, Run::Data(_) | Run::Read(_) | Run::Block(..) | Run::Script(_)),
                command.is(flag::WRITE | flag::READ | flag::MAY_WRITE),
                "{}",
                command.name
            );
        }
        assert!(find(b"gets").is_none() && find(b"").is_none() && find(&[b'a'; 100]).is_none());
    }
}
