//! JSON becomes values.

use mlua::{IntoLua, Lua, Value};

use super::super::args::{Answer, Fail};
use super::super::numbers::prefix;
use super::super::state::State;

enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    /// What is wrong.
    Error(&'static str),
}

impl Token {
    fn name(&self) -> &'static str {
        match self {
            Self::ObjectBegin => "T_OBJ_BEGIN",
            Self::ObjectEnd => "T_OBJ_END",
            Self::ArrayBegin => "T_ARR_BEGIN",
            Self::ArrayEnd => "T_ARR_END",
            Self::Text(_) => "T_STRING",
            Self::Number(_) => "T_NUMBER",
            Self::Boolean(_) => "T_BOOLEAN",
            Self::Null => "T_NULL",
            Self::Colon => "T_COLON",
            Self::Comma => "T_COMMA",
            Self::End => "T_END",
            Self::Error(what) => what,
        }
    }
}

struct Decoder<'d> {
    lua: &'d Lua,
    text: &'d [u8],
    at: usize,
    /// Where the last token begins.
    token_at: usize,
    depth: i64,
    depth_max: i64,
    invalid_numbers: bool,
    state: &'d State,
}

pub(super) fn decode(lua: &Lua, text: &[u8], depth_max: i64, invalid_numbers: bool, state: &State) -> Answer<Value> {
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err("JSON parser does not support UTF-16 or UTF-32".into());
    }
    let mut decoder = Decoder { lua, text, at: 0, token_at: 0, depth: 0, depth_max, invalid_numbers, state };
    let token = decoder.next();
    let value = decoder.value(token)?;
    match decoder.next() {
        Token::End => Ok(value),
        other => Err(decoder.unexpected("the end", &other)),
    }
}

impl Decoder<'_> {
    fn unexpected(&self, expected: &str, found: &Token) -> Fail {
        format!("Expected {expected} but found {} at character {}", found.name(), self.token_at + 1).into()
    }

    fn rest(&self) -> &[u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn next(&mut self) -> Token {
        while matches!(self.rest().first(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        self.token_at = self.at;
        let Some(byte) = self.rest().first().copied() else { return Token::End };
        let one = match byte {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b':' => Token::Colon,
            b',' => Token::Comma,
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' => {
                if !self.invalid_numbers && self.is_invalid_number() {
                    return Token::Error("invalid number");
                }
                return self.number();
            }
            0 => return Token::End,
            _ => return self.word(),
        };
        self.at += 1;
        one
    }

    fn word(&mut self) -> Token {
        for (word, token) in [("true", Token::Boolean(true)), ("false", Token::Boolean(false)), ("null", Token::Null)] {
            if self.rest().starts_with(word.as_bytes()) {
                self.at += word.len();
                return token;
            }
        }
        if self.invalid_numbers && self.is_invalid_number() { self.number() } else { Token::Error("invalid token") }
    }

    /// What C reads as a number and JSON does not.
    fn is_invalid_number(&self) -> bool {
        let rest = self.rest();
        match rest.strip_prefix(b"-").unwrap_or(rest) {
            [b'+', ..] => true,
            [b'0', next, ..] => matches!(next, b'x' | b'X' | b'0'..=b'9'),
            [b'0'..=b'9', ..] | [] => false,
            rest => {
                rest.len() >= 3 && (rest[..3].eq_ignore_ascii_case(b"inf") || rest[..3].eq_ignore_ascii_case(b"nan"))
            }
        }
    }

    fn number(&mut self) -> Token {
        match prefix(self.rest()) {
            Some((value, len)) => {
                self.at += len;
                Token::Number(value)
            }
            None => Token::Error("invalid number"),
        }
    }

    fn string(&mut self) -> Token {
        let mut at = self.at + 1;
        let mut text = Vec::new();
        loop {
            let Some(byte) = self.text.get(at).copied() else {
                self.token_at = self.text.len();
                return Token::Error("unexpected end of string");
            };
            at += 1;
            match byte {
                b'"' => break,
                b'\\' => {
                    let escaped = self.text.get(at).copied();
                    let one = match escaped {
                        Some(same @ (b'"' | b'\\' | b'/')) => same,
                        Some(b'b') => 8,
                        Some(b't') => b'\t',
                        Some(b'n') => b'\n',
                        Some(b'f') => 12,
                        Some(b'r') => b'\r',
                        Some(b'u') => match self.unicode(at + 1, &mut text) {
                            Some(next) => {
                                at = next;
                                continue;
                            }
                            None => {
                                self.token_at = at - 1;
                                return Token::Error("invalid unicode escape code");
                            }
                        },
                        _ => {
                            self.token_at = at - 1;
                            return Token::Error("invalid escape code");
                        }
                    };
                    text.push(one);
                    at += 1;
                }
                other => text.push(other),
            }
        }
        self.at = at;
        Token::Text(text)
    }

    fn hex(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 4)?;
        let all = digits.iter().all(u8::is_ascii_hexdigit);
        all.then(|| std::str::from_utf8(digits).ok().and_then(|digits| u32::from_str_radix(digits, 16).ok()))?
    }

    /// The digits at `at`, and the second half of a pair; returns what is behind them.
    fn unicode(&self, at: usize, to: &mut Vec<u8>) -> Option<usize> {
        let (mut point, mut next) = (self.hex(at)?, at + 4);
        if point & 0xf800 == 0xd800 {
            // A second half alone is none.
            if point & 0x400 != 0 || self.text.get(next..next + 2)? != b"\\u" {
                return None;
            }
            let low = self.hex(next + 2)?;
            if low & 0xfc00 != 0xdc00 {
                return None;
            }
            point = ((point & 0x3ff) << 10 | low & 0x3ff) + 0x10000;
            next += 6;
        }
        let mut bytes = [0; 4];
        to.extend_from_slice(char::from_u32(point)?.encode_utf8(&mut bytes).as_bytes());
        Some(next)
    }

    fn value(&mut self, token: Token) -> Answer<Value> {
        self.state.step()?;
        Ok(match token {
            Token::Text(text) => self.lua.create_string(text)?.into_lua(self.lua)?,
            Token::Number(value) => Value::Number(value),
            Token::Boolean(value) => Value::Boolean(value),
            Token::Null => Value::NULL,
            Token::ObjectBegin => self.object()?,
            Token::ArrayBegin => self.array()?,
            other => return Err(self.unexpected("value", &other)),
        })
    }

    fn descend(&mut self) -> Answer<()> {
        self.depth += 1;
        if self.depth <= self.depth_max.min(1000) {
            return Ok(());
        }
        Err(format!("Found too many nested data structures ({}) at character {}", self.depth, self.token_at + 1).into())
    }

    fn object(&mut self) -> Answer<Value> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.next();
        if !matches!(token, Token::ObjectEnd) {
            loop {
                let Token::Text(key) = token else { return Err(self.unexpected("object key string", &token)) };
                match self.next() {
                    Token::Colon => {}
                    other => return Err(self.unexpected("colon", &other)),
                }
                let next = self.next();
                table.raw_set(self.lua.create_string(key)?, self.value(next)?)?;
                match self.next() {
                    Token::ObjectEnd => break,
                    Token::Comma => token = self.next(),
                    other => return Err(self.unexpected("comma or object end", &other)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }

    fn array(&mut self) -> Answer<Value> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.next();
        if !matches!(token, Token::ArrayEnd) {
            for at in 1_i64.. {
                table.raw_set(at, self.value(token)?)?;
                match self.next() {
                    Token::ArrayEnd => break,
                    Token::Comma => token = self.next(),
                    other => return Err(self.unexpected("comma or array end", &other)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }
}
