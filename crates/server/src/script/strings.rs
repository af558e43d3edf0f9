//! The functions of `string` that Lua's own library cannot be interrupted in.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{Function, Lua, LuaString, MultiValue, Table, Value};

use super::args::{Answer, Args, Fail, add, function};
use super::pattern::{Capture, Matcher, Stopped};
use super::state::{MEMORY, State};

const SPECIAL: &[u8] = b"^$*+?.([%-";
const TOO_MANY: &str = "not enough memory";

fn told(stopped: Stopped, state: &State) -> Fail {
    match stopped {
        Stopped::Malformed(text) => Fail::Text(text),
        Stopped::End => Fail::Lua(state.go_on().err().unwrap_or_else(|| mlua::Error::runtime("ended"))),
    }
}

fn value(lua: &Lua, text: &[u8], capture: Capture) -> mlua::Result<Value> {
    Ok(match capture {
        Capture::Position(at) => Value::Number(at as f64),
        Capture::Text(from, to) => Value::String(lua.create_string(&text[from..to])?),
    })
}

fn values(lua: &Lua, text: &[u8], captures: &[Capture]) -> mlua::Result<Vec<Value>> {
    captures.iter().map(|capture| value(lua, text, *capture)).collect()
}

/// Where plain bytes are.
fn plain(text: &[u8], what: &[u8], from: usize, state: &State) -> Answer<Option<usize>> {
    let Some(first) = what.first() else { return Ok(Some(from)) };
    let mut at = from;
    let mut looked = 0;
    while let Some(next) = text.get(at..).and_then(|rest| rest.iter().position(|byte| byte == first)) {
        if text[at + next..].starts_with(what) {
            return Ok(Some(at + next));
        }
        at += next + 1;
        // It may have fitted nearly to its end.
        looked += 1 + what.len() / 64;
        if looked >= 1024 {
            looked = 0;
            state.go_on()?;
        }
    }
    Ok(None)
}

/// `find` and `match`.
fn find(args: &Args<'_>, state: &State, tells_place: bool) -> Answer<MultiValue> {
    let (text, pattern) = (args.string(0)?, args.string(1)?);
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let from = args.int_or(2, 1)?;
    let from = if from < 0 { (from + text.len() as i64 + 1).max(1) } else { from.max(1) };
    // Behind the end is the end.
    let from = (from as usize - 1).min(text.len());
    let none = || Ok(MultiValue::from_iter([Value::Nil]));
    let span = |from: usize, to: usize| [Value::Number((from + 1) as f64), Value::Number(to as f64)];
    let is_plain = !matches!(args.get(3), Value::Nil | Value::Boolean(false));
    if tells_place && (is_plain || !pattern.iter().any(|byte| SPECIAL.contains(byte))) {
        return match plain(&text, &pattern, from, state)? {
            Some(at) => Ok(MultiValue::from_iter(span(at, at + pattern.len()))),
            None => none(),
        };
    }
    let goes_on = || state.go_on().is_ok();
    let mut matcher = Matcher::new(&text, &pattern, &goes_on);
    let found = matcher.find(from, pattern.first() == Some(&b'^')).map_err(|stopped| told(stopped, state))?;
    let Some((start, end)) = found else { return none() };
    let captures = matcher.captured(start, end, !tells_place).map_err(|stopped| told(stopped, state))?;
    let captures = values(args.lua, &text, &captures)?;
    Ok(if tells_place {
        span(start, end).into_iter().chain(captures).collect()
    } else {
        captures.into_iter().collect()
    })
}

/// The function that `gmatch` goes on with.
fn each(args: &Args<'_>, state: &Rc<State>) -> Answer<Function> {
    let (text, pattern) = (args.string(0)?, args.string(1)?);
    let (state, from) = (state.clone(), Cell::new(Some(0)));
    let next = function(args.lua, "gmatch", move |args| {
        let Some(at) = from.get() else { return Ok(MultiValue::new()) };
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let goes_on = || state.go_on().is_ok();
        let mut matcher = Matcher::new(&text, &pattern, &goes_on);
        // There is no anchor in it.
        for start in at..=text.len() {
            if let Some(end) = matcher.at(start, 0).map_err(|stopped| told(stopped, &state))? {
                from.set(Some(end + usize::from(end == start)));
                let captures = matcher.captured(start, end, true).map_err(|stopped| told(stopped, &state))?;
                return Ok(values(args.lua, &text, &captures)?.into_iter().collect());
            }
        }
        from.set(None);
        Ok(MultiValue::new())
    })?;
    Ok(next)
}

/// The next match for `gsub` with a table or a function, as the sandbox wants it.
fn substitute(args: &Args<'_>, state: &State) -> Answer<Table> {
    let (text, pattern) = (args.string(0)?, args.string(1)?);
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let from = args.int_or(2, 0)? as usize;
    let anchored = pattern.first() == Some(&b'^');
    let goes_on = || state.go_on().is_ok();
    let mut matcher = Matcher::new(&text, &pattern, &goes_on);
    let found = matcher.find(from, anchored).map_err(|stopped| told(stopped, state))?;
    let (lua, table) = (args.lua, args.lua.create_table()?);
    let Some((start, end)) = found else {
        let rest = if anchored { from } else { text.len() };
        table.raw_set(1, lua.create_string(&text[from..rest])?)?;
        table.raw_set(2, false)?;
        table.raw_set(3, rest)?;
        table.raw_set(4, "")?;
        table.raw_set(5, true)?;
        return Ok(table);
    };
    // A table is asked for the first one only.
    let captures = match args.get(3) {
        Value::Boolean(true) => matcher.capture(0, start, end).map(|first| vec![first]),
        _ => matcher.captured(start, end, true),
    };
    let captures = captures.map_err(|stopped| told(stopped, state))?;
    // What is empty is passed by with the byte behind it.
    let on = if end == start && !anchored { (end + 1).min(text.len()) } else { end };
    table.raw_set(1, lua.create_string(&text[from..start])?)?;
    table.raw_set(2, lua.create_string(&text[start..end])?)?;
    table.raw_set(3, on)?;
    table.raw_set(4, lua.create_string(&text[end..on])?)?;
    table.raw_set(5, anchored || end == start && on == end)?;
    for (at, one) in values(lua, &text, &captures)?.into_iter().enumerate() {
        table.raw_set(6 + at, one)?;
    }
    Ok(table)
}

/// `gsub` with a text, in which `%1` stands for a capture.
fn gsub(args: &Args<'_>, state: &State) -> Answer<(LuaString, f64)> {
    args.string(0)?;
    args.string(1)?;
    if args.maybe_string(2)?.is_none() {
        return Err(args.wrong(2, "string/function/table expected"));
    }
    let (text, pattern, by) = (args.string(0)?, args.string(1)?, args.string(2)?);
    let (text, pattern, by) = (text.as_bytes(), pattern.as_bytes(), by.as_bytes());
    let most = args.int_or(3, i64::from(i32::MAX))? as i32;
    let anchored = pattern.first() == Some(&b'^');
    let goes_on = || state.go_on().is_ok();
    let mut matcher = Matcher::new(&text, &pattern, &goes_on);
    let (mut made, mut count, mut at) = (Vec::new(), 0, 0);
    while count < most {
        let end = matcher.at(at, usize::from(anchored)).map_err(|stopped| told(stopped, state))?;
        if let Some(end) = end {
            count += 1;
            let capture = |number| matcher.capture(number, at, end).map_err(|stopped| told(stopped, state));
            replace(&mut made, &by, &text, (at, end), &capture)?;
        }
        match end {
            Some(end) if end > at => at = end,
            _ if at < text.len() => {
                made.push(text[at]);
                at += 1;
            }
            _ => break,
        }
        if anchored {
            break;
        }
        if made.len() > MEMORY {
            return Err(TOO_MANY.into());
        }
    }
    made.extend_from_slice(&text[at..]);
    Ok((args.lua.create_string(made)?, count as f64))
}

fn replace(
    made: &mut Vec<u8>,
    by: &[u8],
    text: &[u8],
    whole: (usize, usize),
    capture: &dyn Fn(usize) -> Answer<Capture>,
) -> Answer<()> {
    let mut rest = by.iter();
    while let Some(byte) = rest.next() {
        if *byte != b'%' {
            made.push(*byte);
            continue;
        }
        match rest.next() {
            Some(b'0') => made.extend_from_slice(&text[whole.0..whole.1]),
            Some(digit) if digit.is_ascii_digit() => match capture(usize::from(digit - b'1'))? {
                Capture::Text(from, to) => made.extend_from_slice(&text[from..to]),
                Capture::Position(at) => made.extend_from_slice(at.to_string().as_bytes()),
            },
            Some(other) => made.push(*other),
            None => made.push(0), // as in C, where the text ends so
        }
        if made.len() > MEMORY {
            return Err(TOO_MANY.into());
        }
    }
    Ok(())
}

fn repeat(args: &Args<'_>, state: &State) -> Answer<LuaString> {
    state.go_on()?;
    let (text, count) = (args.string(0)?, args.int(1)? as i32);
    let text = text.as_bytes();
    let count = usize::try_from(count).unwrap_or(0);
    match text.len().checked_mul(count) {
        Some(len) if len <= MEMORY => {
            let count = if text.is_empty() { 0 } else { count };
            Ok(args.lua.create_string(text.repeat(count))?)
        }
        _ => Err(TOO_MANY.into()),
    }
}

/// Adds them to what the sandbox is made of.
pub(super) fn add_to(lua: &Lua, to: &Table, state: &Rc<State>) -> mlua::Result<()> {
    let own = state.clone();
    add(lua, to, "rep", move |args| repeat(args, &own))?;
    let own = state.clone();
    add(lua, to, "find", move |args| find(args, &own, true))?;
    let own = state.clone();
    add(lua, to, "match", move |args| find(args, &own, false))?;
    let own = state.clone();
    add(lua, to, "gmatch", move |args| each(args, &own))?;
    let own = state.clone();
    add(lua, to, "gsub", move |args| gsub(args, &own))?;
    let own = state.clone();
    to.raw_set("substitute", function(lua, "gsub", move |args| substitute(args, &own))?)
}
