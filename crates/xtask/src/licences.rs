//! Every package that is built into the workspace has a licence that goes with ours (MIT OR Apache-2.0).
//!
//! `spdx` parses the expressions, as it does for `cargo deny`. The command itself is not used: a fresh clone would compile it for minutes, for this one rule.

use spdx::{AdditionItem, Expression, ParseMode};

use crate::Problem;
use crate::metadata::Metadata;

/// Permissive licences, by SPDX identifier.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

/// Exceptions that only widen what the licence before them permits.
const ALLOWED_EXCEPTIONS: &[&str] = &["LLVM-exception"];

/// Each package's expression can be satisfied with allowed licences alone.
#[must_use]
pub fn check(metadata: &Metadata) -> Vec<Problem> {
    let next = "use another package, or add the licence to ALLOWED in crates/xtask/src/licences.rs if it is permissive";
    metadata
        .packages
        .iter()
        .filter_map(|package| {
            let at = format!("{} {}", package.name, package.version);
            match package.license.as_deref().map(|text| (text, satisfiable(text))) {
                Some((_, Ok(true))) => None,
                Some((text, Ok(false))) => Some(Problem::new(at, format!("licence {text} is not on the list"), next)),
                Some((text, Err(why))) => Some(Problem::new(at, format!("licence \"{text}\": {why}"), next)),
                None => Some(Problem::new(at, "names no licence", next)),
            }
        })
        .collect()
}

/// Whether an SPDX expression has a choice of which every part is allowed.
///
/// # Errors
/// The expression does not parse, or names a licence or an exception that SPDX does not know.
pub fn satisfiable(expression: &str) -> Result<bool, String> {
    // `MIT/Apache-2.0` is how old manifests say OR.
    let parsed =
        Expression::parse_mode(expression, ParseMode { allow_slash_as_or_operator: true, ..ParseMode::STRICT })
            .map_err(|error| error.to_string())?;
    Ok(parsed.evaluate(|licence| {
        let allowed = licence.license.id().is_some_and(|id| ALLOWED.contains(&id.name));
        let exception = match &licence.addition {
            Some(AdditionItem::Spdx(id)) => ALLOWED_EXCEPTIONS.contains(&id.name),
            Some(AdditionItem::Other(_)) => false,
            None => true,
        };
        allowed && exception
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::testing::{member, workspace};

    #[test]
    fn expressions() {
        for (text, expected) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("MIT OR GPL-3.0-only", true),
            ("MIT AND GPL-3.0-only", false),
            ("MIT/Apache-2.0", true),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("Apache-2.0 WITH AdditionRef-restriction", false),
            ("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("(MIT OR Apache-2.0) AND AGPL-3.0-only", false),
            // AND binds tighter than OR.
            ("MIT OR MPL-2.0 AND GPL-2.0-only", true),
            ("(MIT OR MPL-2.0) AND GPL-2.0-only", false),
        ] {
            assert_eq!(satisfiable(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn malformed_expressions_are_errors() {
        for text in ["", "MIT OR", "(MIT", "MIT)", "MIT Apache-2.0", "AND", "MIT WITH", "Own terms"] {
            assert!(satisfiable(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_foreign_licence_and_a_missing_one_are_caught() {
        let mut packages = vec![member("good", &[]), member("viral", &[]), member("silent", &[]), member("odd", &[])];
        packages[1].license = Some("AGPL-3.0-or-later".into());
        packages[2].license = None;
        packages[3].license = Some("MIT OR".into());
        let at: Vec<String> = check(&workspace(packages)).into_iter().map(|problem| problem.at).collect();
        assert_eq!(at, ["viral 0.1.0", "silent 0.1.0", "odd 0.1.0"]);
    }
}
