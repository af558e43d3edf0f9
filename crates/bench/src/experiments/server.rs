//! `server`: `cairn serve` beside Redis with `appendfsync always`, as `redis-benchmark` sees them, or beside memcached, as a client of our own does.
//!
//! Both are processes of their own with their files in the same directory, and the same client asks both in turn. Throughput and latencies are the client's, and as a rule its
//! limit: what a request costs is the CPU time of the server's process.

mod cpu;
pub(crate) mod memcached;

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use self::memcached::{Load, Test};
use crate::contest::folder;
use crate::{Batch, Error, Plan, Result, Row, Side, Watch, run_watched};

/// The experiment's name in rows and on the command line.
pub const EXPERIMENT: &str = "server";

/// What to measure.
#[derive(Clone, Debug)]
pub struct Served {
    /// The command `cairn`.
    pub cairn: PathBuf,
    /// Where both keep their files.
    pub dir: PathBuf,
    /// Speak memcached's protocol, beside memcached.
    pub memcached: bool,
    /// Names of tests of `redis-benchmark`; of memcached's protocol, `set`, `get`, `mix`, `half`.
    pub tests: Vec<String>,
    /// Connections at a time.
    pub connections: Vec<usize>,
    /// Requests that a connection sends before it waits.
    pub pipeline: Vec<usize>,
    /// Threads that serve in `cairn`, and in memcached; Redis has one.
    pub threads: Vec<usize>,
    /// Requests of a round.
    pub requests: u64,
    /// Different keys.
    pub keys: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Connections that are there besides, and say nothing.
    pub idle: usize,
    /// Threads of the client of memcached's protocol; `redis-benchmark` has one.
    pub clients: usize,
}

impl Default for Served {
    fn default() -> Self {
        let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect();
        Self {
            cairn: PathBuf::from("cairn"),
            dir: PathBuf::from(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "." }),
            memcached: false,
            tests: words(&["set", "get"]),
            connections: vec![50],
            pipeline: vec![1, 16],
            threads: vec![1],
            requests: 200_000,
            keys: 100_000,
            value_bytes: 100,
            idle: 0,
            clients: 1,
        }
    }
}

/// A server in a process of its own.
struct Process {
    child: Child,
    port: u16,
    idle: Vec<TcpStream>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.idle.clear();
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Process {
    /// It is given back when it answers.
    fn awaited(self, who: &str, ask: &[u8], expected: &[u8]) -> Result<Self> {
        for _ in 0..200 {
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
                let mut answer = vec![0; expected.len()];
                if stream.write_all(ask).and_then(|()| stream.read_exact(&mut answer)).is_ok() && answer == expected {
                    return Ok(self);
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(Error::Wrong { who: who.into(), what: "it does not answer".into() })
    }

    /// Others are connected, too, and say nothing.
    fn beside(&mut self, idle: usize) -> Result<()> {
        for _ in 0..idle {
            self.idle.push(TcpStream::connect(("127.0.0.1", self.port)).map_err(failed("a connection"))?);
        }
        Ok(())
    }
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::Io { op: "run", path: what.into(), source }
}

impl Served {
    /// Measures.
    ///
    /// # Errors
    /// A server that does not start; a client that fails.
    pub fn measure(&self, plan: &Plan, watch: &dyn Watch) -> Result<Vec<Row>> {
        let cases = self.tests.len() * self.connections.len() * self.pipeline.len();
        watch.begin(EXPERIMENT, (cases * plan.rounds()) as u64);
        let mut rows = Vec::new();
        for pipeline in self.pipeline.iter().copied() {
            for connections in self.connections.iter().copied() {
                for test in &self.tests {
                    rows.extend(if self.memcached {
                        self.compare_memcached(plan, test, connections, pipeline, watch)?
                    } else {
                        self.compare(plan, test, connections, pipeline, watch)?
                    });
                }
            }
        }
        Ok(rows)
    }

    fn compare(
        &self,
        plan: &Plan,
        test: &str,
        connections: usize,
        pipeline: usize,
        watch: &dyn Watch,
    ) -> Result<Vec<Row>> {
        let dir = folder(&self.dir)?;
        let mut sides = Vec::new();
        let mut latencies = Vec::new();
        let others = [("redis", 1), ("redis-volatile", 1)];
        for (name, threads) in others.into_iter().chain(self.threads.iter().map(|threads| ("cairn", *threads))) {
            let at = dir.path().join(format!("{name}-{threads}"));
            std::fs::create_dir_all(&at).map_err(failed(&at.to_string_lossy()))?;
            let mut process = match name {
                "cairn" => self.cairn(&at, threads)?,
                name => redis(&at, name == "redis")?,
            };
            process.beside(self.idle)?;
            let row = self.row(name, threads, test, connections, pipeline);
            // Every key is there before it is measured.
            self.ask(&process, "set", 50, 16, 4 * self.keys)?;
            let seen: Rc<RefCell<Vec<(f64, f64)>>> = Rc::default();
            latencies.push(seen.clone());
            sides.push(Side::new(row, move |_| {
                let asked = || self.ask(&process, test, connections, pipeline, self.requests);
                let ((batch, p50, p99), cpu) = cpu::of(process.child.id(), asked)?;
                seen.borrow_mut().push((p50, p99));
                Ok(Batch { cpu, ..batch })
            }));
        }
        // One run of the client is a round.
        let plan = Plan { batch_time: Duration::from_nanos(1), ..*plan };
        let mut rows = run_watched(&plan, sides, Some(0), watch)?;
        for (row, seen) in rows.iter_mut().zip(&latencies) {
            let median = |pick: fn(&(f64, f64)) -> f64| {
                let mut all: Vec<f64> = seen.borrow().iter().map(pick).collect();
                all.sort_unstable_by(f64::total_cmp);
                all.get(all.len() / 2).copied()
            };
            (row.p50_ns, row.p99_ns) = (median(|seen| seen.0), median(|seen| seen.1));
        }
        Ok(rows)
    }

    /// All sides have the same client, and each number of threads.
    fn compare_memcached(
        &self,
        plan: &Plan,
        test: &str,
        connections: usize,
        pipeline: usize,
        watch: &dyn Watch,
    ) -> Result<Vec<Row>> {
        let asked = Test::named(test)?;
        let (requests, keys, value_bytes, threads) = (self.requests, self.keys, self.value_bytes, self.clients);
        let load = Load { connections, pipeline, requests, keys, value_bytes, threads, seed: 0 };
        let dir = folder(&self.dir)?;
        let mut sides = Vec::new();
        for threads in self.threads.iter().copied() {
            for name in ["memcached", "cairn-memcached"] {
                let at = dir.path().join(format!("{name}-{threads}"));
                std::fs::create_dir_all(&at).map_err(failed(&at.to_string_lossy()))?;
                let mut process = if name == "memcached" {
                    memcached(threads, connections + self.idle)?
                } else {
                    self.cairn(&at, threads)?
                };
                process.beside(self.idle)?;
                memcached::fill(process.port, &load)?;
                let row = self.row(name, threads, test, connections, pipeline).param("clients", self.clients);
                let mut round = 0;
                sides.push(Side::new(row, move |_| {
                    round += 1;
                    let server = &process; // all of it: it ends with this
                    let run = || memcached::run(server.port, asked, &Load { seed: round, ..load });
                    let (answered, cpu) = cpu::of(server.child.id(), run)?;
                    let ops = Some(answered.requests);
                    Ok(Batch { time: answered.time, ops, samples: answered.waits, cpu, ..Batch::default() })
                }));
            }
        }
        let plan = Plan { batch_time: Duration::from_nanos(1), ..*plan };
        run_watched(&plan, sides, Some(0), watch)
    }

    fn row(&self, name: &str, threads: usize, test: &str, connections: usize, pipeline: usize) -> Row {
        let row = Row { threads, ..Row::new(EXPERIMENT, name) };
        let row = row.param("test", test).param("connections", connections).param("pipeline", pipeline);
        row.param("value_bytes", self.value_bytes).param("keys", self.keys).param("idle", self.idle)
    }

    fn cairn(&self, dir: &Path, threads: usize) -> Result<Process> {
        let mut child = Command::new(&self.cairn)
            .args(["serve", "data.cairn", "--threads", &threads.to_string()])
            .args([if self.memcached { "--memcached" } else { "--redis" }, "127.0.0.1:0"])
            .args(["--max-connections", "100000"])
            .current_dir(dir)
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed("cairn serve"))?;
        let mut said = BufReader::new(child.stderr.take().unwrap_or_else(|| unreachable!("it is piped")));
        let (mut line, mut all, mut port) = (String::new(), String::new(), 0);
        while !line.contains("serving") {
            line.clear();
            if said.read_line(&mut line).map_err(failed("cairn serve"))? == 0 {
                return Err(Error::Wrong { who: "cairn serve".into(), what: all });
            }
            all.push_str(&line);
            let at = ["redis", "memcached"].map(|protocol| format!("cairn: {protocol} at 127.0.0.1:"));
            if let Some(at) = at.iter().find_map(|at| line.trim_end().strip_prefix(at)) {
                port = at.parse().unwrap_or(0);
            }
        }
        Ok(Process { child, port, idle: Vec::new() })
    }

    /// One run of the client: requests and their time, and the latencies it tells, in nanoseconds.
    fn ask(
        &self,
        server: &Process,
        test: &str,
        connections: usize,
        pipeline: usize,
        requests: u64,
    ) -> Result<(Batch, f64, f64)> {
        let mut client = Command::new("redis-benchmark");
        client.args(["--csv", "-p", &server.port.to_string(), "-t", test, "-n", &requests.to_string()]);
        client.args(["-c", &connections.to_string(), "-P", &pipeline.to_string(), "-r", &self.keys.to_string()]);
        client.args(["-d", &self.value_bytes.to_string()]);
        let output =
            client.stderr(Stdio::null()).output().map_err(failed("redis-benchmark; `make setup` installs it"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let numbers = text.lines().last().map(|line| {
            line.split(',').skip(1).filter_map(|word| word.trim_matches('"').parse::<f64>().ok()).collect::<Vec<_>>()
        });
        // Requests a second; then in milliseconds the mean, least, p50, p95, p99, most.
        match numbers.as_deref() {
            Some([rate, _, _, p50, _, p99, _]) if *rate > 0.0 => {
                let time = Duration::from_secs_f64(requests as f64 / rate);
                Ok((Batch { time, ops: Some(requests), ..Batch::default() }, p50 * 1e6, p99 * 1e6))
            }
            _ => Err(Error::Wrong { who: "redis-benchmark".into(), what: format!("it said {text:?}") }),
        }
    }
}

/// As its documentation says for a user who must not lose anything: every write is in the append-only file, and that synced, before it is acknowledged. Or
/// without any file: what the client can do at best.
fn redis(dir: &Path, durable: bool) -> Result<Process> {
    let said = failed("redis-server; `make setup` installs it");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).map_err(&said)?.port();
    let child = Command::new("redis-server")
        .args([
            "--port",
            &port.to_string(),
            "--appendonly",
            if durable { "yes" } else { "no" },
            "--appendfsync",
            "always",
            "--save",
            "",
        ])
        .args(["--maxclients", "100000"])
        .arg("--dir")
        .arg(dir)
        .stdout(Stdio::null())
        .spawn()
        .map_err(&said)?;
    Process { child, port, idle: Vec::new() }.awaited("redis-server", b"PING\r\n", b"+PONG\r\n")
}

/// It keeps nothing on any medium. With room for all keys, so it evicts none; it does not start if the system allows fewer connections than it is told.
fn memcached(threads: usize, connections: usize) -> Result<Process> {
    let said = failed("memcached; `make setup` installs it");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).map_err(&said)?.port();
    let child = Command::new("memcached")
        .args(["-l", "127.0.0.1", "-p", &port.to_string(), "-U", "0", "-t", &threads.to_string()])
        .args(["-m", "4096", "-c", &(connections + 64).to_string(), "-u", "root"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(&said)?;
    Process { child, port, idle: Vec::new() }.awaited("memcached", b"mn\r\n", b"MN\r\n")
}
