//! What the messages of errors say: what to do next, in plain words.

use std::fs;
use std::io;
use std::path::Path;

use crate::Problem;

/// Files whose `enum Error` a program, or an operator, meets.
const FILES: &[&str] = &[
    "crates/pmem/src/error.rs",
    "crates/tx/src/error.rs",
    "crates/kv/src/error.rs",
    "crates/log/src/error.rs",
    "crates/fabric/src/error.rs",
    "crates/membership/src/error.rs",
    "crates/server/src/server.rs",
    "crates/chain/src/error.rs",
];

/// Words that leave open who is meant, or what: the house style has others for them.
const VAGUE: &[&str] = &["whoever", "somebody", "nobody", "mend", "patience", "seat", "rival", "gone bad"];

/// Each message names the next step, behind `; ` or `: ` or as what must be, and has no vague word.
///
/// # Errors
/// A source file cannot be read.
pub fn check(root: &Path) -> io::Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for file in FILES {
        problems.extend(check_text(file, &fs::read_to_string(root.join(file))?));
    }
    Ok(problems)
}

fn check_text(at: &str, source: &str) -> Vec<Problem> {
    let messages = messages(source);
    if messages.is_empty() {
        return vec![Problem::new(
            at,
            "has no messages of errors",
            "name the file where they are in xtask's messages.rs",
        )];
    }
    messages.iter().flat_map(|message| check_message(at, message)).collect()
}

fn check_message(at: &str, message: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let is_of_another = message.starts_with('{') && message.ends_with('}') && message.matches('{').count() == 1;
    let has_next = ["; ", ": ", "must be"].iter().any(|part| message.contains(part));
    if !has_next && !is_of_another {
        problems.push(Problem::new(at, format!("{message:?} does not say what to do next"), "say it, behind `; `"));
    }
    let words = || message.split(|c: char| !c.is_alphabetic());
    for vague in VAGUE {
        let of = vague.split(' ').count();
        let all: Vec<&str> = words().collect();
        if all.windows(of).any(|words| words.join(" ") == *vague) {
            problems.push(Problem::new(at, format!("{message:?} says {vague:?}"), "say who or what is meant"));
        }
    }
    problems
}

/// The literals of `#[error("...")]` in `enum Error`, as they are printed but for what is filled in.
fn messages(source: &str) -> Vec<String> {
    let Some((_, body)) = source.split_once("pub enum Error {") else { return vec![] };
    let body = body.split_once("\n}").map_or(body, |(body, _)| body);
    let literals = body.split("#[error(").skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
    literals.map(literal).collect()
}

/// A string literal behind its first quote, up to its last one.
fn literal(rest: &str) -> String {
    let mut text = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next() {
            None | Some('"') => return text,
            // An escaped character; or the end of a line that goes on behind its indentation.
            Some('\\') => match chars.next() {
                Some('\n') => chars = chars.as_str().trim_start().chars(),
                Some(c) => text.push(c),
                None => return text,
            },
            Some(c) => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(attribute: &str) -> Vec<String> {
        let source = format!("pub enum Error {{\n    {attribute}\n    Full,\n}}\n#[error(\"whoever\")]");
        check_text("e.rs", &source).into_iter().map(|problem| problem.what).collect()
    }

    #[test]
    fn a_message_without_a_next_step_is_found() {
        assert_eq!(found(r#"#[error("full")]"#), [r#""full" does not say what to do next"#]);
        assert_eq!(found(r#"#[error("{path} of {what}")]"#), [r#""{path} of {what}" does not say what to do next"#]);
        assert!(found(r#"#[error("full; delete something")]"#).is_empty());
        assert!(found("#[error(\n        \"full \\\n         \\\"x\\\": delete something\")]").is_empty());
        assert!(found(r#"#[error("{source}")]"#).is_empty());
    }

    #[test]
    fn a_vague_word_is_found() {
        assert_eq!(found(r#"#[error("full; ask whoever fills it")]"#).len(), 1);
        assert_eq!(found(r#"#[error("a byte has gone bad; restore it")]"#).len(), 1);
        assert!(found(r#"#[error("full; amend it")]"#).is_empty(), "a part of a word");
    }

    #[test]
    fn a_file_without_errors_is_found() {
        assert_eq!(check_text("e.rs", "pub struct Error;").len(), 1);
        assert_eq!(found("#[error(transparent)]").len(), 1);
    }
}
