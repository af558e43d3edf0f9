//! Tells clients that monitor which requests have run.

use crate::clock::micros;
use crate::command::Command;
use crate::form::is;
use crate::job::Parts;
use crate::monitors::{By, is_told, line};
use crate::request::{Arguments, number};
use crate::session::Session;

/// These have run in a transaction, in the database that is used now.
pub(crate) fn tell(parts: &mut Parts, requests: std::ops::Range<usize>) {
    let db = parts.session.db;
    tell_from(parts, requests, db);
}

/// A request begins to wait.
pub(super) fn tell_of_one(parts: &Parts, command: &Command, args: &Arguments<'_>) {
    let Session { shared, client, db, .. } = &*parts.session;
    if shared.monitors.any() && is_told(command, args) {
        shared.tell_monitors(line(micros(), *db, By::Client(client), args));
    }
}

/// These have run in a transaction, the first of them in this database.
pub(super) fn tell_from(parts: &mut Parts, requests: std::ops::Range<usize>, mut db: u8) {
    if !parts.session.shared.monitors.any() {
        return;
    }
    let lines = std::mem::take(&mut parts.session.script.lines);
    let Session { shared, client, .. } = &*parts.session;
    for at in requests {
        let Some((_, command)) = parts.commands.get(at).copied().flatten() else { continue };
        let args = parts.batch.arguments(at, &parts.input);
        if is(args.get(0), "SELECT") {
            let chosen = number(args.get(1)).and_then(|db| u8::try_from(db).ok());
            db = chosen.filter(|db| *db < crate::data::DATABASES).unwrap_or(db);
        }
        if is_told(command, &args) {
            shared.tell_monitors(line(micros(), db, By::Client(client), &args));
        }
        for (_, line) in lines.iter().filter(|(of, _)| *of == at) {
            shared.tell_monitors(line.clone());
        }
    }
}
