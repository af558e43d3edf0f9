//! Commands that are named by two words. Whether there is one, and takes so many arguments, is known before it is queued or run.

use super::{Form, is, shown};
use crate::request::Arguments;

/// The second words of a command, and how many arguments they take with both names; at least as many if negative.
type Parts = &'static [(&'static str, i32)];

const ACL: Parts = &[
    ("cat", -2),
    ("deluser", -3),
    ("dryrun", -4),
    ("genpass", -2),
    ("getuser", 3),
    ("help", 2),
    ("list", 2),
    ("load", 2),
    ("log", -2),
    ("save", 2),
    ("setuser", -3),
    ("users", 2),
    ("whoami", 2),
];
const CLIENT: Parts = &[
    ("caching", 3),
    ("durability", -2),
    ("getname", 2),
    ("getredir", 2),
    ("help", 2),
    ("id", 2),
    ("info", 2),
    ("kill", -3),
    ("list", -2),
    ("no-evict", 3),
    ("no-touch", 3),
    ("pause", -3),
    ("reply", 3),
    ("setinfo", 4),
    ("setname", 3),
    ("tracking", -3),
    ("trackinginfo", 2),
    ("unblock", -3),
    ("unpause", 2),
];
const COMMAND: Parts =
    &[("count", 2), ("docs", -2), ("getkeys", -4), ("getkeysandflags", -4), ("help", 2), ("info", -2), ("list", -2)];
const CONFIG: Parts = &[("get", -3), ("help", 2), ("resetstat", 2), ("rewrite", 2), ("set", -4)];
const FUNCTION: Parts = &[
    ("delete", 3),
    ("dump", 2),
    ("flush", -2),
    ("help", 2),
    ("kill", 2),
    ("list", -2),
    ("load", -3),
    ("restore", -3),
    ("stats", 2),
];
const LATENCY: Parts =
    &[("doctor", 2), ("graph", 3), ("help", 2), ("histogram", -2), ("history", 3), ("latest", 2), ("reset", -2)];
const MEMORY: Parts = &[("doctor", 2), ("help", 2), ("malloc-stats", 2), ("purge", 2), ("stats", 2), ("usage", -3)];
const OBJECT: Parts = &[("encoding", 3), ("freq", 3), ("help", 2), ("idletime", 3), ("refcount", 3)];
const PUBSUB: Parts =
    &[("channels", -2), ("help", 2), ("numpat", 2), ("numsub", -2), ("shardchannels", -2), ("shardnumsub", -2)];
const SCRIPT: Parts = &[("debug", 3), ("exists", -3), ("flush", -2), ("help", 2), ("kill", 2), ("load", 3)];
const SLOWLOG: Parts = &[("get", -2), ("help", 2), ("len", 2), ("reset", 2)];
const XGROUP: Parts =
    &[("create", -5), ("createconsumer", 5), ("delconsumer", 5), ("destroy", 4), ("help", 2), ("setid", -5)];
const XINFO: Parts = &[("consumers", 4), ("groups", 3), ("help", 2), ("stream", -3)];

/// None for a command that has one name. `SENTINEL` says itself what is wrong: its clients send nothing else.
fn of(command: &Form) -> Option<Parts> {
    Some(match command.name {
        "acl" => ACL,
        "client" => CLIENT,
        "command" => COMMAND,
        "config" => CONFIG,
        "function" => FUNCTION,
        "latency" => LATENCY,
        "memory" => MEMORY,
        "object" => OBJECT,
        "pubsub" => PUBSUB,
        "script" => SCRIPT,
        "slowlog" => SLOWLOG,
        "xgroup" => XGROUP,
        "xinfo" => XINFO,
        _ => return None,
    })
}

/// Whether arguments are those of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It takes them. Its second name, if it has one.
    Fits(Option<&'static str>),
    /// There are too few of them, or too many, for the command of this name.
    Count(String),
    /// There is no command of this second name.
    Unknown(String),
}

impl Fit {
    /// What Redis says of what does not fit.
    pub(crate) fn error(&self, command: &Form) -> Option<String> {
        match self {
            Self::Fits(_) => None,
            Self::Count(name) => Some(format!("ERR wrong number of arguments for '{name}' command")),
            Self::Unknown(word) => {
                Some(format!("ERR unknown subcommand '{word}'. Try {} HELP.", command.name.to_ascii_uppercase()))
            }
        }
    }
}

impl Form {
    /// Its second names, if it has two.
    pub(crate) fn second_names(&self) -> impl Iterator<Item = &'static str> {
        of(self).unwrap_or_default().iter().map(|(name, _)| *name)
    }

    /// Which of these a word is, however it is written.
    pub(crate) fn second_at(&self, word: &[u8]) -> Option<usize> {
        of(self)?.iter().position(|(name, _)| is(word, name))
    }

    pub(crate) fn fit(&self, args: &Arguments<'_>) -> Fit {
        let takes = |arity: i32| match usize::try_from(arity) {
            Ok(count) => args.len() == count,
            Err(_) => args.len() >= arity.unsigned_abs() as usize,
        };
        if !takes(self.arity) {
            return Fit::Count(self.name.to_owned());
        }
        let Some(parts) = of(self).filter(|_| args.len() > 1) else { return Fit::Fits(None) };
        let word = args.get(1);
        match parts.iter().find(|(name, _)| is(word, name)) {
            Some((name, arity)) if takes(*arity) => Fit::Fits(Some(name)),
            Some((name, _)) => Fit::Count(format!("{}|{name}", self.name)),
            None => Fit::Unknown(shown(&word[..word.len().min(128)])),
        }
    }
}
