//! `COMMAND DOCS` and `COMMAND INFO`: what Redis 7.0 says of the commands that there are here. The summaries, and what it costs to run them, are this server's own.
//!
//! [`docs.txt`](./docs.txt) has it, in order of names. Each line begins with a letter, or with the depth of an argument; its fields end with tabs.
//!
//! ```text
//!   C name group since complexity summary [flags, since when it is deprecated, what replaces it]
//!   I arity flags first,last,step categories
//!   T tips
//!   K flags  i index | w from,word | u  r last,step,limit | n number,first,step | u        where keys begin; which they are
//!   0 name type [!flags] [#key] [=token] [^since] [~deprecated]                            an argument; what it is made of follows, with depth 1
//! ```

use std::sync::LazyLock;

use super::{COMMANDS, Command, KeysAt, Outcome, find, flag};
use crate::reply::Reply;
use crate::request::Arguments;

static DOCS: LazyLock<Vec<Doc>> = LazyLock::new(|| read(include_str!("docs.txt")));

/// Bytes of the longest name that there is.
const LONGEST: usize = 64;

type Text = &'static str;

#[derive(Debug, Default)]
struct Doc {
    name: Text,
    group: Text,
    since: Text,
    complexity: Text,
    summary: Text,
    flags: Vec<Text>,
    /// Since when it is deprecated, and what replaces it.
    deprecated: Option<(Text, Text)>,
    arity: i64,
    info_flags: Vec<Text>,
    keys: Vec<i64>,
    categories: Vec<Text>,
    tips: Vec<Text>,
    specifications: Vec<Specification>,
    arguments: Vec<Argument>,
}

/// Where keys are.
#[derive(Debug)]
struct Specification {
    flags: Vec<Text>,
    begin: Text,
    find: Text,
}

#[derive(Debug, Default)]
struct Argument {
    name: Text,
    kind: Text,
    flags: Vec<Text>,
    key: Option<i64>,
    token: Option<Text>,
    since: Option<Text>,
    deprecated: Option<Text>,
    /// What it is made of.
    parts: Vec<Self>,
}

fn list(text: Text) -> Vec<Text> {
    text.split(',').filter(|word| !word.is_empty()).collect()
}

fn numbers(text: Text) -> Vec<i64> {
    text.split(',').map(|number| number.parse().unwrap_or(0)).collect()
}

impl Argument {
    fn read(line: Text) -> Self {
        let mut fields = line.split('\t');
        let mut one = Self {
            name: fields.next().unwrap_or_default(),
            kind: fields.next().unwrap_or_default(),
            ..Self::default()
        };
        for field in fields {
            let (first, rest) = field.split_at_checked(1).unwrap_or_default();
            match first {
                "!" => {
                    let named = |letter| match letter {
                        '?' => "optional",
                        '*' => "multiple",
                        _ => "multiple_token",
                    };
                    one.flags = rest.chars().map(named).collect();
                }
                "#" => one.key = rest.parse().ok(),
                "=" => one.token = Some(rest),
                "^" => one.since = Some(rest),
                _ => one.deprecated = Some(rest),
            }
        }
        one
    }

    fn write(&self, reply: &mut Reply) {
        let texts = [("token", self.token), ("since", self.since), ("deprecated_since", self.deprecated)];
        let count = texts.iter().filter(|(_, text)| text.is_some()).count();
        let more = [self.key.is_some(), !self.flags.is_empty(), !self.parts.is_empty()];
        reply.map(2 + count + more.into_iter().filter(|there| *there).count());
        text(reply, "name", self.name);
        text(reply, "type", self.kind);
        if let Some(key) = self.key {
            reply.bulk(b"key_spec_index");
            reply.int(key);
        }
        texts.into_iter().for_each(|(name, value)| value.into_iter().for_each(|value| text(reply, name, value)));
        if !self.flags.is_empty() {
            reply.bulk(b"flags");
            words(reply, &self.flags);
        }
        if !self.parts.is_empty() {
            arguments(reply, &self.parts);
        }
    }
}

fn text(reply: &mut Reply, name: &str, value: &str) {
    reply.bulk(name.as_bytes());
    reply.bulk(value.as_bytes());
}

fn words(reply: &mut Reply, words: &[Text]) {
    reply.set(words.len());
    words.iter().for_each(|word| reply.simple(word));
}

fn arguments(reply: &mut Reply, all: &[Argument]) {
    reply.bulk(b"arguments");
    reply.array(all.len());
    all.iter().for_each(|argument| argument.write(reply));
}

/// Behind the last one of that depth.
fn push(all: &mut Vec<Argument>, depth: u32, one: Argument) {
    if depth > 0
        && let Some(last) = all.last_mut()
    {
        return push(&mut last.parts, depth - 1, one);
    }
    all.push(one);
}

fn read(all: Text) -> Vec<Doc> {
    let mut docs: Vec<Doc> = Vec::new();
    for line in all.lines() {
        let (first, rest) = line.split_at_checked(1).unwrap_or_default();
        let mut fields = rest.split('\t');
        let mut next = || fields.next().unwrap_or_default();
        if first == "C" {
            let [name, group, since, complexity, summary] = [(); 5].map(|()| next());
            let (flags, deprecated) = (list(next()), (next(), next()));
            let deprecated = Some(deprecated).filter(|(since, _)| !since.is_empty());
            docs.push(Doc { name, group, since, complexity, summary, flags, deprecated, ..Doc::default() });
            continue;
        }
        let Some(doc) = docs.last_mut() else { continue };
        match first {
            "I" => {
                doc.arity = next().parse().unwrap_or(0);
                (doc.info_flags, doc.keys, doc.categories) = (list(next()), numbers(next()), list(next()));
            }
            "T" => doc.tips = rest.split('\t').collect(),
            "K" => doc.specifications.push(Specification { flags: list(next()), begin: next(), find: next() }),
            depth => push(&mut doc.arguments, depth.parse().unwrap_or(0), Argument::read(rest)),
        }
    }
    docs
}

/// What is known of the command of that name, or of both its names with a bar between them, however they are written.
fn doc(name: &[u8]) -> Option<&'static Doc> {
    let name = name.get(..name.len().min(LONGEST + 1))?.to_ascii_lowercase();
    let at = DOCS.binary_search_by(|doc| doc.name.as_bytes().cmp(&name)).ok()?;
    DOCS.get(at)
}

/// Those of the second names of a command.
fn seconds(name: Text) -> impl Iterator<Item = &'static Doc> {
    let from = DOCS.partition_point(|doc| doc.name <= name);
    let is_second = move |doc: &&Doc| doc.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('|'));
    DOCS.get(from..).unwrap_or_default().iter().filter(is_second).take(64)
}

// ---- DOCS -------------------------------------------------------------------------------------------------------

pub(super) fn docs(args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let found: Vec<&Doc> = match args.len() {
        2 => COMMANDS.iter().filter_map(|command| doc(command.name.as_bytes())).collect(),
        _ => args.from(2).filter_map(doc).collect(),
    };
    write_all(&found, reply)
}

fn write_all(docs: &[&Doc], reply: &mut Reply) -> Outcome {
    reply.map(docs.len());
    for doc in docs {
        // A name may be there very often.
        reply.check_room()?;
        reply.bulk(doc.name.as_bytes());
        write(doc, reply)?;
    }
    Ok(())
}

fn write(doc: &Doc, reply: &mut Reply) -> Outcome {
    let seconds: Vec<&Doc> = seconds(doc.name).collect();
    let more = [!doc.flags.is_empty(), !doc.arguments.is_empty(), !seconds.is_empty()];
    let deprecated = if doc.deprecated.is_some() { 2 } else { 0 };
    reply.map(4 + deprecated + more.into_iter().filter(|there| *there).count());
    text(reply, "summary", doc.summary);
    text(reply, "since", doc.since);
    text(reply, "group", doc.group);
    text(reply, "complexity", doc.complexity);
    if !doc.flags.is_empty() {
        reply.bulk(b"doc_flags");
        words(reply, &doc.flags);
    }
    if let Some((since, by)) = doc.deprecated {
        text(reply, "deprecated_since", since);
        text(reply, "replaced_by", by);
    }
    if !doc.arguments.is_empty() {
        arguments(reply, &doc.arguments);
    }
    if !seconds.is_empty() {
        reply.bulk(b"subcommands");
        write_all(&seconds, reply)?;
    }
    Ok(())
}

// ---- INFO -------------------------------------------------------------------------------------------------------

/// What `COMMAND INFO` says of names: `a`, or `a|b`.
pub(super) fn infos<'n>(names: impl ExactSizeIterator<Item = &'n [u8]>, reply: &mut Reply) -> Outcome {
    reply.array(names.len());
    for name in names {
        reply.check_room()?;
        info(name, reply);
    }
    Ok(())
}

fn info(name: &[u8], reply: &mut Reply) {
    match (find(name), doc(name)) {
        (Some((_, command)), _) => describe(command, reply),
        (None, Some(doc)) => write_info(doc, doc.arity, reply),
        (None, None) => reply.null(),
    }
}

pub(super) fn describe(command: &Command, reply: &mut Reply) {
    match doc(command.name.as_bytes()) {
        Some(doc) => write_info(doc, command.arity.into(), reply),
        None => describe_unknown(command, reply),
    }
}

fn write_info(doc: &Doc, arity: i64, reply: &mut Reply) {
    reply.array(10);
    reply.bulk(doc.name.as_bytes());
    reply.int(arity);
    words(reply, &doc.info_flags);
    (0..3).for_each(|at| reply.int(doc.keys.get(at).copied().unwrap_or(0)));
    categories(reply, doc.categories.iter().copied());
    reply.set(doc.tips.len());
    doc.tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    reply.set(doc.specifications.len());
    doc.specifications.iter().for_each(|one| one.write(reply));
    let seconds: Vec<&Doc> = seconds(doc.name).collect();
    // As Redis has it: none are a set, and some an array.
    if seconds.is_empty() {
        reply.set(0);
    } else {
        reply.array(seconds.len());
    }
    seconds.into_iter().for_each(|second| write_info(second, second.arity, reply));
}

impl Specification {
    fn write(&self, reply: &mut Reply) {
        reply.map(3);
        reply.bulk(b"flags");
        words(reply, &self.flags);
        reply.bulk(b"begin_search");
        reply.map(2);
        match self.begin.split_at_checked(1).unwrap_or_default() {
            ("i", at) => {
                text(reply, "type", "index");
                spec(reply, &[("index", at)]);
            }
            ("w", rest) => {
                let (from, word) = rest.split_once(',').unwrap_or_default();
                text(reply, "type", "keyword");
                reply.bulk(b"spec");
                reply.map(2);
                text(reply, "keyword", word);
                reply.bulk(b"startfrom");
                reply.int(from.parse().unwrap_or(0));
            }
            _ => {
                text(reply, "type", "unknown");
                spec(reply, &[]);
            }
        }
        reply.bulk(b"find_keys");
        reply.map(2);
        let (kind, rest) = self.find.split_at_checked(1).unwrap_or_default();
        let of = |names: [&'static str; 3]| names.into_iter().zip(rest.split(',')).collect::<Vec<_>>();
        let (kind, numbers) = match kind {
            "r" => ("range", of(["lastkey", "keystep", "limit"])),
            "n" => ("keynum", of(["keynumidx", "firstkey", "keystep"])),
            _ => ("unknown", Vec::new()),
        };
        text(reply, "type", kind);
        spec(reply, &numbers);
    }
}

fn spec(reply: &mut Reply, numbers: &[(&str, &str)]) {
    reply.bulk(b"spec");
    reply.map(numbers.len());
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply.int(number.parse().unwrap_or(0));
    }
}

fn categories<'c>(reply: &mut Reply, names: impl ExactSizeIterator<Item = &'c str>) {
    reply.set(names.len());
    names.for_each(|name| reply.simple(&format!("@{name}")));
}

/// What is known here of a command that Redis 7.0 has not.
fn describe_unknown(command: &Command, reply: &mut Reply) {
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.int(command.arity.into());
    let flags: Vec<Text> = [
        ("write", flag::WRITE),
        ("readonly", flag::READ),
        ("fast", flag::FAST),
        ("admin", flag::ADMIN),
        ("blocking", flag::BLOCKING),
        ("no_auth", flag::NO_AUTH),
        ("no_multi", flag::NO_MULTI),
        ("pubsub", flag::PUBSUB),
    ]
    .into_iter()
    .filter_map(|(name, of)| command.is(of).then_some(name))
    .collect();
    words(reply, &flags);
    let (first, last, step) = match command.keys {
        KeysAt::Range(first, last, step) => (first as i64, last.into(), step as i64),
        _ => (0, 0, 0),
    };
    [first, last, step].into_iter().for_each(|number| reply.int(number));
    let speed = if command.is(flag::FAST) { "fast" } else { "slow" };
    let of: Vec<&str> =
        flag::CATEGORIES.iter().filter(|one| one.0 != "fast" && command.is(one.1)).map(|one| one.0).collect();
    categories(reply, [&of[..], &[speed]].concat().into_iter());
    (0..3).for_each(|_| reply.set(0)); // tips, key specifications, subcommands
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Stop;
    use crate::request::Batch;

    /// A name takes a few bytes, and what is said of it thousands.
    #[test]
    fn names_that_are_there_very_often_do_not_make_a_reply_without_end() {
        const MOST: usize = 1 << 20;
        let words = |line: &str| {
            let mut batch = Batch::default();
            batch.push_words(line.split(' ').map(str::as_bytes).chain((0..20_000).map(|_| &b"client"[..])));
            batch
        };
        let told = |outcome: Outcome, reply: &Reply| {
            assert!(matches!(&outcome, Err(Stop::Error(text)) if text.contains("ask for less")), "{outcome:?}");
            // No more than what is said of one.
            assert!((MOST..MOST + (64 << 10)).contains(&reply.len()), "{}", reply.len());
        };
        let mut reply = Reply::up_to(MOST);
        told(docs(&words("COMMAND DOCS").arguments(0, &[]), &mut reply), &reply);
        let mut reply = Reply::up_to(MOST);
        told(infos(vec![&b"client"[..]; 20_000].into_iter(), &mut reply), &reply);
        let mut few = Reply::up_to(MOST);
        assert!(infos(vec![&b"client"[..]; 20].into_iter(), &mut few).is_ok());
    }

    #[test]
    fn all_commands_are_described() {
        assert!(DOCS.windows(2).all(|pair| pair[0].name < pair[1].name));
        for command in COMMANDS.iter().filter(|command| command.name != "sentinel") {
            let described = doc(command.name.to_uppercase().as_bytes());
            assert!(described.is_some(), "{}", command.name);
            let mut named: Vec<String> =
                command.second_names().map(|second| format!("{}|{second}", command.name)).collect();
            named.sort();
            assert_eq!(seconds(command.name).map(|doc| doc.name.to_owned()).collect::<Vec<_>>(), named);
        }
        for doc in DOCS.iter() {
            let all = [doc.name, doc.group, doc.since, doc.complexity, doc.summary];
            assert!(all.iter().all(|text| !text.is_empty()) && doc.arity != 0 && doc.keys.len() == 3, "{doc:?}");
            assert!(!doc.categories.is_empty(), "{}", doc.name);
        }
        assert!(doc(b"").is_none() && doc(b"nosuch").is_none() && doc(b"get|set").is_none());
    }
}
