//! Commands about the server.

use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::flag::{self, ADMIN, CONNECTION, DANGEROUS, FAST, NO_MULTI};
use super::{COMMANDS as ALL, Command, Form, KeysAt, Outcome, Run, SYNTAX, WaitLimit, int, is, session};
use crate::clock::now;
use crate::config::{Eviction, Notify, Settings, SubscriberLimit};
use crate::durability::Durability;
use crate::random::RandomSeed;
use crate::reply::Reply;
use crate::request::Arguments;
use crate::session::Session;
use crate::shared::Shared;
use crate::slowlog::LEN_MAX;
use crate::tracking::KEYS_MAX;
use crate::users::User;

pub(super) const COMMANDS: &[Command] = &[
    session("acl", -2, ADMIN | DANGEROUS | NO_MULTI, acl),
    session("bgrewriteaof", 1, ADMIN | DANGEROUS, |_, _, reply| {
        reply.simple("Background append only file rewriting started");
        Ok(())
    }),
    session("bgsave", -1, ADMIN | DANGEROUS, |_, args, reply| {
        if args.len() > 2 || args.len() == 2 && !is(args.get(1), "SCHEDULE") {
            return Err(SYNTAX.into());
        }
        reply.simple("Background saving started");
        Ok(())
    }),
    session("command", -1, CONNECTION, command),
    session("config", -2, ADMIN | DANGEROUS, config),
    // It is refused before it gets here.
    session("debug", -2, ADMIN | DANGEROUS, |_, _, _| Err(crate::form::DEBUG_REFUSED.into())),
    session("info", -1, DANGEROUS, info),
    session("lastsave", 1, FAST | ADMIN | DANGEROUS, |_, _, reply| {
        // All that was acknowledged is saved, at any time.
        reply.int((now() / 1000) as i64);
        Ok(())
    }),
    session("save", 1, ADMIN | DANGEROUS, |_, _, reply| {
        reply.ok();
        Ok(())
    }),
    session("shutdown", -1, ADMIN | DANGEROUS | NO_MULTI, shutdown),
    session("slowlog", -2, ADMIN | DANGEROUS, slow_log),
    session("time", 1, FAST, time),
];

fn time(_: &mut Session, _: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let now = now();
    reply.array(2);
    reply.bulk((now / 1000).to_string().as_bytes());
    reply.bulk((now % 1000 * 1000).to_string().as_bytes());
    Ok(())
}

/// All is durable, so there is nothing to be saved.
fn shutdown(s: &mut Session, args: &Arguments<'_>, _: &mut Reply) -> Outcome {
    let (mut save, mut nosave, mut abort) = (false, false, false);
    for option in args.from(1) {
        match option {
            o if is(o, "SAVE") => save = true,
            o if is(o, "NOSAVE") => nosave = true,
            o if is(o, "ABORT") => abort = true,
            o if is(o, "NOW") || is(o, "FORCE") => {}
            _ => return Err(SYNTAX.into()),
        }
    }
    if save && nosave || abort && args.len() > 2 {
        return Err(SYNTAX.into());
    }
    if abort {
        return Err("ERR No shutdown in progress.".into());
    }
    tracing::info!("{}: SHUTDOWN", s.client.addr);
    s.closing = true;
    s.shared.stop.send_replace(true);
    Ok(())
}

// ---- COMMAND ------------------------------------------------------------------------------------------------------

fn command(_: &mut Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    match args.get(1) {
        _ if args.len() == 1 => {
            reply.array(ALL.len());
            ALL.iter().for_each(|command| super::docs::describe(command, reply));
        }
        o if is(o, "COUNT") => reply.int(ALL.len() as i64),
        o if is(o, "INFO") && args.len() == 2 => {
            reply.array(ALL.len());
            ALL.iter().for_each(|command| super::docs::describe(command, reply));
        }
        o if is(o, "INFO") => {
            let names: Vec<&[u8]> = args.from(2).collect();
            return super::docs::infos(names.into_iter(), reply);
        }
        o if is(o, "LIST") => return super::listing::list(args, reply),
        o if is(o, "GETKEYS") && args.len() > 2 => return super::listing::keys(args, false, reply),
        o if is(o, "GETKEYSANDFLAGS") && args.len() > 2 => return super::listing::keys(args, true, reply),
        o if is(o, "DOCS") => return super::docs::docs(args, reply),
        o if is(o, "HELP") => super::help::help("command", reply),
        o => {
            return Err(format!("ERR unknown subcommand '{}'. Try COMMAND HELP.", o.escape_ascii()).into());
        }
    }
    Ok(())
}

// ---- CONFIG -------------------------------------------------------------------------------------------------------

/// Bytes of a request and of an argument that can always be sent.
const MEMORY_MIN: usize = 1 << 20;
/// Milliseconds that a script may be given.
const SCRIPT_MS_MAX: u64 = 86_400_000;

/// Names and values as Redis has them; those that cannot be changed are what is true here.
pub(super) fn settings(shared: &Shared) -> Vec<(&'static str, String)> {
    let now = shared.settings();
    vec![
        ("appendfsync", "always".to_owned()),
        ("appendonly", "yes".to_owned()),
        ("acl-pubsub-default", "resetchannels".to_owned()),
        ("acllog-max-len", shared.acl_log.len_max.load(Relaxed).to_string()),
        ("client-output-buffer-limit", output_limits(now.subscriber)),
        ("client-query-buffer-limit", now.request.to_string()),
        ("databases", crate::data::DATABASES.to_string()),
        ("busy-reply-threshold", now.script_time.as_millis().to_string()),
        ("latency-monitor-threshold", shared.latency.threshold.load(Relaxed).to_string()),
        ("latency-tracking", if shared.latency.counts.load(Relaxed) { "yes" } else { "no" }.to_owned()),
        ("lua-time-limit", now.script_time.as_millis().to_string()),
        ("maxclients", now.connections.to_string()),
        ("maxmemory", now.memory.to_string()),
        ("least-durability", now.least_durability.name().to_owned()),
        ("lfu-decay-time", now.lfu_decay_minutes.to_string()),
        ("lfu-log-factor", now.lfu_log_factor.to_string()),
        ("maxmemory-policy", now.eviction.name().to_owned()),
        ("maxmemory-samples", now.samples.to_string()),
        ("notify-keyspace-events", now.notify.to_string()),
        ("proto-max-bulk-len", now.argument.to_string()),
        ("save", String::new()),
        ("slowlog-log-slower-than", shared.slow.threshold.load(Relaxed).to_string()),
        ("slowlog-max-len", shared.slow.len_max.load(Relaxed).to_string()),
        ("tracking-table-max-keys", shared.tracking.keys_max.load(Relaxed).to_string()),
        ("timeout", now.idle.as_secs().to_string()),
    ]
}

fn config(s: &mut Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    match args.get(1) {
        o if is(o, "GET") && args.len() > 2 => {
            let all = settings(&s.shared);
            let fits =
                |name: &str| args.from(2).any(|p| crate::glob::matches(&p.to_ascii_lowercase(), name.as_bytes()));
            let found: Vec<_> = all.iter().filter(|(name, _)| fits(name)).collect();
            reply.map(found.len());
            for (name, value) in found {
                reply.bulk(name.as_bytes());
                reply.bulk(value.as_bytes());
            }
        }
        o if is(o, "SET") && args.len() > 3 && args.len().is_multiple_of(2) => {
            let mut change = Change::of((*s.shared.settings()).clone());
            for at in (2..args.len()).step_by(2) {
                let name = args.get(at);
                if (2..at).step_by(2).any(|before| args.get(before).eq_ignore_ascii_case(name)) {
                    let shown = name.escape_ascii();
                    let why =
                        format!("ERR CONFIG SET failed (possibly related to argument '{shown}') - duplicate parameter");
                    return Err(why.into());
                }
                set(&s.shared, &mut change, name, args.get(at + 1))?;
            }
            change.carry_out(&s.shared);
            super::keep::note(&s.shared, (2..args.len()).step_by(2).map(|at| args.get(at)));
            reply.ok();
        }
        o if is(o, "REWRITE") => {
            super::keep::rewrite(&s.shared, &settings(&s.shared))?;
            reply.ok();
        }
        o if is(o, "RESETSTAT") => reply.ok(),
        o if is(o, "HELP") => super::help::help("config", reply),
        o if is(o, "SET") && args.len() > 3 => return Err(SYNTAX.into()),
        o if is(o, "GET") || is(o, "SET") => {
            let name = o.to_ascii_lowercase();
            return Err(format!("ERR wrong number of arguments for 'config|{}' command", name.escape_ascii()).into());
        }
        o => return Err(format!("ERR unknown subcommand '{}'. Try CONFIG HELP.", o.escape_ascii()).into()),
    }
    Ok(())
}

/// What `CONFIG SET` asks for: all of it, or nothing if a part is wrong.
pub(super) struct Change {
    settings: Settings,
    slower: Option<i64>,
    slow_max: Option<u64>,
    acl_log_max: Option<u64>,
    latency_threshold: Option<u64>,
    latency_counts: Option<bool>,
    tracked_keys_max: Option<u64>,
    password: Option<String>,
}

impl Change {
    pub(super) fn of(settings: Settings) -> Self {
        Self {
            settings,
            slower: None,
            slow_max: None,
            acl_log_max: None,
            latency_threshold: None,
            latency_counts: None,
            tracked_keys_max: None,
            password: None,
        }
    }

    pub(super) fn carry_out(self, shared: &Shared) {
        shared.change_settings(self.settings);
        if let Some(micros) = self.slower {
            shared.slow.threshold.store(micros, Relaxed);
        }
        if let Some(len) = self.slow_max {
            shared.slow.len_max.store(len, Relaxed);
        }
        if let Some(len) = self.acl_log_max {
            shared.acl_log.len_max.store(len, Relaxed);
        }
        if let Some(ms) = self.latency_threshold {
            shared.latency.threshold.store(ms, Relaxed);
        }
        if let Some(counts) = self.latency_counts {
            shared.latency.counts.store(counts, Relaxed);
        }
        if let Some(keys) = self.tracked_keys_max {
            shared.tracking.keys_max.store(keys, Relaxed);
        }
        if let Some(password) = self.password {
            shared.users.set_default_password(&password);
        }
    }
}

pub(super) fn set(shared: &Shared, change: &mut Change, name: &[u8], value: &[u8]) -> Outcome {
    let shown = name.to_ascii_lowercase().escape_ascii().to_string();
    let bad = |why: &str| format!("ERR CONFIG SET failed (possibly related to argument '{shown}') - {why}");
    // Less would end the connection that could make it more.
    let memory = || {
        let bytes = bytes(value).ok_or_else(|| bad("argument must be a memory value"))?;
        let fits = Some(bytes).filter(|bytes| (MEMORY_MIN..=i64::MAX as usize).contains(bytes));
        fits.ok_or_else(|| bad(&format!("argument must be between {MEMORY_MIN} and {} inclusive", i64::MAX)))
    };
    let signed = |least: i64, most: u64| {
        let number = crate::request::number(value).ok_or_else(|| bad("argument couldn't be parsed into an integer"))?;
        let fits = number >= least && (number < 0 || number as u64 <= most);
        let why = || bad(&format!("argument must be between {least} and {most} inclusive"));
        if fits { Ok(number) } else { Err(why()) }
    };
    let whole = |least: i64, most: u64| signed(least, most).map(|number| number as u64);
    let changed = &mut change.settings;
    match &name.to_ascii_lowercase()[..] {
        b"maxclients" => {
            changed.connections = whole(1, u32::MAX.into())? as usize;
        }
        b"lua-time-limit" | b"busy-reply-threshold" => {
            changed.script_time = Duration::from_millis(whole(1, SCRIPT_MS_MAX)?);
        }
        b"maxmemory-policy" => {
            let policy = std::str::from_utf8(value).ok().and_then(Eviction::named);
            let names: Vec<&str> = Eviction::names().collect();
            let all = names.join(", ");
            changed.eviction =
                policy.ok_or_else(|| bad(&format!("argument(s) must be one of the following: {all}")))?;
        }
        b"maxmemory-samples" => {
            changed.samples = whole(1, 64)? as usize;
        }
        b"least-durability" => {
            let names: Vec<&str> = Durability::names().collect();
            let why = || bad(&format!("argument(s) must be one of the following: {}", names.join(", ")));
            changed.least_durability = Durability::named(value).ok_or_else(why)?;
        }
        b"lfu-decay-time" => changed.lfu_decay_minutes = whole(0, i32::MAX as u64)? as u32,
        b"lfu-log-factor" => changed.lfu_log_factor = whole(0, i32::MAX as u64)? as u32,
        b"notify-keyspace-events" => changed.notify = Notify::parse(value).map_err(bad)?,
        b"proto-max-bulk-len" => changed.argument = memory()?,
        b"client-query-buffer-limit" => changed.request = memory()?,
        b"client-output-buffer-limit" => set_output_limits(value, &mut changed.subscriber).map_err(bad)?,
        b"timeout" => changed.idle = Duration::from_secs(whole(0, i32::MAX as u64)?),
        b"slowlog-log-slower-than" => {
            change.slower = Some(signed(-1, i64::MAX as u64)?);
        }
        b"slowlog-max-len" => {
            change.slow_max = Some(whole(0, LEN_MAX)?);
        }
        b"acllog-max-len" => change.acl_log_max = Some(whole(0, crate::acl_log::LEN_MAX)?),
        b"latency-monitor-threshold" => change.latency_threshold = Some(whole(0, i64::MAX as u64)?),
        b"latency-tracking" => match value {
            o if is(o, "yes") => change.latency_counts = Some(true),
            o if is(o, "no") => change.latency_counts = Some(false),
            _ => return Err(bad("argument must be 'yes' or 'no'").into()),
        },
        b"tracking-table-max-keys" => change.tracked_keys_max = Some(whole(1, KEYS_MAX)?),
        b"requirepass" => {
            change.password = Some(std::str::from_utf8(value).map_err(|_| bad("it is no text"))?.to_owned());
        }
        // Nothing else would be durable, so nothing else is taken.
        b"appendonly" if value == b"yes" => {}
        b"appendfsync" if value == b"always" => {}
        b"save" => {}
        _ if settings(shared).iter().any(|(known, _)| known.as_bytes() == name.to_ascii_lowercase()) => {
            return Err(bad("can't set immutable config").into());
        }
        _ => return Err(format!("ERR Unknown option or number of arguments for CONFIG SET - '{shown}'").into()),
    }
    Ok(())
}

/// Takes over what `CONFIG REWRITE` has kept. What another version kept, and this one does not take, is told of in the log.
pub(crate) fn load_kept(shared: &Shared) -> crate::engine::Result<()> {
    let kept = super::keep::kept(shared)?;
    if kept.is_empty() {
        return Ok(());
    }
    let mut change = Change::of((*shared.settings()).clone());
    for (name, value) in &kept {
        match set(shared, &mut change, name, value) {
            Ok(()) => {
                tracing::info!("{} is {}: CONFIG REWRITE has kept it", name.escape_ascii(), value.escape_ascii());
                super::keep::note(shared, std::iter::once(&name[..]));
            }
            Err(stop) => tracing::warn!(
                "{} was kept by CONFIG REWRITE, and cannot be set: {}; next: CONFIG SET it, and CONFIG REWRITE",
                name.escape_ascii(),
                String::from_utf8_lossy(&stop.answer()?)
            ),
        }
    }
    change.carry_out(shared);
    Ok(())
}

/// Of the classes that Redis has. Only subscribers are sent what they have not asked for; replies are as many as were asked for, and those that are not read end the connection.
fn output_limits(SubscriberLimit { hard_bytes, soft_bytes, soft_seconds }: SubscriberLimit) -> String {
    format!("normal 0 0 0 slave 0 0 0 pubsub {hard_bytes} {soft_bytes} {soft_seconds}")
}

fn set_output_limits(value: &[u8], limit: &mut SubscriberLimit) -> Result<(), &'static str> {
    let words: Vec<&[u8]> = value.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.");
    }
    for class in words.chunks(4) {
        let known = ["normal", "slave", "replica", "pubsub"].iter().find(|name| is(class[0], name));
        let known = known.ok_or("Invalid client class specified in buffer limit configuration.")?;
        let wrong = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
        let seconds = crate::request::number(class[3]).and_then(|seconds| u32::try_from(seconds).ok()).ok_or(wrong)?;
        let (hard_bytes, soft_bytes) = bytes(class[1]).zip(bytes(class[2])).ok_or(wrong)?;
        if *known == "pubsub" {
            *limit = SubscriberLimit { hard_bytes, soft_bytes, soft_seconds: seconds };
        } else if *known == "normal" && (hard_bytes, soft_bytes) != (0, 0) {
            return Err("only the class pubsub has a limit here");
        }
    }
    Ok(())
}

/// A number of bytes, with a unit.
fn bytes(text: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(text).ok()?.to_ascii_lowercase();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &text[end..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    text[..end].parse::<usize>().ok()?.checked_mul(unit)
}

// ---- SLOWLOG ------------------------------------------------------------------------------------------------------

fn slow_log(s: &mut Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let log = &s.shared.slow;
    match (&args.get(1).to_ascii_lowercase()[..], args.len()) {
        (b"get", 2 | 3) => {
            let count = if args.len() == 3 { crate::request::number(args.get(2)) } else { Some(10) };
            let count = count.filter(|count| *count >= -1);
            let count = count.ok_or("ERR count should be greater than or equal to -1")?;
            let found = log.newest(usize::try_from(count).unwrap_or(usize::MAX));
            reply.array(found.len());
            for slow in found {
                reply.array(6);
                [slow.id, slow.at, slow.micros].into_iter().for_each(|number| reply.int(number as i64));
                reply.array(slow.arguments.len());
                slow.arguments.iter().for_each(|argument| reply.bulk(argument));
                reply.bulk(slow.addr.as_bytes());
                reply.bulk(slow.name.as_bytes());
            }
        }
        (b"len", 2) => reply.int(log.len() as i64),
        (b"reset", 2) => {
            log.reset();
            reply.ok();
        }
        (b"help", 2) => super::help::help("slowlog", reply),
        _ => {
            let what = args.get(1).escape_ascii();
            return Err(
                format!("ERR unknown subcommand or wrong number of arguments for '{what}'. Try SLOWLOG HELP.").into()
            );
        }
    }
    Ok(())
}

// ---- INFO -------------------------------------------------------------------------------------------------------

/// Whether a section is asked for.
fn is_wanted(args: &Arguments<'_>, section: &str) -> bool {
    let every = |arg| ["all", "default", "everything"].iter().any(|all| is(arg, all));
    args.len() == 1 || args.from(1).any(|arg| is(arg, section) || every(arg))
}

/// Waits until keys are counted: in a transaction, or a script, only for the first count there is.
pub(super) static INFO: Command = Command {
    form: Form { name: "info", arity: -1, flags: DANGEROUS, keys: KeysAt::None },
    run: Run::Await(|s, args, asked, reply| {
        if is_wanted(args, "keyspace") {
            if s.deferred.is_some() {
                crate::info::count_within(&s.shared)?;
            } else if !asked.is_over && !crate::info::is_counted(&s.shared, &mut asked.since) {
                return Ok(WaitLimit::For(crate::info::COUNT_TIME));
            }
        }
        tell_info(&s.shared, args, reply);
        Ok(WaitLimit::Enough)
    }),
};

/// That of a script.
fn info(s: &mut Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    if is_wanted(args, "keyspace") {
        let waited = crate::info::count_within(&s.shared)?;
        s.script.has_waited(waited);
    }
    tell_info(&s.shared, args, reply);
    Ok(())
}

fn tell_info(shared: &Shared, args: &Arguments<'_>, reply: &mut Reply) {
    let mut text = String::new();
    for (name, lines) in crate::info::sections(shared) {
        if is_wanted(args, name) {
            let mut title = name.to_owned();
            title[..1].make_ascii_uppercase();
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            write!(text, "# {title}\r\n").unwrap_or(());
            lines.iter().for_each(|(key, value)| write!(text, "{key}:{value}\r\n").unwrap_or(()));
        }
    }
    reply.verbatim(&text);
}

// ---- ACL --------------------------------------------------------------------------------------------------------

fn acl(s: &mut Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let text = |at: usize| String::from_utf8_lossy(args.get(at)).into_owned();
    match (&args.get(1).to_ascii_lowercase()[..], args.len()) {
        (b"whoami", 2) => reply.bulk(s.user.as_ref().map_or("default", |user| &user.name).as_bytes()),
        (b"users", 2) => {
            let all = s.shared.users.all();
            reply.array(all.len());
            all.iter().for_each(|user| reply.bulk(user.name.as_bytes()));
        }
        (b"list", 2) => {
            let all = s.shared.users.all();
            reply.array(all.len());
            all.iter().for_each(|user| reply.bulk(format!("user {} {}", user.name, user.rules()).as_bytes()));
        }
        (b"getuser", 3) => match s.shared.users.get(&text(2)) {
            Some(user) => get_user(&user, reply),
            None => reply.null_array(),
        },
        (b"setuser", 3..) => {
            set_user(s, &text(2), &mut (3..args.len()).map(text))?;
            s.renew();
            reply.ok();
        }
        (b"deluser", 3..) => {
            let mut gone = 0;
            for name in (2..args.len()).map(text) {
                if name == "default" {
                    return Err("ERR The 'default' user cannot be removed".into());
                }
                gone += i64::from(s.shared.users.delete(&*s.shared.engine, &name)?);
                end_connections(s, &name);
                s.renew();
            }
            reply.int(gone);
        }
        (b"cat", 2) => {
            reply.array(flag::CATEGORIES.len() + 1);
            flag::CATEGORIES.iter().for_each(|category| reply.bulk(category.0.as_bytes()));
            reply.bulk(b"slow");
        }
        (b"cat", 3) => {
            let category = crate::users::Category::of(&text(2).to_ascii_lowercase());
            let category = category.ok_or_else(|| format!("ERR Unknown category '{}'", args.get(2).escape_ascii()))?;
            let found: Vec<_> = ALL.iter().filter(|command| category.has(command)).collect();
            reply.array(found.len());
            found.iter().for_each(|command| reply.bulk(command.name.as_bytes()));
        }
        (b"genpass", 2 | 3) => {
            let bits = if args.len() == 3 { int(args.get(2))? } else { 256 };
            let digits =
                usize::try_from(bits).ok().filter(|bits| (1..=4096).contains(bits)).map(|bits| bits.div_ceil(4));
            let digits = digits.ok_or("ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096")?;
            let mut password = String::new();
            while password.len() < digits {
                let RandomSeed(a, b) = RandomSeed::draw();
                write!(password, "{a:016x}{b:016x}").unwrap_or(());
            }
            reply.bulk(&password.as_bytes()[..digits]);
        }
        (b"save" | b"load", 2) => reply.ok(), // they are always saved
        (b"help", 2) => super::help::help("acl", reply),
        (b"log", 2 | 3) => return super::acl_log::log(s, args, reply),
        (b"dryrun", 4..) => return super::acl_log::dry_run(s, args, reply),
        _ => {
            let what = args.get(1).escape_ascii();
            return Err(
                format!("ERR unknown subcommand or wrong number of arguments for '{what}'. Try ACL HELP.").into()
            );
        }
    }
    Ok(())
}

fn set_user(s: &Session, name: &str, rules: &mut dyn Iterator<Item = String>) -> Outcome {
    if name.is_empty() || name.contains([' ', '\0']) {
        return Err("ERR Usernames can't contain spaces or null characters".into());
    }
    let mut user = s.shared.users.get(name).map_or_else(|| User::new(name, s.shared.commands), |user| (*user).clone());
    for rule in rules {
        if rule.contains(' ') {
            return Err(SYNTAX.into());
        }
        user.apply(&rule).map_err(|error| format!("ERR Error in ACL SETUSER modifier '{rule}': {error}"))?;
    }
    s.shared.users.set(&*s.shared.engine, user)?;
    end_connections(s, name);
    Ok(())
}

/// A client that is in with rules that were changed must come in again.
fn end_connections(s: &Session, name: &str) {
    let clients: Vec<_> = s.shared.clients.lock().values().filter_map(std::sync::Weak::upgrade).collect();
    clients
        .iter()
        .filter(|client| client.id != s.client.id && client.state.lock().user == name)
        .for_each(|client| client.end());
}

fn get_user(user: &User, reply: &mut Reply) {
    reply.map(6);
    reply.bulk(b"flags");
    let durability = Some(user.durability).filter(|durability| *durability != Durability::default());
    let durability = durability.map(|durability| format!("durability={}", durability.name()));
    let flags = [Some(if user.on { "on" } else { "off" }), user.no_password.then_some("nopass"), durability.as_deref()];
    let flags: Vec<_> = flags.into_iter().flatten().collect();
    reply.array(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    let hashes = user.password_hashes();
    reply.array(hashes.len());
    hashes.iter().for_each(|hash| reply.bulk(hash.as_bytes()));
    for (name, value) in
        [("commands", user.command_rules()), ("keys", user.patterns()), ("channels", user.channel_patterns())]
    {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"selectors");
    reply.array(0);
}
