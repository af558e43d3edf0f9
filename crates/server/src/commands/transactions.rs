//! `MULTI` and its like. What is queued becomes one serializable transaction.

use super::flag::{FAST, NO_MULTI, NOW, TRANSACTION};
use super::{Command, Form, KeysAt, MANY, Outcome, Run, Special, session};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::session::{Queued, Session};

pub(super) const COMMANDS: &[Command] = &[
    session("discard", 1, FAST | TRANSACTION | NOW, discard),
    Command {
        form: Form { name: "exec", arity: 1, flags: TRANSACTION | NOW, keys: KeysAt::None },
        run: Run::Connection(Special::Exec),
    },
    session("multi", 1, FAST | TRANSACTION | NOW, multi),
    session("unwatch", 1, FAST | TRANSACTION, unwatch),
    Command {
        form: Form { name: "watch", arity: -2, flags: FAST | TRANSACTION | NO_MULTI | NOW, keys: MANY },
        run: Run::Connection(Special::Watch),
    },
];

fn multi(s: &mut Session, _: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    if s.multi.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    s.multi = Some(Queued::default());
    s.client.state.lock().queued = Some(0);
    reply.ok();
    Ok(())
}

fn discard(s: &mut Session, _: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    if s.multi.take().is_none() {
        return Err("ERR DISCARD without MULTI".into());
    }
    s.watched.clear();
    let mut state = s.client.state.lock();
    (state.queued, state.watched) = (None, 0);
    reply.ok();
    Ok(())
}

fn unwatch(s: &mut Session, _: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    s.watched.clear();
    s.client.state.lock().watched = 0;
    reply.ok();
    Ok(())
}
