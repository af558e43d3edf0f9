//! Commands about the connection itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::flag::{ADMIN, CONNECTION, DANGEROUS, FAST, HEARING, NO_AUTH, NO_MULTI, NOW};
use super::{Command, Outcome, SYNTAX, int, is, session};
use crate::acl_log::Within;
use crate::client::{Client, Unblock, listens};
use crate::clock::now;
use crate::durability::Durability;
use crate::reply::Reply;
use crate::request::Arguments;
use crate::session::{Replies, Session};
use crate::users::{Denied, User};

pub(super) const COMMANDS: &[Command] = &[
    session("auth", -2, FAST | CONNECTION | NO_AUTH | NO_MULTI, auth),
    session("client", -2, CONNECTION, client),
    session("echo", 2, FAST | CONNECTION, echo),
    session("hello", -1, FAST | CONNECTION | NO_AUTH, hello),
    session("monitor", 1, ADMIN | DANGEROUS, super::tracking::monitor),
    session("ping", -1, FAST | CONNECTION | HEARING, ping),
    session("quit", -1, FAST | CONNECTION | HEARING | NO_AUTH | NOW, quit),
    session("reset", 1, FAST | CONNECTION | HEARING | NO_AUTH | NOW, reset),
    session("select", 2, FAST | CONNECTION, select),
];

/// What only administrators may do with `CLIENT`: the rest is about oneself.
const OTHERS: u32 = ADMIN | DANGEROUS;

fn ping(s: &mut Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    match args.len() {
        len @ (1 | 2) if s.only_hears(reply) => {
            reply.array(2);
            reply.bulk(b"pong");
            reply.bulk(if len == 2 { args.get(1) } else { b"" });
        }
        1 => reply.simple("PONG"),
        2 => reply.bulk(args.get(1)),
        _ => return Err("ERR wrong number of arguments for 'ping' command".into()),
    }
    Ok(())
}

fn echo(_: &mut Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    reply.bulk(args.get(1));
    Ok(())
}

fn quit(s: &mut Session, _: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    s.closing = true;
    reply.ok();
    Ok(())
}

fn reset(s: &mut Session, _: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    s.reset();
    reply.three = false;
    reply.simple("RESET");
    Ok(())
}

fn select(s: &mut Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    s.use_database(super::keys::number_of_database(args.get(1))?);
    reply.ok();
    Ok(())
}

fn auth(s: &mut Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let (name, password) = match args.len() {
        2 => (&b"default"[..], args.get(1)),
        3 => (args.get(1), args.get(2)),
        _ => return Err(SYNTAX.into()),
    };
    if args.len() == 2 && s.shared.users.whoever().is_some() {
        return Err("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?".into());
    }
    enter(s, args.get(0), name, password)?;
    reply.ok();
    Ok(())
}

fn enter(s: &mut Session, command: &[u8], name: &[u8], password: &[u8]) -> Outcome {
    let user = std::str::from_utf8(name).ok().and_then(|name| s.shared.users.enter(name, password));
    let Some(user) = user else {
        s.recorder.denied.add(1);
        tracing::warn!("{}: a wrong user name or password", s.client.addr);
        super::acl_log::note_log_in(s, command, name);
        return Err("WRONGPASS invalid username-password pair or user is disabled.".into());
    };
    s.become_user(user);
    Ok(())
}

fn hello(s: &mut Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let mut three = reply.three;
    if args.len() > 1 {
        three = match int(args.get(1))
            .map_err(|_| super::Stop::from("ERR Protocol version is not an integer or out of range"))?
        {
            2 => false,
            3 => true,
            _ => return Err("NOPROTO unsupported protocol version".into()),
        };
    }
    let (mut at, mut name) = (2, None);
    while at < args.len() {
        match args.get(at) {
            // What stands behind it was allowed to the user that has queued it.
            o if is(o, "AUTH") && s.deferred.is_some() => {
                return Err("ERR HELLO with AUTH is not allowed inside a transaction; next: HELLO before MULTI".into());
            }
            o if is(o, "AUTH") && at + 2 < args.len() => {
                enter(s, args.get(0), args.get(at + 1), args.get(at + 2))?;
                at += 3;
            }
            o if is(o, "SETNAME") && at + 1 < args.len() => {
                name = Some(client_name(args.get(at + 1))?);
                at += 2;
            }
            o => return Err(format!("ERR Syntax error in HELLO option '{}'", o.escape_ascii()).into()),
        }
    }
    if s.user.is_none() {
        return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time".into());
    }
    let mut state = s.client.state.lock();
    state.three = three;
    if let Some(name) = name {
        state.name = name;
    }
    drop(state);
    reply.three = three;
    reply.map(7);
    for (name, value) in [("server", "redis"), ("version", crate::form::REDIS_VERSION)] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.int(if three { 3 } else { 2 });
    reply.bulk(b"id");
    reply.int(s.client.id as i64);
    let role = if s.shared.follows().is_some() { "replica" } else { "master" };
    for (name, value) in [("mode", "standalone"), ("role", role)] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}

fn client_name(text: &[u8]) -> Outcome<String> {
    let fits = text.iter().all(|byte| (b'!'..=b'~').contains(byte));
    let name = std::str::from_utf8(text).ok().filter(|_| fits);
    Ok(name.ok_or("ERR Client names cannot contain spaces, newlines or special characters.")?.to_owned())
}

/// What is about other clients is for those who may run all that is for administrators.
pub(super) fn refuse_others(s: &Session, word: &'static str) -> Outcome {
    let may = |user: &Arc<User>| super::COMMANDS.iter().enumerate().all(|(at, c)| !c.is(OTHERS) || user.may_run(at));
    if s.user.as_ref().is_some_and(may) {
        return Ok(());
    }
    if let Some((_, command)) = super::find(b"client") {
        let within = if s.deferred.is_some() { Within::Multi } else { Within::Nothing };
        s.note_denied(Denied::Command, within, command, Some(word));
    }
    Err("NOPERM this user has no permissions to run the 'client' command about other connections".into())
}

fn client(s: &mut Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let what = args.get(1).to_ascii_lowercase();
    if let Some(word) =
        ["kill", "list", "no-evict", "unblock", "unpause"].into_iter().find(|word| what == word.as_bytes())
    {
        refuse_others(s, word)?;
    }
    match (&what[..], args.len()) {
        (b"id", 2) => reply.int(s.client.id as i64),
        (b"getname", 2) => {
            let name = s.client.state.lock().name.clone();
            if name.is_empty() { reply.null() } else { reply.bulk(name.as_bytes()) }
        }
        (b"setname", 3) => {
            let name = client_name(args.get(2))?;
            s.client.state.lock().name = name;
            reply.ok();
        }
        (b"setinfo", 4) => {
            let value = client_name(args.get(3))?;
            let mut state = s.client.state.lock();
            match args.get(2) {
                o if is(o, "LIB-NAME") => state.library = value,
                o if is(o, "LIB-VER") => state.library_version = value,
                _ => return Err("ERR Unrecognized option".into()),
            }
            reply.ok();
        }
        (b"info", 2) => reply.verbatim(&format!("{}\n", s.client.line(now(), s.shared.commands))),
        (b"list", _) => {
            let listed = Listed::read(args)?;
            let mut clients: Vec<_> = s.shared.clients.lock().values().filter_map(std::sync::Weak::upgrade).collect();
            clients.retain(|client| listed.has(client));
            let now = now();
            reply.verbatim(
                &clients.iter().map(|client| format!("{}\n", client.line(now, s.shared.commands))).collect::<String>(),
            );
        }
        (b"kill", _) => return kill(s, args, reply),
        (b"reply", 3) => match args.get(2) {
            o if is(o, "ON") => {
                s.replies = Replies::On;
                reply.ok();
            }
            o if is(o, "OFF") => s.replies = Replies::Off,
            o if is(o, "SKIP") && s.replies == Replies::Off => {}
            o if is(o, "SKIP") => s.replies = Replies::SkipNext,
            _ => return Err(SYNTAX.into()),
        },
        (b"no-evict" | b"no-touch", 3) if is(args.get(2), "ON") || is(args.get(2), "OFF") => reply.ok(),
        (b"no-evict" | b"no-touch", 3) => return Err(SYNTAX.into()),
        (b"unblock", 3 | 4) => return unblock(s, args, reply),
        (b"help", 2) => super::help::help("client", reply),
        (b"unpause", 2) => {
            s.shared.pauses.end();
            reply.ok();
        }
        (b"durability", 2) => reply.bulk(s.durability().name().as_bytes()),
        (b"durability", 3) => return durability(s, args.get(2), reply),
        (b"caching", 3) => return super::tracking::caching(s, args.get(2), reply),
        (b"getredir", 2) => reply.int(super::tracking::redirection(s)),
        (b"tracking", 3..) => return super::tracking::tracking(s, args, reply),
        (b"trackinginfo", 2) => super::tracking::info(s, reply),
        _ => {
            let what = args.get(1).escape_ascii();
            return Err(
                format!("ERR unknown subcommand or wrong number of arguments for '{what}'. Try CLIENT HELP.").into()
            );
        }
    }
    Ok(())
}

/// `CLIENT DURABILITY bounded|local|quorum`.
fn durability(s: &mut Session, name: &[u8], reply: &mut Reply) -> Outcome {
    let wanted = Durability::named(name).ok_or("ERR CLIENT DURABILITY should be bounded, local or quorum")?;
    // What stands beside it was answered for by what held before.
    if s.deferred.is_some() {
        return Err("ERR CLIENT DURABILITY is not allowed inside a transaction; next: send it before MULTI".into());
    }
    let least = s.shared.settings().least_durability;
    if wanted < least {
        let least = least.name();
        return Err(format!("ERR an answer of this server means {least} at least; next: ask its operator for another --least-durability (CONFIG SET least-durability)").into());
    }
    s.durability = Some(wanted);
    reply.ok();
    Ok(())
}

/// Which clients `CLIENT LIST` and `CLIENT KILL` are about.
enum Listed {
    All,
    /// These ids.
    Some(BTreeSet<u64>),
    /// Those that subscribe, or those that do not.
    Subscribing(bool),
    /// There are none of this type.
    Nobody,
}

impl Listed {
    fn read(args: &Arguments<'_>) -> Outcome<Self> {
        match args.len() {
            2 => Ok(Self::All),
            4 if is(args.get(2), "TYPE") => Self::of_type(args.get(3)),
            4.. if is(args.get(2), "ID") => {
                // There is no client 0.
                let id = |text| int(text).ok().map(|id| u64::try_from(id).unwrap_or(0));
                let ids: Option<BTreeSet<u64>> = args.from(3).map(id).collect();
                Ok(Self::Some(ids.ok_or("ERR Invalid client ID")?))
            }
            _ => Err(SYNTAX.into()),
        }
    }

    fn of_type(name: &[u8]) -> Outcome<Self> {
        match &name.to_ascii_lowercase()[..] {
            b"normal" => Ok(Self::Subscribing(false)),
            b"pubsub" => Ok(Self::Subscribing(true)),
            b"master" | b"replica" | b"slave" => Ok(Self::Nobody),
            _ => Err(format!("ERR Unknown client type '{}'", name.escape_ascii()).into()),
        }
    }

    fn has(&self, client: &Client) -> bool {
        match self {
            Self::All => true,
            Self::Some(ids) => ids.contains(&client.id),
            Self::Subscribing(subscribes) => client.inbox.is(listens::SUBSCRIBES) == *subscribes,
            Self::Nobody => false,
        }
    }
}

/// `CLIENT UNBLOCK id [TIMEOUT|ERROR]`.
fn unblock(s: &Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let how = match args.get(3) {
        _ if args.len() == 3 => Unblock::Timeout,
        o if is(o, "TIMEOUT") => Unblock::Timeout,
        o if is(o, "ERROR") => Unblock::Error,
        _ => return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into()),
    };
    let id = u64::try_from(int(args.get(2))?).unwrap_or(0);
    let client = s.shared.clients.lock().get(&id).and_then(std::sync::Weak::upgrade);
    reply.int(client.is_some_and(|client| client.wait.end(how)).into());
    Ok(())
}

fn kill(s: &mut Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let clients: Vec<_> = s.shared.clients.lock().values().filter_map(std::sync::Weak::upgrade).collect();
    if args.len() == 3 {
        let found = clients.iter().find(|client| client.addr.as_bytes() == args.get(2));
        found.ok_or("ERR No such client")?.end();
        reply.ok();
        return Ok(());
    }
    if args.len() < 4 || !args.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    let (mut id, mut addr, mut local, mut user) = (None, None, None, None);
    let (mut of_type, mut skip_me) = (Listed::All, true);
    for at in (2..args.len()).step_by(2) {
        let value = args.get(at + 1);
        match args.get(at) {
            o if is(o, "ID") => {
                let known = int(value).ok().filter(|id| *id > 0);
                id = Some(known.ok_or("ERR client-id should be greater than 0")?);
            }
            o if is(o, "ADDR") => addr = Some(value),
            o if is(o, "LADDR") => local = Some(value),
            o if is(o, "USER") => {
                let known = std::str::from_utf8(value).is_ok_and(|name| s.shared.users.get(name).is_some());
                if !known {
                    return Err(format!("ERR No such user '{}'", value.escape_ascii()).into());
                }
                user = Some(value);
            }
            o if is(o, "TYPE") => of_type = Listed::of_type(value)?,
            // What is neither must not be taken for `no`: that ends this connection as well.
            o if is(o, "SKIPME") && is(value, "yes") => skip_me = true,
            o if is(o, "SKIPME") && is(value, "no") => skip_me = false,
            _ => return Err(SYNTAX.into()),
        }
    }
    let mut count = 0;
    for client in clients {
        let fits = id.is_none_or(|id| id == client.id as i64)
            && addr.is_none_or(|addr| addr == client.addr.as_bytes())
            && local.is_none_or(|local| local == client.laddr.as_bytes())
            && user.is_none_or(|user| user == client.state.lock().user.as_bytes())
            && of_type.has(&client)
            && !(skip_me && client.id == s.client.id);
        if fits {
            client.end();
            count += 1;
        }
    }
    reply.int(count);
    Ok(())
}
