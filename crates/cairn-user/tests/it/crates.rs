//! What a program compiles that depends on `cairn`.

use std::collections::BTreeSet;
use std::process::Command;

/// Crates, `cairn` and its own parts included.
const CRATES_MAX: usize = 32;

/// `cargo tree` of the facade, in the way a user's build resolves it: without what only tests turn on.
fn tree(arguments: &[&str]) -> BTreeSet<String> {
    let run = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--edges", "normal,build", "--prefix", "none", "--no-dedupe"])
        .args(arguments)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../cairn"))
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn has(crates: &BTreeSet<String>, name: &str) -> bool {
    crates.iter().any(|line| line.split(' ').next() == Some(name))
}

#[test]
fn a_user_compiles_few_crates() {
    let crates = tree(&[]);
    assert!(crates.len() <= CRATES_MAX, "{} crates: {crates:#?}", crates.len());
    // A compiler of C; the network; generators of code.
    for name in ["cc", "cmake", "ring", "rustls", "tokio", "prost-build", "serde_derive", "fabric"] {
        assert!(!has(&crates, name), "{name}");
    }
    let replicated = tree(&["--features", "replication"]);
    assert!(has(&replicated, "rustls") && replicated.len() > crates.len(), "what the feature adds: {replicated:#?}");
}

#[test]
fn no_feature_for_tests_is_on() {
    for arguments in [&["--features", "replication,serde"][..], &[]] {
        let features: Vec<String> = tree(&[&["--format", "{p} [{f}]"], arguments].concat()).into_iter().collect();
        for name in ["failpoints", "testing", "conformance", "no-drains", "fuzzing"] {
            let with = |line: &&String| line.split(['[', ']', ',']).any(|feature| feature == name);
            assert_eq!(features.iter().find(with), None, "{name}");
        }
    }
}
