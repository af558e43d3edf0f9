//! `CLIENT PAUSE`: from its answer on nothing that it holds back takes effect.

use std::time::Duration;

use super::connection::refuse_others;
use super::{Asked, Command, Form, KeysAt, Outcome, Run, Stop, WaitLimit, is};
use crate::clock::now;
use crate::failpoints::Step;
use crate::form::flag::CONNECTION;
use crate::pauses::{Held, LONGEST};
use crate::reply::Reply;
use crate::request::{Arguments, number};
use crate::session::Session;

/// How much longer than a script may run it is waited for writes that have begun before.
const GRACE: Duration = Duration::from_secs(10);

/// Runs apart from the rest of `CLIENT`: it waits.
pub(super) static PAUSE: Command =
    Command { form: Form { name: "client", arity: -2, flags: CONNECTION, keys: KeysAt::None }, run: Run::Await(pause) };

/// What it is asked about is when the pause ends: it has begun then.
fn pause(s: &Session, args: &Arguments<'_>, asked: &mut Asked, reply: &mut Reply) -> Outcome<WaitLimit> {
    let pauses = &s.shared.pauses;
    if asked.since.is_none() {
        refuse_others(s, "pause")?;
        let (what, until) = asked_for(args)?;
        pauses.begin(what, until);
        asked.since = Some(until);
    }
    // Between `MULTI` and `EXEC` too, where it waits for nothing: that is a write itself.
    reply.ok();
    if pauses.writes() == 0 || s.shared.failpoints.skips(Step::WritesAwaited) {
        return Ok(WaitLimit::Enough);
    }
    if asked.is_over {
        return Err(Stop::from(
            "ERR the pause holds, but writes that began before it have not ended; next: CLIENT PAUSE again, or SCRIPT KILL",
        ));
    }
    Ok(WaitLimit::For(s.shared.settings().script_time + GRACE))
}

fn asked_for(args: &Arguments<'_>) -> Outcome<(Held, u64)> {
    let what = match args.len() {
        3 => Held::All,
        4 if is(args.get(3), "WRITE") => Held::Writes,
        4 if is(args.get(3), "ALL") => Held::All,
        4 => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into()),
        _ => {
            let what = args.get(1).escape_ascii();
            return Err(
                format!("ERR unknown subcommand or wrong number of arguments for '{what}'. Try CLIENT HELP.").into()
            );
        }
    };
    let ms = number(args.get(2)).ok_or("ERR timeout is not an integer or out of range")?;
    let ms = u64::try_from(ms).map_err(|_| "ERR timeout is negative")?;
    if ms > LONGEST {
        return Err(format!(
            "ERR timeout is longer than {LONGEST} ms, the longest pause; next: pause again before it ends"
        )
        .into());
    }
    Ok((what, now() + ms))
}
