//! What users were refused, and what they would be: `ACL LOG`, `ACL DRYRUN`.

use super::{Outcome, int, is};
use crate::acl_log::{Entry, Reason, Within};
use crate::clock::now;
use crate::form::Fit;
use crate::reply::Reply;
use crate::request::Arguments;
use crate::session::Session;
use crate::users::Denied;

/// Entries that are told if no number is given.
const TOLD: usize = 10;

/// `ACL LOG [count | RESET]`.
pub(super) fn log(s: &Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let log = &s.shared.acl_log;
    let count = match args.len() {
        2 => TOLD,
        _ if is(args.get(2), "RESET") => {
            log.reset();
            reply.ok();
            return Ok(());
        }
        _ => usize::try_from(int(args.get(2))?).unwrap_or(0),
    };
    let (found, now) = (log.newest(count), now());
    reply.array(found.len());
    for Entry { count, reason, within, object, user, at, client } in &found {
        reply.map(7);
        reply.bulk(b"count");
        reply.int(*count as i64);
        let texts = [("reason", reason.name()), ("context", within.name())];
        for (name, text) in texts {
            reply.bulk(name.as_bytes());
            reply.bulk(text.as_bytes());
        }
        reply.bulk(b"object");
        reply.bulk(object);
        reply.bulk(b"username");
        reply.bulk(user.as_bytes());
        reply.bulk(b"age-seconds");
        reply.double(now.saturating_sub(*at) as f64 / 1000.0);
        reply.bulk(b"client-info");
        reply.bulk(client.as_bytes());
    }
    Ok(())
}

/// `ACL DRYRUN user command [argument ...]`: what the user would be told, as text; nothing is run.
pub(super) fn dry_run(s: &Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let name = String::from_utf8_lossy(args.get(2));
    let user = s.shared.users.get(&name).ok_or_else(|| format!("ERR User '{name}' not found"))?;
    let unknown = || format!("ERR Command '{}' not found", String::from_utf8_lossy(args.get(3)));
    let (number, command) = super::find(args.get(3)).ok_or_else(unknown)?;
    let inner = args.behind(3);
    let full = match command.fit(&inner) {
        Fit::Fits(second) => second.map_or(command.name.to_owned(), |second| format!("{}|{second}", command.name)),
        Fit::Unknown(_) => return Err(unknown().into()),
        count @ Fit::Count(_) => return Err(count.error(command).unwrap_or_default().into()),
    };
    let what = match user.denial(number, command, &inner) {
        None => {
            reply.ok();
            return Ok(());
        }
        Some(Denied::Command) => format!("run the '{full}' command"),
        Some(Denied::Key(key)) => format!("access the '{}' key", String::from_utf8_lossy(key)),
        Some(Denied::Channel(channel)) => format!("access the '{}' channel", String::from_utf8_lossy(channel)),
    };
    reply.bulk(format!("This user has no permissions to {what}").as_bytes());
    Ok(())
}

/// A log-in was refused.
pub(super) fn note_log_in(s: &Session, command: &[u8], user: &[u8]) {
    let user = String::from_utf8_lossy(user).into_owned();
    s.note_refused(Reason::Auth, Within::Nothing, command.to_vec(), user);
}
