//! Machines that know each other by certificates, with an etcd that asks for certificates and for users.

use std::os::unix::fs::PermissionsExt;

use testnet::Certificate;

use super::groups::{Group, MACHINES};
use crate::etcd::{Etcd, How};
use crate::eventually;

#[test]
fn a_group_needs_no_secret_and_trusts_no_network() {
    let dir = tempfile::tempdir().unwrap();
    let root = Certificate::root(dir.path(), "root").unwrap();
    let own = root.sign(dir.path(), "own", "IP:127.0.0.1").unwrap();
    let other_root = Certificate::root(dir.path(), "other-root").unwrap();
    let other = other_root.sign(dir.path(), "other", "IP:127.0.0.1").unwrap();
    let password = dir.path().join("password");
    std::fs::write(&password, "of cairn\n").unwrap();
    std::fs::set_permissions(&password, PermissionsExt::from_mode(0o600)).unwrap();

    let etcd = Etcd::start_with(1, How { options: Vec::new(), tls: Some((own.clone(), root.clone())) });
    for line in [
        "user add root:top",
        "user grant-role root root",
        "role add cairn",
        "role grant-permission cairn readwrite /cairn/ --prefix=true",
        "user grant-role cairn cairn",
        "auth enable",
    ] {
        if line.starts_with("user grant-role cairn") {
            etcd.ctl(&["user", "add", "cairn:of cairn"]);
        }
        etcd.ctl(&line.split(' ').collect::<Vec<_>>());
    }
    let known = |by: &Certificate, root: &Certificate| {
        format!("--cert {} --key {} --ca {}", by.chain.display(), by.key.display(), root.chain.display())
    };
    let of_etcd = |by: &Certificate, user: &str| {
        let (root, chain, key) = (root.chain.display(), by.chain.display(), by.key.display());
        let password = password.display();
        format!(
            "--etcd-ca {root} --etcd-cert {chain} --etcd-key {key} --etcd-user {user} --etcd-password-file {password}"
        )
    };
    let ours = (known(&own, &root), of_etcd(&own, "cairn"));
    let endpoint = etcd.endpoints()[0].clone();
    let mut group = Group::with(etcd, &format!("{} {}", ours.0, ours.1));
    group.start_all();
    let leader = group.leader(&[0, 1, 2]);
    group.await_all(leader);
    assert_eq!(group.ask(leader, "SET a 1").unwrap(), "+OK");
    eventually("all is well", || group.run("status").code == 0);
    let at = format!("--etcd {endpoint} --prefix /cairn/shop");
    let replicas = group.cluster.run(0, &format!("log replicas {at} {} {}", ours.0, ours.1));
    assert!(replicas.out.contains("each record on 2 of 3 replicas"), "{replicas:?}");

    let encrypted = dir.path().join("encrypted");
    std::fs::write(&encrypted, "-----BEGIN ENCRYPTED PRIVATE KEY-----\n-----END ENCRYPTED PRIVATE KEY-----\n").unwrap();
    for file in [&encrypted, &own.chain] {
        std::fs::set_permissions(file, PermissionsExt::from_mode(0o600)).unwrap();
    }
    let ours_without = |option: &str, file: &std::path::Path| {
        let words: Vec<&str> = ours.1.split(' ').collect();
        let at = words.iter().position(|word| *word == option).unwrap();
        format!("{} {} {option} {} {}", ours.0, words[..at].join(" "), file.display(), words[at + 2..].join(" "))
    };

    // A client that shows another certificate, another user, or nothing, learns nothing; what is said tells which it was.
    for (command, trust, why) in [
        ("group status --wait 0", format!("{} {}", known(&other, &other_root), ours.1), "certificate"),
        ("group status --wait 0", format!("--secret-file secret {}", ours.1), "certificates of one root"),
        ("group status", format!("{} {}", ours.0, of_etcd(&own, "root")), "invalid user ID or password"),
        ("group status", format!("{} {}", ours.0, of_etcd(&other, "cairn")), "no etcd of"),
        (
            "group status",
            ours.0.clone(),
            "cannot be spoken to without the roots of etcd's certificates\nnext: give them with --etcd-ca",
        ),
        (
            "group status",
            format!("{} {}", ours.0, of_etcd(&other, "cairn")),
            "next: see whether etcd takes this program's certificate",
        ),
        ("group status", ours_without("--etcd-key", &encrypted), "the private key is encrypted"),
        ("group status", ours_without("--etcd-key", &own.chain), "there is no private key in PEM in it"),
        ("group status", ours_without("--etcd-ca", &password), "password: there is no certificate in PEM in it"),
        ("chain status", format!("{} {}", ours.0, ours.1), "no chain"),
    ] {
        let run = group.cluster.run(0, &format!("{command} {at} {trust}"));
        assert!(run.code == 2 && run.err.contains(why), "{command} {trust}: {run:?}");
    }

    group.kill(leader);
    let rest: Vec<usize> = (0..MACHINES).filter(|machine| *machine != leader).collect();
    let next = group.leader(&rest);
    assert_eq!(group.ask(next, "GET a").unwrap(), "1");
    group.start(leader);
    eventually("all is well again", || group.run("status").code == 0);
}
