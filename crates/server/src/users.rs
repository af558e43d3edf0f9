//! Users, as Redis' ACL has them: what they may do, to which keys. Kept in the store, as the rules that make them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::data::META;
use crate::durability::Durability;
use crate::engine::{self, Engine, Keys};
use crate::form::{Catalogue, Form, flag, sort};
use crate::glob;
use crate::outcome::Outcome;
use crate::request::Arguments;
use crate::topic::Of;

const NO_ADMIN: &str = "ERR nobody could change users any more, not even after a restart: let another user who is on, with a password, run +acl first";

const ALL_CHANNELS: &str = "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels";

type Hash = [u8; 32];

/// A user, and what it may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    catalogue: &'static Catalogue,
    pub(crate) name: String,
    pub(crate) on: bool,
    pub(crate) no_password: bool,
    /// SHA-256.
    passwords: Vec<Hash>,
    /// By the number of the command.
    commands: Vec<bool>,
    /// The rules about commands, as they were given.
    rules: Vec<String>,
    keys: Vec<Pattern>,
    all_channels: bool,
    /// Of channels.
    channels: Vec<Vec<u8>>,
    /// What an answer to a write of its connections means, until they ask for another.
    pub(crate) durability: Durability,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    glob: Vec<u8>,
    read: bool,
    write: bool,
}

/// What a user has no right to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied<'b> {
    Command,
    Key(&'b [u8]),
    Channel(&'b [u8]),
}

/// A rule that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadRule(pub(crate) &'static str);

fn hash(password: &[u8]) -> Hash {
    Sha256::digest(password).into()
}

fn hex(hash: &Hash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Hash> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..][..2], 16).ok()?;
    }
    Some(hash)
}

impl User {
    /// May nothing yet, and cannot authenticate.
    pub(crate) fn new(name: &str, catalogue: &'static Catalogue) -> Self {
        Self {
            catalogue,
            name: name.to_owned(),
            on: false,
            no_password: false,
            passwords: Vec::new(),
            commands: vec![false; catalogue.len()],
            rules: vec!["-@all".to_owned()],
            keys: Vec::new(),
            all_channels: false,
            channels: Vec::new(),
            durability: Durability::default(),
        }
    }

    /// May everything, and needs no password.
    fn anybody(catalogue: &'static Catalogue) -> Self {
        let mut user = Self::new("default", catalogue);
        for rule in ["on", "nopass", "allkeys", "allchannels", "allcommands"] {
            user.apply(rule).unwrap_or_else(|_| unreachable!("these are rules"));
        }
        user
    }

    fn knows(&self, password: &[u8]) -> bool {
        let hash = hash(password);
        // All are looked at, however early one fits.
        let fits = self.passwords.iter().fold(0, |fits, known| fits | known.ct_eq(&hash).unwrap_u8());
        self.no_password || fits == 1
    }

    /// One rule, as `ACL SETUSER` takes them.
    pub(crate) fn apply(&mut self, rule: &str) -> Result<(), BadRule> {
        match rule.as_bytes() {
            b"on" => self.on = true,
            b"off" => self.on = false,
            b"nopass" => {
                self.no_password = true;
                self.passwords.clear();
            }
            b"resetpass" => {
                self.no_password = false;
                self.passwords.clear();
            }
            b"allkeys" => return self.apply("~*"),
            b"resetkeys" => self.keys.clear(),
            b"allcommands" => return self.apply("+@all"),
            b"nocommands" => return self.apply("-@all"),
            b"allchannels" => return self.apply("&*"),
            b"resetchannels" => (self.all_channels, self.channels) = (false, Vec::new()),
            b"sanitize-payload" | b"skip-sanitize-payload" | b"clearselectors" => {}
            b"reset" => *self = Self::new(&self.name, self.catalogue),
            [b'd', b'u', b'r', b'a', b'b', b'i', b'l', b'i', b't', b'y', b'=', name @ ..] => {
                self.durability = Durability::named(name).ok_or(BadRule("Durability is bounded, local or quorum"))?;
            }
            [b'>', password @ ..] => self.add_password(hash(password)),
            [b'#', ..] => {
                self.add_password(unhex(&rule[1..]).ok_or(BadRule("the password hash is not 64 hexadecimal digits"))?)
            }
            [b'<', password @ ..] => self.passwords.retain(|known| *known != hash(password)),
            [b'!', ..] => {
                let gone = unhex(&rule[1..]).ok_or(BadRule("the password hash is not 64 hexadecimal digits"))?;
                self.passwords.retain(|known| *known != gone);
            }
            [b'~', glob @ ..] => self.keys.push(Pattern { glob: glob.to_vec(), read: true, write: true }),
            [b'%', ..] => {
                let (which, glob) = rule[1..].split_once('~').ok_or(BadRule("Syntax error"))?;
                let which = which.to_ascii_uppercase();
                let (read, write) = (which.contains('R'), which.contains('W'));
                if !matches!(&which[..], "R" | "W" | "RW" | "WR") {
                    return Err(BadRule("Syntax error"));
                }
                self.keys.push(Pattern { glob: glob.as_bytes().to_vec(), read, write });
            }
            b"&*" => (self.all_channels, self.channels) = (true, Vec::new()),
            [b'&', ..] if self.all_channels => return Err(BadRule(ALL_CHANNELS)),
            [b'&', glob @ ..] if self.channels.iter().any(|known| known == glob) => {}
            [b'&', glob @ ..] => self.channels.push(glob.to_vec()),
            [sign @ (b'+' | b'-'), ..] => self.apply_command(*sign == b'+', rule)?,
            _ => return Err(BadRule("Syntax error")),
        }
        Ok(())
    }

    fn add_password(&mut self, hash: Hash) {
        self.no_password = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
    }

    fn apply_command(&mut self, yes: bool, rule: &str) -> Result<(), BadRule> {
        let what = rule[1..].to_ascii_lowercase();
        if let Some(name) = what.strip_prefix('@') {
            let category = Category::of(name).ok_or(BadRule("Unknown command or category name in ACL"))?;
            for (may, command) in self.commands.iter_mut().zip(self.catalogue.iter()) {
                if category.has(command) {
                    *may = yes;
                }
            }
            if category == Category::All {
                self.rules.clear();
            }
        } else {
            // Of a command with subcommands all may be allowed, or none.
            if yes && what.contains('|') {
                return Err(BadRule("Allowing single subcommands is not supported; allow the command, or none of it"));
            }
            let name = what.split('|').next().unwrap_or(&what);
            let unknown = BadRule("Unknown command or category name in ACL");
            let at = self.catalogue.find(name.as_bytes()).ok_or(unknown)?;
            self.commands[at] = yes;
        }
        let kept = format!("{}{what}", if yes { '+' } else { '-' });
        self.rules.retain(|rule| rule[1..] != kept[1..]);
        self.rules.push(kept);
        Ok(())
    }

    /// Can come in, and change users.
    fn is_admin(&self) -> bool {
        let can_enter = self.on && (self.no_password || !self.passwords.is_empty());
        can_enter && self.catalogue.find(b"acl").is_some_and(|number| self.may_run(number))
    }

    pub(crate) fn may_run(&self, number: usize) -> bool {
        self.commands.get(number).is_some_and(|may| *may)
    }

    /// Why it may not run a command that fits these arguments.
    pub(crate) fn denial<'b>(&self, number: usize, command: &Form, args: &Arguments<'b>) -> Option<Denied<'b>> {
        if !self.may_run(number) && !command.is(flag::NO_AUTH) {
            return Some(Denied::Command);
        }
        if let Some(key) = self.denied_key(command, args) {
            return Some(Denied::Key(key));
        }
        self.denied_channel(command, args).filter(|_| command.is(flag::PUBSUB)).map(Denied::Channel)
    }

    /// The first key that a command must not touch.
    fn denied_key<'b>(&self, command: &Form, args: &Arguments<'b>) -> Option<&'b [u8]> {
        if self.keys.iter().any(|pattern| pattern.glob == b"*" && pattern.read && pattern.write) {
            return None;
        }
        // Any key may be one of those that a pattern leads to.
        let reads_others = matches!(command.name, "sort" | "sort_ro") && sort::reads_others(args);
        if reads_others && !self.keys.iter().any(|pattern| pattern.glob == b"*" && pattern.read) {
            return Some(args.get(1));
        }
        // Most commands that write tell something of what was there, or read other keys.
        let writes = command.is(flag::WRITE | flag::MAY_WRITE);
        let reads = !writes || !tells_nothing(command, args);
        let fits = |key: &[u8]| {
            let may = |p: &Pattern| (p.write || !writes) && (p.read || !reads) && glob::matches(&p.glob, key);
            self.keys.iter().any(may)
        };
        command.keys(args).into_iter().find(|key| !fits(key))
    }

    /// The rules that make this user.
    pub(crate) fn rules(&self) -> String {
        let mut rules = vec![if self.on { "on" } else { "off" }.to_owned()];
        if self.no_password {
            rules.push("nopass".to_owned());
        }
        rules.push("sanitize-payload".to_owned());
        if self.durability != Durability::default() {
            rules.push(format!("durability={}", self.durability.name()));
        }
        rules.extend(self.passwords.iter().map(|hash| format!("#{}", hex(hash))));
        rules.extend(self.patterns().split(' ').filter(|pattern| !pattern.is_empty()).map(str::to_owned));
        if !self.all_channels {
            rules.push("resetchannels".to_owned());
        }
        rules.extend(self.channel_patterns().split(' ').filter(|pattern| !pattern.is_empty()).map(str::to_owned));
        rules.extend(self.rules.iter().cloned());
        rules.join(" ")
    }

    pub(crate) fn channel_patterns(&self) -> String {
        if self.all_channels {
            return "&*".to_owned();
        }
        let one = |glob: &Vec<u8>| format!("&{}", String::from_utf8_lossy(glob));
        self.channels.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    /// Whether it may publish and subscribe there. A pattern must be one of its own.
    pub(crate) fn may_hear(&self, of: Of, name: &[u8]) -> bool {
        let fits = |glob: &Vec<u8>| if of == Of::Pattern { glob == name } else { glob::matches(glob, name) };
        self.all_channels || self.channels.iter().any(fits)
    }

    /// The first channel of a command that it must not use.
    fn denied_channel<'b>(&self, command: &Form, args: &Arguments<'b>) -> Option<&'b [u8]> {
        let (of, count) = match command.name {
            "publish" => (Of::Channel, 1),
            "spublish" => (Of::Shard, 1),
            "subscribe" => (Of::Channel, usize::MAX),
            "psubscribe" => (Of::Pattern, usize::MAX),
            "ssubscribe" => (Of::Shard, usize::MAX),
            _ => return None,
        };
        args.from(1).take(count).find(|name| !self.may_hear(of, name))
    }

    pub(crate) fn patterns(&self) -> String {
        let one = |pattern: &Pattern| {
            let glob = String::from_utf8_lossy(&pattern.glob);
            match (pattern.read, pattern.write) {
                (true, true) => format!("~{glob}"),
                (true, false) => format!("%R~{glob}"),
                _ => format!("%W~{glob}"),
            }
        };
        self.keys.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn command_rules(&self) -> String {
        self.rules.join(" ")
    }

    pub(crate) fn password_hashes(&self) -> Vec<String> {
        self.passwords.iter().map(hex).collect()
    }
}

/// Whether a command that writes does not let the client know what was there.
fn tells_nothing(command: &Form, args: &Arguments<'_>) -> bool {
    const BLIND: [&str; 20] = [
        "del",
        "expire",
        "expireat",
        "hdel",
        "hmset",
        "hset",
        "lpush",
        "mset",
        "msetnx",
        "persist",
        "pexpire",
        "pexpireat",
        "psetex",
        "rpush",
        "sadd",
        "set",
        "setex",
        "setnx",
        "srem",
        "unlink",
    ];
    BLIND.contains(&command.name)
        && !(command.name == "set" && args.from(3).any(|arg| arg.eq_ignore_ascii_case(b"GET")))
}

/// The commands of an ACL category.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Category {
    All,
    Slow,
    Flag(u32),
}

impl Category {
    pub(crate) fn of(name: &str) -> Option<Self> {
        match name {
            "all" => Some(Self::All),
            "slow" => Some(Self::Slow),
            name => flag::CATEGORIES.iter().find(|category| category.0 == name).map(|category| Self::Flag(category.1)),
        }
    }

    pub(crate) fn has(self, command: &Form) -> bool {
        match self {
            Self::All => true,
            Self::Slow => !command.is(flag::FAST),
            // Scripts that may not write are scripts, and no reads, as in Redis: a right to read is none to run them.
            Self::Flag(flag::READ) => command.is(flag::READ) && !command.is(flag::SCRIPTING),
            Self::Flag(flag) => command.is(flag),
        }
    }
}

/// All users.
pub(crate) struct Users {
    catalogue: &'static Catalogue,
    all: RwLock<BTreeMap<String, Arc<User>>>,
    /// Raised with each change: a client that is in with rules of before takes the new ones.
    number: AtomicU64,
    /// The default user's password, by the configuration.
    configured: Option<String>,
}

fn key_of(name: &str) -> Vec<u8> {
    [&[META], &b"user/"[..], name.as_bytes()].concat()
}

impl Users {
    /// Those in the store; `password` is what the default user must know from now on, if it is given.
    pub(crate) fn load(
        engine: &dyn Engine,
        catalogue: &'static Catalogue,
        password: Option<&str>,
    ) -> engine::Result<Self> {
        let mut users = BTreeMap::from([("default".to_owned(), Arc::new(User::anybody(catalogue)))]);
        let mut bad = None;
        engine.read(&mut |tx| {
            tx.scan(Keys::prefix(&key_of("")), &mut |key, rules| {
                let name = String::from_utf8_lossy(&key[key_of("").len()..]).into_owned();
                let mut user = User::new(&name, catalogue);
                let rules = String::from_utf8_lossy(rules);
                // The first rule that this version does not know makes the user one that may do less, so it may not come in.
                if let Err(error) = rules.split(' ').try_for_each(|rule| user.apply(rule)) {
                    bad =
                        Some(format!("the rules of user {name} in the store: {error}; set them anew with ACL SETUSER"));
                    user.on = false;
                }
                users.insert(name, Arc::new(user));
                std::ops::ControlFlow::Continue(())
            })
        })?;
        if let Some(bad) = bad {
            tracing::warn!("{bad}");
        }
        let this = Self {
            catalogue,
            all: RwLock::new(users),
            number: AtomicU64::new(1),
            configured: password.map(str::to_owned),
        };
        if let Some(password) = password {
            this.set_default_password(password);
        }
        Ok(this)
    }

    /// Takes those over that are in the store now.
    pub(crate) fn renew(&self, engine: &dyn Engine) -> engine::Result<()> {
        let found = Self::load(engine, self.catalogue, self.configured.as_deref())?.all.into_inner();
        let mut all = self.all.write();
        let same =
            all.len() == found.len() && all.iter().zip(&found).all(|(a, b)| a.0 == b.0 && a.1.rules() == b.1.rules());
        if !same {
            *all = found;
            self.number.fetch_add(1, SeqCst);
        }
        Ok(())
    }

    /// `requirepass`: an empty one takes it away. Not kept in the store: it comes from the configuration.
    pub(crate) fn set_default_password(&self, password: &str) {
        let mut users = self.all.write();
        let mut user = users.get("default").map_or_else(|| User::anybody(self.catalogue), |user| (**user).clone());
        let rules = if password.is_empty() {
            vec!["nopass".to_owned()]
        } else {
            vec!["resetpass".to_owned(), format!(">{password}")]
        };
        for rule in rules {
            user.apply(&rule).unwrap_or_else(|_| unreachable!("these are rules"));
        }
        users.insert("default".to_owned(), Arc::new(user));
        self.number.fetch_add(1, SeqCst);
    }

    /// Another one after each change.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(SeqCst)
    }

    /// The user of a client that has not authenticated; none if it must do so.
    pub(crate) fn whoever(&self) -> Option<Arc<User>> {
        self.all.read().get("default").filter(|user| user.on && user.no_password).cloned()
    }

    /// The user, if that is its password.
    pub(crate) fn enter(&self, name: &str, password: &[u8]) -> Option<Arc<User>> {
        let user = self.get(name).unwrap_or_else(|| Arc::new(User::new(name, self.catalogue)));
        (user.knows(password) && user.on).then_some(user)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<User>> {
        self.all.read().get(name).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<User>> {
        self.all.read().values().cloned().collect()
    }

    /// Durable when it returns. Refused if no user could change users any more: they are in the store, so no restart would help.
    pub(crate) fn set(&self, engine: &dyn Engine, user: User) -> Outcome {
        let mut users = self.all.write();
        if !user.is_admin() && !users.values().any(|other| other.name != user.name && other.is_admin()) {
            return Err(NO_ADMIN.into());
        }
        engine.write(&mut |tx| tx.put(&key_of(&user.name), user.rules().as_bytes(), None))?;
        users.insert(user.name.clone(), Arc::new(user));
        self.number.fetch_add(1, SeqCst);
        Ok(())
    }

    /// Durable when it returns; true if there was one. Refused as [`set`](Self::set) is.
    pub(crate) fn delete(&self, engine: &dyn Engine, name: &str) -> Outcome<bool> {
        let mut users = self.all.write();
        if users.contains_key(name) && !users.values().any(|other| other.name != name && other.is_admin()) {
            return Err(NO_ADMIN.into());
        }
        engine.write(&mut |tx| tx.delete(&key_of(name)).map(drop))?;
        let gone = users.remove(name).is_some();
        self.number.fetch_add(1, SeqCst);
        Ok(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::COMMANDS;

    fn user(rules: &str) -> User {
        let mut user = User::new("ada", COMMANDS.forms());
        rules.split(' ').for_each(|rule| user.apply(rule).unwrap());
        user
    }

    fn may(user: &User, name: &str) -> bool {
        user.may_run(crate::commands::find(name.as_bytes()).unwrap().0)
    }

    #[test]
    fn rules_make_the_user_they_say() {
        let reader = user("on >secret ~app:* %R~log:* &news:* &sport +@read -keys +ping");
        let hears = |of, name: &str| reader.may_hear(of, name.as_bytes());
        assert!(hears(Of::Channel, "news:1") && hears(Of::Shard, "sport") && !hears(Of::Channel, "sports"));
        assert!(hears(Of::Pattern, "news:*") && !hears(Of::Pattern, "news:1") && !hears(Of::Pattern, "*"));
        assert!(
            user("allchannels").may_hear(Of::Pattern, b"*")
                && !user("&a allchannels resetchannels").may_hear(Of::Channel, b"a")
        );
        assert!(reader.knows(b"secret") && !reader.knows(b"Secret") && !reader.knows(b""));
        assert!(may(&reader, "get") && may(&reader, "PING") && !may(&reader, "set") && !may(&reader, "keys"));
        let again = user(&reader.rules());
        assert_eq!(again, reader);
        assert!(user("on nopass +@all ~*").knows(b"anything"));
        assert_eq!(user(&User::anybody(COMMANDS.forms()).rules()).channel_patterns(), "&*");
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        assert!(User::anybody(COMMANDS.forms()).apply("&a").is_err());
        for rule in ["", "x", "+acl|whoami", "+nothing", "+@nothing", "#12", "%Q~a", "%R"] {
            assert!(User::new("ada", COMMANDS.forms()).apply(rule).is_err(), "{rule}");
        }
    }
}
