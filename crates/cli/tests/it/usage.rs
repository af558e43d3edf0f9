//! Help texts and wrong usage.

use super::{cairn, temp};

#[test]
fn help_explains_itself() {
    let dir = temp();
    let experiments = [
        "limits",
        "tx-overwrite",
        "tx-alloc",
        "ycsb",
        "dependent",
        "worst-case",
        "structures",
        "tpcc",
        "smallbank",
        "kv",
        "midas",
        "kv-open",
        "kv-space",
        "log-append",
        "log-replicate",
        "log-takeover",
        "figures",
    ]
    .map(|name| format!("bench {name}"));
    let logs =
        ["create", "append", "cat", "tail", "check", "stats", "replicas", "promote"].map(|name| format!("log {name}"));
    let stores = ["create", "get", "put", "delete", "scan", "load", "dump", "stats", "backup", "restore", "shell"]
        .map(|name| format!("kv {name}"));
    let groups = ["status", "join", "remove"].map(|name| format!("group {name}"));
    let chains = ["serve", "status", "join", "remove", "demo"].map(|name| format!("chain {name}"));
    let arrays = ["create", "write", "read", "check", "status"].map(|name| format!("array {name}"));
    for command in
        ["", "create", "info", "check", "scrub", "backup", "convert", "crash", "demo", "log-replica"].into_iter().chain(
            experiments
                .iter()
                .chain(&logs)
                .chain(&groups)
                .chain(&chains)
                .chain(&stores)
                .chain(&arrays)
                .map(String::as_str),
        )
    {
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
        "create p --engine redo",
        "create p --slots 4",
        "create p --engine mvcc --layout shop-1",
        "create p --engine mvcc --zone-bytes 4K",
        "create p --engine eaw --copy-bytes 4K",
        "create p --engine mvcc --log-bytes 100",
        "convert",
        "convert p",
        "convert p --engine redo",
        "create p --size -1",
        "create p --domain ram",
        "create p --nvm-latency fast=1",
        "bench",
        "bench nonsense",
        "bench ycsb --engine nonsense",
        "bench ycsb --engine pmemobj",
        "bench ycsb --peer undo",
        "bench ycsb --threads 0",
        "bench ycsb --workload G",
        "bench ycsb --key-bytes 3 --quick",
        "bench ycsb --trace t --workload A",
        "bench tx-overwrite --engine undo --baseline none",
        "bench tx-overwrite --bytes 0 --quick",
        "bench tx-alloc --bytes 4 --quick",
        "crash --depth 0",
        "demo --engine redo",
        "demo --seconds 0",
        "demo --keys 5 --trace t",
        "crash --budget 0",
        "crash --jobs 0",
        "crash --list --mutate",
        "log",
        "log create",
        "log create l --bytes 64MB",
        "log create l --bytes 1K --segment 1M",
        "log create l --segment 100",
        "log append nothing",
        "log append l --frequency 0",
        "log append l --within 0",
        "log cat nothing",
        "log cat l --from 0",
        "log tail nothing",
        "log check nothing",
        "log stats nothing",
        "log convert nothing other",
        "group",
        "group status",
        "group status --prefix /p --secret-file s",
        "group status --etcd http://127.0.0.1:1 --secret-file s",
        "group status --etcd http://127.0.0.1:1 --prefix /p",
        "group status --etcd http://127.0.0.1:1 --prefix /p --secret-file nothing",
        "group join --etcd http://127.0.0.1:1 --prefix /p --secret-file s",
        "serve s --max-memory-policy lru",
        "group remove --etcd http://127.0.0.1:1 --prefix /p --secret-file s",
        "group transfer --etcd http://127.0.0.1:1 --prefix /p --secret-file s",
        "group remove xyz --etcd http://127.0.0.1:1 --prefix /p --secret-file s",
        "chain",
        "chain serve f --machine 0 --listen 127.0.0.1:0 --etcd http://127.0.0.1:1 --prefix /p --secret-file s",
        "chain serve f --machine 1 --listen 127.0.0.1:0 --prefix /p --secret-file s",
        "chain serve f --machine 1 --etcd http://127.0.0.1:1 --prefix /p --secret-file s",
        "chain serve f --machine 1 --listen 127.0.0.1:0 --etcd http://127.0.0.1:1 --prefix /p",
        "chain serve f --machine 1 --listen 127.0.0.1:0 --etcd http://127.0.0.1:1 --prefix /p --secret-file s --ttl 0",
        "chain status --prefix /p --secret-file s",
        "chain status --etcd http://127.0.0.1:1 --prefix /p",
        "chain join --etcd http://127.0.0.1:1 --prefix /p --secret-file s",
        "chain join x --etcd http://127.0.0.1:1 --prefix /p --secret-file s",
        "chain remove --etcd http://127.0.0.1:1 --prefix /p --secret-file s",
        "chain demo --ttl 0",
        "kv",
        "kv create",
        "kv create s --segment 5000",
        "kv get s",
        "kv get nothing key",
        "kv get s 0 --format hex",
        "kv put s key value --expires-in 0",
        "kv put nothing key value",
        "kv delete s",
        "kv delete s key --prefix k",
        "kv scan s --prefix a --from b",
        "kv scan s --count --keys-only",
        "kv scan s --format xml",
        "kv load nothing",
        "kv backup s",
        "kv restore s",
        "kv shell nothing",
    ] {
        let run = cairn(dir.path(), line);
        assert_eq!(run.code, 2, "{line}: {run:?}");
        assert!(!run.err.is_empty(), "{line}");
    }
    assert_eq!(cairn(dir.path(), "--version").code, 0);
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let dir = tempfile::tempdir().unwrap();
    let run = crate::cairn(dir.path(), "man pages");
    assert_eq!(run.code, 0, "{run:?}");
    for (page, has) in [("cairn.1", "serve"), ("cairn-serve.1", "max\\-connections"), ("cairn-kv-put.1", "key")] {
        let text = std::fs::read_to_string(dir.path().join("pages").join(page)).unwrap();
        assert!(text.starts_with(".ie") && text.contains(".TH") && text.contains(has), "{page}: {text}");
    }
}

/// A name of a file can have everything in it but a zero.
#[test]
fn what_a_path_has_in_it_does_not_reach_the_terminal() {
    let dir = temp();
    let path = "no\u{1b}[31msuch\nerror: \u{9b}file\r";
    for command in [&["check"][..], &["info"], &["kv", "get"], &["log", "cat"], &["backup"]] {
        let mut run = std::process::Command::new(env!("CARGO_BIN_EXE_cairn"));
        run.args(command).arg(path).current_dir(dir.path());
        match command {
            ["kv", "get"] => run.arg("key"),
            ["backup"] => run.arg("copy"),
            _ => &mut run,
        };
        let said = String::from_utf8(run.output().unwrap().stderr).unwrap();
        assert!(said.contains("no\\u{1b}[31msuch\\nerror: \\u{9b}file\\r"), "{command:?}: {said}");
        assert_eq!(said.lines().count(), 2, "{command:?}: {said}");
        assert!(!said.chars().any(|letter| letter.is_control() && letter != '\n'), "{command:?}: {said:?}");
    }
}
