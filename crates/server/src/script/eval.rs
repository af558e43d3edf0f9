//! `EVAL` and its like: scripts that are known by their text or their digest.

use super::perform::{Call, Called, broken, run_script, terms};
use super::run;
use crate::command::Env;
use crate::numbers::int;
use crate::outcome::{Outcome, Stop};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::scripts::{self, Scripts};
use crate::sha::{hex, sha1, unhex};

/// What the first line of a script says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flags {
    /// It has such a line.
    named: bool,
    no_writes: bool,
}

/// The flags of a script, and what follows its first line.
fn shebang(body: &[u8]) -> Result<(Flags, &[u8]), String> {
    let Some(rest) = body.strip_prefix(b"#!") else { return Ok((Flags::default(), body)) };
    let end = body.iter().position(|byte| *byte == b'\n');
    let end = end.ok_or("Invalid script shebang")?;
    let line = String::from_utf8_lossy(&rest[..end - 2]).into_owned();
    let mut words = line.split(' ');
    let engine = words.next().unwrap_or_default();
    if engine != "lua" {
        return Err(format!("Unexpected engine in script shebang: #!{engine}"));
    }
    let mut flags = Flags { named: true, ..Flags::default() };
    for word in words {
        let Some(names) = word.strip_prefix("flags=") else {
            return Err(format!("Unknown lua shebang option: {word}"));
        };
        for name in names.split(',').filter(|_| !names.is_empty()) {
            match name {
                "no-writes" => flags.no_writes = true,
                // There is no such state here.
                "allow-oom" | "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                _ => return Err(format!("Unexpected flag in script shebang: {name}")),
            }
        }
    }
    Ok((flags, &body[end..]))
}

/// How a script is asked for.
#[derive(Clone, Copy)]
pub(crate) struct How {
    pub(crate) by_sha: bool,
    pub(crate) read_only: bool,
}

const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";

/// `SCRIPT LOAD`: the digest of a script that can be compiled.
pub(crate) fn load(scripts: &Scripts, body: &[u8]) -> Outcome<String> {
    if body.len() > scripts::BYTES {
        return Err(Stop::Error(format!("ERR a script has {} bytes at most", scripts::BYTES)));
    }
    let sha = sha1(body);
    if scripts.find(&sha).is_none() {
        let (_, text) = shebang(body).map_err(|text| Stop::Error(format!("ERR {text}")))?;
        run::with(|one| one.compile(&sha, text)).map_err(|error| broken(&error))?.map_err(compile_error)?;
    }
    scripts.add(sha, body, true);
    Ok(hex(&sha))
}

fn compile_error(text: String) -> Stop {
    Stop::Error(format!("ERR Error compiling script (new function): {text}"))
}

/// Runs a script: `EVAL` and its like.
pub(crate) fn eval(env: &mut Env<'_>, args: &Arguments<'_>, reply: &mut Reply, how: How) -> Outcome {
    if how.by_sha && args.get(1).len() != 40 {
        return Err(NO_SCRIPT.into());
    }
    let count = int(args.get(2))?;
    if count > args.len() as i64 - 3 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    let count = usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative")?;
    let scripts = &env.session.shared.clone().scripts;
    let (sha, body) = if how.by_sha {
        let sha = unhex(args.get(1)).ok_or(NO_SCRIPT)?;
        (sha, scripts.find(&sha).ok_or(NO_SCRIPT)?)
    } else {
        let sha = sha1(args.get(1));
        (sha, scripts.find(&sha).unwrap_or_else(|| args.get(1).into()))
    };
    let (flags, text) = shebang(&body).map_err(|text| Stop::Error(format!("ERR {text}")))?;
    let read_only = how.read_only || flags.no_writes;
    let db = env.session.db;
    let outcome = run::with(|one| {
        let script = match one.compile(&sha, text)? {
            Ok(script) => script,
            Err(text) => return Ok(Err(compile_error(text))),
        };
        if !how.by_sha {
            scripts.add(sha, &body, false);
        }
        if how.read_only && flags.named && !flags.no_writes {
            return Ok(Err("ERR Can not execute a script with write flag using *_ro command.".into()));
        }
        one.begin(terms(env.session));
        let (called, name) = (Called::Script(script), &hex(&sha));
        run_script(one, env, &Call { called, name, args, keys: count, read_only }, reply)
    });
    // The script's own database is not its connection's.
    env.session.use_database(db);
    outcome.map_err(|error| broken(&error))?
}
