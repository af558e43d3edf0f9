//! Which arguments may be passwords: no log, and no client that monitors, is shown them.

use crate::form::is;
use crate::request::Arguments;

/// How often a request may be an argument of another one, and be looked into: `COMMAND GETKEYS COMMAND GETKEYS ...`.
const NESTED: usize = 4;

/// Whether the argument that is `at` may be a password, or stands beside one.
pub(crate) fn is_secret(args: &Arguments<'_>, at: usize) -> bool {
    let word = |at: usize, names: &[&str]| names.iter().any(|name| is(args.get(at), name));
    let mut name = 0;
    while word(name, &["command"]) && word(name + 1, &["getkeys", "getkeysandflags"]) {
        name += 2;
        if name > 2 * NESTED {
            return at >= name;
        }
    }
    if at <= name {
        return false;
    }
    // `SETNAME auth` has a name behind it, and no password; it does no harm to leave that out as well. The version may have been forgotten.
    let behind_auth = |back: usize| at.checked_sub(back).is_some_and(|before| before > name && word(before, &["auth"]));
    match args.get(name) {
        of if is(of, "auth") => true,
        of if is(of, "hello") => behind_auth(1) || behind_auth(2),
        of if is(of, "acl") => at > name + 1 && word(name + 1, &["setuser", "dryrun"]),
        of if is(of, "config") => at > name + 1 && args.from(name + 2).any(names_a_password),
        of if is(of, "migrate") => true,
        _ => false,
    }
}

/// A setting that may be one, misspelt or of another version.
fn names_a_password(setting: &[u8]) -> bool {
    let setting = setting.to_ascii_lowercase();
    [&b"pass"[..], b"auth"].iter().any(|part| setting.windows(part.len()).any(|some| some == *part))
}
