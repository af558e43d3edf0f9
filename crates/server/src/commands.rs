//! Commands: what they are called, how many arguments they take, what they may touch, what runs them.

mod acl_log;
mod algebra;
mod bitfield;
mod bits;
mod blocking;
mod connection;
mod decimal;
mod docs;
mod dump;
mod functions;
mod geo;
mod hashes;
mod help;
mod hyperloglog;
mod keep;
mod keys;
mod latency;
mod lcs;
mod listing;
mod lists;
mod memory;
mod names;
mod object;
mod pause;
mod pubsub;
mod ranges;
mod replication;
mod scripts;
mod second;
mod server;
mod sets;
mod sort;
mod sorted;
mod streams;
mod strings;
mod swapdb;
mod tracking;
mod transactions;

use std::sync::LazyLock;

use crate::command::{Asked, Command, Run, Special, Table, Timeout, WaitLimit};
use crate::context::Context;
use crate::form::{Form, KeysAt, MANY, ONE, flag, is};
use crate::numbers::{float, int};
use crate::outcome::{NO_KEY, NOT_FLOAT, NOT_INT, Outcome, SYNTAX, Stop, WRONG_TYPE};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::session::Session;

pub(crate) use self::server::load_kept;

/// A command on data.
const fn data(
    name: &'static str,
    arity: i32,
    flags: u32,
    keys: KeysAt,
    run: fn(&mut Context<'_>, &Arguments<'_>) -> Outcome,
) -> Command {
    Command { form: Form { name, arity, flags, keys }, run: Run::Data(run) }
}

/// A command on the connection or the server.
const fn session(
    name: &'static str,
    arity: i32,
    flags: u32,
    run: fn(&mut Session, &Arguments<'_>, &mut Reply) -> Outcome,
) -> Command {
    Command { form: Form { name, arity, flags, keys: KeysAt::None }, run: Run::Session(run) }
}

/// All commands, in order of names.
pub(crate) static COMMANDS: LazyLock<Table> = LazyLock::new(|| {
    let groups = [
        keys::COMMANDS,
        strings::COMMANDS,
        swapdb::COMMANDS,
        bitfield::COMMANDS,
        bits::COMMANDS,
        blocking::COMMANDS,
        hashes::COMMANDS,
        hyperloglog::COMMANDS,
        latency::COMMANDS,
        lcs::COMMANDS,
        lists::COMMANDS,
        memory::COMMANDS,
        sets::COMMANDS,
        sort::COMMANDS,
        sorted::COMMANDS,
        streams::COMMANDS,
        ranges::COMMANDS,
        algebra::COMMANDS,
        connection::COMMANDS,
        dump::COMMANDS,
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

/// Commands, with their second words, that act on other clients or on the server, and whose answer says what they have found to do: run again, they would find that it is done. What others set they set again.
const ONCE: [(&str, &str); 6] = [
    ("client", "KILL"),
    ("client", "UNBLOCK"),
    ("failover", ""),
    ("function", "KILL"),
    ("latency", "RESET"),
    ("script", "KILL"),
];

/// Whether a transaction that begins again must not run it again.
pub(crate) fn acts_once(command: &Command, args: &Arguments<'_>) -> bool {
    let is_this = |(name, word): &(&str, &str)| command.name == *name && (word.is_empty() || is(args.get(1), word));
    command.is(flag::SCRIPTING | flag::CONNECTION | flag::DANGEROUS) && ONCE.iter().any(is_this)
}

/// What runs, of a command whose second words name commands that run in different ways; itself of any other.
pub(crate) fn of_words(command: &'static Command, args: &Arguments<'_>) -> &'static Command {
    if !command.is(flag::SCRIPTING | flag::CONNECTION | flag::DANGEROUS) {
        return command;
    }
    match command.name {
        "info" => &server::INFO,
        _ if args.len() < 2 => command,
        "function" => functions::named(args.get(1)).unwrap_or(command),
        "client" if is(args.get(1), "PAUSE") => &pause::PAUSE,
        // The request before may have been that one.
        "client" => find(b"client").map_or(command, |(_, client)| client),
        _ => command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that gets no answer takes the next one for it. The clock of the machine, which may be set, is not asked whether the time is over.
    #[test]
    fn whatever_is_asked_again_is_answered_when_its_time_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let store = kv::Options::new().create(dir.path().join("s")).unwrap();
        let shared = crate::shared::tests::shared(Box::new(crate::engine::Kv::new(store)));
        let session = crate::session::tests::session(&shared);
        // What they wait for does not come: a count of the keys is on its way, and a write under way.
        shared.counted.lock().begun = 1;
        let _write = shared.pauses.enter_now();
        let mut waited = Vec::new();
        for line in ["INFO", "INFO keyspace", "CLIENT PAUSE 100000", "WAIT 1 1", "WAITAOF 1 1 1"] {
            let mut batch = crate::request::Batch::default();
            batch.push_words(line.split(' ').map(str::as_bytes));
            let args = batch.arguments(0, &[]);
            let command = find(args.get(0)).map(|(_, command)| of_words(command, &args));
            let Some(Command { run: Run::Await(ask), .. }) = command else { panic!("{line} does not wait") };
            let mut asked = Asked::default();
            if line.starts_with("INFO") {
                asked.since = Some(2);
            }
            for is_over in [false, true] {
                asked.is_over = is_over;
                let mut reply = Reply::new();
                match ask(&session, &args, &mut asked, &mut reply) {
                    Ok(WaitLimit::For(_)) if !is_over => waited.push(line),
                    Ok(_) => assert!(!reply.is_empty() && !line.contains("PAUSE"), "{line}"),
                    Err(stop) => assert!(is_over && matches!(stop, Stop::Error(_)), "{line}: {stop:?}"),
                }
            }
        }
        // This store is on one machine.
        assert_eq!(waited, ["INFO", "INFO keyspace", "CLIENT PAUSE 100000"]);
    }

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
