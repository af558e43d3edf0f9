//! Which arguments may be passwords: no log, and no client that monitors, is shown them.

use crate::form::is;
use crate::request::Arguments;

/// How often a request may be an argument of another one, and be looked into: `COMMAND GETKEYS COMMAND GETKEYS ...`.
const NESTED: usize = 4;

/// Of one request, which arguments may be passwords, or stand beside one. What depends on all arguments is looked at once, not for each of them.
pub(crate) struct Secrets<'a, 'b> {
    args: &'a Arguments<'b>,
    /// Where the command's name is.
    name: usize,
    hides: Hides,
}

/// Which of the arguments behind the command's name.
enum Hides {
    None,
    All,
    /// Those behind the second name.
    BehindSecond,
    /// Those behind `AUTH`: a name and a password.
    BehindAuth,
}

impl<'a, 'b> Secrets<'a, 'b> {
    pub(crate) fn of(args: &'a Arguments<'b>) -> Self {
        let word = |at: usize, names: &[&str]| names.iter().any(|name| is(args.get(at), name));
        let mut name = 0;
        while word(name, &["command"]) && word(name + 1, &["getkeys", "getkeysandflags"]) {
            name += 2;
            if name > 2 * NESTED {
                // Too deep to look into: all of it.
                return Self { args, name: name - 1, hides: Hides::All };
            }
        }
        let hides = match args.get(name) {
            of if is(of, "auth") || is(of, "migrate") => Hides::All,
            of if is(of, "hello") => Hides::BehindAuth,
            of if is(of, "acl") && word(name + 1, &["setuser", "dryrun"]) => Hides::BehindSecond,
            of if is(of, "config") && args.from(name + 2).any(names_a_password) => Hides::BehindSecond,
            _ => Hides::None,
        };
        Self { args, name, hides }
    }

    /// Whether the argument that is `at` is one of them.
    pub(crate) fn has(&self, at: usize) -> bool {
        // `SETNAME auth` has a name behind it, and no password; it does no harm to leave that out as well. The version may have been forgotten.
        let is_behind_auth = |back: usize| {
            at.checked_sub(back).is_some_and(|before| before > self.name && is(self.args.get(before), "auth"))
        };
        match self.hides {
            Hides::None => false,
            Hides::All => at > self.name,
            Hides::BehindSecond => at > self.name + 1,
            Hides::BehindAuth => is_behind_auth(1) || is_behind_auth(2),
        }
    }
}

/// A setting that may be one, misspelt or of another version.
fn names_a_password(setting: &[u8]) -> bool {
    [&b"pass"[..], b"auth"].iter().any(|part| setting.windows(part.len()).any(|some| some.eq_ignore_ascii_case(part)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Batch;

    /// Which arguments of a line are not shown.
    fn hidden(line: &str) -> Vec<usize> {
        let mut batch = Batch::default();
        batch.push_words(line.split(' ').map(str::as_bytes));
        let args = batch.arguments(0, &[]);
        let secrets = Secrets::of(&args);
        (0..args.len()).filter(|at| secrets.has(*at)).collect()
    }

    #[test]
    fn passwords_and_what_stands_beside_them_are_secrets() {
        for (line, secret) in [
            ("AUTH p", &[1][..]),
            ("AUTH u p", &[1, 2]),
            ("HELLO 3 AUTH u p SETNAME n", &[3, 4]),
            ("HELLO AUTH u p", &[2, 3]),
            ("ACL SETUSER u >p", &[2, 3]),
            ("ACL LIST", &[]),
            ("CONFIG SET maxclients 7", &[]),
            ("CONFIG SET maxclients 7 RequirePass p", &[2, 3, 4, 5]),
            ("CONFIG SET masterAUTH p", &[2, 3]),
            ("CONFIG auth", &[]),
            ("MIGRATE h 1", &[1, 2]),
            ("SET auth pass", &[]),
            ("COMMAND GETKEYS CONFIG SET requirepass p", &[4, 5]),
            ("COMMAND GETKEYS HELLO 3 AUTH u p", &[5, 6]),
            ("COMMAND GETKEYS AUTH p", &[3]),
        ] {
            assert_eq!(hidden(line), secret, "{line}");
        }
        // One that is not looked into any more is a secret as a whole.
        let deep = "COMMAND GETKEYS ".repeat(NESTED + 1);
        assert_eq!(hidden(&format!("{deep}GET k")), [2 * NESTED + 2, 2 * NESTED + 3]);
    }

    /// For each argument a look at all of them would be as many looks as there are seconds in ten days.
    #[test]
    fn very_many_arguments_are_looked_at_once() {
        let line = format!("COMMAND GETKEYS CONFIG SET{}", " x".repeat(1_000_000));
        assert!(hidden(&line).is_empty());
    }
}
