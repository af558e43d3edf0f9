//! Runs a command, whichever way it is run; and which clients it may wake.

use crate::command::{Asked, Command, Env, Run};
use crate::context::Context;
use crate::data::{DATABASES, stored};
use crate::engine::{Error, Tx};
use crate::events::Noticing;
use crate::failpoints::Step;
use crate::form::flag;
use crate::meter::{ARGUMENT, Metered};
use crate::outcome::{Outcome, Stop};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::session::Session;

/// Bytes that a script and its arguments may have on a thread that serves others.
const SCRIPT_BYTES: usize = 256 << 10;

/// Runs a command in a transaction.
pub(crate) fn run(command: &Command, args: &Arguments<'_>, env: &mut Env<'_>, reply: &mut Reply) -> Outcome {
    match command.run {
        Run::Data(run) | Run::Read(run) | Run::Block(run, _) => {
            // Also where it does not wait.
            if let Run::Block(_, timeout) = command.run {
                timeout.limit(args)?;
            }
            let Env { tx: inner, session, now, looks, .. } = env;
            let (tx, now) = (&mut **inner, *now);
            let mut own = std::mem::take(*looks);
            own.waited = session.waited;
            own.since = std::mem::take(&mut session.since);
            let map = own.databases;
            let (db, shared) = (map.of(session.db), &*session.shared);
            if shared.evictor.notes() {
                shared.evictor.note(&shared.random, command, args, db, now);
            }
            own.spent.nanos += ARGUMENT * args.len() as u64;
            let mut metered = Metered::new(tx, own.spent, own.apart);
            let mut outcome = if shared.events.wants_of(command) {
                let mark = reply.len();
                let mut noticing = Noticing::new(&mut metered, command.is(flag::READ));
                let mut context = Context { tx: &mut noticing, reply, db, now, shared, looks: own };
                let outcome = run(&mut context, args);
                **looks = context.looks;
                // One that ends with an error has changed nothing; what it did not find is told all the same.
                if !matches!(outcome, Err(Stop::Engine(_))) && (outcome.is_ok() || command.is(flag::READ)) {
                    let answer = reply.bytes().get(mark..).unwrap_or_default();
                    looks.told.databases = looks.databases;
                    shared.events.note(command, args, db, noticing, answer, &mut looks.told)?;
                }
                outcome
            } else {
                let mut context = Context { tx: &mut metered, reply, db, now, shared, looks: own };
                let outcome = run(&mut context, args);
                **looks = context.looks;
                outcome
            };
            let is_told = session.tracking.is_on() && session.shared.tracking.any();
            if outcome.is_ok()
                && is_told
                && command.is(flag::READ)
                && !session.shared.failpoints.skips(Step::ExpiryTold)
            {
                outcome = note_due(command, args, &metered, db, session);
            }
            looks.spent.nanos = metered.nanos();
            session.mismatched = looks.mismatched.take();
            session.since = std::mem::take(&mut looks.since);
            if session.shared.tracking.any() {
                let failpoints = session.shared.failpoints;
                // Behind a swap each key may be another one.
                let swaps = looks.databases != map && !failpoints.skips(Step::SwapTold);
                session.flushed |= swaps || outcome.is_ok() && matches!(command.name, "flushall" | "flushdb");
            }
            outcome
        }
        Run::Session(run) => run(env.session, args, reply),
        Run::Await(run) => run(env.session, args, &mut Asked::default(), reply).map(drop),
        Run::Script(run) => {
            // What it is given is copied into the interpreter before its time is looked at.
            if !env.looks.apart && args.from(0).map(<[u8]>::len).sum::<usize>() > SCRIPT_BYTES {
                return Err(Error::TooLong.into());
            }
            // All that is removed is removed at once.
            let whole = std::mem::replace(&mut env.looks.whole, true);
            env.looks.scripted = true;
            let outcome = run(env, args, reply);
            (env.looks.whole, env.looks.scripted) = (whole, false);
            outcome
        }
        Run::Connection(_) => Err(Stop::from("ERR Command not allowed inside a transaction")),
    }
}

/// Notes when keys expire that a client has read which is told of changes: that takes as long as to look them up.
fn note_due(command: &Command, args: &Arguments<'_>, tx: &dyn Tx, db: u8, session: &mut Session) -> Outcome {
    for key in command.keys(args) {
        if let Some(moment) = tx.expires(&stored(db, key))? {
            session.tracking.due.push((key.to_vec(), moment));
        }
    }
    Ok(())
}

/// Keys, with the number of their database in front, at which a client may wait for what a command puts there; and, if a client reads for a group, those of which it may take a stream away. An empty
/// one stands for all there are.
pub(crate) fn woken(command: &Command, args: &Arguments<'_>, db: u8, groups: bool, mut wake: impl FnMut(Vec<u8>)) {
    let brings = command.is(flag::LIST | flag::SORTED | flag::GEO | flag::KEYSPACE) || command.name == "xadd";
    // Others about streams concern no client that waits: a command that reads one wakes none.
    let destroys = command.name == "xgroup" && args.get(1).eq_ignore_ascii_case(b"destroy");
    let takes = groups && (!command.is(flag::STREAM) || destroys);
    if !command.is(flag::WRITE) || !brings && !takes {
        return;
    }
    if matches!(command.name, "flushall" | "flushdb" | "swapdb") {
        return wake(Vec::new());
    }
    // These may have put it into any database.
    let dbs = if matches!(command.name, "move" | "copy") { 0..DATABASES } else { db..db + 1 };
    for key in command.keys(args) {
        dbs.clone().for_each(|db| wake(stored(db, key)));
    }
}
