//! Scripts in Lua, each of them a part of one transaction.
//!
//! ```text
//!   EVAL ─> the thread's interpreter, for 3 ms at most ──> commands run in the transaction ─> what was returned becomes the reply
//!                │ longer                                     │ a conflict
//!                v                                            v
//!          begun anew on a thread of its own, until        all of it is run again, from the beginning
//!          lua-time-limit or SCRIPT KILL
//! ```
//!
//! A script that is run again has left nothing behind: its interpreter has no state but what the script itself makes, its writes are the transaction's, and what it publishes
//! goes out when all is durable. One that fails by itself keeps what it has written, as in Redis; one that is ended from outside has written nothing.

mod api;
mod args;
mod bit;
mod bounded;
mod call;
mod cjson;
mod cmsgpack;
mod compiled;
mod convert;
mod eval;
mod libraries;
mod library;
mod numbers;
mod pattern;
mod perform;
mod run;
mod state;
mod strings;
mod structs;

pub(crate) use self::eval::{How, eval, load};
pub(crate) use self::library::{call as call_function, load as load_library};
pub(crate) use self::run::apart;
