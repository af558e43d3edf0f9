//! Every command that opens a pool, given something that is none: it says so, soon, and leaves it alone.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use super::replicated::cluster::{Proc, secret};
use super::{clap_list, eventually, temp};

/// Command, and the words behind it; `X` is what is no pool. None for those that are given no pool.
const CASES: &[(&str, &str)] = &[
    ("create", "X --size 1M"),
    ("info", "X"),
    ("check", "X"),
    ("check", "X --recover"),
    ("check", "X --repair"),
    ("check", "X --dry-run"),
    ("scrub", "X"),
    ("convert", "X --engine mvcc"),
    ("backup", "X copy"),
    ("backup", "X copy --recover"),
    ("backup", "pool X"),
    ("kv create", "X --segment 4K"),
    ("kv get", "X key"),
    ("kv get", "X key --recover"),
    ("kv put", "X key value"),
    ("kv delete", "X key"),
    ("kv scan", "X"),
    ("kv load", "X pairs"),
    ("kv dump", "X"),
    ("kv stats", "X"),
    ("kv check", "X"),
    ("kv check", "X --repair"),
    ("kv check", "X --dry-run"),
    ("kv backup", "X copy"),
    ("kv backup", "store X"),
    ("kv restore", "X copy"),
    ("kv restore", "store X"),
    ("kv shell", "X"),
    ("kv follow", "X --log none --listen 127.0.0.1:0 --secret-file secret"),
    ("kv follow", "none --log X --listen 127.0.0.1:0 --secret-file secret"),
    ("kv promote", "X --replica 127.0.0.1:1 --secret-file secret --connect-within 10"),
    ("kv promote", "none --log X --replica 127.0.0.1:1 --secret-file secret --connect-within 10"),
    ("kv seed", "X copy --replica 127.0.0.1:1 --secret-file secret --connect-within 10"),
    ("log create", "X --bytes 64K"),
    ("log append", "X"),
    ("log cat", "X"),
    ("log cat", "X --salvage"),
    ("log tail", "X"),
    ("log tail", "X -f"),
    ("log check", "X"),
    ("log check", "X --recover"),
    ("log convert", "X new"),
    ("log stats", "X"),
    ("array create", "X --bytes 64K --log 64K"),
    ("array write", "X"),
    ("array read", "X"),
    ("array check", "X"),
    ("array check", "X --recover"),
    ("array status", "X"),
    ("log promote", "X --replica 127.0.0.1:1 --secret-file secret --connect-within 10"),
    ("log join", "127.0.0.1:1 X --replica 127.0.0.1:1 --secret-file secret --connect-within 10"),
    ("log remove", "1 X --replica 127.0.0.1:1 --secret-file secret --connect-within 10"),
    ("log-replica", "X --listen 127.0.0.1:0 --secret-file secret"),
    (
        "chain serve",
        "X --machine 1 --listen 127.0.0.1:0 --clients 127.0.0.1:0 --etcd http://127.0.0.1:1 --prefix /p --secret-file secret",
    ),
    ("serve", "X --redis 127.0.0.1:0 --threads 1"),
    ("serve", "X --redis 127.0.0.1:0 --threads 1 --engine heap"),
];

/// They are given no pool of the user's.
const WITHOUT: &[&str] = &[
    "chain demo",
    "chain join",
    "chain remove",
    "chain status",
    "crash",
    "demo",
    "export",
    "group join",
    "group remove",
    "group status",
    "group transfer",
    "import",
    "log replicas",
    "man",
    "top",
];

/// Those that fail before they look: the copies that they need are away.
const FIRST_ELSEWHERE: &[&str] = &["kv promote", "kv seed", "log promote", "log join", "log remove"];

/// What `make` makes, by name.
const KINDS: [&str; 7] = ["fifo", "directory", "null", "zero", "empty", "socket", "forbidden"];

fn make(dir: &Path, kind: &str) -> String {
    let path = dir.join("x");
    match kind {
        "fifo" => {
            let made = Command::new("mkfifo").arg(&path).status().unwrap();
            assert!(made.success());
        }
        "directory" => fs::create_dir(&path).unwrap(),
        "null" | "zero" => return format!("/dev/{kind}"),
        "empty" => drop(File::create(&path).unwrap()),
        "socket" => drop(std::os::unix::net::UnixListener::bind(&path).unwrap()),
        _ => {
            fs::copy(dir.join("pool"), &path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o000)).unwrap();
        }
    }
    "x".to_owned()
}

fn what_is_there(path: &Path) -> (bool, bool, bool, u64) {
    let meta = fs::symlink_metadata(path).unwrap();
    let kind = meta.file_type();
    (kind.is_fifo(), kind.is_dir(), kind.is_char_device(), if kind.is_file() { meta.len() } else { 0 })
}

#[test]
fn what_is_no_pool_is_refused_at_once_by_every_command() {
    let all = CASES.iter().map(|case| case.0).chain(WITHOUT.iter().copied());
    let benches: Vec<String> = clap_list::commands().into_iter().filter(|name| name.starts_with("bench ")).collect();
    clap_list::assert_all_are_in(all.chain(benches.iter().map(String::as_str)));
    let dir = temp();
    let dir = dir.path();
    pmem::Options::new().size(1 << 20).create(dir.join("pool")).unwrap().close().unwrap();
    kv::Options::new().segment_bytes(4096).background(false).create(dir.join("store")).unwrap().close().unwrap();
    fs::write(dir.join("pairs"), "a\tb\n").unwrap();
    secret(&dir.join("secret"), 0o600);
    for kind in KINDS {
        let path = make(dir, kind);
        if kind == "forbidden" && File::open(dir.join(&path)).is_ok() {
            fs::remove_file(dir.join(path)).unwrap();
            continue; // nothing is forbidden to this user
        }
        let before = what_is_there(&dir.join(&path));
        for (command, words) in CASES {
            let line = format!("{command} {}", words.replace('X', &path));
            let said = File::create(dir.join("said")).unwrap();
            let mut run = Command::new(env!("CARGO_BIN_EXE_cairn"));
            run.args(line.split(' ')).current_dir(dir).env_remove("RUST_LOG");
            let mut child = Proc(run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn().unwrap());
            eventually(&format!("{kind}: {line} ends"), || child.is_over());
            let (code, said) = (child.wait(), fs::read_to_string(dir.join("said")).unwrap());
            assert_eq!(code, 2, "{kind}: {line}: {said}");
            assert!(said.starts_with("error: ") && said.contains("\nnext: "), "{kind}: {line}: {said}");
            let names = said.contains(&path) || FIRST_ELSEWHERE.contains(command);
            assert!(names, "which file is told: {kind}: {line}: {said}");
            assert_eq!(what_is_there(&dir.join(&path)), before, "{kind}: {line}");
            for left in ["copy", "none"] {
                assert!(!dir.join(left).exists() || left == "none", "{kind}: {line} leaves {left}");
                drop(fs::remove_file(dir.join(left)));
            }
        }
        if !path.starts_with("/dev") {
            drop(fs::remove_dir(dir.join(&path)).or_else(|_| fs::remove_file(dir.join(&path))));
        }
    }
}
