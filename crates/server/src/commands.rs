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
mod pubsub;
mod ranges;
pub(crate) mod replication;
mod scripts;
mod second;
mod server;
mod sets;
mod sort;
pub(crate) mod sorted;
mod streams;
mod strings;
mod transactions;

use std::cell::Cell;
use std::ops::Deref;
use std::sync::LazyLock;
use std::time::Duration;

pub(crate) use blocking::Timeout;

use crate::engine::{self, Tx};
use crate::events::Told;
use crate::form::{self, Catalogue};
pub(crate) use crate::form::{Form, KeysAt, MANY, ONE, flag, is, shown};
pub(crate) use crate::numbers::{float, int};
pub(crate) use crate::outcome::{NO_KEY, NOT_FLOAT, NOT_INT, Outcome, SYNTAX, Stop, WRONG_TYPE};
use crate::readers::Since;
use crate::reply::Reply;
use crate::request::Arguments;
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

/// A command: its form, and what runs it.
pub(crate) struct Command {
    pub(crate) form: Form,
    pub(crate) run: Run,
}

impl Deref for Command {
    type Target = Form;

    fn deref(&self) -> &Form {
        &self.form
    }
}

impl Command {
    /// What runs, of a command whose second words name commands that run in different ways; itself of any other.
    pub(crate) fn of_words(&'static self, args: &Arguments<'_>) -> &'static Self {
        let split = self.is(flag::SCRIPTING) && self.name == "function" && args.len() > 1;
        if split { functions::named(args.get(1)).unwrap_or(self) } else { self }
    }

    /// Whether it runs in a transaction and is done then, whatever it finds.
    pub(crate) fn is_at_once(&self, args: &Arguments<'_>) -> bool {
        match self.run {
            Run::Data(_) => true,
            Run::Read(_) => !form::streams::blocks(args),
            _ => false,
        }
    }
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

/// A command on data.
pub(crate) const fn data(
    name: &'static str,
    arity: i32,
    flags: u32,
    keys: KeysAt,
    run: fn(&mut Context<'_>, &Arguments<'_>) -> Outcome,
) -> Command {
    Command { form: Form { name, arity, flags, keys }, run: Run::Data(run) }
}

/// A command on the connection or the server.
pub(crate) const fn session(
    name: &'static str,
    arity: i32,
    flags: u32,
    run: fn(&mut Session, &Arguments<'_>, &mut Reply) -> Outcome,
) -> Command {
    Command { form: Form { name, arity, flags, keys: KeysAt::None }, run: Run::Session(run) }
}

/// Commands by their numbers.
pub(crate) struct Table {
    all: Vec<&'static Command>,
    forms: Catalogue,
}

impl Table {
    fn of(mut all: Vec<&'static Command>) -> Self {
        all.sort_unstable_by_key(|command| command.name);
        let forms = Catalogue::new(all.iter().map(|command| &command.form));
        Self { all, forms }
    }

    pub(crate) fn forms(&self) -> &Catalogue {
        &self.forms
    }

    /// The command of that name, however it is written, and its number.
    pub(crate) fn find(&self, name: &[u8]) -> Option<(usize, &'static Command)> {
        let number = self.forms.find(name)?;
        Some((number, self.all.get(number)?))
    }
}

impl Deref for Table {
    type Target = [&'static Command];

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

/// All commands, in order of names.
pub(crate) static COMMANDS: LazyLock<Table> = LazyLock::new(|| {
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
    Table::of(groups.into_iter().flatten().collect())
});

/// The command of that name, however it is written, and its number.
pub(crate) fn find(name: &[u8]) -> Option<(usize, &'static Command)> {
    COMMANDS.find(name)
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
