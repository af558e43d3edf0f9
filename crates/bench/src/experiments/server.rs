//! `server`: `cairn serve` beside Redis with `appendfsync always`, as `redis-benchmark` sees them.
//!
//! Both are processes of their own with their files in the same directory, and the same client asks both in turn. Throughput and latencies are the client's.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use crate::experiments::log_append::folder;
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
    /// Names of tests of `redis-benchmark`.
    pub tests: Vec<String>,
    /// Connections at a time.
    pub connections: Vec<usize>,
    /// Requests that a connection sends before it waits.
    pub pipeline: Vec<usize>,
    /// Threads that serve in `cairn`; Redis has one.
    pub threads: Vec<usize>,
    /// Requests of a round.
    pub requests: u64,
    /// Different keys.
    pub keys: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Connections that are there besides, and say nothing.
    pub idle: usize,
}

impl Default for Served {
    fn default() -> Self {
        let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect();
        Self {
            cairn: PathBuf::from("cairn"),
            dir: PathBuf::from(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "." }),
            tests: words(&["set", "get"]),
            connections: vec![50],
            pipeline: vec![1, 16],
            threads: vec![1],
            requests: 200_000,
            keys: 100_000,
            value_bytes: 100,
            idle: 0,
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
                    rows.extend(self.compare(plan, test, connections, pipeline, watch)?);
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
            for _ in 0..self.idle {
                process.idle.push(TcpStream::connect(("127.0.0.1", process.port)).map_err(failed("a connection"))?);
            }
            let row = Row { threads, ..Row::new(EXPERIMENT, name) };
            let row = row.param("test", test).param("connections", connections).param("pipeline", pipeline);
            let row = row.param("value_bytes", self.value_bytes).param("keys", self.keys).param("idle", self.idle);
            // Every key is there before it is measured.
            self.ask(&process, "set", 50, 16, 4 * self.keys)?;
            let seen: Rc<RefCell<Vec<(f64, f64)>>> = Rc::default();
            latencies.push(seen.clone());
            sides.push(Side::new(row, move |_| {
                let (batch, p50, p99) = self.ask(&process, test, connections, pipeline, self.requests)?;
                seen.borrow_mut().push((p50, p99));
                Ok(batch)
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

    fn cairn(&self, dir: &Path, threads: usize) -> Result<Process> {
        let mut child = Command::new(&self.cairn)
            .args(["serve", "data.cairn", "--redis", "127.0.0.1:0", "--threads", &threads.to_string()])
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
            if let Some(at) = line.trim_end().strip_prefix("cairn: redis at 127.0.0.1:") {
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

/// As its documentation says for who must not lose anything: every write is in the append-only file, and that synced, before it is acknowledged. Or without any
/// file: what the client can do at best.
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
    let process = Process { child, port, idle: Vec::new() };
    for _ in 0..200 {
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
            let mut answer = [0; 7];
            if stream.write_all(b"PING\r\n").and_then(|()| stream.read_exact(&mut answer)).is_ok()
                && &answer == b"+PONG\r\n"
            {
                return Ok(process);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(Error::Wrong { who: "redis-server".into(), what: "it does not answer".into() })
}
