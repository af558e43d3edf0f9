//! Replicas in processes of their own, by every transport: killed in the middle, taken over, joined again. What cannot be done in one process: kill a replica, and libfabric's
//! provider shm.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use log::{Error, Log, Options, Replica, ReplicaHealth, Replicas, fabric};
use pmem::DomainChoice;

const SERVE: &str = "CAIRN_LOG_TEST_SERVE";
const SAID: &str = "serving at ";
const REPLICAS: usize = 3;

#[cfg(not(feature = "libfabric"))]
const TRANSPORTS: [&str; 1] = ["tcp"];
#[cfg(feature = "libfabric")]
const TRANSPORTS: [&str; 3] = ["tcp", "libfabric:tcp", "libfabric:shm"];

fn trust(transport: &str) -> fabric::Options {
    let secret = fabric::Secret::new(b"what all of them know").unwrap();
    fabric::Options { secret: Some(secret), transport: transport.parse().unwrap(), ..Default::default() }
}

/// The other process: serves a replica until its standard input ends. Does nothing unless it was started by a test of this module.
#[test]
fn server() {
    let Ok(job) = std::env::var(SERVE) else { return };
    let [transport, address, path] = job.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
    let pool = pmem::Options::new().domain(DomainChoice::Emulated);
    let replica = Replica::serve_with(&pool, path, address, trust(transport)).unwrap();
    println!("{SAID}{}", replica.address().unwrap());
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
    replica.stop().unwrap();
}

/// A process that serves a replica, killed when it is dropped.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(transport: &str, address: &str, path: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::server", "--nocapture"])
            .env(SERVE, format!("{transport} {address} {}", path.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| Some(line.split_once(SAID)?.1.to_owned()));
        Self { process, address: address.expect("it does not serve") }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // The provider shm leaves behind what a killed process had.
        let left = format!("{}:", self.process.id());
        for file in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            if file.file_name().to_string_lossy().starts_with(&left) {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }
}

struct Cluster {
    dir: tempfile::TempDir,
    transport: &'static str,
    servers: Vec<Option<Server>>,
    addresses: Vec<String>,
}

impl Cluster {
    fn new(transport: &'static str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut this = Self { dir, transport, servers: Vec::new(), addresses: vec!["127.0.0.1:0".into(); REPLICAS] };
        for at in 0..REPLICAS {
            this.servers.push(None);
            this.start(at);
        }
        this
    }

    fn start(&mut self, at: usize) {
        let path = self.dir.path().join(at.to_string());
        let server = Server::start(self.transport, &self.addresses[at], &path);
        self.addresses[at].clone_from(&server.address);
        self.servers[at] = Some(server);
    }

    fn kill(&mut self, at: usize) {
        drop(self.servers[at].take());
    }

    /// Any of them may be lost.
    fn replicas(&self) -> Replicas {
        let replicas = Replicas::new().write_quorum(2).trust(trust(self.transport)).timeout(Duration::from_secs(5));
        self.addresses.iter().fold(replicas, |replicas, address| replicas.at(address))
    }
}

fn options() -> Options {
    Options::new().bytes(1 << 20).segment_bytes(64 << 10).idle(None)
}

fn append(log: &Log, numbers: std::ops::Range<u32>) {
    for number in numbers {
        log.append(&record(number)).unwrap();
    }
}

/// Of all lengths, some longer than what one operation of a device takes.
fn record(number: u32) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(4 + (number as usize * 37) % 900, number as u8);
    bytes
}

fn holds(log: &Log, numbers: std::ops::Range<u32>) {
    let mut records = log.iter();
    for number in numbers {
        let found = records.next().unwrap().expect("a record is missing");
        assert_eq!(*found.payload, record(number), "record {number}");
    }
}

#[test]
fn nothing_is_lost_with_replicas_that_are_killed() {
    for transport in TRANSPORTS {
        let mut cluster = Cluster::new(transport);
        let log = options().create_replicated(&cluster.replicas()).unwrap();
        append(&log, 0..100);
        // One is killed while records are on their way to it.
        let appended = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 100..400 {
                    log.append(&record(number)).unwrap();
                    appended.store(u64::from(number), Release);
                }
            });
            while appended.load(Acquire) < 200 {
                std::thread::yield_now();
            }
            cluster.kill(0);
        });
        holds(&log, 0..400);

        // It comes back, and has what it missed when another is killed.
        cluster.start(0);
        log.join(&cluster.addresses[0], &trust(transport)).unwrap();
        append(&log, 400..450);
        cluster.kill(1);
        append(&log, 450..500);
        log.abandon();
        let (log, _) = options().open_replicated(&cluster.replicas()).unwrap();
        holds(&log, 0..500);

        // All are killed, and their leader gives up.
        (0..REPLICAS).for_each(|at| cluster.kill(at));
        assert!(log.append(b"to nobody").is_err(), "{transport}");
        log.abandon();
        (0..REPLICAS).for_each(|at| cluster.start(at));
        let (log, _) = options().open_replicated(&cluster.replicas()).unwrap();
        holds(&log, 0..500);
        let live = log.replicas().iter().filter(|(_, state, _)| *state == ReplicaHealth::Live).count();
        assert_eq!(live, REPLICAS, "{transport}: {:?}", log.replicas());
    }
}

/// Of what the old one had under way nothing is acknowledged, and nothing is in the log that the new one did not find.
#[test]
fn an_old_leader_is_shut_out_in_the_middle() {
    for transport in TRANSPORTS {
        let cluster = Cluster::new(transport);
        let old = options().create_replicated(&cluster.replicas()).unwrap();
        append(&old, 0..50);
        let appended = AtomicU64::new(50);
        std::thread::scope(|scope| {
            let hammers = scope.spawn(|| {
                for number in 50.. {
                    if let Err(error) = old.append(&record(number)) {
                        return error;
                    }
                    appended.store(u64::from(number) + 1, Release);
                    let _ = old.truncate_to(old.forced()); // an error shows again
                }
                unreachable!("it goes on for ever")
            });
            while appended.load(Acquire) < 100 {
                std::thread::yield_now();
            }
            let (new, found) = options().open_replicated(&cluster.replicas()).unwrap();
            let error = hammers.join().unwrap();
            assert!(matches!(error, Error::Fenced { .. } | Error::QuorumLost { .. }), "{transport}: {error}");
            assert!(found.next.get() > appended.load(Acquire), "{transport}: what was acknowledged is there");
            assert!(new.replicas().iter().all(|(_, state, _)| *state == ReplicaHealth::Live), "{:?}", new.replicas());
            let last = new.append(b"of the new one").unwrap();
            assert_eq!(last, found.next);
        });
    }
}
