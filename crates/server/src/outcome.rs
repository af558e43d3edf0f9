//! How a command ends: well, with an answer that says why not, or with its transaction.

use crate::engine;

/// Why a command ends early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// This is the answer. Nothing was written to the store before; what was written to the reply is taken back.
    Error(String),
    /// The same, of any bytes: a script's.
    Raised(Vec<u8>),
    /// The transaction cannot go on.
    Engine(engine::Error),
}

impl Stop {
    /// The answer, unless the transaction cannot go on.
    pub(crate) fn answer(self) -> engine::Result<Vec<u8>> {
        match self {
            Self::Error(text) => Ok(text.into_bytes()),
            Self::Raised(text) => Ok(text),
            Self::Engine(error) => Err(error),
        }
    }
}

impl From<engine::Error> for Stop {
    fn from(error: engine::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<&str> for Stop {
    fn from(text: &str) -> Self {
        Self::Error(text.to_owned())
    }
}

impl From<String> for Stop {
    fn from(text: String) -> Self {
        Self::Error(text)
    }
}

/// An error with these words of the request in place of each `%`, as C shows them: up to their first zero, and whatever bytes they are.
pub(crate) fn naming(text: &str, words: &[&[u8]]) -> Stop {
    let mut words = words.iter();
    let mut made = Vec::new();
    for (at, part) in text.split('%').enumerate() {
        if at > 0 {
            let word = words.next().copied().unwrap_or_default();
            made.extend_from_slice(word.split(|byte| *byte == 0).next().unwrap_or_default());
        }
        made.extend_from_slice(part.as_bytes());
    }
    Stop::Raised(made)
}

pub(crate) type Outcome<T = ()> = Result<T, Stop>;

pub(crate) const SYNTAX: &str = "ERR syntax error";
pub(crate) const NOT_INT: &str = "ERR value is not an integer or out of range";
pub(crate) const NOT_FLOAT: &str = "ERR value is not a valid float";
pub(crate) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
pub(crate) const NO_KEY: &str = "ERR no such key";
