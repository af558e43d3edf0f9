//! Every command with a standard output that takes nothing: a full disk, a reader that has left, none at all.

use std::cell::Cell;
use std::fs::File;
use std::io::{PipeWriter, Write, pipe};
use std::path::Path;
use std::process::{Command, Stdio};

use super::chains::Chains;
use super::replicated::cluster::{Cluster, Proc};
use super::replicated::groups::Group;
use super::{Run, clap_list, eventually};

/// What is to be done before a command can run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    Pool,
    Heap,
    Store,
    Log,
    Array,
}

/// What is known of how a command prints.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prints {
    Something,
    Nothing,
}

use Needs::{Array, Heap, Log, Nothing, Pool, Store};
use Prints::Something;

type Case = (&'static str, Needs, Prints, &'static str);

/// Command, what it needs as `f`, and the words behind it. `COPIES` names the copies of a log, `GROUP` a group of servers, `CHAIN` a chain, `SERVED` the address of a server, `NEW` a name that is not taken.
const CASES: &[Case] = &[
    ("create", Nothing, Something, "NEW --size 1M"),
    ("info", Pool, Something, "f"),
    ("check", Store, Something, "f"),
    ("scrub", Heap, Something, "f"),
    ("backup", Heap, Something, "f NEW"),
    ("convert", Heap, Something, "f --engine mvcc"),
    ("kv create", Nothing, Something, "NEW --segment 4K"),
    ("kv get", Store, Something, "f key"),
    ("kv put", Store, Prints::Nothing, "f other value"),
    ("kv delete", Store, Something, "f other"),
    ("kv scan", Store, Something, "f"),
    ("kv load", Store, Something, "f"),
    ("kv dump", Store, Something, "f"),
    ("kv stats", Store, Something, "f"),
    ("kv check", Store, Something, "f"),
    ("kv backup", Store, Something, "f NEW"),
    ("kv restore", Store, Something, "f NEW"),
    ("kv shell", Store, Something, "f"),
    ("kv promote", Nothing, Something, "replicated --log its-log STORE_COPIES"),
    ("kv seed", Nothing, Something, "replicated NEW --log its-log STORE_COPIES"),
    ("log create", Nothing, Something, "NEW --bytes 64K"),
    ("log append", Log, Something, "f"),
    ("log cat", Log, Something, "f"),
    ("log tail", Log, Something, "f"),
    ("log check", Log, Something, "f"),
    ("log convert", Log, Something, "f NEW"),
    ("log stats", Log, Something, "f"),
    ("log replicas", Nothing, Something, "COPIES"),
    ("log promote", Nothing, Something, "COPIES"),
    ("log join", Nothing, Something, "JOINS COPIES"),
    ("log remove", Nothing, Something, "ID COPIES"),
    ("group status", Nothing, Something, "GROUP"),
    ("group join", Nothing, Something, "GROUP_JOINS GROUP"),
    ("group remove", Nothing, Something, "GROUP_ID GROUP"),
    ("group transfer", Nothing, Something, "--to GROUP_LEADS GROUP"),
    ("chain status", Nothing, Something, "CHAIN"),
    ("chain join", Nothing, Something, "4 CHAIN"),
    ("chain remove", Nothing, Something, "4 CHAIN"),
    ("chain demo", Nothing, Something, "--kills 0 --seconds 0.1"),
    ("array create", Nothing, Something, "NEW --bytes 64K --log 64K"),
    ("array write", Array, Something, "f"),
    ("array read", Array, Something, "f --len 10"),
    ("array check", Array, Something, "f"),
    ("array status", Array, Something, "f"),
    ("top", Nothing, Something, "--once --interval 0.1 --redis SERVED"),
    ("import", Nothing, Something, "--from SERVED --to SERVED"),
    ("export", Nothing, Something, "NEW --from SERVED"),
    ("man", Nothing, Something, "pages"),
    ("crash", Nothing, Something, "--scenario two-slot --budget 100 --jobs 1"),
    (
        "demo",
        Nothing,
        Something,
        "--only-kills --dir /dev/shm --keys 200 --value-bytes 100 --seconds 0.5 --threads 2 --kills 1 --policy undo",
    ),
    ("bench limits", Nothing, Something, "--quick --dir . --domain emulated"),
    ("bench tx-overwrite", Nothing, Something, "--objects 4 --bytes 64 ONE"),
    ("bench tx-alloc", Nothing, Something, "ONE"),
    ("bench ycsb", Nothing, Something, "--workload c --keys 50 ONE"),
    ("bench dependent", Nothing, Something, "--keys 50 ONE"),
    ("bench worst-case", Nothing, Something, "--bytes 64 ONE"),
    ("bench structures", Nothing, Something, "--structure treap --keys 50 ONE"),
    ("bench smallbank", Nothing, Something, "--customers 50 ONE"),
    ("bench tpcc", Nothing, Something, "--customers 20 --items 50 ONE"),
    ("bench kv", Nothing, Something, "--workload c --keys 50 --value-bytes 64 --engine kv --threads 1 SHORT"),
    ("bench midas", Nothing, Something, "--scenario s1 --engine kv --threads 1 SHORT"),
    ("bench kv-open", Nothing, Something, "--keys 50 --engine kv SHORT"),
    ("bench kv-space", Nothing, Something, "--keys 50 --overwrites 100 --looks 1 --engine kv SHORT"),
    ("bench log-append", Nothing, Something, "--bytes 64 --threads 1 SHORT"),
    ("bench log-replicate", Nothing, Something, "--room 1M --bytes 64 --backups 0 SHORT"),
    ("bench log-takeover", Nothing, Something, "--live 1M SHORT"),
    ("bench rocksdb-wal", Nothing, Something, "SHORT"),
    ("bench server", Nothing, Something, "--requests 500 --keys 50 --test set --pipeline 1 SHORT"),
    ("bench figures", Nothing, Something, "--paper midas --figure 6.6 --quick --dir ."),
    // Until they are told to end.
    ("serve", Nothing, Prints::Nothing, "NEW --redis 127.0.0.1:0 --threads 1"),
    (
        "chain serve",
        Nothing,
        Prints::Nothing,
        "NEW --machine 9 --first-members 9 --listen 127.0.0.1:0 --clients 127.0.0.1:0 --prefix /cairn/NEW --size 1M --queue 1M --secret-file secret --etcd ETCD",
    ),
    ("log-replica", Nothing, Something, "NEW --listen 127.0.0.1:0 --secret-file secret"),
    ("kv follow", Nothing, Something, "NEW --log NEW.log --listen 127.0.0.1:0 --secret-file secret"),
];

const SERVERS: [&str; 4] = ["serve", "chain serve", "log-replica", "kv follow"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    /// Every write fails for lack of space.
    Full,
    /// A pipe that has no reader.
    Left,
    /// There is no standard output.
    Closed,
}

struct World {
    cluster: Cluster,
    /// For a store's own log.
    store_copies: Cluster,
    group: Group,
    chain: Chains,
    _server: Proc,
    served: String,
    made: Cell<u32>,
    joins: Cell<usize>,
}

impl World {
    fn new() -> Self {
        // Two have the log; each of the others joins it once, and is removed.
        let cluster = Cluster::new(8, None, 0, "");
        let store_copies = Cluster::new(1, None, 0, "");
        let first: String = cluster.addresses[..2].iter().map(|address| format!("--replica {address} ")).collect();
        cluster.done(0, &format!("log create --bytes 64K {first} --secret-file secret"));
        let (server, served) = serve(cluster.dir.path());
        let mut group = Group::new();
        group.start_all();
        let mut chain = Chains::new();
        (1..=4).for_each(|machine| chain.start(machine, "--first-members 1,2,3"));
        Self { cluster, store_copies, group, chain, _server: server, served, made: 0.into(), joins: 0.into() }
    }

    fn dir(&self) -> &Path {
        self.cluster.dir.path()
    }

    /// The words of a case, with what it needs made anew.
    fn line(&self, case: &Case) -> String {
        self.made.set(self.made.get() + 1);
        let new = format!("new{}", self.made.get());
        make(&self.dir().join("f"), case.1);
        let one = "--quick --dir . --engine none --threads 1 --rounds 1 --round-ms 1";
        let words = case.3.split(' ').map(|word| match word {
            "COPIES" => self.copies(),
            "STORE_COPIES" => format!("--replica {} --secret-file secret", self.store_copies.addresses[0]),
            "ID" => self.joined(),
            "JOINS" => self.fresh(),
            "CHAIN" => {
                if case.0 == "chain status" {
                    self.chain.await_well();
                }
                self.chain.words()
            }
            "ETCD" => self.chain.etcd.endpoints()[0].clone(),
            "GROUP" => self.group(),
            "GROUP_LEADS" => self.leader(),
            "GROUP_JOINS" => self.follower().0,
            "GROUP_ID" => self.follower().1,
            "SERVED" => self.served.clone(),
            "ONE" => one.to_owned(),
            "SHORT" => "--quick --dir . --rounds 1 --round-ms 1".to_owned(),
            word => word.replace("NEW", &new),
        });
        format!("{} {}", case.0, words.collect::<Vec<_>>().join(" "))
    }

    fn copies(&self) -> String {
        let first: String = self.cluster.addresses[..2].iter().map(|address| format!("--replica {address} ")).collect();
        format!("{first} --secret-file secret")
    }

    /// A copy that is none of the log's.
    fn fresh(&self) -> String {
        self.joins.set(self.joins.get() + 1);
        self.cluster.addresses[1 + self.joins.get()].clone()
    }

    /// The id of a copy that has just joined.
    fn joined(&self) -> String {
        let address = self.fresh();
        self.cluster.done(0, &format!("log join {address} {}", self.copies()));
        self.id(&address)
    }

    fn id(&self, address: &str) -> String {
        let line = format!("log replicas --replica {address} --secret-file secret --json");
        self.cluster.run(0, &line).json()[0]["id"].as_str().unwrap().to_owned()
    }

    /// A group that is well.
    fn group(&self) -> String {
        eventually("all machines take part", || self.group.run("status").code == 0);
        self.group.words()
    }

    /// Address and copy of a machine that takes part in the group, and does not lead.
    fn follower(&self) -> (String, String) {
        self.group();
        let status = self.group.run("status --json").json();
        let copies = status["copies"].as_array().unwrap();
        let follower = copies.iter().find(|copy| copy["leads"] == false).unwrap();
        let text = |field: &str| follower[field].as_str().unwrap().to_owned();
        (text("address"), text("id"))
    }

    /// The machine that leads the group: to have it lead changes nothing.
    fn leader(&self) -> String {
        self.group();
        self.group.run("status --json").json()["leader"]["name"].as_str().unwrap().to_owned()
    }

    /// As it was before the command, whatever that was.
    fn tidy(&self, case: &Case) {
        if case.0 == "log join" {
            let id = self.id(&self.cluster.addresses[1 + self.joins.get()]);
            self.cluster.done(0, &format!("log remove {id} {}", self.copies()));
        }
        if case.0 == "group remove" {
            self.group.ports.iter().for_each(|(_, port)| {
                self.group.run(&format!("join 127.0.0.1:{port}")); // the leader cannot, the others can
            });
        }
    }

    fn run(&self, case: &Case, output: Output) -> Run {
        let line = self.line(case);
        let mut command = match output {
            Output::Closed => {
                let mut shell = Command::new("sh");
                shell.args(["-c", "exec \"$0\" \"$@\" >&-", env!("CARGO_BIN_EXE_cairn")]);
                shell
            }
            _ => Command::new(env!("CARGO_BIN_EXE_cairn")),
        };
        command.args(line.split_whitespace()).current_dir(self.dir()).env_remove("RUST_LOG");
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        match output {
            Output::Full => drop(command.stdout(File::options().write(true).open("/dev/full").unwrap())),
            Output::Left => drop(command.stdout(unread())),
            Output::Closed => drop(command.stdout(Stdio::null())),
        }
        let mut child = command.spawn().unwrap();
        let input = match case.0 {
            "kv load" => "a\tb\n",
            "kv shell" => "get key\nstats\n",
            "log append" | "array write" => "one\ntwo\n",
            _ => "",
        };
        // It may end before it has read that.
        drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
        if SERVERS.contains(&case.0) {
            wait_until_it_serves(&mut child);
        }
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        Run { code: output.status.code().unwrap_or(-1), out: line, err }
    }
}

/// The end of a pipe that has no reader.
fn unread() -> PipeWriter {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    writer
}

fn serve(dir: &Path) -> (Proc, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cairn"));
    command.args(["serve", "served", "--redis", "127.0.0.1:0", "--threads", "1"]).current_dir(dir);
    let log = dir.join("served.said");
    let child = command.stderr(File::create(&log).unwrap()).spawn().unwrap();
    let said = || std::fs::read_to_string(&log).unwrap();
    eventually("a server serves", || said().contains("cairn: serving"));
    let address = said().lines().find_map(|line| Some(line.strip_prefix("cairn: redis at ")?.to_owned())).unwrap();
    (Proc(child), address)
}

/// A server has its pool locked when it serves: it is told to end as soon as it catches signals, which it says on no output that is there.
fn wait_until_it_serves(child: &mut std::process::Child) {
    let status = format!("/proc/{}/status", child.id());
    // The mask of caught signals.
    let catches = |text: String| {
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"))?.trim().to_owned();
        Some(u64::from_str_radix(&mask, 16).ok()? >> 14 & 1 == 1)
    };
    eventually("a server catches SIGTERM, or ends", || {
        let caught = std::fs::read_to_string(&status).ok().and_then(catches);
        caught != Some(false) || child.try_wait().unwrap().is_some()
    });
    if child.try_wait().unwrap().is_none() {
        rustix::process::kill_process(rustix::process::Pid::from_child(child), rustix::process::Signal::TERM).unwrap();
    }
}

/// Makes the file that a command needs.
fn make(path: &Path, needs: Needs) {
    use tx::{Engine, Isolation, Typed};
    drop(std::fs::remove_file(path));
    match needs {
        Nothing => {}
        Pool => pmem::Options::new().size(1 << 20).create(path).unwrap().close().unwrap(),
        Heap => {
            let options = heap::Options::new().bytes(1 << 18).slots(2).coordinator(false);
            let heap = heap::Heap::create(path, &options).unwrap();
            heap.transact(Isolation::Strict, |tx| tx.alloc(&[7_u64; 8])).unwrap();
            heap.close().unwrap();
        }
        Store => {
            let store = kv::Options::new().segment_bytes(4096).background(false).create(path).unwrap();
            store.put(b"key", b"value").unwrap();
            store.close().unwrap();
        }
        Array => {
            let array = eaw::array::Options::new().log_bytes(1 << 16).create(&[path]).unwrap();
            array.create_file("pages", 1 << 16).unwrap();
            array.close().unwrap();
        }
        Log => {
            let log = log::Options::new().bytes(1 << 16).idle(None).create(path).unwrap();
            log.append(b"record").unwrap();
            log.close().unwrap();
        }
    }
}

fn check(case: &Case, output: Output, run: &Run) {
    let what = format!("{output:?}: {run:?}");
    assert!(!run.err.contains("panicked"), "{what}");
    match (output, case.2) {
        (Output::Full, Something) => {
            assert_eq!(run.code, 2, "{what}");
            let said = run.err.contains("error: standard output: write failed: No space left on device");
            assert!(said && run.err.contains("\nnext: "), "{what}");
        }
        _ => assert_eq!(run.code, 0, "{what}"),
    }
}

#[test]
fn no_command_panics_when_nothing_can_be_printed() {
    clap_list::assert_all_are_in(CASES.iter().map(|case| case.0));
    let world = World::new();
    for case in CASES {
        let is_long = case.0.starts_with("bench ") || case.0.ends_with("demo");
        for output in [Output::Full, Output::Left, Output::Closed] {
            if !(is_long && output == Output::Closed) {
                check(case, output, &world.run(case, output));
                world.tidy(case);
            }
        }
    }
}

/// The exit code of a check is about the pool before it is about the output.
#[test]
fn damage_is_told_by_the_exit_code_though_nothing_can_be_printed() {
    let dir = super::temp();
    let path = dir.path().join("s");
    let store = kv::Options::new().background(false).create(&path).unwrap();
    store.put(b"apples", b"seventeen").unwrap();
    store.close().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(9).position(|window| window == b"seventeen").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    for line in ["check s", "check s --json", "kv check s"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_cairn"));
        let run = command.args(line.split(' ')).current_dir(dir.path()).stdout(full).output().unwrap();
        let said = String::from_utf8(run.stderr).unwrap();
        assert!(run.status.code() == Some(1) && said.contains("standard output: write failed"), "{line}: {said}");
    }
}

#[test]
fn help_and_version_are_printed_or_told() {
    let dir = super::temp();
    for line in ["--help", "--version", "help kv put", "kv put --help"] {
        let run = |to: File| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_cairn"));
            command.args(line.split(' ')).current_dir(dir.path()).stdout(to).output().unwrap()
        };
        let full = run(File::options().write(true).open("/dev/full").unwrap());
        assert_eq!(full.status.code(), Some(2), "{line}");
        assert!(String::from_utf8(full.stderr).unwrap().contains("No space left"), "{line}");
    }
}

/// What goes wrong is in the exit code, though no message can be written.
#[test]
fn a_full_standard_error_changes_no_exit_code() {
    let dir = super::temp();
    for line in ["info nothing", "frobnicate", "kv get nothing key"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_cairn"));
        command.args(line.split(' ')).current_dir(dir.path()).env("RUST_LOG", "trace");
        let run = command.stdout(Stdio::null()).stderr(full).status().unwrap();
        assert_eq!(run.code(), Some(2), "{line}");
    }
}
