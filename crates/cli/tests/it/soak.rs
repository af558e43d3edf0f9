//! The soaks, for seconds: real processes, killed and paused under load, and what their clients saw, checked by porcupine. `make soak-replicated` and `make soak-chain` run for longer.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Run;

/// Runs one; its files are gone with the directory.
fn soak(which: &str, more: &str) -> Run {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let porcupine: PathBuf =
        std::env::var_os("CAIRN_PORCUPINE").map_or_else(|| root.join("target/tools/porcupine"), Into::into);
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    // It ends its processes when it is told to end.
    let mut command = Command::new("timeout");
    command
        .args(["--signal=TERM", "--kill-after=30", "200", "/usr/bin/python3"])
        .arg(root.join(format!("tools/soak-{which}.py")));
    command.args(["--cairn", env!("CARGO_BIN_EXE_cairn"), "--porcupine"]).arg(porcupine);
    command.args(more.split_whitespace()).env("TMPDIR", dir.path()).env_remove("RUST_LOG");
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn histories_of_a_group_of_servers_are_linearizable() {
    let run = soak("replicated", "--minutes 0.05 --only kill,pause");
    assert!(run.code == 0 && run.out.contains(": linearizable") && run.out.contains(" 0 errors"), "{run:?}");
}

#[test]
fn histories_of_a_chain_are_linearizable() {
    let run = soak("chain", "--minutes 0.05 --only kill,pause");
    assert!(run.code == 0 && run.out.contains(": linearizable") && run.out.contains(" 0 errors"), "{run:?}");
}

/// A checker that was never seen to fail proves nothing.
#[track_caller]
fn is_found(which: &str, more: &str) {
    let run = soak(which, &format!("--minutes 0.01 --only stop {more}"));
    let words = ["NOT linearizable", "cannot be placed: line ", "history-1.html", "1 errors"];
    assert!(run.code == 1 && words.iter().all(|one| run.out.contains(one)), "{more}: {run:?}");
}

#[test]
fn what_is_lost_is_found() {
    is_found("replicated", "--writers 0 --lie lost");
}

#[test]
fn what_is_done_twice_is_found() {
    is_found("chain", "--lie twice");
}

#[test]
fn what_is_stale_is_found() {
    is_found("chain", "--lie stale");
}
