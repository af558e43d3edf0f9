//! Every relative link in a Markdown file of the repository leads to a file, and its anchor to a heading; and no merge has left its marks there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::Problem;

/// Folders without text of ours.
const SKIPPED: &[&str] = &["target", ".git", "node_modules"];

/// All Markdown files below `root`.
///
/// # Errors
/// A folder or file cannot be read.
pub fn check(root: &Path) -> io::Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for file in markdown_files(root)? {
        let text = fs::read_to_string(&file)?;
        let name = file.strip_prefix(root).unwrap_or(&file).display();
        for line in conflicts(&text) {
            problems.push(Problem::new(
                format!("{name}:{line}"),
                "a merge has left its mark",
                "decide, and delete the mark",
            ));
        }
        for (line, target) in links(&text) {
            if let Err(what) = resolve(&file, &text, root, &target) {
                let at = format!("{name}:{line}");
                problems.push(Problem::new(
                    at,
                    format!("link to {target}: {what}"),
                    "correct the link, or write the file",
                ));
            }
        }
    }
    Ok(problems)
}

/// Lines that git writes around what it could not merge.
fn conflicts(text: &str) -> Vec<usize> {
    let is_mark = |line: &str| ["<<<<<<< ", ">>>>>>> ", "||||||| "].iter().any(|mark| line.starts_with(mark));
    (1..).zip(text.lines()).filter(|(_, line)| is_mark(line)).map(|(number, _)| number).collect()
}

fn markdown_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if !SKIPPED.iter().any(|name| entry.file_name() == *name) {
                found.extend(markdown_files(&path)?);
            }
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Line number and target of each inline link and each reference definition, outside code.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, text) in prose(text) {
        if let Some((_, target)) = text.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
            found.push((line, first_word(target)));
        }
        let mut rest = text.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, after)) = after.split_once(')') else { break };
            found.push((line, first_word(target)));
            rest = after;
        }
    }
    found
}

/// A target without the title that may follow it.
fn first_word(target: &str) -> String {
    target.split_whitespace().next().unwrap_or("").trim_matches(['<', '>']).to_owned()
}

/// Numbered lines outside fenced blocks, with code spans blanked.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~");
        fenced ^= fence;
        let prose = !fenced && !fence;
        prose.then(|| (index + 1, line.split('`').step_by(2).collect::<Vec<_>>().join(" ")))
    })
}

fn resolve(file: &Path, text: &str, root: &Path, target: &str) -> Result<(), String> {
    if target.is_empty() {
        return Err("is empty".into());
    }
    let scheme =
        target.split_once(':').is_some_and(|(scheme, _)| scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+'));
    if scheme {
        return Ok(());
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let path = path.replace("%20", " ");
    let resolved = match path.strip_prefix('/') {
        Some(absolute) => root.join(absolute),
        None => file.parent().unwrap_or(root).join(&path),
    };
    if !path.is_empty() && !resolved.exists() {
        return Err("no such file".into());
    }
    // The repository must be whole by itself.
    let inside = |path: &Path| Some(path.canonicalize().ok()?.starts_with(root.canonicalize().ok()?));
    if !path.is_empty() && inside(&resolved) != Some(true) {
        return Err("leads out of the repository".into());
    }
    let Some(anchor) = anchor else { return Ok(()) };
    let other = if path.is_empty() { text.to_owned() } else { markdown(&resolved).unwrap_or_default() };
    if path.is_empty() || resolved.extension().is_some_and(|extension| extension == "md") {
        let known = headings(&other).any(|heading| heading == anchor);
        return if known { Ok(()) } else { Err(format!("no heading gives #{anchor}")) };
    }
    Ok(())
}

fn markdown(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// The anchors that headings get: lower case, spaces to hyphens, other punctuation dropped.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let mut fenced = false;
    text.lines().filter_map(move |line| {
        fenced ^= line.trim_start().starts_with("```");
        let title = (!fenced).then(|| line.trim_start_matches('#')).filter(|title| title.len() < line.len())?;
        let anchor = title.trim().to_lowercase();
        Some(
            anchor
                .chars()
                .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(readme: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("repo");
        fs::create_dir_all(root.join("docs")).unwrap();
        fs::create_dir_all(root.join("target")).unwrap();
        fs::write(folder.path().join("outside.md"), "").unwrap();
        fs::write(root.join("docs/format.md"), "# The format, in `short`\n\n[back](../README.md)\n").unwrap();
        fs::write(root.join("target/junk.md"), "[gone](gone.md)").unwrap();
        fs::write(root.join("README.md"), readme).unwrap();
        check(&root).unwrap().into_iter().map(|problem| format!("{} {}", problem.at, problem.what)).collect()
    }

    #[test]
    fn links_that_resolve_pass() {
        let readme = "# Start here\n[a](docs/format.md) and [b](docs/format.md#the-format-in-short) [c](#start-here)\n\
                      [d](https://example.org/x) [e](docs) [f](/docs/format.md \"title\")\n\n[g]: docs/format.md\n";
        assert_eq!(problems(readme), Vec::<String>::new());
    }

    #[test]
    fn code_is_not_read_for_links() {
        assert_eq!(problems("`[a](gone.md)`\n```\n[a](gone.md)\n```\n"), Vec::<String>::new());
    }

    #[test]
    fn marks_of_a_merge_are_caught() {
        let readme = "a\n<<<<<<< HEAD\nb\n=======\n```\n>>>>>>> 2499db8\n```\n";
        let mark = |line| format!("README.md:{line} a merge has left its mark");
        assert_eq!(problems(readme), [mark(2), mark(6)]);
        assert_eq!(problems("Heading\n=======\n\n<<<< and >>>>\n"), Vec::<String>::new());
    }

    #[test]
    fn broken_links_are_caught() {
        let readme = "[a](docs/format.md) [b](docs/gone.md)\n[c](#nowhere)\n[d](docs/format.md#nowhere)\n[e](../outside.md)\n[f]()\n\n[g]: gone.md\n";
        assert_eq!(
            problems(readme),
            [
                "README.md:1 link to docs/gone.md: no such file",
                "README.md:2 link to #nowhere: no heading gives #nowhere",
                "README.md:3 link to docs/format.md#nowhere: no heading gives #nowhere",
                "README.md:4 link to ../outside.md: leads out of the repository",
                "README.md:5 link to : is empty",
                "README.md:7 link to gone.md: no such file",
            ]
        );
    }
}
