//! Where unsafe code may be: in `pmem`, and in one `raw` module of the crates that truly need one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::Problem;
use crate::metadata::Metadata;

/// Crates where unsafe code is the point.
const UNSAFE: &[&str] = &["pmem"];

/// Crates that deny it and allow it again in one module called `raw`.
const WITH_RAW_MODULE: &[&str] = &["capi", "crash", "fabric", "heap", "kv", "log", "mvcc", "peers"];

/// Each crate root forbids (or, with a `raw` module, denies) unsafe code.
///
/// # Errors
/// A source file cannot be read.
pub fn check(metadata: &Metadata) -> io::Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for package in metadata.members() {
        if UNSAFE.contains(&package.short()) {
            continue;
        }
        for root in package.roots() {
            problems.extend(check_root(package.short(), root)?);
        }
    }
    Ok(problems)
}

fn check_root(package: &str, root: &Path) -> io::Result<Vec<Problem>> {
    let text = code_of(root)?;
    let at = root.display().to_string();
    if text.contains("#![forbid(unsafe_code)]") {
        return Ok(vec![]);
    }
    if !WITH_RAW_MODULE.contains(&package) {
        return Ok(vec![Problem::new(at, "does not forbid unsafe code", "add #![forbid(unsafe_code)]")]);
    }
    if !text.contains("#![deny(unsafe_code)]") {
        return Ok(vec![Problem::new(at, "neither forbids nor denies unsafe code", "add #![deny(unsafe_code)]")]);
    }

    // The compiler keeps the rest of the crate to the deny; what is left is that only `raw` lifts it.
    let mut problems = Vec::new();
    let folder = root.parent().unwrap_or(Path::new("."));
    for file in sources(folder)? {
        let text = code_of(&file)?;
        let local = file.strip_prefix(folder).unwrap_or(&file);
        let inside_raw = local.starts_with("raw") || local == Path::new("raw.rs");
        if !inside_raw && lifts(&text).any(|after| !declares_raw(after)) {
            problems.push(Problem::new(
                file.display().to_string(),
                "allows unsafe code outside the module raw",
                "move the unsafe code into raw.rs and call it from here",
            ));
        }
    }
    Ok(problems)
}

/// What follows each attribute that lifts the deny.
fn lifts(text: &str) -> impl Iterator<Item = &str> {
    ["allow(unsafe_code", "expect(unsafe_code", "warn(unsafe_code"]
        .into_iter()
        .flat_map(move |attribute| text.match_indices(attribute).map(move |(at, _)| &text[at + attribute.len()..]))
}

/// The attribute that ends here stands on `mod raw`.
fn declares_raw(after: &str) -> bool {
    let Some((_, item)) = after.split_once(")]") else { return false };
    let item = item.trim_start();
    let item = item.strip_prefix("pub(crate) ").or_else(|| item.strip_prefix("pub ")).unwrap_or(item);
    item.starts_with("mod raw;")
}

/// The text of a source file without line comments.
fn code_of(path: &Path) -> io::Result<String> {
    let text = fs::read_to_string(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    Ok(text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code)).collect::<Vec<_>>().join("\n"))
}

fn sources(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Problems of a crate `name` with these files.
    fn problems(name: &str, files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        check_root(name, &folder.path().join("lib.rs")).unwrap().into_iter().map(|problem| problem.what).collect()
    }

    #[test]
    fn a_root_that_forbids_passes() {
        assert!(problems("structures", &[("lib.rs", "//! Text.\n#![forbid(unsafe_code)]\n")]).is_empty());
        assert!(problems("crash", &[("lib.rs", "#![forbid(unsafe_code)]\n")]).is_empty());
    }

    #[test]
    fn a_root_that_does_not_forbid_is_caught() {
        assert_eq!(problems("structures", &[("lib.rs", "fn f() {}\n")]).len(), 1);
        assert_eq!(
            problems("structures", &[("lib.rs", "// #![forbid(unsafe_code)]\n")]).len(),
            1,
            "a comment is no attribute"
        );
        assert_eq!(problems("structures", &[("lib.rs", "#![deny(unsafe_code)]\n")]).len(), 1, "deny can be lifted");
        assert_eq!(problems("crash", &[("lib.rs", "fn f() {}\n")]).len(), 1);
    }

    #[test]
    fn only_the_raw_module_lifts_the_deny() {
        let root = "#![deny(unsafe_code)]\n#[allow(unsafe_code)]\nmod raw;\nmod other;\n";
        assert!(problems("crash", &[("lib.rs", root), ("raw.rs", "unsafe fn f() {}"), ("other.rs", "")]).is_empty());
        let root = "#![deny(unsafe_code)]\n#[expect(unsafe_code, reason = \"the buffer\")]\npub(crate) mod raw;\n";
        assert!(problems("crash", &[("lib.rs", root)]).is_empty());
        let root = "#![deny(unsafe_code)]\nmod raw;\n";
        assert!(problems("crash", &[("lib.rs", root), ("raw.rs", "#![allow(unsafe_code)]\n")]).is_empty());
    }

    #[test]
    fn a_deny_lifted_elsewhere_is_caught() {
        let root = "#![deny(unsafe_code)]\n#[allow(unsafe_code)]\nmod fast;\n";
        assert_eq!(problems("crash", &[("lib.rs", root)]).len(), 1);
        let root = "#![deny(unsafe_code)]\nmod deep;\n";
        let deep = "#[allow(unsafe_code)]\nfn f() {}\n";
        assert_eq!(problems("crash", &[("lib.rs", root), ("deep/mod.rs", deep)]).len(), 1);
    }
}
