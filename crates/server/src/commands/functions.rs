//! Functions; [`functions`](crate::functions) says where they are, [`script`](crate::script) runs them.

use super::flag::{MAY_WRITE, READ, SCRIPTING, WRITE};
use super::{Command, Context, Form, KeysAt, Outcome, Run, Stop, is};
use crate::command::Env;
use crate::functions::{self, ALL_MAX, FLAGS, Policy, dump};
use crate::glob;
use crate::reply::Reply;
use crate::request::Arguments;
use crate::script;

pub(super) const COMMANDS: &[Command] = &[
    // Which of those below it is, its second word says. For users it is one.
    function(WRITE, Run::Data(|_, args| Err(unknown(args)))),
    call("fcall", MAY_WRITE, Run::Script(|env, args, reply| script::call_function(env, args, reply, false))),
    call("fcall_ro", READ, Run::Script(|env, args, reply| script::call_function(env, args, reply, true))),
];

const fn call(name: &'static str, flags: u32, run: Run) -> Command {
    Command { form: Form { name, arity: -3, flags: SCRIPTING | flags, keys: KeysAt::Counted(2) }, run }
}

const fn function(flags: u32, run: Run) -> Command {
    Command { form: Form { name: "function", arity: -2, flags: SCRIPTING | flags, keys: KeysAt::None }, run }
}

static LOAD: Command = function(WRITE, Run::Script(load));
static RESTORE: Command = function(WRITE, Run::Script(restore));
static DELETE: Command = function(WRITE, Run::Data(delete));
static FLUSH: Command = function(WRITE, Run::Data(flush));
static LIST: Command = function(0, Run::Data(list));
static STATS: Command = function(0, Run::Data(stats));
static DUMP: Command = function(0, Run::Data(dump));
static KILL: Command = function(
    0,
    Run::Session(|s, _, reply| {
        s.shared.scripts.kill(true)?;
        reply.ok();
        Ok(())
    }),
);
static HELP: Command = function(
    0,
    Run::Session(|_, _, reply| {
        reply.array(TEXT.len());
        TEXT.iter().for_each(|line| reply.simple(line));
        Ok(())
    }),
);

/// What `FUNCTION` with a second word is: each of them runs in its own way.
pub(super) fn named(word: &[u8]) -> Option<&'static Command> {
    let all = [
        ("LOAD", &LOAD),
        ("RESTORE", &RESTORE),
        ("DELETE", &DELETE),
        ("FLUSH", &FLUSH),
        ("LIST", &LIST),
        ("STATS", &STATS),
        ("DUMP", &DUMP),
        ("KILL", &KILL),
        ("HELP", &HELP),
    ];
    all.into_iter().find(|(name, _)| is(word, name)).map(|(_, command)| command)
}

/// As Redis has it.
const TEXT: [&str; 40] = [
    "FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "LOAD [REPLACE] <FUNCTION CODE>",
    "    Create a new library with the given library name and code.",
    "DELETE <LIBRARY NAME>",
    "    Delete the given library.",
    "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
    "    Return general information on all the libraries:",
    "    * Library name",
    "    * The engine used to run the Library",
    "    * Library description",
    "    * Functions list",
    "    * Library code (if WITHCODE is given)",
    "    It also possible to get only function that matches a pattern using LIBRARYNAME argument.",
    "STATS",
    "    Return information about the current function running:",
    "    * Function name",
    "    * Command used to run the function",
    "    * Duration in MS that the function is running",
    "    If no function is running, return nil",
    "    In addition, returns a list of available engines.",
    "KILL",
    "    Kill the current running function.",
    "FLUSH [ASYNC|SYNC]",
    "    Delete all the libraries.",
    "    When called without the optional mode argument, the behavior is determined by the",
    "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
    "    * ASYNC: Asynchronously flush the libraries.",
    "    * SYNC: Synchronously flush the libraries.",
    "DUMP",
    "    Return a serialized payload representing the current libraries, can be restored using FUNCTION RESTORE command",
    "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
    "    Restore the libraries represented by the given payload, it is possible to give a restore policy to",
    "    control how to handle existing libraries (default APPEND):",
    "    * FLUSH: delete all existing libraries.",
    "    * APPEND: appends the restored libraries to the existing libraries. On collision, abort.",
    "    * REPLACE: appends the restored libraries to the existing libraries, On collision, replace the old",
    "      libraries with the new libraries (notice that even on this option there is a chance of failure",
    "      in case of functions name collision with another library).",
    "HELP",
    "    Prints this help.",
];

fn unknown(args: &Arguments<'_>) -> Stop {
    let what = args.get(1).escape_ascii();
    Stop::Error(format!("ERR unknown subcommand or wrong number of arguments for '{what}'. Try FUNCTION HELP."))
}

fn load(env: &mut Env<'_>, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let mut policy = Policy::Append;
    for option in args.from(2).take(args.len() - 3) {
        if !is(option, "REPLACE") {
            return Err(Stop::Error(format!("ERR Unknown option given: {}", option.escape_ascii())));
        }
        policy = Policy::Replace;
    }
    let code = args.get(args.len() - 1);
    let (name, text) = functions::library_of(code).map_err(|text| Stop::Error(format!("ERR {text}")))?;
    let exists = |name: &str| format!("ERR Library '{name}' already exists");
    // Before it is loaded, which may take long.
    if policy == Policy::Append && functions::code(env.tx, &name)?.is_some() {
        return Err(exists(&String::from_utf8_lossy(&name)).into());
    }
    let loaded = script::load_library(env, name.clone(), code, text)?;
    env.looks.write(code.len())?;
    functions::put(env.tx, &[loaded], policy, exists)?;
    reply.bulk(&name);
    Ok(())
}

fn restore(env: &mut Env<'_>, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let policy = match args.get(3) {
        _ if args.len() > 4 => return Err(unknown(args)),
        _ if args.len() == 3 => Policy::Append,
        word if is(word, "APPEND") => Policy::Append,
        word if is(word, "REPLACE") => Policy::Replace,
        word if is(word, "FLUSH") => Policy::Flush,
        _ => return Err("ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.".into()),
    };
    let mut all: Vec<functions::Loaded> = Vec::new();
    for code in dump::read(args.get(2))? {
        let (name, text) = functions::library_of(&code).map_err(|text| Stop::Error(format!("ERR {text}")))?;
        if all.iter().any(|other| other.name == name) {
            return Err(Stop::Error(format!("ERR Library '{}' already exists", name.escape_ascii())));
        }
        all.push(script::load_library(env, name, &code, text)?);
        env.looks.write(code.len())?;
    }
    functions::put(env.tx, &all, policy, |name| format!("ERR Library {name} already exists"))?;
    reply.ok();
    Ok(())
}

fn delete(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    if !functions::delete(c.tx, args.get(2))? {
        return Err("ERR Library not found".into());
    }
    c.reply.ok();
    Ok(())
}

fn flush(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    match args.get(2) {
        _ if args.len() > 3 => return Err(unknown(args)),
        _ if args.len() == 2 => {}
        mode if is(mode, "SYNC") || is(mode, "ASYNC") => {}
        _ => return Err("ERR FUNCTION FLUSH only supports SYNC|ASYNC option".into()),
    }
    functions::flush(c.tx)?;
    c.reply.ok();
    Ok(())
}

fn list(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (mut with_code, mut pattern, mut at) = (false, None, 2);
    while at < args.len() {
        match args.get(at) {
            word if !with_code && is(word, "WITHCODE") => with_code = true,
            word if pattern.is_none() && is(word, "LIBRARYNAME") => {
                at += 1;
                if at == args.len() {
                    return Err("ERR library name argument was not given".into());
                }
                pattern = Some(args.get(at));
            }
            word => return Err(Stop::Error(format!("ERR Unknown argument {}", word.escape_ascii()))),
        }
        at += 1;
    }
    let (mut libraries, all) = (Vec::new(), functions::functions(c.tx)?);
    let pattern = pattern.map(<[u8]>::to_ascii_lowercase);
    let mut bytes = 0;
    functions::each_library(c.tx, |name, code| {
        if pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, &name.to_ascii_lowercase())) {
            bytes += code.len();
            let code = if with_code && bytes <= ALL_MAX { code.to_vec() } else { Vec::new() };
            libraries.push((name.to_vec(), code));
        }
    })?;
    if with_code {
        functions::check_bytes(bytes)?;
    }
    let reply = &mut *c.reply;
    reply.array(libraries.len());
    for (name, code) in &libraries {
        let own: Vec<_> = all.iter().filter(|function| function.library == *name).collect();
        reply.map(if with_code { 4 } else { 3 });
        reply.bulk(b"library_name");
        reply.bulk(name);
        reply.bulk(b"engine");
        reply.bulk(b"LUA");
        reply.bulk(b"functions");
        reply.array(own.len());
        for function in own {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(&function.name);
            reply.bulk(b"description");
            reply.maybe(function.description.as_deref());
            reply.bulk(b"flags");
            let flags = FLAGS.iter().filter(|(_, flag)| function.flags & flag != 0);
            reply.set(flags.clone().count());
            flags.for_each(|(name, _)| reply.simple(name));
        }
        if with_code {
            reply.bulk(b"library_code");
            reply.bulk(code);
        }
    }
    Ok(())
}

fn stats(c: &mut Context<'_>, _: &Arguments<'_>) -> Outcome {
    let ((libraries, _), all) = (functions::count(c.tx)?, functions::functions(c.tx)?.len());
    let reply = &mut *c.reply;
    reply.map(2);
    reply.bulk(b"running_script");
    match c.shared.scripts.function_that_runs() {
        None => reply.null(),
        Some((now, ms)) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(now.name.as_bytes());
            reply.bulk(b"command");
            reply.array(now.command.len());
            now.command.iter().for_each(|word| reply.bulk(word));
            reply.bulk(b"duration_ms");
            reply.int(ms as i64);
        }
    }
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.int(libraries as i64);
    reply.bulk(b"functions_count");
    reply.int(all as i64);
    Ok(())
}

fn dump(c: &mut Context<'_>, _: &Arguments<'_>) -> Outcome {
    functions::check_bytes(functions::count(c.tx)?.1)?;
    let mut codes = Vec::new();
    functions::each_library(c.tx, |_, code| codes.push(code.to_vec()))?;
    c.reply.bulk(&dump::write(codes.iter().map(Vec::as_slice)));
    Ok(())
}
