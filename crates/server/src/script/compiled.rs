//! Text becomes functions, which are kept.

use std::collections::HashMap;

use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, Table};

use crate::sha::Sha;

/// Scripts that are kept as they were compiled.
const COMPILED: usize = 500;

/// A chunk of this name and environment, or what is wrong with it.
pub(super) fn compiled(lua: &Lua, body: &[u8], name: &str, env: &Table) -> mlua::Result<Result<Function, String>> {
    let chunk = lua.load(body).set_name(name).set_mode(ChunkMode::Text).set_environment(env.clone());
    match chunk.into_function() {
        Ok(made) => Ok(Ok(made)),
        Err(mlua::Error::SyntaxError { message, .. }) => Ok(Err(message)),
        Err(other) => Err(other),
    }
}

/// Keeps what was compiled, for the next time.
pub(super) fn keep(kept: &mut HashMap<Sha, Function>, sha: &Sha, made: &Function) {
    if kept.len() >= COMPILED {
        kept.clear();
    }
    kept.insert(*sha, made.clone());
}
