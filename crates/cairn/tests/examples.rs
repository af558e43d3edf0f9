//! The examples do what they say.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not know for tests")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

fn temp() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Cargo builds examples beside the tests of a package, but not for a single test binary.
fn binary(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("examples/{name}.rs"));
    let test = std::env::current_exe().unwrap();
    let binary = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    let modified = |path: &Path| path.metadata().and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    assert!(modified(&binary) >= modified(&source), "{name} is not built; next: cargo build -p cairn --examples");
    binary
}

/// Runs an example on the pool `file` and returns what it printed.
fn example(name: &str, file: &Path) -> String {
    let output = Command::new(binary(name)).arg(file).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{name}: {text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// All of `wanted`, in this order.
#[track_caller]
fn says(text: &str, wanted: &[&str]) {
    let mut rest = text;
    for words in wanted {
        let at = rest.find(words).unwrap_or_else(|| panic!("{words:?} is missing, or too early: {text}"));
        rest = &rest[at + words.len()..];
    }
}

#[test]
fn bank() {
    let dir = temp();
    let file = dir.path().join("bank");
    let first = example("bank", &file);
    says(&first, &["8 accounts, 800 in all", "200 transfers", "account 1 has only", "800 in all"]);
    says(&example("bank", &file), &["8 accounts, 800 in all", "200 transfers", "800 in all"]);
}

#[test]
fn kv_bank() {
    let dir = temp();
    let file = dir.path().join("bank");
    says(&example("kv_bank", &file), &["transfers by 4 threads\n", "Ada has ", "Grace has ", "\n400 in all\n"]);
    let again = example("kv_bank", &file);
    says(&again, &["transfers by 4 threads\n", "\n400 in all\n"]);
    let journals = again.lines().filter_map(|line| line.split_once("; ")?.1.strip_suffix(" in the journal"));
    let journals: Vec<_> = journals.map(|line| line.split_once(" transfers, ").unwrap()).collect();
    assert!(journals.len() == 4 && journals.iter().all(|(done, written)| done == written && *done != "0"), "{again}");
}

#[test]
fn job_queue() {
    let dir = temp();
    let file = dir.path().join("queue");
    says(&example("job_queue", &file), &["popped job 1\n", "popped job 2\n"]);
    says(&example("job_queue", &file), &["popped job 3\n", "popped job 4\n"]);
}

#[test]
fn address_book() {
    let dir = temp();
    let file = dir.path().join("book");
    let once = ["London: Ada, Alan\n", "London: Ada, Alan, Grace\n", "New York: []\n", "sound, with 4 and 4 entries"];
    says(&example("address_book", &file), &once);
    // Grace is back in New York: the same again.
    says(&example("address_book", &file), &once);
}

#[test]
fn after_a_crash() {
    let dir = temp();
    let text = example("after_a_crash", &dir.path().join("scales"));
    says(&text, &["killed in the middle\n", "clean: false\n", "Scales { left: 7, right: 7 }"]);
    assert!(!text.contains("taken back: 0\n"), "{text}");
}

#[test]
fn evolution() {
    let dir = temp();
    let file = dir.path().join("customers");
    // Killed in the first batch, and in a later one: each time the next run goes on behind the last batch that was committed.
    for die in ["1", "5", "4"] {
        let output = Command::new(binary("evolution")).arg(&file).arg(die).output().unwrap();
        assert!(!output.status.success() && output.status.code().is_none(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.contains("goes on behind"), die == "4", "{text}");
        assert!(!text.contains("version 2"), "{text}");
    }
    // 4 and 3 batches of 64 are there; 9 are left, then the end is found, and looked at.
    let all = "1000 customers with 10000 in all\n1002 objects\n";
    says(&example("evolution", &file), &["goes on behind customer 448\n", "version 2 after 10 transactions\n", all]);
    says(&example("evolution", &file), &["version 2 after 0 transactions\n", all]);
}
