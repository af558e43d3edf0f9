//! Random scripts: statements over locals, of the kinds in `grammar.txt`, with the commands that the differential generator makes.

use std::collections::BTreeMap;

use super::super::Maker;

/// A statement, and what stands in it, so that parts can be left out.
#[derive(Clone, Debug)]
pub enum Statement {
    Line(String),
    Block { head: String, body: Vec<Statement>, tail: String },
}

#[derive(Clone, Debug)]
pub struct Body(pub Vec<Statement>);

/// Functions that a script may use, each of which is put in front of it if its name is there.
const HELPERS: &[(&str, &str)] = &[
    ("O", "local O = {}"),
    ("T", "local T = {1, 'two', 3}"),
    ("N", "local function N(x) if x == nil then return 'nil' end return x end"),
    // A table's length in its place: what is put into tables is no table of before, so that none is within itself.
    ("F", "local function F(x) if type(x) == 'table' then return '#' .. #x end return x end"),
    (
        "U",
        "local function U(x, two) if type(x) ~= 'table' or x.err or x.ok then return x end local r = {} for k, v in pairs(x.map or {}) do r[#r + 1] = k .. '=' .. v end for k in pairs(x.set or {}) do r[#r + 1] = k end for i = 1, #x, two do r[#r + 1] = two == 2 and x[i] .. '=' .. x[i + 1] or x[i] end table.sort(r) return r end",
    ),
    // Settings are a script's own here, and the server's in Redis.
    (
        "cjson",
        "cjson.encode_sparse_array(false, 2, 10) cjson.encode_max_depth(1000) cjson.decode_max_depth(1000) cjson.encode_number_precision(14) cjson.encode_invalid_numbers(false) cjson.decode_invalid_numbers(true)",
    ),
    ("K", "local function K(x) if type(x) == 'table' then return x.err or 'table' end return type(x) end"),
    ("P", "local function P(x) if type(x) == 'number' and x > 0 then return 1 end return x end"),
];

impl Body {
    /// The text, each statement on a line of its own.
    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        write(&self.0, &mut lines);
        let text = lines.join("\n");
        let used = HELPERS.iter().filter(|(name, _)| {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            text.match_indices(name).any(|(at, _)| {
                let (before, behind) = (text[..at].bytes().last(), text[at + name.len()..].bytes().next());
                !before.is_some_and(is_name) && !behind.is_some_and(is_name)
            })
        });
        let helpers: String = used.map(|(_, helper)| format!("{helper}\n")).collect();
        helpers + &text
    }

    /// How many statements there are, those in others included.
    pub fn len(&self) -> usize {
        count(&self.0)
    }

    /// Without the statement of that number; of a block only what is around it goes, if `keeps` says so.
    pub fn without(&self, number: usize, keeps: bool) -> Self {
        let mut at = 0;
        Self(without(&self.0, &mut at, number, keeps))
    }
}

fn write(statements: &[Statement], lines: &mut Vec<String>) {
    for statement in statements {
        match statement {
            Statement::Line(line) => lines.push(line.clone()),
            Statement::Block { head, body, tail } => {
                lines.push(head.clone());
                write(body, lines);
                lines.push(tail.clone());
            }
        }
    }
}

fn count(statements: &[Statement]) -> usize {
    let inner = |statement: &Statement| if let Statement::Block { body, .. } = statement { count(body) } else { 0 };
    statements.iter().map(|statement| 1 + inner(statement)).sum()
}

fn without(statements: &[Statement], at: &mut usize, number: usize, keeps: bool) -> Vec<Statement> {
    let mut left = Vec::new();
    for statement in statements {
        let is_it = *at == number;
        *at += 1;
        match statement {
            Statement::Line(_) if is_it => {}
            Statement::Line(_) => left.push(statement.clone()),
            Statement::Block { head, body, tail } => {
                let body = without(body, at, number, keeps);
                match (is_it, keeps) {
                    (false, _) => left.push(Statement::Block { head: head.clone(), body, tail: tail.clone() }),
                    (true, true) => left.extend(body),
                    (true, false) => {}
                }
            }
        }
    }
    left
}

/// What each kind may be.
struct Grammar(BTreeMap<&'static str, Vec<&'static str>>);

impl Grammar {
    fn read() -> Self {
        let mut kinds: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut kind = "";
        for line in include_str!("grammar.txt").lines() {
            match line.strip_prefix("= ") {
                Some(name) => kind = name,
                None if line.starts_with("# ") => {}
                None => kinds.entry(kind).or_default().push(line),
            }
        }
        Self(kinds)
    }
}

/// Commands for scripts alone: such as may not be there, or change what the connection has. Not `SWAPDB`, which a script that runs long may not use: a busy machine makes any long.
const OTHERS: &str = "PING|PING %v|ECHO %v|ECHO|TIME|SELECT 0|SELECT 1|SELECT 99|SELECT x|PUBLISH c %v|NOSUCH|NOSUCH %v|GET|SET %t|MULTI|EXEC|WATCH %k|BLPOP %l 0|\
SUBSCRIBE c|EVAL x 0|FCALL f0 0|SCRIPT LOAD x|CLIENT ID|CONFIG GET x|OBJECT FREQ|WAIT 0 0|PFADD p0 %f %f|PFMERGE p1 p0|MOVE %k 1|MOVE %k 0|FLUSHDB|\
GEOADD g0 13 38 a 14 39 b|GEOPOS g0 a b c|GEODIST g0 a b|GEOHASH g0 a|RANDOMKEY|OBJECT NOSUCH %k|XINFO|HELLO 3|AUTH x y|RESET|DEBUG SLEEP 0|MONITOR|COMMAND GETKEYS GET x|\
XGROUP CREATE|SORT %l ALPHA|ACL WHOAMI|FUNCTION LIST|LASTSAVE|DISCARD|UNWATCH|ROLE|LATENCY RESET|PUBSUB CHANNELS|PUBSUB NUMSUB c|SPUBLISH c x";

/// Of these some arguments ask for very much, or for sums that only numbers of 80 bits have.
const GREEDY: [&str; 13] = [
    "expire",
    "pexpire",
    "incrbyfloat",
    "hincrbyfloat",
    "setrange",
    "setbit",
    "srandmember",
    "hrandfield",
    "zrandmember",
    "spop",
    "bitfield",
    "restore",
    "flushdb",
];

pub struct Writer<'w, 't> {
    maker: &'w mut Maker<'t>,
    grammar: Grammar,
    pub keys: Vec<Vec<u8>>,
    pub args: Vec<Vec<u8>>,
    /// Locals that are in sight, and what they mostly are.
    scope: Vec<(String, char)>,
    named: usize,
    /// Loops and functions around.
    within: usize,
}

fn quoted(word: &[u8]) -> String {
    let escape = |byte: &u8| match byte {
        b'\'' | b'\\' => format!("\\{}", *byte as char),
        32..=126 => (*byte as char).to_string(),
        other => format!("\\{other:03}"),
    };
    format!("'{}'", word.iter().map(escape).collect::<String>())
}

impl<'w, 't> Writer<'w, 't> {
    pub fn new(maker: &'w mut Maker<'t>) -> Self {
        Self {
            maker,
            grammar: Grammar::read(),
            keys: Vec::new(),
            args: Vec::new(),
            scope: Vec::new(),
            named: 0,
            within: 0,
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.maker.random.below(n)
    }

    /// A script's body. What it is given is in `keys` and `args` then.
    pub fn body(&mut self) -> Body {
        (self.keys, self.args, self.scope, self.named, self.within) = Default::default();
        for _ in 0..self.below(3) {
            let key = self.maker.key('k').into_bytes();
            self.keys.push(key);
        }
        for _ in 0..self.below(4) {
            let kind = ['v', 'f', 'i', 'd'][self.below(4) as usize];
            let arg = self.maker.argument(kind).into_bytes();
            self.args.push(arg);
        }
        let most = [3, 6, 12, 20][self.below(4) as usize];
        let mut body = self.statements(1 + most, 3);
        let end = match self.below(20) {
            0..=11 => "return O".to_owned(),
            12..=13 => self.filled("return @e", 3),
            14..=15 => self.filled("return @t", 3),
            16..=17 => self.filled("return {O, @e, @e}", 2),
            18 => self.filled("return @c", 2),
            _ => "".to_owned(),
        };
        body.push(Statement::Line(end));
        Body(body)
    }

    // ---- expressions ----------------------------------------------------------------------------------------------

    fn of_kind(&mut self, kind: &str) -> &'static str {
        let count = self.grammar.0[kind].len() as u64;
        let at = self.below(count) as usize;
        self.grammar.0[kind][at]
    }

    fn local(&mut self, kind: char) -> Option<String> {
        let of: Vec<usize> = (0..self.scope.len()).filter(|at| self.scope[*at].1 == kind).collect();
        if of.is_empty() {
            return None;
        }
        let at = of[self.below(of.len() as u64) as usize];
        Some(self.scope[at].0.clone())
    }

    /// The text with something in place of each `@`.
    fn filled(&mut self, text: &str, depth: usize) -> String {
        let (mut made, mut rest) = (String::new(), text);
        while let Some(at) = rest.find('@') {
            made += &rest[..at];
            let behind = &rest[at + 1..];
            if let Some(words) = behind.strip_prefix('(') {
                let end = words.find(')').unwrap();
                made += self.maker.random.one(&words[..end]);
                rest = &words[end + 1..];
            } else {
                let kind = behind.chars().next().unwrap();
                made += &self.part(kind, depth);
                rest = &behind[kind.len_utf8()..];
            }
        }
        made + rest
    }

    fn part(&mut self, kind: char, depth: usize) -> String {
        match kind {
            'k' => self.maker.random.one("1|2|3").to_owned(),
            'T' => self.local('t').unwrap_or_else(|| "T".to_owned()),
            'c' => self.command(depth.saturating_sub(1)),
            'd' => match self.local('f') {
                Some(name) if self.within == 0 => self.filled(&format!("{name}(@a, @a)"), depth.saturating_sub(1)),
                _ => self.part('a', depth),
            },
            'x' => match self.local('r') {
                Some(name) => format!("F({name})"),
                None => self.part('s', depth),
            },
            'n' | 's' | 't' | 'b' => self.typed(kind, depth),
            'a' | 'e' if depth == 0 => {
                let kind = ['n', 's', 'b'][self.below(3) as usize];
                self.typed(kind, 0)
            }
            other => {
                let line = self.of_kind(&other.to_string());
                self.filled(line, depth.saturating_sub(1))
            }
        }
    }

    fn typed(&mut self, kind: char, depth: usize) -> String {
        // Of another kind now and then.
        let kind = if kind != 't' && self.below(60) == 0 { ['n', 's', 'b'][self.below(3) as usize] } else { kind };
        if self.below(5) < 2
            && let Some(name) = self.local(kind)
        {
            return name;
        }
        if depth == 0 || self.below(10) < 4 {
            let line = self.of_kind(&format!("{kind}0"));
            return self.filled(line, 0);
        }
        let line = self.of_kind(&kind.to_string());
        self.filled(line, depth - 1)
    }

    /// A word of a command, as the script has it.
    fn word(&mut self, word: &[u8], may_be_more: bool, depth: usize) -> String {
        if let Some(at) = self.keys.iter().position(|key| key == word)
            && self.below(3) > 0
        {
            return format!("KEYS[{}]", at + 1);
        }
        match self.below(100) {
            0..20 if self.args.len() < 12 => {
                self.args.push(word.to_vec());
                format!("ARGV[{}]", self.args.len())
            }
            20..28 if std::str::from_utf8(word).is_ok_and(|word| word.parse::<i32>().is_ok()) => {
                // `+1` is none of Lua's.
                String::from_utf8_lossy(word).trim_start_matches('+').to_owned()
            }
            28..34 if may_be_more => self.part('a', depth),
            34..38 if may_be_more => self.part('x', depth),
            _ => quoted(word),
        }
    }

    /// A command, so that what it answers does not depend on what need not be the same.
    fn command(&mut self, depth: usize) -> String {
        let words = match self.below(12) {
            0 => {
                let pattern = self.maker.random.one(OTHERS).to_owned();
                let mut words = Vec::new();
                self.maker.fill(&pattern.split(' ').collect::<Vec<_>>(), &mut words);
                words
            }
            _ => self.maker.command(),
        };
        let name = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
        // Numbers of sorted sets have other digits here where a double has few.
        let may_be_more = !GREEDY.contains(&name.as_str()) && !name.starts_with('z');
        let mut all = vec![quoted(&words[0])];
        for word in &words[1..] {
            all.push(self.word(word, may_be_more, depth));
        }
        let by = self.maker.random.one("call|call|pcall|pcall|pcall");
        let call = format!("redis.{by}({})", all.join(", "));
        match name.as_str() {
            "smembers" | "sinter" | "sunion" | "sdiff" | "hkeys" | "hvals" | "keys" => format!("U({call}, 1)"),
            "hgetall" => format!("U({call}, 2)"),
            // They have popped different ones.
            "spop" => {
                let key = all.get(1).cloned().unwrap_or_else(|| "'s0'".to_owned());
                format!("K((function() local x = {call} redis.pcall('del', {key}) return x end)())")
            }
            "srandmember" | "hrandfield" | "zrandmember" | "randomkey" | "dump" | "xpending" | "xinfo" | "time"
            | "lastsave" | "role" | "xclaim" | "xautoclaim" => format!("K({call})"),
            "ttl" | "pttl" => format!("P({call})"),
            _ => call,
        }
    }

    // ---- statements -----------------------------------------------------------------------------------------------

    fn declared(&mut self, kind: char) -> String {
        self.named += 1;
        let name = format!("v{}", self.named);
        self.scope.push((name.clone(), kind));
        name
    }

    fn statements(&mut self, most: u64, blocks: usize) -> Vec<Statement> {
        let (outside, mut all) = (self.scope.len(), Vec::new());
        for _ in 0..1 + self.below(most) {
            self.statement(blocks, &mut all);
        }
        self.scope.truncate(outside);
        all
    }

    fn statement(&mut self, blocks: usize, all: &mut Vec<Statement>) {
        match self.below(100) {
            0..28 => {
                let command = self.command(2);
                let name = self.declared('r');
                all.push(Statement::Line(format!("local {name} = {command}")));
                if self.below(3) > 0 {
                    all.push(Statement::Line(format!("O[#O + 1] = N({name})")));
                }
            }
            28..43 => {
                let kind = ['n', 's', 's', 't', 'b'][self.below(5) as usize];
                let value = self.part(kind, 3);
                let name = self.declared(kind);
                all.push(Statement::Line(format!("local {name} = {value}")));
            }
            43..48 => {
                let kind = ['n', 's', 't', 'b'][self.below(4) as usize];
                if let Some(name) = self.local(kind) {
                    let value = match kind {
                        's' => format!("string.sub({}, 1, 60)", self.part('s', 3)),
                        't' => self.part('t', 2),
                        kind => self.part(kind, 3),
                    };
                    all.push(Statement::Line(format!("{name} = {value}")));
                }
            }
            48..68 => {
                let line = self.of_kind("o");
                let line = self.filled(line, 2);
                all.push(Statement::Line(format!("O[#O + 1] = {line}")));
            }
            68..76 => {
                let line = self.of_kind("u");
                let line = self.filled(line, 2);
                all.push(Statement::Line(line));
            }
            76..93 if blocks > 0 => {
                let block = self.block(blocks - 1);
                all.push(block);
            }
            93..97 => {
                let line = self.of_kind("w");
                let line = self.filled(line, 2);
                let when = self.part('b', 2);
                all.push(Statement::Line(format!("if {when} then {line} end")));
            }
            _ => {
                let line = self.of_kind("z");
                let line = self.filled(line, 2);
                // Most of them go wrong.
                let line = if self.below(3) > 0 { format!("pcall(function() {line} end)") } else { line };
                all.push(Statement::Line(line));
            }
        }
    }

    fn block(&mut self, blocks: usize) -> Statement {
        let outside = self.scope.len();
        let block = |writer: &mut Self, head: String, tail: &str| {
            let body = writer.statements(4, blocks);
            Statement::Block { head, body, tail: tail.to_owned() }
        };
        let made = match self.below(9) {
            0 => {
                let head = self.filled("if @b then", 3);
                block(self, head, "end")
            }
            1 => {
                let head = self.filled("if @b then", 3);
                let mut body = self.statements(3, blocks);
                let other = ["else".to_owned(), self.filled("elseif @b then", 2)];
                body.push(Statement::Line(other[self.below(2) as usize].clone()));
                body.extend(self.statements(3, blocks));
                Statement::Block { head, body, tail: "end".to_owned() }
            }
            2 => {
                let head = self.filled("= @k, @(1|2|3), @(1|1|1|2|-1) do", 0);
                let name = self.declared('n');
                block(self, format!("for {name} {head}"), "end")
            }
            3 => {
                let table = match self.local('r') {
                    Some(name) if self.below(2) == 0 => format!("type({name}) == 'table' and {name} or {{}}"),
                    _ => self.part('t', 2),
                };
                let (index, value) = (self.declared('n'), self.declared('r'));
                block(self, format!("for {index}, {value} in ipairs({table}) do if {index} > 4 then break end"), "end")
            }
            4 => {
                let table = self.part('t', 2);
                let (key, value) = (self.declared('r'), self.declared('r'));
                // It may add to what it goes through.
                let head = format!(
                    "local c{key} = 0 for {key}, {value} in pairs({table}) do c{key} = c{key} + 1 if c{key} > 5 then break end"
                );
                block(self, head, "end")
            }
            // A counter is not for the script to change: each loop ends.
            5 => {
                let (condition, name) = (self.part('b', 2), self.declared('n'));
                block(
                    self,
                    format!(
                        "local c{name} = 0 while c{name} < 3 do c{name} = c{name} + 1 local {name} = c{name} if {condition} then break end"
                    ),
                    "end",
                )
            }
            6 => {
                let (condition, name) = (self.part('b', 2), self.declared('n'));
                let tail = format!("until c{name} > 2 or {condition}");
                block(self, format!("local c{name} = 0 repeat c{name} = c{name} + 1 local {name} = c{name}"), &tail)
            }
            7 if self.within == 0 && blocks > 0 => {
                // No loop within calls it.
                self.within += 1;
                let (one, other) = (self.declared('s'), self.declared('n'));
                let mut body = self.statements(4, 1);
                let end = self.filled("return @e", 2);
                body.push(Statement::Line(end));
                self.within -= 1;
                self.scope.truncate(outside);
                let name = self.declared('f');
                return Statement::Block {
                    head: format!("local function {name}({one}, {other})"),
                    body,
                    tail: "end".to_owned(),
                };
            }
            _ => {
                let (ok, error) = (self.named + 1, self.named + 2);
                self.named += 2;
                let mut body = self.statements(4, blocks);
                if self.below(2) == 0 {
                    let end = self.filled("return @e", 2);
                    body.push(Statement::Line(end));
                }
                let head = format!("local v{ok}, v{error} = pcall(function()");
                self.scope.push((format!("v{ok}"), 'b'));
                self.scope.push((format!("v{error}"), 'r'));
                return Statement::Block { head, body, tail: format!("end) O[#O + 1] = {{v{ok}, v{error}}}") };
            }
        };
        self.scope.truncate(outside);
        made
    }
}
