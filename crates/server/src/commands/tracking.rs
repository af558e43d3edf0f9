//! `CLIENT TRACKING` and its like; and `MONITOR`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Outcome, SYNTAX, int, is};
use crate::client::Client;
use crate::reply::Reply;
use crate::request::Arguments;
use crate::session::Session;
use crate::topic::Name;
use crate::tracking::{Mode, PREFIXES};

/// `MONITOR`. As in Redis, who monitors already is told nothing.
pub(super) fn monitor(s: &mut Session, _: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    if s.deferred.is_some() {
        return Err("ERR MONITOR isn't allowed for DENY BLOCKING client".into());
    }
    if !s.monitoring.is_on() {
        s.monitoring.begin();
        reply.ok();
    }
    Ok(())
}

/// `CLIENT TRACKING ON|OFF [REDIRECT id] [PREFIX prefix ...] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]`.
pub(super) fn tracking(s: &mut Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let (mut mode, mut prefixes) = (Mode::default(), Vec::new());
    let (mut there, mut at) = (None, 3);
    while at < args.len() {
        let rest = args.len() - at - 1;
        match args.get(at) {
            o if is(o, "REDIRECT") && rest > 0 => {
                at += 1;
                if mode.redirect != 0 {
                    return Err("ERR A client can only redirect to a single other client".into());
                }
                let id = u64::try_from(int(args.get(at))?).unwrap_or(0);
                let found: Option<Arc<Client>> = s.shared.clients.lock().get(&id).and_then(std::sync::Weak::upgrade);
                there = Some(found.ok_or("ERR The client ID you want redirect to does not exist")?);
                mode.redirect = id;
            }
            o if is(o, "PREFIX") && rest > 0 => {
                at += 1;
                prefixes.push(Name::from(args.get(at)));
            }
            o if is(o, "BCAST") => mode.broadcast = true,
            o if is(o, "OPTIN") => mode.opt_in = true,
            o if is(o, "OPTOUT") => mode.opt_out = true,
            o if is(o, "NOLOOP") => mode.no_loop = true,
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    match args.get(2) {
        o if is(o, "ON") => {
            check(s.tracking.mode(), &mode, &prefixes, s.deferred.is_some())?;
            // One that is told of itself needs no redirection.
            let there = there.filter(|there| there.id != s.client.id || mode.redirect != 0);
            if mode.broadcast && prefixes.is_empty() {
                prefixes.push(Name::from(&b""[..]));
            }
            mode.prefixes = prefixes.into_iter().collect();
            s.tracking.begin(mode, there.as_ref());
        }
        o if is(o, "OFF") => s.tracking.end(),
        _ => return Err(SYNTAX.into()),
    }
    reply.ok();
    Ok(())
}

/// Why these do not go together, or with what is on. `again` if this may have run before, in the same transaction.
fn check(before: Option<&Mode>, mode: &Mode, prefixes: &[Name], again: bool) -> Outcome {
    const BEFORE: &str = "before disabling tracking for this client, and then re-enabling it with a different mode.";
    if !mode.broadcast && !prefixes.is_empty() {
        return Err("ERR PREFIX option requires BCAST mode to be enabled".into());
    }
    if before.is_some_and(|before| before.broadcast != mode.broadcast) {
        return Err(format!("ERR You can't switch BCAST mode on/off {BEFORE}").into());
    }
    if mode.broadcast && (mode.opt_in || mode.opt_out) {
        return Err("ERR OPTIN and OPTOUT are not compatible with BCAST".into());
    }
    if mode.opt_in && mode.opt_out {
        return Err("ERR You can't specify both OPTIN mode and OPTOUT mode".into());
    }
    if before.is_some_and(|before| mode.opt_in && before.opt_out || mode.opt_out && before.opt_in) {
        return Err(format!("ERR You can't switch OPTIN/OPTOUT mode {BEFORE}").into());
    }
    let overlap = |a: &Name, b: &Name| a.starts_with(b) || b.starts_with(a);
    let none = BTreeSet::new();
    let known = before.map_or(&none, |before| &before.prefixes);
    if known.len() + prefixes.len() > PREFIXES {
        return Err(format!("ERR more than {PREFIXES} prefixes; next: use shorter ones").into());
    }
    let error = |one: &Name, which: &str, other: &Name| {
        let [one, other] = [one, other].map(|name| String::from_utf8_lossy(name));
        format!(
            "ERR Prefix '{one}' overlaps with {which} prefix '{other}'. Prefixes for a single client must not overlap."
        )
    };
    for (at, prefix) in prefixes.iter().enumerate() {
        if let Some(other) = known.iter().find(|known| overlap(known, prefix) && !(again && *known == prefix)) {
            return Err(error(prefix, "an existing", other).into());
        }
        if let Some(other) = prefixes[at + 1..].iter().find(|other| overlap(other, prefix)) {
            return Err(error(prefix, "another provided", other).into());
        }
    }
    Ok(())
}

/// `CLIENT CACHING YES|NO`.
pub(super) fn caching(s: &mut Session, word: &[u8], reply: &mut Reply) -> Outcome {
    let Some(mode) = s.tracking.mode() else {
        return Err("ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled".into());
    };
    match word {
        o if is(o, "YES") && !mode.opt_in => {
            return Err("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.".into());
        }
        o if is(o, "NO") && !mode.opt_out => {
            return Err("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.".into());
        }
        o if is(o, "YES") || is(o, "NO") => s.tracking.said = true,
        _ => return Err(SYNTAX.into()),
    }
    reply.ok();
    Ok(())
}

/// `CLIENT GETREDIR`.
pub(super) fn redirection(s: &Session) -> i64 {
    s.tracking.mode().map_or(-1, |mode| mode.redirect as i64)
}

/// `CLIENT TRACKINGINFO`.
pub(super) fn info(s: &Session, reply: &mut Reply) {
    reply.map(3);
    reply.bulk(b"flags");
    let mode = s.tracking.mode();
    let is = |what: fn(&Mode) -> bool| mode.is_some_and(what);
    let broken = mode.is_some() && s.client.redirection_broken.load(Relaxed);
    let flags = [
        (mode.is_some(), "on"),
        (mode.is_none(), "off"),
        (is(|mode| mode.broadcast), "bcast"),
        (is(|mode| mode.opt_in), "optin"),
        (is(|mode| mode.opt_in) && s.tracking.said, "caching-yes"),
        (is(|mode| mode.opt_out), "optout"),
        (is(|mode| mode.opt_out) && s.tracking.said, "caching-no"),
        (is(|mode| mode.no_loop), "noloop"),
        (broken, "broken_redirect"),
    ];
    let flags: Vec<&str> = flags.into_iter().filter_map(|(is_so, name)| is_so.then_some(name)).collect();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.int(redirection(s));
    reply.bulk(b"prefixes");
    let none = BTreeSet::new();
    let prefixes = mode.map_or(&none, |mode| &mode.prefixes);
    reply.array(prefixes.len());
    prefixes.iter().for_each(|prefix| reply.bulk(prefix));
}
