//! Why a request is not even tried.

use crate::acl_log::Within;
use crate::command::{Command, Run, Special};
use crate::form::{DEBUG_REFUSED, Fit, flag};
use crate::request::Arguments;
use crate::session::Session;
use crate::users::Denied;

/// Why a request is not even tried.
pub(super) fn refusal(session: &Session, number: usize, command: &Command, args: &Arguments<'_>) -> Option<String> {
    let second = match command.fit(args) {
        Fit::Fits(second) => second,
        other => return other.error(command),
    };
    if command.name == "debug" {
        return Some(DEBUG_REFUSED.to_owned());
    }
    let longest = session.shared.engine.key_max() - 1;
    if args.from(1).any(|arg| arg.len() > longest) && command.keys(args).iter().any(|key| key.len() > longest) {
        // Told before another client's requests are run with it.
        return Some(format!("ERR the key is longer than {longest} bytes, the most that this store takes"));
    }
    let Some(user) = &session.user else {
        return (!command.is(flag::NO_AUTH)).then(|| "NOAUTH Authentication required.".to_owned());
    };
    if let Some(group) = session.shared.follows()
        && is_about_data(command)
    {
        return Some(group.refusal());
    }
    Some(match user.denial(number, command, args)? {
        Denied::Command => {
            let second = second.map_or(String::new(), |second| format!("|{second}"));
            format!("NOPERM this user has no permissions to run the '{}{second}' command", command.name)
        }
        Denied::Key(_) => "NOPERM this user has no permissions to access one of the keys used as arguments".to_owned(),
        Denied::Channel(_) => {
            "NOPERM this user has no permissions to access one of the channels used as arguments".to_owned()
        }
    })
}

/// Keeps a request that was refused in `ACL LOG`, if its user has no right to it.
pub(super) fn note(session: &Session, number: usize, command: &Command, args: &Arguments<'_>) {
    let Fit::Fits(second) = command.fit(args) else { return };
    let Some(user) = &session.user else { return };
    let Some(denied) = user.denial(number, command, args) else { return };
    let within = if session.multi.is_some() { Within::Multi } else { Within::Nothing };
    session.note_denied(denied, within, command, second);
}

/// Whether only the server that leads may answer it. `EXEC` answers for itself: what was queued was refused.
fn is_about_data(command: &Command) -> bool {
    use Run::{Await, Block, Connection, Data, Read, Script};
    // Whom it holds up, and what it tells of itself, is each server's own.
    let is_its_own = matches!(command.name, "client" | "info");
    !is_its_own
        && matches!(command.run, Data(_) | Read(_) | Block(..) | Await(_) | Script(_) | Connection(Special::Watch))
        || matches!(command.name, "publish" | "spublish")
}

pub(super) fn only_hears(command: &Command, args: &Arguments<'_>) -> String {
    let mut name = command.name.to_owned();
    let of_two = ["acl", "client", "command", "config", "function", "memory", "pubsub", "script", "slowlog"];
    if of_two.contains(&command.name) && args.len() > 1 {
        name += &format!("|{}", args.get(1).to_ascii_lowercase().escape_ascii());
    }
    format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
    )
}

pub(super) fn unknown(args: &Arguments<'_>) -> String {
    let cut = |arg: &[u8]| arg.iter().take(128).copied().collect::<Vec<_>>().escape_ascii().to_string();
    let mut shown = String::new();
    for arg in args.from(1).take(20) {
        shown += &format!("'{}' ", cut(arg));
        if shown.len() > 128 {
            break;
        }
    }
    format!("ERR unknown command '{}', with args beginning with: {shown}", cut(args.get(0)))
}
