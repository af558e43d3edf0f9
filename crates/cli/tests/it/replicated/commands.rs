//! What an operator does, and is told.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use super::cluster::{Cluster, secret};
use crate::{cairn, temp};

/// Three copies, of which two must have each record.
fn made(quorum: u32) -> Cluster {
    let cluster = Cluster::new(3, None, 0, "");
    let line = format!("log create --bytes 1M --segment 64K --write-quorum {quorum} {}", cluster.copies());
    let made = cluster.done(0, &line);
    assert!(made.out.contains(&format!("each record on {quorum} of 3 replicas")), "{made:?}");
    cluster
}

/// Runs a command with this on its standard input: its exit code, and what it prints.
pub fn feed(cluster: &Cluster, line: &str, input: &str) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cairn"));
    let command = command.args(line.split_whitespace()).current_dir(cluster.dir.path());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn what_is_appended_is_on_the_copies_and_is_printed() {
    let mut cluster = made(2);
    let copies = cluster.copies();
    let (code, out) = feed(&cluster, &format!("log append {copies}"), "one\ntwo\n");
    assert_eq!((code, out.as_str()), (0, "2 records appended, the last is number 2\n"));
    let (code, out) = feed(&cluster, &format!("log append --print-lsn --frequency 8 {copies}"), "three\nfour\n");
    assert_eq!((code, out.lines().count()), (0, 2), "{out}");
    assert_eq!(cluster.done(0, &format!("log cat {copies}")).out, "one\ntwo\nthree\nfour\n");

    let replicas = cluster.done(0, &format!("log replicas {copies}"));
    assert_eq!(
        replicas.out.matches("each record on 2 of 3 replicas; records from 1, before").count(),
        3,
        "{replicas:?}"
    );
    assert_eq!(replicas.out.matches(&format!("; wire version {}\n", log::WIRE_VERSION)).count(), 3, "{replicas:?}");
    // One may be lost.
    cluster.replica(1).kill();
    let replicas = cluster.run(0, &format!("log replicas {copies} --json"));
    assert_eq!(replicas.code, 1, "{replicas:?}");
    assert_eq!(replicas.json()[0]["wire"], log::WIRE_VERSION, "{replicas:?}");
    let unknown = |copy: &&serde_json::Value| copy["error"].is_string();
    assert_eq!(replicas.json().as_array().unwrap().iter().filter(unknown).count(), 1, "{replicas:?}");
    let promoted = cluster.done(0, &format!("log promote {copies}"));
    assert!(promoted.out.contains("records  4 with 15 bytes\nnumbers  from 1;"), "{promoted:?}");
    assert_eq!(promoted.out.matches("has all of it").count(), 2, "{promoted:?}");
    assert_eq!(promoted.out.matches("missing: ").count(), 1, "{promoted:?}");
    // Two may not.
    cluster.replica(2).kill();
    for command in ["promote", "promote --accept-doubt", "cat", "append"] {
        let run = cluster.run(0, &format!("log {command} {copies}"));
        assert_eq!(run.code, 2, "{command}: {run:?}");
        assert!(
            run.failure().0.contains("do not make a quorum") && run.failure().1.contains("bring more of them up"),
            "{run:?}"
        );
    }
    cluster.start(1);
    cluster.start(2);
    let promoted = cluster.done(0, &format!("log promote {copies} --json")).json();
    assert_eq!((&promoted["records"], &promoted["in_doubt"]), (&4.into(), &serde_json::Value::Null));
    let repaired = promoted["asked"].as_array().unwrap().iter().filter(|copy| copy["repaired"] == true);
    assert_eq!(repaired.count(), 3, "{promoted}");
    assert_eq!(cluster.done(0, &format!("log cat --from 2 {copies}")).out, "two\nthree\nfour\n");
}

#[test]
fn a_leader_may_have_a_copy_of_its_own() {
    let cluster = Cluster::new(2, None, 0, "");
    let copies = cluster.copies();
    let missing = cluster.run(0, &format!("log append own {copies}"));
    assert!(missing.code == 2 && missing.failure().0.contains("own: no such file"), "{missing:?}");
    cluster.done(0, &format!("log create own --bytes 1M --domain emulated --write-quorum 2 {copies}"));
    assert_eq!(feed(&cluster, &format!("log append own {copies}"), "one\n").0, 0);
    let alone = cluster.run(0, "log append own");
    assert!(alone.code == 2 && alone.failure().0.contains("is a replica of a log"), "{alone:?}");
    assert_eq!(cluster.done(0, &format!("log cat own {copies}")).out, "one\n");
    assert_eq!(cluster.done(0, &format!("log cat {copies}")).out, "one\n", "without it, too");
}

#[test]
fn a_copy_ends_when_it_is_told_to_and_goes_on_later() {
    let mut cluster = made(3);
    let copies = cluster.copies();
    assert_eq!(feed(&cluster, &format!("log append {copies}"), "one\n").0, 0);
    for signal in [Signal::TERM, Signal::INT] {
        cluster.replica(0).signal(signal);
        assert_eq!(cluster.replica(0).wait(), 0);
        assert_eq!(cluster.done(0, "info copy0 --json").json()["engine"], "log", "closed cleanly");
        cluster.start(0);
    }
    assert_eq!(cluster.done(0, &format!("log cat {copies}")).out, "one\n");
}

#[test]
fn a_new_copy_takes_the_place_of_one_that_is_lost() {
    let mut cluster = Cluster::new(2, None, 0, "");
    let copies = cluster.copies();
    cluster.done(0, &format!("log create --bytes 1M --segment 64K {copies}"));
    assert_eq!(feed(&cluster, &format!("log append {copies}"), "one\n").0, 0);
    let lost = cluster.done(0, &format!("log replicas {copies} --json")).json()[1]["id"].as_str().unwrap().to_owned();
    cluster.replica(1).kill();
    std::fs::remove_file(cluster.path("copy1")).unwrap();
    cluster.start(1);
    let without = cluster.run(0, &format!("log promote {copies}"));
    let (said, next) = without.failure();
    assert!(without.code == 2 && said.contains(&lost) && next.contains("lost for good"), "{without:?}");
    let promoted = cluster.done(0, &format!("log promote --lost {lost} {copies}"));
    assert!(promoted.out.contains("each record on 2 of 2 replicas"), "{promoted:?}");
    assert_eq!(feed(&cluster, &format!("log append {copies}"), "two\n").0, 0);
    assert_eq!(cluster.done(0, &format!("log cat {copies}")).out, "one\ntwo\n");
}

#[test]
fn secrets_are_secret() {
    let cluster = made(2);
    secret(&cluster.path("open"), 0o640);
    for (name, text) in [("short", "guess"), ("other", "what somebody guessed")] {
        secret(&cluster.path(name), 0o600);
        std::fs::write(cluster.path(name), text).unwrap();
    }
    let named = cluster.copies().replace("--secret-file secret", "");
    for (words, what, next) in [
        ("", "nothing says how leader and replicas know each other", "--secret-file"),
        ("--secret-file open", "open: others than its owner may read or write it (mode 640)", "chmod 600 open"),
        ("--secret-file short", "short: a secret of 5 bytes can be guessed", "16 random"),
        ("--secret-file none", "none: read failed", "check the path"),
    ] {
        for command in ["log append", "log replicas", "log promote"] {
            let run = cluster.run(0, &format!("{command} {named} {words}"));
            assert_eq!(run.code, 2, "{run:?}");
            let (said, advice) = run.failure();
            assert!(said.contains(what) && advice.contains(next), "{command} {words}: {run:?}");
        }
        let run = cluster.run(0, &format!("log-replica new --listen 127.0.0.1:0 {words}"));
        assert!(run.code == 2 && run.failure().0.contains(what), "{words}: {run:?}");
    }
    let run = cluster.run(0, &format!("log promote {named} --secret-file other"));
    assert!(run.code == 2 && run.failure().0.contains("do not make a quorum"), "{run:?}");
    let run = cluster.run(0, &format!("log replicas {named} --secret-file other"));
    assert_eq!((run.code, run.out.matches("is not taken for a peer").count()), (1, 3), "{run:?}");
}

/// A replica of a program that speaks later wire versions, or earlier ones, and none of this one's: it refuses, and the commands say which program is to be upgraded.
#[test]
fn a_copy_without_a_wire_version_in_common_is_named() {
    let cluster = Cluster::new(0, None, 0, "");
    let secret = log::fabric::Secret::new(&std::fs::read(cluster.path("secret")).unwrap()).unwrap();
    let trust = log::fabric::Options { secret: Some(secret), ..Default::default() };
    let mut listener = log::fabric::Listener::bind("127.0.0.1:0", trust, None).unwrap();
    let address = listener.address().unwrap();
    let long = Duration::from_secs(60);
    for (why, upgrade) in
        [("6 to 7, not 4 to 5: upgrade", "the program that asks it"), ("3, not 4 to 5: upgrade", "it")]
    {
        let why = format!("it speaks wire versions {why} {upgrade}");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..2 {
                    let mut connection = listener.accept(long).unwrap().expect("a command asks");
                    let Some(log::fabric::Event::Message(asked)) = connection.receiver.poll(long).unwrap() else {
                        panic!("it asks nothing")
                    };
                    // A number of 7 bits in each byte, and `Look`. The answer: to that number, `Failed`.
                    let number = asked.iter().position(|byte| *byte < 0x80).unwrap();
                    assert_eq!(asked[number + 1], 0, "{asked:?}");
                    let answer = [&[0], &asked[..=number], &[6, why.len() as u8], why.as_bytes()].concat();
                    connection.sender.send(&answer).and_then(|()| connection.sender.flush()).unwrap();
                    drop(connection.receiver.poll(long));
                }
            });
            let copy = format!("--replica {address} --secret-file secret");
            let run = cluster.run(0, &format!("log replicas {copy}"));
            assert!(run.code == 1 && run.out.contains(&why), "{run:?}");
            let run = cluster.run(0, &format!("log promote {copy}"));
            assert!(run.code == 2 && run.err.contains(&format!("{address}: {why}")), "{run:?}");
        });
    }
}

#[test]
fn copies_are_taken_in_and_dropped() {
    let mut cluster = Cluster::new(4, None, 0, "");
    let words = |addresses: &[String]| {
        let named: String = addresses.iter().map(|address| format!("--replica {address} ")).collect();
        format!("{named} --secret-file secret --connect-within 1000 --give-up-after 500")
    };
    let three = words(&cluster.addresses[..3]);
    cluster.done(0, &format!("log create --bytes 1M --segment 64K --write-quorum 2 {three}"));
    assert_eq!(feed(&cluster, &format!("log append {three}"), "one\ntwo\n").0, 0);
    let fourth = cluster.addresses[3].clone();

    let joined = cluster.done(0, &format!("log join {fourth} {three}"));
    assert!(joined.out.contains("joined: it has all of it") && joined.out.contains("2 of 4 replicas"), "{joined:?}");
    let all = cluster.copies();
    let again = cluster.done(0, &format!("log join {fourth} {all} --json")).json();
    assert_eq!((&again["changed"], again["copies"].as_array().unwrap().len()), (&false.into(), 4), "{again}");

    // One is lost for good: what it is called is told.
    let lost = cluster.done(0, &format!("log replicas {three} --json")).json()[0]["id"].as_str().unwrap().to_owned();
    cluster.replica(0).kill();
    let unknown = cluster.run(0, &format!("log remove 0 {all}"));
    assert!(unknown.code == 2 && unknown.failure().1.contains(&lost), "{unknown:?}");
    let removed = cluster.done(0, &format!("log remove {lost} {all}"));
    assert!(
        removed.out.contains("none of the replicas any more") && removed.out.contains("2 of 3 replicas"),
        "{removed:?}"
    );
    // Of the three that are left any one may be lost.
    cluster.replica(1).kill();
    let rest = words(&cluster.addresses[2..]);
    assert_eq!(feed(&cluster, &format!("log append {rest}"), "three\n").0, 0);
    let second = cluster.run(0, &format!("log remove {lost} {rest}"));
    assert!(second.code == 2 && second.failure().0.contains("no replica"), "{second:?}");
    cluster.start(1);
    let back = cluster.addresses[1].clone();
    let back = cluster.done(0, &format!("log join {back} {rest} --json")).json();
    assert_eq!(back["changed"], true, "{back}");
    assert_eq!(cluster.done(0, &format!("log cat {}", words(&cluster.addresses[1..]))).out, "one\ntwo\nthree\n");

    let id = back["id"].as_str().unwrap();
    let last = words(&cluster.addresses[1..]);
    cluster.done(0, &format!("log remove {id} {last}"));
    let other = cluster.done(0, &format!("log replicas {rest} --json")).json()[0]["id"].as_str().unwrap().to_owned();
    let needed = cluster.run(0, &format!("log remove {other} {rest}"));
    assert!(needed.code == 2 && needed.failure().0.contains("each record is on all 2 replicas"), "{needed:?}");
    let nobody = cluster.run(0, &format!("log join 127.0.0.1:1 {rest}"));
    assert!(nobody.code == 2 && nobody.failure().1.contains("log-replica"), "{nobody:?}");
}

#[test]
fn certificates_do_as_well() {
    let dir = temp();
    let script = "\
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -subj /CN=root -days 9 \
          -addext basicConstraints=critical,CA:TRUE
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout own.key -out own.csr -subj /CN=own
        printf 'subjectAltName=IP:127.0.0.1' > names
        openssl x509 -req -in own.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out own.pem -days 9 -extfile names
        chmod 600 own.key";
    let made = Command::new("sh").args(["-ec", script]).current_dir(dir.path()).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let tls = format!("--cert {0}/own.pem --key {0}/own.key --ca {0}/ca.pem", dir.path().display());
    let cluster = Cluster::new(1, None, 0, &tls);
    let both = format!("--replica {} --secret-file secret {tls}", cluster.addresses[0]);
    cluster.done(0, &format!("log create --bytes 1M {both}"));
    assert_eq!(feed(&cluster, &format!("log append {both}"), "one\n").0, 0);
    assert_eq!(cluster.done(0, &format!("log cat {both}")).out, "one\n");
    let without = cluster.run(0, &format!("log cat --replica {} --secret-file secret", cluster.addresses[0]));
    assert_eq!(without.code, 2, "{without:?}");
}

#[test]
fn wrong_usage_is_told() {
    let dir = temp();
    secret(&dir.path().join("secret"), 0o600);
    for line in [
        "log append --print-lsn",
        "log cat",
        "log create --write-quorum 2",
        "log create l --write-quorum 2",
        "log create --replica a:1 --write-quorum 9 --secret-file secret",
        "log cat l --salvage --replica a:1",
        "log replicas --secret-file secret",
        "log promote --secret-file secret",
        "log join --secret-file secret",
        "log join a:1 --secret-file secret",
        "log remove --replica a:1 --secret-file secret",
        "log remove copy --replica a:1 --secret-file secret",
        "log append --etcd http://127.0.0.1:1",
        "log append --replica a:1 --cert c",
        "log append --wait 3 --replica a:1 --secret-file secret",
        "log-replica",
        "log-replica copy --listen nowhere --secret-file secret",
        "log-replica copy --announce a:1 --secret-file secret",
    ] {
        let run = cairn(dir.path(), line);
        assert_eq!(run.code, 2, "{line}: {run:?}");
        assert!(!run.err.is_empty(), "{line}");
    }
}
