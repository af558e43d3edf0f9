//! Forms of commands: what they are called, how many arguments they take, which of these are keys, and what they are like.

mod parts;
pub(crate) mod sort;
pub(crate) mod streams;

pub(crate) use self::parts::Fit;
use crate::request::{Arguments, number};

/// The version of Redis whose commands these are.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

/// What a command is called, how many arguments it takes, and what it may touch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// In small letters.
    pub(crate) name: &'static str,
    /// Arguments with the name; at least as many if negative.
    pub(crate) arity: i32,
    /// Of the constants of [`flag`].
    pub(crate) flags: u32,
    pub(crate) keys: KeysAt,
}

/// Which arguments are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeysAt {
    None,
    /// The first, the last (from the end if negative), and the step between them.
    Range(usize, i32, usize),
    /// This argument says how many follow.
    Counted(usize),
    /// The same, and the argument before is one, too.
    Stored(usize),
    /// The first half of what stands behind `STREAMS`.
    Streams,
    /// The first argument; and what stands behind the last of these words, from this argument on.
    Behind(usize, &'static [&'static str]),
}

/// What Redis says of `DEBUG` unless its configuration allows it: to each client, whatever its rights.
pub(crate) const DEBUG_REFUSED: &str = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local connection, otherwise you need to set this option in the configuration file, and then restart the server.";

/// One key, the first argument.
pub(crate) const ONE: KeysAt = KeysAt::Range(1, 1, 1);
/// All arguments are keys.
pub(crate) const MANY: KeysAt = KeysAt::Range(1, -1, 1);

/// What commands are like, as `COMMAND` and ACL categories say.
pub(crate) mod flag {
    pub(crate) const WRITE: u32 = 1 << 0;
    pub(crate) const READ: u32 = 1 << 1;
    pub(crate) const FAST: u32 = 1 << 2;
    pub(crate) const ADMIN: u32 = 1 << 3;
    pub(crate) const DANGEROUS: u32 = 1 << 4;
    pub(crate) const KEYSPACE: u32 = 1 << 5;
    pub(crate) const STRING: u32 = 1 << 6;
    pub(crate) const HASH: u32 = 1 << 7;
    pub(crate) const LIST: u32 = 1 << 8;
    pub(crate) const SET: u32 = 1 << 9;
    pub(crate) const SORTED: u32 = 1 << 10;
    pub(crate) const CONNECTION: u32 = 1 << 11;
    pub(crate) const TRANSACTION: u32 = 1 << 12;
    pub(crate) const BITMAP: u32 = 1 << 13;
    pub(crate) const BLOCKING: u32 = 1 << 14;
    /// Of a client that has not authenticated, too.
    pub(crate) const NO_AUTH: u32 = 1 << 15;
    /// Not between `MULTI` and `EXEC`.
    pub(crate) const NO_MULTI: u32 = 1 << 16;
    /// At once, and not queued, between `MULTI` and `EXEC`.
    pub(crate) const NOW: u32 = 1 << 17;
    pub(crate) const PUBSUB: u32 = 1 << 18;
    /// Its answer is pushed: `CLIENT REPLY` does not keep it back.
    pub(crate) const SUBSCRIBES: u32 = 1 << 19;
    /// Of a subscriber, with version 2 of the protocol, too.
    pub(crate) const HEARING: u32 = 1 << 20;

    pub(crate) const SCRIPTING: u32 = 1 << 21;
    /// What it runs may write.
    pub(crate) const MAY_WRITE: u32 = 1 << 22;
    pub(crate) const STREAM: u32 = 1 << 23;
    pub(crate) const GEO: u32 = 1 << 24;
    pub(crate) const HYPERLOGLOG: u32 = 1 << 25;

    /// Names of ACL categories. `slow` is what is not `fast`.
    pub(crate) const CATEGORIES: [(&str, u32); 20] = [
        ("write", WRITE),
        ("read", READ),
        ("fast", FAST),
        ("admin", ADMIN),
        ("dangerous", DANGEROUS),
        ("keyspace", KEYSPACE),
        ("string", STRING),
        ("hash", HASH),
        ("list", LIST),
        ("set", SET),
        ("sortedset", SORTED),
        ("connection", CONNECTION),
        ("transaction", TRANSACTION),
        ("bitmap", BITMAP),
        ("blocking", BLOCKING),
        ("pubsub", PUBSUB),
        ("scripting", SCRIPTING),
        ("stream", STREAM),
        ("geo", GEO),
        ("hyperloglog", HYPERLOGLOG),
    ];
}

impl Form {
    pub(crate) fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// The keys among its arguments.
    pub(crate) fn keys<'b>(&self, args: &Arguments<'b>) -> Vec<&'b [u8]> {
        match self.keys {
            KeysAt::None => Vec::new(),
            KeysAt::Range(first, last, step) => {
                let end = if last < 0 {
                    args.len().saturating_sub(last.unsigned_abs() as usize - 1)
                } else {
                    last as usize + 1
                };
                (first..end.min(args.len())).step_by(step).map(|at| args.get(at)).collect()
            }
            KeysAt::Counted(at) | KeysAt::Stored(at) => {
                let count = number(args.get(at)).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
                let before = matches!(self.keys, KeysAt::Stored(_)).then(|| args.get(at - 1));
                before.into_iter().chain(args.from(at + 1).take(count)).collect()
            }
            KeysAt::Streams => streams::keys(args),
            KeysAt::Behind(from, words) => {
                let is_one = |at: &usize| words.iter().any(|word| is(args.get(*at), word));
                let behind = (from..args.len().saturating_sub(1)).rfind(is_one).map(|at| args.get(at + 1));
                args.from(1).take(1).chain(behind).collect()
            }
        }
    }
}

/// The forms of all commands, in order of their names: a command's number is its place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Catalogue {
    forms: Vec<&'static Form>,
    /// Of each: where the times of its second names begin, behind those of all commands.
    seconds: Vec<usize>,
    times: usize,
}

impl Catalogue {
    /// Of forms in order of their names.
    pub(crate) fn new(forms: impl Iterator<Item = &'static Form>) -> Self {
        let forms: Vec<_> = forms.collect();
        let (mut seconds, mut times) = (Vec::new(), forms.len());
        for form in &forms {
            seconds.push(times);
            times += form.second_names().count();
        }
        Self { forms, seconds, times }
    }

    /// Commands and second names, each of which has [times](Self::time_of) of its own.
    pub(crate) fn times(&self) -> usize {
        self.times
    }

    /// The number of the times of a request, of the command of that number.
    pub(crate) fn time_of(&self, number: usize, args: &Arguments<'_>) -> usize {
        let second = self.get(number).filter(|_| args.len() > 1).and_then(|form| form.second_at(args.get(1)));
        second.and_then(|second| Some(self.seconds.get(number)? + second)).unwrap_or(number)
    }

    /// The names of all that have been given two of them, of a command, and the numbers of their times.
    pub(crate) fn times_of_seconds(&self, number: usize) -> impl Iterator<Item = (String, usize)> {
        let (form, from) = (self.get(number), self.seconds.get(number).copied().unwrap_or(0));
        let named = |form: &'static Form| form.second_names().map(|second| format!("{}|{second}", form.name));
        form.into_iter().flat_map(named).zip(from..)
    }

    pub(crate) fn len(&self) -> usize {
        self.forms.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static Form> {
        self.forms.iter().copied()
    }

    pub(crate) fn get(&self, number: usize) -> Option<&'static Form> {
        self.forms.get(number).copied()
    }

    /// The number of the command of that name, however it is written.
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        let mut lower = [0; 20];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.forms.binary_search_by(|form| form.name.as_bytes().cmp(lower)).ok()
    }
}

/// Whether `word` is `name`, however it is written.
pub(crate) fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// A name as an error shows it: what C takes for text.
pub(crate) fn shown(name: &[u8]) -> String {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}
