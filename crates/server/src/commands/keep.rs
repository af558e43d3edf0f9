//! `CONFIG REWRITE`: what `CONFIG SET` has changed is kept in the store, beside the users, and holds after the next start.
//!
//! ```text
//!   META, "config/", name      the value, as `CONFIG GET` tells it
//! ```
//!
//! Only what was changed is kept, so that what was not follows flags and the configuration file as before.

use std::ops::ControlFlow;

use tx::Keys;

use super::Outcome;
use crate::data::META;
use crate::engine::Result;
use crate::shared::Shared;

/// What no part of the store may hold.
const PASSWORD: &str = "requirepass";

fn key(name: &str) -> Vec<u8> {
    [&[META], &b"config/"[..], name.as_bytes()].concat()
}

/// `CONFIG SET` has changed these.
pub(super) fn note<'a>(shared: &Shared, names: impl Iterator<Item = &'a [u8]>) {
    let mut changed = shared.changed_settings.lock();
    changed.extend(names.map(|name| String::from_utf8_lossy(&name.to_ascii_lowercase()).into_owned()));
}

/// Keeps all that was changed, with the values of `now`, in one transaction, or nothing.
pub(super) fn rewrite(shared: &Shared, now: &[(&str, String)]) -> Outcome {
    let changed = shared.changed_settings.lock().clone();
    if changed.contains(PASSWORD) {
        return Err("ERR Rewriting config file: CONFIG SET requirepass was used, and a password is not kept in this way, so nothing was kept; next: ACL SETUSER default >password, which is durable at once, or cairn serve --password-file, and start the server again".into());
    }
    let kept: Vec<_> = now.iter().filter(|(name, _)| changed.contains(*name)).collect();
    shared
        .engine
        .write(&mut |tx| kept.iter().try_for_each(|(name, value)| tx.put(&key(name), value.as_bytes(), None)))?;
    Ok(())
}

/// Names and values that are kept.
pub(super) fn kept(shared: &Shared) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let (mut kept, prefix) = (Vec::new(), key(""));
    shared.engine.read(&mut |tx| {
        kept.clear();
        tx.scan(Keys::prefix(&prefix), &mut |key, value| {
            kept.push((key[prefix.len()..].to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })
    })?;
    Ok(kept)
}
