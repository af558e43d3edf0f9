//! Random scripts and functions: what they answer, and what they leave in the store, is what Redis has.
//!
//! Each round is a whole of its own: both servers are emptied, get the same few keys, and then the same scripts. `CAIRN_SEED` runs one round, `CAIRN_SHOW` shows what is sent.
//! Of a round that differs commands, scripts and statements are taken out, as long as it does.

mod writing;

use super::*;
use writing::{Body, Writer};

/// What is sent in a round.
#[derive(Clone)]
enum Item {
    /// A command that brings something.
    Command(Vec<Vec<u8>>),
    Script(Script),
    /// These between `MULTI` and `EXEC`.
    Multi(Vec<Script>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Eval,
    Sha,
    Function,
}

#[derive(Clone)]
struct Script {
    how: How,
    /// By the command that may not write.
    reads: bool,
    /// The first line, or the flags of a function.
    flags: &'static str,
    body: Body,
    keys: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
}

impl Script {
    fn random(writer: &mut Writer<'_, '_>, random: &mut Random) -> Self {
        let how = [How::Eval, How::Eval, How::Sha, How::Function][random.below(4) as usize];
        let reads = random.below(8) == 0;
        let flags = match random.below(12) {
            0 => "no-writes",
            1 => "allow-oom",
            2 => "nosuch",
            3 => "no-writes,allow-stale",
            4 => "none",
            _ if reads => "no-writes",
            _ => "",
        };
        let body = writer.body();
        Self { how, reads, flags, body, keys: writer.keys.clone(), args: writer.args.clone() }
    }

    fn text(&self) -> String {
        let body = self.body.text();
        let flags = self.flags.replace("none", "");
        if self.how == How::Function {
            let flags = flags.split(',').filter(|flag| !flag.is_empty()).map(|flag| format!("'{flag}'"));
            let flags = flags.collect::<Vec<_>>().join(", ");
            return format!(
                "#!lua name=lib\nredis.register_function{{function_name='f0', flags={{{flags}}}, callback=function(KEYS, ARGV)\n{body}\nend}}"
            );
        }
        match self.flags {
            "" => body,
            _ => format!("#!lua flags={flags}\n{body}"),
        }
    }

    /// What makes it known, if anything does.
    fn known(&self) -> Option<Vec<Vec<u8>>> {
        let words: &[&str] = match self.how {
            How::Eval => return None,
            How::Sha => &["SCRIPT", "LOAD"],
            How::Function => &["FUNCTION", "LOAD", "REPLACE"],
        };
        let words = words.iter().map(|word| word.as_bytes().to_vec());
        Some(words.chain([self.text().into_bytes()]).collect())
    }

    /// What runs it; `known` is what was said when it was made known.
    fn run(&self, known: Option<&Value>) -> Vec<Vec<u8>> {
        let mut name = match self.how {
            How::Eval => "EVAL",
            How::Sha => "EVALSHA",
            How::Function => "FCALL",
        }
        .to_owned();
        if self.reads {
            name += "_RO";
        }
        let what = match (self.how, known) {
            (How::Eval, _) => self.text().into_bytes(),
            (How::Sha, Some(Value::Bulk(sha))) => sha.clone(),
            (How::Sha, _) => "0123456789012345678901234567890123456789".into(),
            (How::Function, _) => "f0".into(),
        };
        let head = [name.into_bytes(), what, self.keys.len().to_string().into_bytes()];
        [&head[..], &self.keys, &self.args].concat()
    }

    fn shown(&self) -> String {
        let run = self.run(None);
        let rest = shown(&run[2..]);
        format!("{} {rest}\n{}\n", String::from_utf8_lossy(&run[0]), self.text())
    }

    /// Shorter by one statement each.
    fn shorter(&self) -> impl Iterator<Item = Self> {
        let count = self.body.len();
        let of = move |number: usize| [false, true].map(|keeps| self.body.without(number, keeps));
        let bodies = (0..count).rev().flat_map(of);
        bodies.map(|body| Self { body, ..self.clone() }).filter(move |script| script.body.len() < count)
    }
}

impl Item {
    fn shown(&self) -> String {
        match self {
            Self::Command(words) => format!("{}\n", shown(words)),
            Self::Script(script) => script.shown(),
            Self::Multi(scripts) => {
                let scripts: String = scripts.iter().map(Script::shown).collect();
                format!("MULTI\n{scripts}EXEC\n")
            }
        }
    }

    fn shorter(&self) -> Vec<Self> {
        match self {
            Self::Command(_) => Vec::new(),
            Self::Script(script) => script.shorter().map(Self::Script).collect(),
            Self::Multi(scripts) => {
                let mut all = vec![];
                for at in 0..scripts.len() {
                    let mut fewer = scripts.clone();
                    fewer.remove(at);
                    all.push(Self::Multi(fewer));
                    all.push(Self::Script(scripts[at].clone()));
                    all.extend(scripts[at].shorter().map(|one| {
                        let mut scripts = scripts.clone();
                        scripts[at] = one;
                        Self::Multi(scripts)
                    }));
                }
                all
            }
        }
    }
}

// ---- comparing ----------------------------------------------------------------------------------------------------

/// Maps and sets have no order.
fn in_order(value: Value) -> Value {
    let Value::Many(kind, values) = value else { return value };
    let mut values: Vec<_> = values.into_iter().map(in_order).collect();
    match kind {
        '~' => values.sort(),
        '%' => {
            let mut pairs: Vec<_> = values.chunks(2).map(<[_]>::to_vec).collect();
            pairs.sort();
            values = pairs.concat();
        }
        _ => {}
    }
    Value::Many(kind, values)
}

/// A reply in a line.
fn told(value: &Value) -> String {
    match value {
        Value::Line(kind, text) => format!("{kind}{text}"),
        Value::Bulk(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        Value::Many(kind, values) => format!("{kind}[{}]", values.iter().map(told).collect::<Vec<_>>().join(", ")),
        Value::Any => "any".to_owned(),
    }
}

/// What was sent, if a server does not answer.
struct Shown<'i>(&'i [Item]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.0.iter().map(Item::shown).collect::<String>());
        }
    }
}

struct Both {
    clients: [Client; 2],
    /// Requests are sent without waiting for answers.
    together: bool,
    scripts: u64,
}

impl Both {
    /// The answers of both.
    fn ask(&mut self, requests: &[Vec<Vec<u8>>]) -> Vec<[Value; 2]> {
        let bytes: Vec<u8> = requests.iter().flat_map(|request| encoded(request)).collect();
        for client in &mut self.clients {
            client.0.get_mut().write_all(&bytes).unwrap();
        }
        requests.iter().map(|_| self.clients.each_mut().map(Client::receive)).collect()
    }

    /// What differs, if anything does.
    fn compared(&mut self, requests: &[Vec<Vec<u8>>]) -> Result<Vec<Value>, String> {
        let mut all = Vec::new();
        let answers = self.ask(requests);
        for (request, [theirs, ours]) in requests.iter().zip(answers) {
            let name = request[0].to_ascii_lowercase();
            let is_script = name.starts_with(b"eval") || name.starts_with(b"fcall") || name == b"exec";
            let [expected, found] = match is_script {
                true => [in_order(theirs.clone()), in_order(ours.clone())],
                false => [&theirs, &ours].map(|value| in_order(normal(request, value.clone()))),
            };
            if expected != found {
                return Err(format!("Redis: {}\nours:  {}", told(&theirs), told(&ours)));
            }
            all.push(theirs);
        }
        Ok(all)
    }

    fn run(&mut self, items: &[Item]) -> Result<(), String> {
        let _shown = Shown(items);
        let empty = ["FLUSHALL", "FUNCTION FLUSH", "SCRIPT FLUSH"].map(request);
        self.ask(&empty);
        let mut later = Vec::new();
        for item in items {
            match item {
                Item::Command(words) => later.push(words.clone()),
                Item::Script(script) => {
                    let run = self.ready(script, &mut later)?;
                    later.push(run);
                }
                Item::Multi(scripts) => {
                    let runs: Result<Vec<_>, String> =
                        scripts.iter().map(|script| self.ready(script, &mut later)).collect();
                    later.push(request("MULTI"));
                    later.extend(runs?);
                    later.push(request("EXEC"));
                }
            }
            if !self.together {
                self.compared(&std::mem::take(&mut later))?;
            }
        }
        self.compared(&later)?;
        self.contents()
    }

    /// Makes it known, and returns what runs it. What is known is always known by then, so another function takes its turn behind what was to be sent.
    fn ready(&mut self, script: &Script, later: &mut Vec<Vec<Vec<u8>>>) -> Result<Vec<Vec<u8>>, String> {
        self.scripts += 1;
        let Some(known) = script.known() else { return Ok(script.run(None)) };
        if script.how == How::Function {
            self.compared(&std::mem::take(later))?;
        }
        // What cannot be loaded is not to leave another one in its place.
        let said = self.compared(&[request("FUNCTION FLUSH"), known])?;
        Ok(script.run(said.last()))
    }

    /// All that is in databases 0 and 1.
    fn contents(&mut self) -> Result<(), String> {
        for db in ["1", "0"] {
            let listed = self.compared(&[request(&format!("SELECT {db}")), request("KEYS *")])?;
            let Some(Value::Many(_, mut keys)) = listed.into_iter().nth(1) else { return Err("KEYS".to_owned()) };
            keys.sort();
            let keys = keys.into_iter().filter_map(|key| if let Value::Bulk(key) = key { Some(key) } else { None });
            let keys: Vec<Vec<u8>> = keys.collect();
            let kinds: Vec<_> = keys.iter().map(|key| vec![b"TYPE".to_vec(), key.clone()]).collect();
            let kinds = self.compared(&kinds)?;
            let mut requests = Vec::new();
            for (key, kind) in keys.iter().zip(kinds) {
                let Value::Line(_, kind) = kind else { return Err("TYPE".to_owned()) };
                let with = |words: &str| {
                    let mut words = request(words);
                    words.insert(1, key.clone());
                    words
                };
                requests.push(with("PEXPIRETIME"));
                match kind.as_str() {
                    "string" => requests.push(with("GET")),
                    "list" => requests.push(with("LRANGE 0 -1")),
                    "set" => requests.push(with("SMEMBERS")),
                    "hash" => requests.push(with("HGETALL")),
                    "zset" => requests.push(with("ZRANGE 0 -1 WITHSCORES")),
                    _ => requests.push(with("XRANGE - +")),
                }
            }
            let answers = self.ask(&requests);
            for (request, [theirs, ours]) in requests.iter().zip(answers) {
                let unordered = matches!(request[0].as_slice(), b"SMEMBERS" | b"HGETALL");
                let [expected, found] = [&theirs, &ours].map(|value| match unordered {
                    true => normal(request, value.clone()),
                    false => value.clone(),
                });
                if expected != found {
                    let (theirs, ours) = (told(&theirs), told(&ours));
                    return Err(format!("in the end, {}\nRedis: {theirs}\nours:  {ours}", shown(request)));
                }
            }
        }
        Ok(())
    }

    /// The fewest commands and statements found with which they differ.
    fn shortest(&mut self, mut items: Vec<Item>, mut differs: String) -> (Vec<Item>, String) {
        // These are no more scripts than there were.
        let scripts = self.scripts;
        loop {
            let before = items.len();
            let mut many = items.len() / 2;
            while many > 0 {
                let mut at = 0;
                while at < items.len() {
                    let mut fewer = items.clone();
                    fewer.drain(at..(at + many).min(items.len()));
                    match self.run(&fewer) {
                        Err(text) => (items, differs) = (fewer, text),
                        Ok(()) => at += many,
                    }
                }
                many /= 2;
            }
            let mut changed = items.len() < before;
            for at in 0..items.len() {
                'one: loop {
                    for shorter in items[at].shorter() {
                        let mut tried = items.clone();
                        tried[at] = shorter;
                        if let Err(text) = self.run(&tried) {
                            (items, differs, changed) = (tried, text, true);
                            continue 'one;
                        }
                    }
                    break;
                }
            }
            if !changed {
                self.scripts = scripts;
                return (items, differs);
            }
        }
    }
}

/// What docs/server.md lists as different is left out: `~`, and ranges by name of members with several scores. Commands that follow each other are no expression.
fn is_for_scripts(pattern: &str) -> bool {
    !(pattern.contains('~') || pattern.contains(" & ") || pattern.contains("LEX") && pattern.contains("%z %x"))
}

fn round(both: &mut Both, seed: u64) -> Vec<Item> {
    let all = [COMMANDS, super::streams::COMMANDS].join("\n");
    let filling = [FILLING, super::streams::FILLING].join("|");
    let mut maker = Maker::of(&filling, &all, is_for_scripts, 8, seed);
    maker.exact = true;
    let mut random = Random(seed ^ 0x5c);
    let mut items = Vec::new();
    for _ in 0..10 {
        items.push(Item::Command(maker.filling()));
    }
    let mut writer = Writer::new(&mut maker);
    for _ in 0..10 {
        let script = Script::random(&mut writer, &mut random);
        match random.below(10) {
            0 => {
                // One function at a time is known.
                let more = (0..random.below(3)).map(|_| Script::random(&mut writer, &mut random));
                let mut scripts = vec![script];
                scripts.extend(more.filter(|script| script.how != How::Function).collect::<Vec<_>>());
                items.push(Item::Multi(scripts));
            }
            _ => items.push(Item::Script(script)),
        }
    }
    both.together = seed.is_multiple_of(4);
    items
}

/// The scripts of rounds, whose seeds begin there.
fn run(store: Store, first: u64, rounds: u64) {
    let dir = tempfile::tempdir().unwrap();
    let _redis = Redis::start(dir.path()).expect("redis-server is not installed; run `make setup`");
    let socket = dir.path().join("ours.sock");
    let config = Config {
        redis: Vec::new(),
        unix: Some(socket.clone()),
        threads: 1,
        settings: settings(first),
        ..Config::default()
    };
    let server = Server::start(config, store.open(dir.path().join("data.cairn"), pmem::Options::new())).unwrap();
    let theirs = dir.path().join("redis.sock");
    let mut pairs = [2, 3].map(|version| Both {
        clients: [&theirs, &socket].map(|socket| Client::new(socket, version)),
        together: false,
        scripts: 0,
    });
    let asked = std::env::var("CAIRN_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let seeds = asked.map_or(first..first + rounds, |seed| seed..seed + 1);
    let mut found = Vec::new();
    for seed in seeds {
        let both = &mut pairs[(seed % 2) as usize];
        let items = round(both, seed);
        if std::env::var("CAIRN_SHOW").is_ok() {
            println!("{}", items.iter().map(Item::shown).collect::<String>());
        }
        if let Err(differs) = both.run(&items) {
            let (items, differs) = both.shortest(items, differs);
            let items: String = items.iter().map(Item::shown).collect();
            found.push(format!("{store:?}, CAIRN_SEED={seed}\n{items}{differs}\n"));
            if found.len() >= 20 {
                break;
            }
        }
    }
    let scripts: u64 = pairs.iter().map(|both| both.scripts).sum();
    assert!(found.is_empty(), "{} of {scripts} scripts differ:\n{}", found.len(), found.join("\n"));
    drop(pairs);
    server.stop();
    server.join().unwrap();
}

#[test]
fn replies_of_random_scripts_are_those_of_redis() {
    run(Store::Kv, 1_000_000, 6 * rounds());
}

#[test]
fn replies_of_random_scripts_on_a_tree_are_those_of_redis() {
    run(Store::Tree, 2_000_000, 6 * rounds());
}
