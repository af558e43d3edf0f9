//! `redis.call`: a command of a script runs in the script's transaction, as its user.

use mlua::{Lua, MultiValue, Value};

use super::args::{Raised, number};
use super::convert::Answer;
use super::numbers::general;
use super::state::{Ended, MEMORY, State, VALUE, make};
use crate::acl_log::Within;
use crate::clock::micros;
use crate::command::{Command, Env, Run};
use crate::dispatch;
use crate::engine;
use crate::form::Fit;
use crate::form::{flag, is};
use crate::monitors::{By, is_told, line};
use crate::reply::Reply;
use crate::request::{Arguments, Batch};
use crate::session::Session;
use crate::users::Denied;

/// The commands of a script while it runs.
pub(super) struct Caller<'c, 'e> {
    pub(super) env: &'c mut Env<'e>,
    pub(super) state: &'c State,
    pub(super) read_only: bool,
    /// Why the transaction cannot go on.
    pub(super) failed: Option<engine::Error>,
    batch: Batch,
    reply: Reply,
}

const UNKNOWN: &str = "ERR Unknown Redis command called from script";
/// Bytes of commands of one transaction's scripts that `MONITOR` is told of.
const LINES: usize = 8 << 20;

/// Commands that Redis keeps from scripts (`noscript` in `COMMAND INFO`), besides scripts and those that the connection itself runs, or waits in.
const NOT_IN_SCRIPTS: [&str; 27] = [
    "acl",
    "auth",
    "bgrewriteaof",
    "bgsave",
    "blmove",
    "blpop",
    "brpop",
    "brpoplpush",
    "bzpopmax",
    "bzpopmin",
    "client",
    "config",
    "debug",
    "discard",
    "failover",
    "function",
    "hello",
    "latency",
    "monitor",
    "multi",
    "quit",
    "reset",
    "role",
    "save",
    "script",
    "shutdown",
    "unwatch",
];

fn is_for_scripts(command: &Command) -> bool {
    !command.is(flag::SUBSCRIBES)
        && !matches!(command.run, Run::Connection(_) | Run::Script(_) | Run::Await(_))
        && !NOT_IN_SCRIPTS.contains(&command.name)
}

/// An argument as the command gets it; none if it is neither text nor a number.
fn text(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        // 17 digits, and with all of them up to there. A whole number is either kind, and written as the other one.
        Value::Integer(whole) if whole.unsigned_abs() < 10_u64.pow(17) => Some(whole.to_string().into_bytes()),
        other => number(other).map(|number| general(number, 17).into_bytes()),
    }
}

/// A command that has written would have done so in part, or for no client, if the script went on without its answer.
fn no_room() -> engine::Error {
    let text = "a command of the script writes, and there is not enough memory for the answer; ask for less at once";
    engine::Error::Limit(text.to_owned())
}

/// Clients that monitor are told of it when all is committed; of the first commands only, if they are very many.
fn note_line(session: &mut Session, command: &Command, args: &Arguments<'_>) {
    if !session.shared.monitors.any() || !is_told(command, args) {
        return;
    }
    let running = &mut session.script;
    let bytes = args.from(0).map(|arg| arg.len() + VALUE).sum::<usize>();
    running.lines_bytes += bytes;
    if running.lines_bytes <= LINES {
        running.lines.push((running.request, line(micros(), session.db, By::Script, args)));
    } else if running.lines_bytes - bytes <= LINES {
        tracing::warn!("{}: MONITOR is not told of all commands of a script, which has very many", session.client.addr);
    }
}

impl<'c, 'e> Caller<'c, 'e> {
    pub(super) fn new(env: &'c mut Env<'e>, state: &'c State, read_only: bool) -> Self {
        Self { env, state, read_only, failed: None, batch: Batch::default(), reply: Reply::up_to(MEMORY) }
    }

    fn read(&mut self, values: &MultiValue) -> Result<(), &'static str> {
        if values.is_empty() {
            return Err("ERR Please specify at least one argument for this redis lib call");
        }
        // Each may be the same text; all of them are copied.
        let len = |value: &Value| VALUE + if let Value::String(text) = value { text.as_bytes().len() } else { 0 };
        if values.iter().map(len).sum::<usize>() > MEMORY {
            return Err("ERR not enough memory for the arguments");
        }
        let words: Option<Vec<Vec<u8>>> = values.iter().map(text).collect();
        let words = words.ok_or("ERR Lua redis lib command arguments must be strings or integers")?;
        self.batch.clear();
        self.batch.push_words(words.iter().map(Vec::as_slice));
        Ok(())
    }

    /// Why a command is not even tried.
    fn refusal(&self, number: usize, command: &Command, args: &Arguments<'_>) -> Option<&'static str> {
        let second = match command.fit(args) {
            Fit::Fits(second) => second,
            Fit::Count(_) => return Some("ERR Wrong number of args calling Redis command from script"),
            Fit::Unknown(_) => return Some(UNKNOWN),
        };
        if !is_for_scripts(command) {
            return Some("ERR This Redis command is not allowed from script");
        }
        let Some(user) = &self.env.session.user else { return Some("NOAUTH Authentication required.") };
        if let Some(denied) = user.denial(number, command, args) {
            self.env.session.note_denied(denied, Within::Script, command, second);
            return Some(match denied {
                Denied::Command => "ERR The user executing the script can't run this command or subcommand",
                Denied::Key(_) => {
                    "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments"
                }
                Denied::Channel(_) => {
                    "ERR The user executing the script can't publish to the channel mentioned in the command"
                }
            });
        }
        let helps = command.name == "xgroup" && is(args.get(1), "help");
        if self.read_only && !helps && (command.is(flag::WRITE) || matches!(command.name, "publish" | "spublish")) {
            return Some("ERR Write commands are not allowed from read-only scripts.");
        }
        let longest = self.env.session.shared.engine.key_max() - 1;
        if args.from(1).any(|arg| arg.len() > longest) && command.keys(args).iter().any(|key| key.len() > longest) {
            return Some("ERR a key is longer than this store takes");
        }
        None
    }

    /// Runs a command: its answer, or its error.
    pub(super) fn call(&mut self, lua: &Lua, values: &MultiValue) -> mlua::Result<Result<Value, Raised>> {
        self.state.go_on()?;
        let refused = |text: &str| Ok(Err(Raised { text: text.as_bytes().to_vec(), counted: true }));
        if let Err(text) = self.read(values) {
            self.env.session.script.refused += 1;
            return Ok(Err(Raised { text: text.as_bytes().to_vec(), counted: false }));
        }
        let args = self.batch.arguments(0, &[]);
        let found = self
            .env
            .commands
            .find(args.get(0))
            .ok_or(UNKNOWN)
            .and_then(|found| self.refusal(found.0, found.1, &args).map_or(Ok(found), Err));
        let command = match found {
            Ok((_, command)) => command,
            Err(text) => {
                self.env.session.script.refused += 1;
                return refused(text);
            }
        };
        if matches!(command.name, "publish" | "spublish")
            && let Err(text) = self.state.pass(args.from(0).map(|arg| arg.len() + VALUE).sum())
        {
            return refused(&format!("ERR {text}"));
        }
        self.reply.clear();
        self.reply.three = self.state.three.get();
        let (db, writes) = (self.env.session.db, command.is(flag::WRITE));
        let waited = self.env.session.script.waited;
        let ran = dispatch::run(command, &args, self.env, &mut self.reply);
        self.state.has_waited(self.env.session.script.waited - waited);
        note_line(&mut *self.env.session, command, &args);
        match ran {
            Ok(()) if self.reply.len() > MEMORY && writes => self.end(no_room()),
            Ok(()) if self.reply.len() > MEMORY => refused("ERR not enough memory for the reply"),
            Ok(()) => {
                // A client may come to wait for it before all is committed.
                let session = &mut *self.env.session;
                dispatch::woken(command, &args, db, true, |key| {
                    session.script.woken.insert(key);
                });
                match self.reply.bytes() {
                    [b'-', error @ ..] => Ok(Err(Raised { text: error.trim_ascii_end().to_vec(), counted: true })),
                    bytes => match make(lua, bytes.len(), || Answer::new(bytes, self.state).value(lua)) {
                        // A script that ends for another reason says so itself.
                        Err(_) if writes && self.state.ended.get().is_none() => self.end(no_room()),
                        value => value.map(Ok),
                    },
                }
            }
            Err(stop) => match stop.answer() {
                Ok(text) => Ok(Err(Raised { text, counted: true })),
                Err(error) => self.end(error),
            },
        }
    }

    /// All of the transaction ends, and may be run again.
    fn end(&mut self, error: engine::Error) -> mlua::Result<Result<Value, Raised>> {
        self.failed = Some(error);
        self.state.ended.set(Some(Ended::Transaction));
        self.state.go_on()?;
        Ok(Ok(Value::Nil))
    }

    /// `redis.acl_check_cmd`: whether the user may run it.
    pub(super) fn may(&mut self, values: &MultiValue) -> mlua::Result<bool> {
        let wrong = |text: &str| mlua::Error::external(Raised { text: text.as_bytes().to_vec(), counted: false });
        self.read(values).map_err(wrong)?;
        let args = self.batch.arguments(0, &[]);
        let found =
            self.env.commands.find(args.get(0)).filter(|(_, command)| !matches!(command.fit(&args), Fit::Unknown(_)));
        let (number, command) = found.ok_or_else(|| wrong("ERR Invalid command passed to redis.acl_check_cmd()"))?;
        Ok(self.env.session.user.as_ref().is_some_and(|user| user.denial(number, command, &args).is_none()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the descriptions of commands say so: of one with subcommands, whether those of any of these do.
    fn is_described_for_scripts(name: &str) -> bool {
        let (mut described, mut is_for_scripts) = ("", true);
        for line in include_str!("../commands/docs.txt").lines() {
            if let Some(names) = line.strip_prefix('C') {
                described = names.split('\t').next().unwrap_or_default();
            } else if let Some(info) = line.strip_prefix('I').filter(|_| described.split('|').next() == Some(name)) {
                is_for_scripts &= info.split('\t').nth(1).is_none_or(|flags| !flags.contains("noscript"));
            }
        }
        is_for_scripts
    }

    #[test]
    fn scripts_may_run_what_they_may_in_redis() {
        let all = crate::commands::COMMANDS.iter();
        let differ = all.filter(|command| is_for_scripts(command) != is_described_for_scripts(command.name));
        assert_eq!(differ.map(|command| command.name).collect::<Vec<_>>(), [""; 0]);
        assert!(!is_described_for_scripts("failover") && is_described_for_scripts("get"));
    }
}
