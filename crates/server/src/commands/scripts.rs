//! Scripts; [`script`](crate::script) runs them.

use super::flag::{MAY_WRITE, READ, SCRIPTING};
use super::{Command, Form, KeysAt, Outcome, Run, is, session};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::script::{self, How};
use crate::session::Session;

const KEYS: KeysAt = KeysAt::Counted(2);

macro_rules! eval {
    ($name:literal, $flags:expr, $by_sha:literal, $read_only:literal) => {
        Command {
            form: Form { name: $name, arity: -3, flags: SCRIPTING | $flags, keys: KEYS },
            run: Run::Script(|env, args, reply| {
                script::eval(env, args, reply, How { by_sha: $by_sha, read_only: $read_only })
            }),
        }
    };
}

pub(super) const COMMANDS: &[Command] = &[
    eval!("eval", MAY_WRITE, false, false),
    eval!("eval_ro", READ, false, true),
    eval!("evalsha", MAY_WRITE, true, false),
    eval!("evalsha_ro", READ, true, true),
    session("script", -2, SCRIPTING, script),
];

/// As Redis has it.
const HELP: [&str; 17] = [
    "SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DEBUG (YES|SYNC|NO)",
    "    Set the debug mode for subsequent scripts executed.",
    "EXISTS <sha1> [<sha1> ...]",
    "    Return information about the existence of the scripts in the script cache.",
    "FLUSH [ASYNC|SYNC]",
    "    Flush the Lua scripts cache. Very dangerous on replicas.",
    "    When called without the optional mode argument, the behavior is determined by the",
    "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
    "    * ASYNC: Asynchronously flush the scripts cache.",
    "    * SYNC: Synchronously flush the scripts cache.",
    "KILL",
    "    Kill the currently executing Lua script.",
    "LOAD <script>",
    "    Load a script into the scripts cache without executing it.",
    "HELP",
    "    Prints this help.",
];

fn script(s: &mut Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let scripts = &s.shared.scripts;
    let what = args.get(1);
    match args.len() {
        3 if is(what, "LOAD") => reply.bulk(script::load(scripts, args.get(2))?.as_bytes()),
        3.. if is(what, "EXISTS") => {
            reply.array(args.len() - 2);
            args.from(2).for_each(|sha| reply.int(scripts.has(sha).into()));
        }
        2.. if is(what, "FLUSH") => {
            let is_mode = args.len() == 3 && (is(args.get(2), "ASYNC") || is(args.get(2), "SYNC"));
            if args.len() > 2 && !is_mode {
                return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into());
            }
            scripts.flush();
            reply.ok();
        }
        2 if is(what, "KILL") => {
            scripts.kill(false)?;
            reply.ok();
        }
        2 if is(what, "HELP") => {
            reply.array(HELP.len());
            HELP.iter().for_each(|line| reply.simple(line));
        }
        3 if is(what, "DEBUG") => return Err("ERR there is no debugger for scripts here".into()),
        _ => {
            let what = what.escape_ascii();
            return Err(format!("ERR unknown subcommand '{what}'. Try SCRIPT HELP.").into());
        }
    }
    Ok(())
}
