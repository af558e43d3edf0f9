//! The command as users meet it: every test runs the real binary.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not know for tests")]

mod array;
mod backup;
mod bench;
mod carry;
mod chains;
mod check;
mod check_versions;
mod clap_list;
mod convert;
mod crash;
mod create;
mod damage;
mod demo;
#[allow(dead_code, reason = "what only tests of membership need")]
#[path = "../../../membership/tests/it/etcd.rs"]
mod etcd;
mod foreign;
mod kv;
mod log;
mod outputs;
mod replicated;
mod serve;
mod soak;
mod top;
mod usage;
#[path = "../../../server/tests/it/witness.rs"]
mod witness;

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

/// What one run of the command said.
struct Run {
    code: i32,
    out: String,
    err: String,
}

impl Run {
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The two lines of an error, by name.
    #[track_caller]
    fn failure(&self) -> (&str, &str) {
        let mut lines = self.err.lines();
        let mut line = |label: &str| {
            lines.next().and_then(|line| line.strip_prefix(label)).unwrap_or_else(|| panic!("{label} {self:?}"))
        };
        (line("error: "), line("next: "))
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit code {}\n{}\n{}", self.code, self.out, self.err)
    }
}

/// Runs `cairn` with the words of `line`, then `paths`, in `dir`.
fn cairn(dir: &Path, line: &str) -> Run {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_cairn"))
        .args(line.split_whitespace())
        .current_dir(dir)
        .env_remove("RUST_LOG")
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: status.code().unwrap_or(-1), out: text(stdout), err: text(stderr) }
}

/// Starts the command; its input and output are pipes.
fn start(dir: &Path, words: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_cairn"))
        .args(words)
        .current_dir(dir)
        .env_remove("RUST_LOG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn feed(dir: &Path, line: &str, input: &[u8]) -> Run {
    let mut child = start(dir, &line.split_whitespace().collect::<Vec<_>>());
    // It may end before it has read all.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

fn temp() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Looks again and again until it is so.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "a test that waits for other processes")]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    const TIMEOUT: Duration = Duration::from_secs(60);
    let end = std::time::Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(std::time::Instant::now() < end, "not in {TIMEOUT:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
