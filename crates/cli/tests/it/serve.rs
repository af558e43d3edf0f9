//! `cairn serve` as an operator meets it: it starts, is killed, stopped, refused.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::cairn;
use crate::witness::{self, Served, check_strace, traced};

fn start(dir: &Path, more: &[&str]) -> Served {
    start_as(Command::new(env!("CARGO_BIN_EXE_cairn")), dir, more)
}

fn start_as(mut command: Command, dir: &Path, more: &[&str]) -> Served {
    let listen = ["serve", "data.cairn", "--redis", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    Served::start(command.args(listen).args(more).current_dir(dir))
}

/// The exit code of a server that is sent a signal.
fn signalled(served: &mut Served, name: &str) -> Option<i32> {
    let kill = Command::new("kill").args([name, &served.child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    served.child.wait().unwrap().code()
}

fn killed(engine: &str, domain: &str, rounds: u64) {
    let dir = tempfile::tempdir().unwrap();
    let more = ["--engine", engine, "--domain", domain];
    let acknowledged = witness::killed(&|| start(dir.path(), &more), rounds);
    println!("{engine}, {domain}: {rounds} kills, {acknowledged} writes, nothing lost");
    assert!(acknowledged >= rounds, "the servers were killed before they did anything");
}

/// `CAIRN_KILLS` sets how often.
#[test]
fn nothing_acknowledged_is_lost_by_kills() {
    let rounds = std::env::var("CAIRN_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    for engine in ["kv", "heap"] {
        killed(engine, "emulated", rounds);
        killed(engine, "file", rounds);
    }
}

#[test]
fn nothing_is_acknowledged_before_its_sync_or_after_a_failed_one() {
    check_strace();
    for engine in ["kv", "heap"] {
        let dir = tempfile::tempdir().unwrap();
        let (program, log) = (Path::new(env!("CARGO_BIN_EXE_cairn")), dir.path().join("log"));
        let start = |fails| {
            let command = if fails { traced(program, &log) } else { Command::new(program) };
            start_as(command, dir.path(), &["--engine", engine, "--domain", "file"])
        };
        witness::synced(&start, &log, engine == "kv");
    }
}

/// A file system on a file that has more blocks than there is room for: syncs fail when it is used up. Prints `mounted`, serves, and does it again with more room
/// when the first server has ended; what the page cache had is gone by then.
const DEVICE: &str = r#"
PATH="$PATH:/usr/sbin:/sbin"
set -e
mount -t tmpfs -o size=24M none "$1"
truncate -s 256M "$1/device"
mkfs.ext4 -q -J size=4 -E nodiscard "$1/device"
mkdir "$1/disk"
mount -o loop "$1/device" "$1/disk"
echo mounted >&2
cd "$1/disk"
"$2" serve data.cairn --redis 127.0.0.1:0 --http 127.0.0.1:0 --domain file || true
cd /
umount "$1/disk"
mount -o remount,size=400M "$1"
e2fsck -fy "$1/device" >&2 || test $? -lt 4
mount -o loop "$1/device" "$1/disk"
echo again >&2
cd "$1/disk"
"$2" serve data.cairn --redis 127.0.0.1:0 --http 127.0.0.1:0 --domain file
cd /
umount "$1/disk"
"#;

/// Four clients write until their device fails. Then the server is told to end, another one begins on what the device has kept, and must have it all.
fn writes_until_it_fails(served: &mut Served) {
    let mut all = witness::Told::clients(3);
    std::thread::scope(|scope| {
        for told in &mut all {
            let served = &*served;
            scope.spawn(move || {
                let refused = witness::write(served, told).unwrap_or_else(|| panic!("the server is gone"));
                let (doubt, none) = (refused.contains("may or may not be there"), refused.contains("written nothing"));
                assert!(refused.starts_with("-MISCONF") && doubt != none, "{refused}");
            });
        }
        // This uses up the room.
        let (mut connection, value) = (served.connect(), "x".repeat(100_000));
        let refused = (0..10_000).find(|number| connection.ask(&format!("SET fill{number} {value}")).unwrap() != "+OK");
        assert!(refused.is_some(), "it is never full");
    });
    let mut connection = served.connect();
    assert!(connection.ask("SET other 1").unwrap().starts_with("-MISCONF"));
    assert_eq!((connection.ask("GET other").unwrap().as_str(), served.health()), ("nil", 503));
    assert!(connection.ask("SHUTDOWN").is_err());
    drop(connection);
    for word in ["again", "serving"] {
        served.await_word(word).unwrap_or_else(|said| panic!("it ended before {word}: {said}"));
    }
    let acknowledged: u64 = all.iter().map(|told| told.acknowledged).sum();
    witness::check(served, &mut all);
    assert_eq!((served.health(), served.connect().ask("SET other 1").unwrap().as_str()), (200, "+OK"));
    println!("{acknowledged} writes acknowledged before the device failed, nothing lost");
}

/// A real one: what was not synced is lost, and none of it was acknowledged.
#[test]
fn a_device_that_fails_takes_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    // Killing it kills all of them, and the mounts are gone with them.
    let apart = ["-m", "-p", "--fork", "--kill-child"];
    if !Command::new("unshare").args(apart).arg("true").status().unwrap().success() {
        println!("skipped: nobody but root may mount a file system");
        return;
    }
    let mut command = Command::new("unshare");
    command
        .args(apart)
        .args(["sh", "-c", DEVICE, "sh"])
        .arg(dir.path())
        .arg(env!("CARGO_BIN_EXE_cairn"))
        .stdin(Stdio::null());
    let mut served = Served::spawn(&mut command);
    served.await_word("mounted").unwrap_or_else(|said| panic!("there is no device: {said}"));
    served.await_word("serving").unwrap_or_else(|said| panic!("it ended before it served: {said}"));
    writes_until_it_fails(&mut served);
    // What is left mounted keeps its loop device.
    assert!(served.connect().ask("SHUTDOWN").is_err());
    assert!(served.child.wait().unwrap().success());
    drop(served);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the mount is gone with the server");
}

#[test]
fn it_stops_without_losing_anything() {
    let dir = tempfile::tempdir().unwrap();
    for signal in ["-TERM", "-INT"] {
        let mut served = start(dir.path(), &[]);
        let mut connection = served.connect();
        assert_eq!(connection.ask("SET a 1").unwrap(), "+OK");
        assert_eq!(signalled(&mut served, signal), Some(0));
        assert!(connection.ask("GET a").is_err());
        let info = cairn(dir.path(), "info data.cairn --json");
        assert_eq!(info.code, 0, "not closed cleanly: {info:?}");
    }
    let mut served = start(dir.path(), &[]);
    let mut connection = served.connect();
    assert_eq!(connection.ask("GET a").unwrap(), "1");
    assert!(connection.ask("SHUTDOWN").is_err());
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

/// Read, it would be written back under a checksum of its own, and nothing would tell any more.
#[test]
fn a_value_that_went_bad_is_neither_read_nor_changed() {
    let dir = tempfile::tempdir().unwrap();
    let mut served = start(dir.path(), &[]);
    let mut connection = served.connect();
    assert_eq!(connection.ask("SET a 1234567890123456").unwrap(), "+OK");
    // Enough that what the server reads at its start stands in another leaf of the index.
    for number in 0..300 {
        assert_eq!(connection.ask(&format!("SET key{number:03} {number}")).unwrap(), "+OK");
    }
    assert_eq!(signalled(&mut served, "-TERM"), Some(0));
    let path = dir.path().join("data.cairn");
    let mut bytes = std::fs::read(&path).unwrap();
    let places = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"1234567890123456"));
    let places = places.collect::<Vec<_>>();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at] ^= 1);
    std::fs::write(&path, bytes).unwrap();

    let is_damaged = || {
        let run = cairn(dir.path(), "check data.cairn");
        assert!(run.code == 1 && run.out.contains("does not match its checksum"), "{run:?}");
    };
    is_damaged();
    let mut served = start(dir.path(), &[]);
    let mut connection = served.connect();
    for line in ["GET a", "INCR a", "APPEND a 7", "GETRANGE a 0 1", "GETSET a 1", "GETDEL a"] {
        let said = connection.ask(line).unwrap();
        assert!(said.starts_with("-ERR") && said.contains("does not match its checksum"), "{line}: {said}");
    }
    assert_eq!(connection.ask("GET key123").unwrap(), "123");
    assert_eq!(signalled(&mut served, "-TERM"), Some(0));
    is_damaged();
}

#[test]
fn what_cannot_be_served_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |line: &str, code: i32, what: &str, next: &str| {
        let run = cairn(dir.path(), line);
        assert_eq!(run.code, code, "{line}: {run:?}");
        let (said, advice) = run.failure();
        assert!(said.contains(what) && advice.contains(next), "{line}: {run:?}");
    };
    refused("serve", 2, "no store", "cairn serve data.cairn");
    refused("serve data.cairn --redis 0.0.0.0:0", 2, "needs no password", "--password-file");
    refused("serve data.cairn --redis-tls 127.0.0.1:0", 2, "no certificate", "--tls-key");
    refused("serve data.cairn --config none.toml", 2, "none.toml", "");
    std::fs::write(dir.path().join("bad.toml"), "stor = 'x'").unwrap();
    refused("serve data.cairn --config bad.toml", 2, "stor", "cairn help serve");

    let held = start(dir.path(), &[]);
    refused("serve data.cairn --redis 127.0.0.1:0", 2, "open in process", "");
    refused(&format!("serve other.cairn --redis {}", held.address), 2, &held.address, "choose another one");
    drop(held);

    // Damaged: all of its header; and a store that is cut short.
    let path = dir.path().join("data.cairn");
    let sound = std::fs::read(&path).unwrap();
    std::fs::write(&path, &sound[..sound.len() / 2]).unwrap();
    refused("serve data.cairn --redis 127.0.0.1:0", 1, "data.cairn", "");
    // All that says where things are.
    let mut bytes = sound.clone();
    let len = bytes.len().min(1 << 20);
    bytes[..len].fill(0xa5);
    std::fs::write(&path, &bytes).unwrap();
    refused("serve data.cairn --redis 127.0.0.1:0", 2, "not a pool", "");
    std::fs::write(&path, &sound).unwrap();
    drop(start(dir.path(), &[]));
}

/// No client is left waiting for a server that cannot have a file for another client.
#[test]
fn few_files_are_few_clients_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let under = |files: u32| {
        let mut command = Command::new("sh");
        let line = format!("ulimit -n {files}; exec \"$0\" \"$@\"");
        command.args(["-c", &line, env!("CARGO_BIN_EXE_cairn")]);
        command
    };
    for files in [16, 40, 52] {
        let arguments = ["serve", "data.cairn", "--redis", "127.0.0.1:0", "--threads", "1"];
        let run = under(files).args(arguments).current_dir(dir.path()).output().unwrap();
        let said = String::from_utf8(run.stderr).unwrap();
        assert!(run.status.code() == Some(2) && said.contains("ulimit -n"), "{files}: {said}");
    }
    let served = start_as(under(60), dir.path(), &["--threads", "1"]);
    let mut clients: Vec<_> = (0..8).map(|_| served.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.ask("SET a 1").unwrap(), "+OK");
    }
    let said = served.connect().reply().unwrap();
    assert!(said.starts_with("-ERR max number of clients"), "{said}");
    assert_eq!(served.health(), 200);
}

/// With no room for a longer file, as on a full disk.
fn under(bytes: u64) -> Command {
    let mut command = Command::new("sh");
    let line = format!("ulimit -f {}; exec \"$0\" \"$@\"", bytes / 512);
    command.args(["-c", &line, env!("CARGO_BIN_EXE_cairn")]);
    command
}

/// Whatever fills the disk, by single deletions, by expiry, and all at once; also by the server that comes behind one that was killed.
#[test]
fn what_went_into_a_full_disk_can_be_taken_out() {
    for (engine, kill) in [("kv", false), ("kv", true), ("heap", false), ("heap", true)] {
        let dir = tempfile::tempdir().unwrap();
        let more = ["--engine", engine];
        let mut served = start(dir.path(), &more);
        assert!(served.connect().ask("SHUTDOWN").is_err() && served.child.wait().unwrap().success());
        let most = std::fs::metadata(dir.path().join("data.cairn")).unwrap().len() + (4 << 20);
        let mut served = start_as(under(most), dir.path(), &more);
        let mut connection = served.connect();
        let mut strings = 0;
        let refused = (0..100_000_u32).find_map(|number| {
            let value = "x".repeat(1 + (number * 7919 % 20_000) as usize);
            let line = match number % 4 {
                0 => format!("HSET hash{} {number} {value}", number % 64),
                1 => format!("SET expires{number} {value} PX 1"),
                2 => format!("RPUSH list{} {value}", number % 64),
                _ => format!("SET string{number} {value}"),
            };
            let said = connection.ask(&line).unwrap();
            strings += u32::from(number % 4 == 3);
            said.starts_with('-').then_some(said)
        });
        assert!(refused.is_some_and(|said| said.starts_with("-MISCONF")), "{engine}: it is never full");
        if kill {
            drop(served);
            served = start_as(under(most), dir.path(), &more);
            connection = served.connect();
        }
        for n in 0..strings / 2 {
            assert_eq!(connection.ask(&format!("DEL string{}", 4 * n + 3)).unwrap(), ":1", "{engine}, {kill}: {n}");
        }
        for n in (0..64).step_by(4) {
            assert_eq!(connection.ask(&format!("DEL hash{n}")).unwrap(), ":1", "{engine}, {kill}: {n}");
        }
        assert_eq!(connection.ask("GET expires1").unwrap(), "nil");
        assert_eq!(connection.ask("FLUSHALL").unwrap(), "+OK", "{engine}, {kill}");
        assert_eq!(connection.ask("DBSIZE").unwrap(), ":0", "{engine}, {kill}");
        let value = "x".repeat(50_000);
        crate::eventually("there is room", || {
            (0..20).all(|n| connection.ask(&format!("SET fits{n} {value}")).unwrap() == "+OK")
        });
        assert!(connection.ask("SHUTDOWN").is_err() && served.child.wait().unwrap().success());
    }
}

/// As a full disk is. The signal that comes with it would end the server, and any other command.
#[test]
fn a_limit_of_file_sizes_is_a_full_disk() {
    for engine in ["kv", "heap"] {
        let dir = tempfile::tempdir().unwrap();
        let more = ["--engine", engine];
        let mut served = start(dir.path(), &more);
        assert!(served.connect().ask("SHUTDOWN").is_err() && served.child.wait().unwrap().success());
        let len = std::fs::metadata(dir.path().join("data.cairn")).unwrap().len();
        let mut served = start_as(under(len + (4 << 20)), dir.path(), &more);
        let (mut connection, value) = (served.connect(), "x".repeat(50_000));
        let mut set = |number: u32| connection.ask(&format!("SET fill{number} {value}"));
        let refused = (0..10_000)
            .find_map(|number| set(number).map(|said| (said != "+OK").then_some((said, number))).transpose());
        let (said, number) =
            refused.expect("it is never full").unwrap_or_else(|error| panic!("the server is gone: {error}"));
        assert!(said.starts_with("-MISCONF") && said.ends_with("No space left on device") && number > 0, "{said}");
        assert_eq!((connection.ask("GET fill0").unwrap(), served.health()), (value.clone(), 503));
        assert_eq!(connection.ask("DEL fill0").unwrap(), ":1");
        assert!(connection.ask("SHUTDOWN").is_err() && served.child.wait().unwrap().success());
    }
    let dir = tempfile::tempdir().unwrap();
    let run = under(1 << 20).args(["create", "p", "--size", "8M"]).current_dir(dir.path()).output().unwrap();
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(
        run.status.code() == Some(2) && said.contains("no space for a new pool") && said.contains("ulimit -f"),
        "{said}"
    );
}

#[test]
fn a_store_says_itself_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let served = start(dir.path(), &["--engine", "heap"]);
    assert_eq!(served.connect().ask("SET a 1").unwrap(), "+OK");
    drop(served);
    let mut served = start(dir.path(), &[]);
    assert_eq!(served.connect().ask("GET a").unwrap(), "1");
    assert_eq!(signalled(&mut served, "-TERM"), Some(0));
    let info = cairn(dir.path(), "info data.cairn --json");
    assert_eq!((info.code, info.json()["engine"].as_str()), (0, Some("heap")));
    assert_eq!(cairn(dir.path(), "check data.cairn").code, 0);
    assert_eq!(cairn(dir.path(), "kv create other.cairn").code, 0);
    assert_eq!(cairn(dir.path(), "create pool.cairn --size 1M").code, 0);
    for (line, what, next) in [
        (
            "serve data.cairn --engine kv",
            "is a store of engine heap, and --engine kv was asked for",
            "leave --engine out",
        ),
        ("serve data.cairn --max-memory 1G", "--max-memory", "leave it out"),
        ("kv get data.cairn a", "\"heap\"", ""),
        (
            "serve other.cairn --engine heap",
            "is a store of engine kv, and --engine heap was asked for",
            "leave --engine out",
        ),
        ("serve pool.cairn", "holds no store", "name another file"),
    ] {
        let run = cairn(dir.path(), line);
        assert_eq!(run.code, 2, "{line}: {run:?}");
        let (said, advice) = run.failure();
        assert!(said.contains(what) && advice.contains(next), "{line}: {run:?}");
    }
}

#[test]
fn a_file_and_the_environment_say_what_flags_do_not() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("c.toml"),
        "max-connections = 77\nidle = 5\nmax-memory = '1G'\nlua-time-limit = 70\n",
    )
    .unwrap();
    std::fs::write(dir.path().join("secret"), "open sesame\n").unwrap();
    let flags = ["--config", "c.toml", "--idle", "9", "--password-file", "secret", "--notify-keyspace-events", "KEA"];
    let served = start(dir.path(), &flags);
    let mut connection = served.connect();
    assert!(connection.ask("PING").unwrap().starts_with("-NOAUTH"));
    assert_eq!(connection.ask("AUTH 'open sesame'").unwrap(), "+OK");
    let told = [
        ("maxclients", "77"),
        ("timeout", "9"),
        ("maxmemory", "1073741824"),
        ("lua-time-limit", "70"),
        ("notify-keyspace-events", "AKE"),
    ];
    for (name, value) in told {
        assert_eq!(connection.ask(&format!("CONFIG GET {name}")).unwrap(), "*2");
        assert_eq!((connection.reply().unwrap(), connection.reply().unwrap()), (name.to_owned(), value.to_owned()));
    }
}
