//! Functions: libraries of Lua that are data. They lie in the store beside the databases, change in transactions as everything else does, and are what `FCALL` of any later
//! transaction finds; nothing of them is kept elsewhere, so a start, a follower that comes to lead, and a transaction that is run again need nothing.
//!
//! ```text
//!   META, "library/", name                    1, code                                                     a library
//!   META, "function/", name in small letters  1, flags (1), SHA-1 of the code (20), lengths of
//!                                             the two names (4 each), library, name, description          a function
//! ```
//!
//! A change of a library writes each of its functions anew, so a transaction that calls one and reads its pair alone conflicts with that change.

pub(crate) mod dump;
mod header;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use tx::Keys;

pub(crate) use self::header::library_of;
use crate::data::META;
use crate::engine::{Error, Result, Tx};
use crate::outcome::{Outcome, Stop};
use crate::sha::Sha;

/// Bytes of a library, and of all that is loaded at one time.
pub(crate) const LIBRARY_MAX: usize = 16 << 20;
pub(crate) const ALL_MAX: usize = 256 << 20;
/// Bytes of a name: with what stands before it a key of any store.
const NAME_MAX: usize = 1024;

const VERSION: u8 = 1;
const LIBRARY: &[u8] = b"library/";
const FUNCTION: &[u8] = b"function/";

pub(crate) const BAD_NAME: &str =
    "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long";

/// What a function may do, as its library says: a bit each.
pub(crate) const FLAGS: [(&str, u8); 5] = [
    ("no-writes", NO_WRITES),
    ("allow-oom", 1 << 1),
    ("allow-stale", 1 << 2),
    ("no-cluster", 1 << 3),
    ("allow-cross-slot-keys", 1 << 4),
];
pub(crate) const NO_WRITES: u8 = 1 << 0;

/// A function, without its code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: Vec<u8>,
    pub(crate) library: Vec<u8>,
    /// Of the library's code.
    pub(crate) sha: Sha,
    pub(crate) flags: u8,
    pub(crate) description: Option<Vec<u8>>,
}

/// A library that was loaded, and is to be put into the store.
pub(crate) struct Loaded {
    pub(crate) name: Vec<u8>,
    pub(crate) code: Vec<u8>,
    pub(crate) functions: Vec<Function>,
}

/// Whether it is one of a library or a function.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= NAME_MAX && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

fn library_key(name: &[u8]) -> Vec<u8> {
    [&[META], LIBRARY, name].concat()
}

/// Functions are found however their names are written.
fn function_key(name: &[u8]) -> Vec<u8> {
    [&[META], FUNCTION, &name.to_ascii_lowercase()].concat()
}

fn damaged(what: &[u8]) -> Error {
    Error::Damaged(format!("what the store has of the function or library {} is not understood", what.escape_ascii()))
}

impl Function {
    fn read(value: &[u8]) -> Option<Self> {
        let (head, rest) = value.split_first_chunk::<30>()?;
        let length = |at: usize| Some(u32::from_be_bytes(head.get(at..at + 4)?.try_into().ok()?) as usize);
        let (library, rest) = rest.split_at_checked(length(22)?)?;
        let (name, rest) = rest.split_at_checked(length(26)?)?;
        let description = match rest {
            [] => None,
            [0, text @ ..] => Some(text.to_vec()),
            _ => return None,
        };
        let sha = head.get(2..22)?.try_into().ok()?;
        let known = head[0] == VERSION;
        known.then(|| Self { name: name.to_vec(), library: library.to_vec(), sha, flags: head[1], description })
    }

    fn write(&self) -> Vec<u8> {
        let lengths = [&self.library, &self.name].map(|name| (name.len() as u32).to_be_bytes());
        let mut value = vec![VERSION, self.flags];
        value.extend_from_slice(&self.sha);
        lengths.iter().for_each(|length| value.extend_from_slice(length));
        value.extend_from_slice(&self.library);
        value.extend_from_slice(&self.name);
        if let Some(description) = &self.description {
            value.push(0);
            value.extend_from_slice(description);
        }
        value
    }
}

/// The function of that name.
pub(crate) fn find(tx: &dyn Tx, name: &[u8]) -> Result<Option<Function>> {
    if !is_name(name) {
        return Ok(None);
    }
    let Some(value) = tx.get(&function_key(name))? else { return Ok(None) };
    Function::read(value).map(Some).ok_or_else(|| damaged(name))
}

/// The code of a library.
pub(crate) fn code<'t>(tx: &'t dyn Tx, library: &[u8]) -> Result<Option<&'t [u8]>> {
    match tx.get(&library_key(library))? {
        None => Ok(None),
        Some([VERSION, code @ ..]) => Ok(Some(code)),
        Some(_) => Err(damaged(library)),
    }
}

/// All functions, in order of their names.
pub(crate) fn functions(tx: &dyn Tx) -> Result<Vec<Function>> {
    let (mut all, mut bad) = (Vec::new(), None);
    tx.scan(Keys::prefix(&function_key(b"")), &mut |key, value| {
        match Function::read(value) {
            Some(function) => all.push(function),
            None => bad = Some(damaged(key)),
        }
        ControlFlow::Continue(())
    })?;
    bad.map_or(Ok(all), Err)
}

/// Visits all libraries and their codes, in order of their names.
pub(crate) fn each_library(tx: &dyn Tx, mut visit: impl FnMut(&[u8], &[u8])) -> Result<()> {
    let (mut bad, front) = (None, library_key(b""));
    tx.scan(Keys::prefix(&front), &mut |key, value| {
        match value {
            [VERSION, code @ ..] => visit(&key[front.len()..], code),
            _ => bad = Some(damaged(key)),
        }
        ControlFlow::Continue(())
    })?;
    bad.map_or(Ok(()), Err)
}

/// How many libraries there are, and the bytes of their codes.
pub(crate) fn count(tx: &dyn Tx) -> Result<(usize, usize)> {
    let mut count = (0, 0);
    each_library(tx, |_, code| count = (count.0 + 1, count.1 + code.len()))?;
    Ok(count)
}

/// What is said where all codes together are too long: a dump of them could not be restored.
pub(crate) fn check_bytes(bytes: usize) -> std::result::Result<(), String> {
    if bytes > ALL_MAX { Err(format!("ERR the libraries have more than {ALL_MAX} bytes")) } else { Ok(()) }
}

/// What becomes of libraries that are there when others come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// They go.
    Flush,
    /// They stay, and none may come by their names.
    Append,
    /// Those of the same names go.
    Replace,
}

/// Puts libraries into the store: all of them, or none if one cannot be. `exists` is what is said of a library that is there.
pub(crate) fn put(tx: &mut dyn Tx, loaded: &[Loaded], policy: Policy, exists: impl Fn(&str) -> String) -> Outcome {
    // Whose each function is, and what is written or removed, before anything is.
    let known = functions(tx)?;
    let mut gone: Vec<Vec<u8>> = Vec::new();
    let mut bytes: usize = loaded.iter().map(|library| library.code.len()).sum();
    match policy {
        Policy::Flush => each_library(tx, |name, _| gone.push(name.to_vec()))?,
        Policy::Append | Policy::Replace => {
            for library in loaded {
                if code(tx, &library.name)?.is_none() {
                    continue;
                }
                if policy == Policy::Append {
                    return Err(Stop::Error(exists(&String::from_utf8_lossy(&library.name))));
                }
                gone.push(library.name.clone());
            }
        }
    }
    each_library(tx, |name, code| bytes += if gone.iter().any(|gone| gone == name) { 0 } else { code.len() })?;
    check_bytes(bytes)?;
    let is_gone = |function: &&Function| gone.contains(&function.library);
    let stay =
        known.iter().filter(|function| !is_gone(function)).map(|function| (function.name.to_ascii_lowercase(), ()));
    let mut taken: BTreeMap<Vec<u8>, ()> = stay.collect();
    for function in loaded.iter().flat_map(|library| &library.functions) {
        if taken.insert(function.name.to_ascii_lowercase(), ()).is_some() {
            return Err(Stop::Error(format!("ERR Function {} already exists", function.name.escape_ascii())));
        }
    }
    for function in known.iter().filter(is_gone) {
        tx.delete(&function_key(&function.name))?;
    }
    for name in &gone {
        tx.delete(&library_key(name))?;
    }
    for library in loaded {
        tx.put(&library_key(&library.name), &[&[VERSION], &library.code[..]].concat(), None)?;
        for function in &library.functions {
            tx.put(&function_key(&function.name), &function.write(), None)?;
        }
    }
    Ok(())
}

/// Removes a library with its functions; false if there is none.
pub(crate) fn delete(tx: &mut dyn Tx, name: &[u8]) -> Result<bool> {
    if !is_name(name) || !tx.delete(&library_key(name))? {
        return Ok(false);
    }
    for function in functions(tx)?.iter().filter(|function| function.library == name) {
        tx.delete(&function_key(&function.name))?;
    }
    Ok(true)
}

/// Removes all.
pub(crate) fn flush(tx: &mut dyn Tx) -> Result<()> {
    for function in functions(tx)? {
        tx.delete(&function_key(&function.name))?;
    }
    let mut names = Vec::new();
    each_library(tx, |name, _| names.push(name.to_vec()))?;
    for name in names {
        tx.delete(&library_key(&name))?;
    }
    Ok(())
}
