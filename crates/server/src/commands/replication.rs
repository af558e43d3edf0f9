//! Commands about the servers that serve one store: which one leads, which ones follow. Names and shapes are those of Redis and of its Sentinel.

use std::time::Duration;

use super::flag::{ADMIN, CONNECTION, DANGEROUS, FAST};
use super::{Asked, Command, Form, KeysAt, Outcome, Run, SYNTAX, WaitLimit, int, is, session};
use crate::group::{Failover, Machine, View, split};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::session::Session;

pub(super) const COMMANDS: &[Command] = &[
    session("failover", -1, ADMIN | DANGEROUS, failover),
    session("role", 1, FAST | ADMIN | DANGEROUS, role),
    session("sentinel", -2, CONNECTION, sentinel),
    Command { form: Form { name: "wait", arity: 3, flags: CONNECTION, keys: KeysAt::None }, run: Run::Await(wait) },
    Command {
        form: Form { name: "waitaof", arity: 4, flags: CONNECTION, keys: KeysAt::None },
        run: Run::Await(waitaof),
    },
];

// ---- WAIT -----------------------------------------------------------------------------------------------------------

/// How many other machines have all that was acknowledged to any client when it began, on media of theirs. Those beyond the write quorum come later, or not at all.
fn wait(s: &Session, args: &Arguments<'_>, asked: &mut Asked, reply: &mut Reply) -> Outcome<WaitLimit> {
    let (wanted, wait_limit) = (int(args.get(1))?, wait_limit(args.get(2))?);
    let (others, wait_limit) = others(s, &mut asked.since, wanted, wait_limit)?;
    reply.int(others);
    Ok(wait_limit)
}

/// The same, and 1 for this machine: what it has acknowledged it has.
fn waitaof(s: &Session, args: &Arguments<'_>, asked: &mut Asked, reply: &mut Reply) -> Outcome<WaitLimit> {
    if !(0..=1).contains(&int(args.get(1))?) {
        return Err("ERR value is out of range, value must between 0 and 1".into());
    }
    let wanted = int(args.get(2)).ok().filter(|wanted| *wanted >= 0);
    let wanted = wanted.ok_or("ERR value is out of range, must be positive")?;
    let (others, wait_limit) = others(s, &mut asked.since, wanted, wait_limit(args.get(3))?)?;
    reply.array(2);
    reply.int(1);
    reply.int(others);
    Ok(wait_limit)
}

/// A store on one machine has no other to wait for.
fn others(s: &Session, since: &mut Option<u64>, wanted: i64, wait_limit: WaitLimit) -> Outcome<(i64, WaitLimit)> {
    let engine = &s.shared.engine;
    let Some(position) = since.or_else(|| engine.position()) else { return Ok((0, WaitLimit::Enough)) };
    *since = Some(position);
    let others = engine.others_with(position) as i64;
    // A server that does not lead any more knows nothing of the others.
    engine.healthy()?;
    Ok((others, if others >= wanted { WaitLimit::Enough } else { wait_limit }))
}

/// More milliseconds than any client waits.
const YEARS: u64 = 1 << 42;

fn wait_limit(text: &[u8]) -> Outcome<WaitLimit> {
    let milliseconds = int(text).map_err(|_| "ERR timeout is not an integer or out of range")?;
    match u64::try_from(milliseconds) {
        Err(_) => Err("ERR timeout is negative".into()),
        Ok(0) => Ok(WaitLimit::Forever),
        Ok(milliseconds @ ..YEARS) => Ok(WaitLimit::For(Duration::from_millis(milliseconds))),
        Ok(_) => Err("ERR timeout is out of range".into()),
    }
}

// ---- ROLE -----------------------------------------------------------------------------------------------------------

fn role(s: &mut Session, _: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let Some(group) = &s.shared.group else {
        reply.array(3);
        reply.bulk(b"master");
        reply.int(0);
        reply.array(0);
        return Ok(());
    };
    let view = group.view();
    if group.follows() {
        let (host, port) = view.leader.as_deref().map_or(("", "0"), split);
        reply.array(5);
        reply.bulk(b"slave");
        reply.bulk(host.as_bytes());
        reply.int(port.parse().unwrap_or(0));
        reply.bulk(if view.leader.is_some() { b"connected" } else { b"connect" });
        reply.int(view.commits as i64);
        return Ok(());
    }
    reply.array(3);
    reply.bulk(b"master");
    reply.int(view.commits as i64);
    let live: Vec<_> = view.others.iter().filter(|other| other.live).collect();
    reply.array(live.len());
    for other in live {
        let (host, port) = split(&other.address);
        reply.array(3);
        reply.bulk(host.as_bytes());
        reply.bulk(port.as_bytes());
        reply.bulk(view.commits.saturating_sub(other.behind).to_string().as_bytes());
    }
    Ok(())
}

// ---- FAILOVER -------------------------------------------------------------------------------------------------------

/// Begins to leave the leadership to another server; the answer is sent at once, as Redis does.
fn failover(s: &mut Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let asked = asked_failover(args)?;
    let Some(group) = &s.shared.group else {
        return Err(match asked {
            None => "ERR No failover in progress.",
            Some(_) => "ERR FAILOVER requires connected replicas.",
        }
        .into());
    };
    if group.follows() {
        return Err("ERR FAILOVER is not valid when server is a replica.".into());
    }
    let Some(mut asked) = asked else {
        group.abort_failover()?;
        reply.ok();
        return Ok(());
    };
    let view = group.view();
    if !view.others.iter().any(|other| other.live) {
        return Err("ERR FAILOVER requires connected replicas.".into());
    }
    if let Some(to) = &mut asked.to {
        let other = view.others.iter().find(|other| split(&other.address) == split(to));
        match other.ok_or("ERR FAILOVER target HOST and PORT is not a replica.")? {
            other if !other.live => return Err("ERR FAILOVER target replica is not online.".into()),
            Machine { trouble: Some(trouble), .. } => {
                return Err(format!("ERR FAILOVER target replica cannot lead: {trouble}").into());
            }
            // As it is announced: of IPv6 with its brackets.
            other => to.clone_from(&other.address),
        }
    }
    if !group.ask_failover(asked) {
        return Err("ERR FAILOVER already in progress.".into());
    }
    reply.ok();
    Ok(())
}

/// None for `ABORT`.
fn asked_failover(args: &Arguments<'_>) -> Outcome<Option<Failover>> {
    let mut asked = Failover { to: None, within: None };
    let (mut at, mut aborts) = (1, false);
    while at < args.len() {
        let left = args.len() - at - 1;
        match args.get(at) {
            o if is(o, "ABORT") && !aborts => (aborts, at) = (true, at + 1),
            o if is(o, "TIMEOUT") && left >= 1 && asked.within.is_none() => {
                let ms = int(args.get(at + 1))?;
                let ms = u64::try_from(ms).ok().filter(|ms| *ms > 0);
                let ms = ms.ok_or("ERR FAILOVER timeout must be greater than 0")?;
                (asked.within, at) = (Some(Duration::from_millis(ms)), at + 2);
            }
            o if is(o, "TO") && left >= 2 && asked.to.is_none() => {
                let port = int(args.get(at + 2))?;
                asked.to = Some(format!("{}:{port}", String::from_utf8_lossy(args.get(at + 1))));
                at += 3;
            }
            o if is(o, "FORCE") && asked.to.is_some() => {
                return Err(
                    "ERR FAILOVER FORCE is not there: a server that lacks acknowledged writes never leads; next: FAILOVER TO host port TIMEOUT ms".into(),
                );
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    if aborts && args.len() > 2 {
        return Err(SYNTAX.into());
    }
    Ok((!aborts).then_some(asked))
}

// ---- Sentinel -------------------------------------------------------------------------------------------------------

/// As one of the Sentinels of the group would answer; each server is one.
fn sentinel(s: &mut Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let Some(group) = &s.shared.group else {
        return Err("ERR this server is not one of a group: it was started without --etcd".into());
    };
    let view = group.view();
    let named = || -> Outcome {
        if args.len() != 3 {
            return Err("ERR wrong number of arguments for 'sentinel' command".into());
        }
        if args.get(2) == view.name.as_bytes() { Ok(()) } else { Err("ERR No such master with that name".into()) }
    };
    match args.get(1) {
        o if is(o, "GET-MASTER-ADDR-BY-NAME") => match (named().is_ok(), &view.leader) {
            (true, Some(leader)) => {
                let (host, port) = split(leader);
                reply.array(2);
                reply.bulk(host.as_bytes());
                reply.bulk(port.as_bytes());
            }
            _ if args.len() != 3 => named()?,
            _ => reply.null_array(),
        },
        o if is(o, "MASTERS") => {
            reply.array(usize::from(view.leader.is_some()));
            if let Some(leader) = &view.leader {
                master(&view, leader, reply);
            }
        }
        o if is(o, "MASTER") => {
            named()?;
            let leader = view.leader.clone().ok_or("ERR No such master with that name")?;
            master(&view, &leader, reply);
        }
        o if is(o, "REPLICAS") || is(o, "SLAVES") => {
            named()?;
            let all = followers(&view);
            reply.array(all.len());
            all.iter().for_each(|address| instance(address, address, "slave", &[], reply));
        }
        o if is(o, "SENTINELS") => {
            named()?;
            reply.array(view.others.len());
            view.others.iter().for_each(|other| instance(&other.address, &other.address, "sentinel", &[], reply));
        }
        o if is(o, "CKQUORUM") => {
            named()?;
            match &view.leader {
                Some(_) => reply.simple(&format!("OK {} usable Sentinels", view.others.len() + 1)),
                None => return Err("NOQUORUM no leader is known".into()),
            }
        }
        o if is(o, "MYID") => reply.bulk(s.shared.run_id.as_bytes()),
        o => {
            return Err(format!(
                "ERR Unknown sentinel subcommand '{}': etcd elects leaders here, and nothing of it is set by this",
                o.escape_ascii()
            )
            .into());
        }
    }
    Ok(())
}

/// All servers that do not lead.
fn followers(view: &View) -> Vec<&str> {
    let all = std::iter::once(view.own.as_str()).chain(view.others.iter().map(|other| other.address.as_str()));
    all.filter(|address| Some(*address) != view.leader.as_deref()).collect()
}

fn master(view: &View, leader: &str, reply: &mut Reply) {
    let (slaves, sentinels) = (followers(view).len().to_string(), view.others.len().to_string());
    let quorum = (view.others.len().div_ceil(2) + 1).to_string();
    let epoch = view.term.to_string();
    let more = [
        ("config-epoch", epoch.as_str()),
        ("num-slaves", &slaves),
        ("num-other-sentinels", &sentinels),
        ("quorum", &quorum),
        ("failover-timeout", "0"),
        ("parallel-syncs", "1"),
    ];
    instance(&view.name, leader, "master", &more, reply);
}

/// A server, as Sentinel describes one.
fn instance(name: &str, address: &str, flags: &str, more: &[(&str, &str)], reply: &mut Reply) {
    let (host, port) = split(address);
    let fields = [
        ("name", name),
        ("ip", host),
        ("port", port),
        ("runid", ""),
        ("flags", flags),
        ("link-pending-commands", "0"),
        ("link-refcount", "1"),
        ("last-ping-sent", "0"),
        ("last-ok-ping-reply", "0"),
        ("last-ping-reply", "0"),
        ("down-after-milliseconds", "0"),
    ];
    // Of a master, too, redis-py reads these as numbers.
    let of_all = [("master-link-status", "ok"), ("role-reported", flags)];
    reply.map(fields.len() + of_all.len() + more.len());
    for (field, value) in fields.iter().chain(&of_all).chain(more) {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
}
