//! How a command ends: well, with an answer that says why not, or with its transaction.

use crate::engine;

/// Why a command ends early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// This is the answer. Nothing was written to the store before; what was written to the reply is taken back.
    Error(String),
    /// The transaction cannot go on.
    Engine(engine::Error),
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

pub(crate) type Outcome<T = ()> = Result<T, Stop>;

pub(crate) const SYNTAX: &str = "ERR syntax error";
pub(crate) const NOT_INT: &str = "ERR value is not an integer or out of range";
pub(crate) const NOT_FLOAT: &str = "ERR value is not a valid float";
pub(crate) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
pub(crate) const NO_KEY: &str = "ERR no such key";
