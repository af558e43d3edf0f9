//! Help texts and wrong usage.

use super::{cairn, temp};

#[test]
fn help_explains_itself() {
    let dir = temp();
    for command in ["", "create", "info", "check", "bench limits", "crash"] {
        let run = cairn(dir.path(), &format!("{command} --help"));
        assert_eq!(run.code, 0, "{run:?}");
        let wanted = if command.is_empty() { "Exit codes:" } else { "Examples:" };
        assert!(run.out.contains(wanted), "{command}: {run:?}");
    }
    assert!(cairn(dir.path(), "check --help").out.contains("1  damaged"));
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let dir = temp();
    for line in [
        "",
        "frobnicate",
        "create",
        "create p --size 64MB",
        "create p --size -1",
        "create p --domain ram",
        "create p --nvm-latency fast=1",
        "bench",
        "bench nonsense",
        "crash --depth 0",
        "crash --budget 0",
        "crash --jobs 0",
        "crash --list --mutate",
    ] {
        let run = cairn(dir.path(), line);
        assert_eq!(run.code, 2, "{line}: {run:?}");
        assert!(!run.err.is_empty(), "{line}");
    }
    assert_eq!(cairn(dir.path(), "--version").code, 0);
}
