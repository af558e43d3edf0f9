//! Publish and subscribe; [`pubsub`](crate::pubsub) carries the messages.

use super::flag::{FAST, HEARING, NO_MULTI, PUBSUB, SUBSCRIBES};
use super::{Command, Outcome, is, session};
use crate::failpoints::Step;
use crate::reply::Reply;
use crate::request::Arguments;
use crate::session::{Publication, Session};
use crate::topic::Of;

const SUBSCRIBE: u32 = PUBSUB | SUBSCRIBES | HEARING | NO_MULTI;

pub(super) const COMMANDS: &[Command] = &[
    session("psubscribe", -2, SUBSCRIBE, |s, args, reply| subscribe(s, args, reply, Of::Pattern)),
    session("publish", 3, PUBSUB | FAST, |s, args, reply| publish(s, args, reply, Of::Channel)),
    session("pubsub", -2, PUBSUB, pubsub),
    session("punsubscribe", -1, SUBSCRIBE, |s, args, reply| unsubscribe(s, args, reply, Of::Pattern)),
    session("spublish", 3, PUBSUB | FAST, |s, args, reply| publish(s, args, reply, Of::Shard)),
    session("ssubscribe", -2, SUBSCRIBE, |s, args, reply| subscribe(s, args, reply, Of::Shard)),
    session("subscribe", -2, SUBSCRIBE, |s, args, reply| subscribe(s, args, reply, Of::Channel)),
    session("sunsubscribe", -1, SUBSCRIBE, |s, args, reply| unsubscribe(s, args, reply, Of::Shard)),
    session("unsubscribe", -1, SUBSCRIBE, |s, args, reply| unsubscribe(s, args, reply, Of::Channel)),
];

fn subscribe(s: &mut Session, args: &Arguments<'_>, reply: &mut Reply, of: Of) -> Outcome {
    if let Some(refusal) = s.subscriptions.refusal(of, args.from(1)) {
        return Err(refusal.into());
    }
    let word = ["subscribe", "psubscribe", "ssubscribe"][of as usize];
    for name in args.from(1) {
        s.subscriptions.add(of, name);
        said(s, reply, word, of, Some(name));
    }
    Ok(())
}

fn unsubscribe(s: &mut Session, args: &Arguments<'_>, reply: &mut Reply, of: Of) -> Outcome {
    // What has come before is told before.
    s.subscriptions.hear(reply, usize::MAX, false);
    let word = ["unsubscribe", "punsubscribe", "sunsubscribe"][of as usize];
    let names: Vec<Vec<u8>> = match args.len() {
        1 => s.subscriptions.names(of).iter().map(|name| name.to_vec()).collect(),
        _ => args.from(1).map(<[u8]>::to_vec).collect(),
    };
    for name in &names {
        s.subscriptions.remove(of, name);
        said(s, reply, word, of, Some(name));
    }
    if names.is_empty() {
        said(s, reply, word, of, None);
    }
    Ok(())
}

fn said(s: &Session, reply: &mut Reply, word: &str, of: Of, name: Option<&[u8]>) {
    reply.push(3);
    reply.bulk(word.as_bytes());
    reply.maybe(name);
    reply.int(s.subscriptions.told(of) as i64);
}

/// Between `MULTI` and `EXEC` it goes out when all of that is durable.
fn publish(s: &mut Session, args: &Arguments<'_>, reply: &mut Reply, to: Of) -> Outcome {
    let (channel, payload) = (args.get(1), args.get(2));
    let heard = match &mut s.deferred {
        Some(deferred) if !s.shared.failpoints.skips(Step::PublishedBehind) => {
            deferred.push(Publication { to, channel: channel.to_vec(), payload: payload.to_vec() });
            s.shared.pubsub.would_hear(to, channel)
        }
        _ => s.shared.publish(to, channel, payload),
    };
    reply.int(heard as i64);
    Ok(())
}

/// As Redis has it.
const HELP: [&str; 14] = [
    "PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CHANNELS [<pattern>]",
    "    Return the currently active channels matching a <pattern> (default: '*').",
    "NUMPAT",
    "    Return number of subscriptions to patterns.",
    "NUMSUB [<channel> ...]",
    "    Return the number of subscribers for the specified channels, excluding",
    "    pattern subscriptions(default: no channels).",
    "SHARDCHANNELS [<pattern>]",
    "    Return the currently active shard level channels matching a <pattern> (default: '*').",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    Return the number of subscribers for the specified shard level channel(s)",
    "HELP",
    "    Prints this help.",
];

fn pubsub(s: &mut Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let all = &s.shared.pubsub;
    let what = args.get(1);
    let names = |of, reply: &mut Reply| {
        let names = all.names(of, (args.len() == 3).then(|| args.get(2)));
        reply.array(names.len());
        names.iter().for_each(|name| reply.bulk(name));
    };
    let numbers = |of, reply: &mut Reply| {
        reply.array(2 * (args.len() - 2));
        for name in args.from(2) {
            reply.bulk(name);
            reply.int(all.members(of, name) as i64);
        }
    };
    match args.len() {
        2 | 3 if is(what, "CHANNELS") => names(Of::Channel, reply),
        2 | 3 if is(what, "SHARDCHANNELS") => names(Of::Shard, reply),
        _ if is(what, "NUMSUB") => numbers(Of::Channel, reply),
        _ if is(what, "SHARDNUMSUB") => numbers(Of::Shard, reply),
        2 if is(what, "NUMPAT") => reply.int(all.count(Of::Pattern) as i64),
        2 if is(what, "HELP") => {
            reply.array(HELP.len());
            HELP.iter().for_each(|line| reply.simple(line));
        }
        _ => {
            let what = what.escape_ascii();
            return Err(
                format!("ERR unknown subcommand or wrong number of arguments for '{what}'. Try PUBSUB HELP.").into()
            );
        }
    }
    Ok(())
}
