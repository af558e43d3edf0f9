//! Metrics, health and the status page, as a scraper, an attacker and a browser meet them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pmem::DomainChoice;
use server::engine::{Commit, Engine, Error, Kv, Result, Run};
use server::{Config, Server};

use crate::support::{Ends, until};

/// A store whose health can be taken away.
struct Frail {
    kv: Kv,
    broken: Arc<AtomicBool>,
    full: Arc<AtomicBool>,
}

impl Engine for Frail {
    fn read(&self, run: Run<'_>) -> Result<()> {
        self.kv.read(run)
    }
    fn write(&self, run: Run<'_>) -> Result<()> {
        if self.full.load(Relaxed) { Err(Error::Full("no room".into())) } else { self.kv.write(run) }
    }
    fn write_once(&self, run: Run<'_>, here: bool) -> Result<Commit> {
        if self.full.load(Relaxed) { Err(Error::Full("no room".into())) } else { self.kv.write_once(run, here) }
    }
    crate::support::left_to!(kv);
    fn healthy(&self) -> Result<()> {
        if self.broken.load(Relaxed) { Err(Error::InDoubt("a sync has failed".into())) } else { self.kv.healthy() }
    }
    fn close(self: Box<Self>) -> Result<()> {
        Box::new(self.kv).close()
    }
}

struct Running {
    server: Option<Server>,
    broken: Arc<AtomicBool>,
    full: Arc<AtomicBool>,
    _dir: tempfile::TempDir,
}

impl Running {
    fn start(domain: DomainChoice) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pool = pmem::Options::new().domain(domain);
        let store = kv::Options::new().pool(pool).create(dir.path().join("store")).unwrap();
        let any = || "127.0.0.1:0".parse().unwrap();
        let config = Config { redis: vec![any()], http: Some(any()), threads: 2, ..Config::default() };
        let (broken, full) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
        let engine = Frail { kv: Kv::new(store), broken: broken.clone(), full: full.clone() };
        Self { server: Some(Server::start(config, Box::new(engine)).unwrap()), broken, full, _dir: dir }
    }

    fn http(&self) -> SocketAddr {
        self.server.as_ref().unwrap().http().unwrap()
    }

    fn redis(&self) -> Redis {
        Redis(BufReader::new(connect(self.server.as_ref().unwrap().redis()[0])))
    }

    fn get(&self, path: &str) -> Answer {
        self.say(&format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
    }

    fn say(&self, request: &str) -> Answer {
        let mut socket = connect(self.http());
        socket.write_all(request.as_bytes()).unwrap();
        Answer::read(socket)
    }

    fn metrics(&self) -> Metrics {
        Metrics::parse(&self.get("/metrics").body)
    }

    /// The same, when keys have been counted once.
    fn metrics_with_keys(&self) -> Metrics {
        let mut all = (0..1000).map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            self.metrics()
        });
        all.find(|metrics| metrics.samples.contains_key("cairn_keys_counted_seconds")).expect("keys are counted")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(server) = self.server.take() else { return };
        server.stop();
        let ended = server.join();
        assert!(std::thread::panicking() || ended.is_ok(), "{ended:?}");
    }
}

#[expect(clippy::disallowed_methods, reason = "measures what limits in time do")]
fn clock() -> Instant {
    Instant::now()
}

fn connect(to: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(to).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    socket
}

struct Redis(BufReader<TcpStream>);

impl Redis {
    /// A line of a reply for each command.
    fn run(&mut self, commands: &[&str]) -> Vec<String> {
        let text: String = commands.iter().map(|command| format!("{command}\r\n")).collect();
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
        let mut line = || {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        commands.iter().map(|_| line()).collect()
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Answer {
    fn read(mut socket: TcpStream) -> Self {
        let mut text = String::new();
        // One that is refused while it still talks may be cut off behind the answer.
        let ended = socket.read_to_string(&mut text);
        assert!(ended.is_ok() || !text.is_empty(), "{ended:?}");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap();
        let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        Self { status, headers: lines.filter_map(header).collect(), body: body.to_owned() }
    }
}

/// Samples by name and labels, as they are written.
struct Metrics {
    samples: BTreeMap<String, f64>,
    kinds: BTreeMap<String, String>,
}

impl Metrics {
    /// Every line is a comment or a sample of the family before it; each family has its help and its kind.
    fn parse(text: &str) -> Self {
        let (mut samples, mut kinds, mut helped) = (BTreeMap::new(), BTreeMap::new(), String::new());
        let mut family = String::new();
        assert!(text.ends_with('\n'));
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(!help.is_empty());
                helped = name.to_owned();
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(name, helped, "{line}");
                assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} comes twice");
                family = name.to_owned();
            } else {
                let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
                let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line:?}"));
                let (bare, labels) = name.split_once('{').map_or((name, None), |(bare, rest)| (bare, Some(rest)));
                assert!(bare.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{line:?}");
                if let Some(labels) = labels {
                    let labels = labels.strip_suffix("\"}").unwrap_or_else(|| panic!("{line:?}"));
                    for label in labels.split("\",") {
                        let (name, _) = label.split_once("=\"").unwrap_or_else(|| panic!("{line:?}"));
                        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line:?}");
                    }
                }
                let of = bare.strip_prefix(family.as_str()).unwrap_or_else(|| panic!("{line:?} is not of {family}"));
                let histogram = kinds[&family] == "histogram";
                assert!(
                    if histogram { ["_bucket", "_sum", "_count"].contains(&of) } else { of.is_empty() },
                    "{line:?}"
                );
                assert!(kinds[&family] != "counter" || family.ends_with("_total"), "{line:?}");
                assert!(samples.insert(name.to_owned(), value).is_none(), "{name} comes twice");
            }
        }
        Self { samples, kinds }
    }

    #[track_caller]
    fn get(&self, name: &str) -> f64 {
        *self.samples.get(name).unwrap_or_else(|| panic!("no {name}"))
    }

    /// Buckets grow, the last one is all; how many that are.
    fn histogram(&self, name: &str) -> f64 {
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for (key, value) in &self.samples {
            if let Some(end) = key.strip_prefix(&format!("{name}_bucket{{le=\"")) {
                let end = end.strip_suffix("\"}").unwrap();
                buckets.push((if end == "+Inf" { f64::INFINITY } else { end.parse().unwrap() }, *value));
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.len() > 20 && buckets[0].0 == 1e-6, "{buckets:?}");
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{buckets:?}");
        let (end, all) = *buckets.last().unwrap();
        let count = self.get(&format!("{name}_count"));
        assert_eq!((end, all), (f64::INFINITY, count));
        let sum = self.get(&format!("{name}_sum"));
        assert!(if count == 0.0 { sum == 0.0 } else { sum > 0.0 && sum / count < 30.0 }, "{sum} for {count}");
        count
    }
}

#[test]
fn what_happens_is_counted() {
    for domain in [DomainChoice::File, DomainChoice::Emulated] {
        let running = Running::start(domain);
        let before = running.metrics_with_keys();
        assert_eq!((before.get("redis_up"), before.get("cairn_healthy")), (1.0, 1.0));
        assert_eq!(before.histogram("cairn_commit_seconds"), 0.0);

        let mut redis = running.redis();
        for _ in 0..10 {
            assert_eq!(redis.run(&["SET apples 17"]), ["+OK"]);
        }
        assert_eq!(redis.run(&["SET pears 4", "INCR apples", "EXISTS nothing", "NONSENSE"])[..3], ["+OK", ":18", ":0"]);
        assert_eq!(redis.run(&["SELECT 3", "SET plums 9"]), ["+OK", "+OK"]);
        // A reply is counted when it has gone out, so after it may have been read.
        assert_eq!(redis.run(&["PING"]), ["+PONG"]);

        let after = running.metrics();
        let grown = |name: &str| after.get(name) - before.get(name);
        assert_eq!(after.get("redis_commands_total{cmd=\"set\"}"), 12.0);
        assert_eq!(after.get("redis_commands_total{cmd=\"incr\"}"), 1.0);
        assert!(grown("redis_commands_processed_total") >= 16.0, "{}", grown("redis_commands_processed_total"));
        assert!(grown("cairn_error_replies_total") >= 1.0);
        assert_eq!(grown("redis_connected_clients"), 1.0);
        assert!(grown("redis_net_input_bytes_total") > 150.0 && grown("redis_net_output_bytes_total") > 50.0);
        assert!(grown("cairn_commits_total") >= 12.0 && grown("cairn_barriers_total") >= 12.0);
        assert!(grown("cairn_flushed_bytes_total") > 0.0 || matches!(domain, DomainChoice::File));
        let commits = after.histogram("cairn_commit_seconds");
        assert!((12.0..=14.0).contains(&commits), "{commits} commits");
        assert!(after.histogram("cairn_reply_seconds") >= 12.0);
        for name in
            ["redis_memory_used_bytes", "redis_memory_used_rss_bytes", "redis_start_time_seconds", "cairn_entries"]
        {
            assert!(after.get(name) > 0.0, "{name}");
        }
        assert_eq!(after.kinds["redis_commands_total"], "counter");
        // Keys are not counted again within ten seconds.
        assert!(!after.samples.contains_key("redis_db_keys{db=\"db0\"}"));
        drop(redis);

        let all = running.get("/status.json");
        assert_eq!((all.status, all.headers["content-type"].as_str()), (200, "application/json"));
        let all: serde_json::Value = serde_json::from_str(&all.body).unwrap();
        assert_eq!((&all["calls"]["set"], &all["unhealthy"]), (&12.into(), &serde_json::Value::Null));
        assert_eq!(
            all["reply_latency"]["classes"].as_array().map(Vec::len),
            all["class_ends_ns"].as_array().map(Vec::len)
        );
    }
}

#[test]
fn keys_are_counted() {
    let running = Running::start(DomainChoice::Emulated);
    let mut redis = running.redis();
    redis.run(&["SET apples 17", "SET pears 4", "HSET basket a 1 b 2", "SELECT 3", "SET plums 9", "SELECT 15"]);
    // More than one transaction counts.
    let many: Vec<String> = (0..40_000).map(|at| format!("SET key:{at} {at}")).collect();
    for some in many.chunks(1000) {
        redis.run(&some.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let metrics = running.metrics_with_keys();
    let keys = |db: u32| metrics.samples.get(&format!("redis_db_keys{{db=\"db{db}\"}}")).copied();
    let all: Vec<f64> = (0..16).map(|db| keys(db).unwrap_or(0.0)).collect();
    assert_eq!((all[0], all[3], all[15], all.iter().sum::<f64>()), (3.0, 1.0, 40_000.0, 40_004.0));
    let all: serde_json::Value = serde_json::from_str(&running.get("/status.json").body).unwrap();
    let expected = serde_json::json!([{ "db": 0, "keys": 3 }, { "db": 3, "keys": 1 }, { "db": 15, "keys": 40_000 }]);
    assert_eq!(all["keys"]["databases"], expected);
}

/// A client that scrapes meanwhile sees counters that never fall, and histograms that add up.
#[test]
fn metrics_agree_under_load() {
    for domain in [DomainChoice::File, DomainChoice::Emulated] {
        let running = Running::start(domain);
        let stop = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let _ends = Ends(&stop);
            for _ in 0..3 {
                threads.spawn(|| {
                    let mut redis = running.redis();
                    while !stop.load(Relaxed) {
                        redis.run(&["INCR same", "SET other 1", "EXISTS same", "NONSENSE"]);
                    }
                });
            }
            let mut last = running.metrics();
            for _ in 0..20 {
                let metrics = running.metrics();
                for name in ["cairn_commit_seconds", "cairn_reply_seconds"] {
                    metrics.histogram(name);
                }
                for (name, value) in &last.samples {
                    let family = name.split('{').next().unwrap();
                    if metrics.kinds.get(family).is_none_or(|kind| kind == "counter") {
                        assert!(metrics.get(name) >= *value, "{name} fell");
                    }
                }
                last = metrics;
            }
        });
    }
}

#[test]
fn a_store_without_room_is_not_healthy() {
    let running = Running::start(DomainChoice::Emulated);
    running.full.store(true, Relaxed);
    assert_eq!(running.get("/healthz").status, 200, "nobody has written");
    let said = running.redis().run(&["SET a 1"]).remove(0);
    assert!(said.starts_with('-'), "{said}");
    let full = running.get("/healthz");
    assert_eq!(full.status, 503);
    assert!(full.body.starts_with("full: "), "{}", full.body);
    assert_eq!(running.metrics().get("redis_aof_last_write_status"), 0.0);
    assert_eq!(running.metrics().get("cairn_healthy"), 1.0);
}

#[test]
fn a_store_that_takes_no_writes_is_not_healthy() {
    let running = Running::start(DomainChoice::Emulated);
    let fine = running.get("/healthz");
    assert_eq!((fine.status, fine.body.as_str()), (200, "ok\n"));
    running.broken.store(true, Relaxed);
    let broken = running.get("/healthz");
    assert_eq!((broken.status, broken.body.as_str()), (503, "a sync has failed\n"));
    assert_eq!(running.metrics().get("cairn_healthy"), 0.0);
    let all: serde_json::Value = serde_json::from_str(&running.get("/status.json").body).unwrap();
    assert_eq!(all["unhealthy"], "a sync has failed");
}

#[test]
fn what_is_not_asked_for_properly_is_refused() {
    let running = Running::start(DomainChoice::Emulated);
    assert_eq!(running.get("/nothing").status, 404);
    assert_eq!(running.get("/metrics?x=1").status, 200);
    let post = running.say("POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert_eq!((post.status, post.headers["allow"].as_str()), (405, "GET, HEAD"));
    let head = running.say("HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(running.say("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello").status, 400);
    assert_eq!(running.say("what is this\r\n\r\n").status, 400);
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(100 << 10));
    assert!((400..500).contains(&running.say(&long).status));
    let headers = "X-Y: z\r\n".repeat(100);
    assert_eq!(running.say(&format!("GET / HTTP/1.1\r\n{headers}\r\n")).status, 431);
    let page = running.get("/");
    assert_eq!((page.status, page.headers["content-type"].as_str()), (200, "text/html; charset=utf-8"));
    let policy = &page.headers["content-security-policy"];
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-") && !policy.contains("unsafe"), "{policy}");
    for outside in ["http://", "https://", "src=\"", "@import"] {
        let own = page.body.replace("http://www.w3.org/2000/svg", "");
        assert!(!own.contains(outside), "the page needs {outside}");
    }
}

#[test]
fn who_says_nothing_does_not_stay() {
    let running = Running::start(DomainChoice::Emulated);
    let began = clock();
    let mut slow = connect(running.http());
    slow.write_all(b"GET / HTTP/1.1\r\nHost:").unwrap();
    let mut silent = connect(running.http());
    // One that has had an answer, and asks nothing more.
    let mut idle = connect(running.http());
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = [0; 15];
    idle.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    // Byte by byte does not help: else this would go on for ever.
    slow.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let ended = |socket: &mut TcpStream| {
        let ended = socket.read_to_end(&mut Vec::new());
        !matches!(&ended, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    };
    let stays = (0..60).all(|_| {
        let _ = slow.write_all(b"x"); // it may be ended by now
        !ended(&mut slow)
    });
    assert!(!stays, "who says a byte a second stays");
    assert!(began.elapsed() > Duration::from_secs(9), "{:?}", began.elapsed());
    assert!(ended(&mut silent) && ended(&mut idle), "who says nothing stays");
}

#[test]
fn connections_are_limited() {
    let running = Running::start(DomainChoice::Emulated);
    let mut all: Vec<TcpStream> = (0..64).map(|_| connect(running.http())).collect();
    // They have come when the first one and the last one are answered.
    for at in [0, 63] {
        all[at].write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        all[at].read_exact(&mut [0; 15]).unwrap();
    }
    let refused = Answer::read(connect(running.http()));
    assert_eq!((refused.status, refused.body.as_str()), (503, "too many connections\n"));
    all.truncate(32);
    until("room is made when connections end", || running.get("/healthz").status == 200);
}

#[test]
fn a_stop_waits_for_nobody() {
    // A server that waits for a silent client takes ten seconds each time; this machine, if it is busy, now and then.
    let soon = (0..5).any(|_| {
        let mut running = Running::start(DomainChoice::Emulated);
        let _silent = connect(running.http());
        running.get("/metrics");
        let began = clock();
        let server = running.server.take().unwrap();
        server.stop();
        server.join().unwrap();
        began.elapsed() < Duration::from_secs(5)
    });
    assert!(soon, "it waits for somebody");
}

/// Chromium, killed at the end with the processes it has started.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

const CHROMIUM: &str = "/usr/bin/chromium-headless-shell";

/// What the browser writes about a page, once so much time has passed there; none if it does not end in time.
fn browse(profile: &Path, url: &str, options: &[&str]) -> Option<String> {
    let mut command = Command::new(CHROMIUM);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]);
    command.arg(format!("--user-data-dir={}", profile.display())).args(options).arg(url);
    let mut browser = Browser(command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?);
    let mut out = browser.0.stdout.take()?;
    let (send, receive) = std::sync::mpsc::channel();
    let reader = std::thread::Builder::new().spawn(move || {
        let mut text = String::new();
        let _ = out.read_to_string(&mut text);
        let _ = send.send(text);
    });
    let text = receive.recv_timeout(Duration::from_secs(60)).ok();
    drop(browser);
    let _ = reader.unwrap().join();
    text
}

/// The page in a real browser: its script runs under its policy, and draws. `CAIRN_SCREENSHOTS` names a folder for pictures of it.
#[test]
fn the_page_draws() {
    assert!(Path::new(CHROMIUM).exists(), "no {CHROMIUM}; run `make setup`");
    let running = Running::start(DomainChoice::File);
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let _ends = Ends(&stop);
        threads.spawn(|| {
            let mut redis = running.redis();
            while !stop.load(Relaxed) {
                redis.run(&["SET apples 17", "EXISTS apples", "INCR rounds", "HSET basket a 1"]);
            }
        });
        let profile = tempfile::tempdir().unwrap();
        let url = format!("http://{}/", running.http());
        // The browser's seconds are as short as it likes, so in one of them nothing may have happened.
        let mut missing = "never looked".to_owned();
        for _ in 0..5 {
            let text = browse(profile.path(), &url, &["--virtual-time-budget=6000", "--dump-dom"]).unwrap_or_default();
            match check_page(&text) {
                Ok(()) => missing.clear(),
                Err(what) => missing = format!("{what}: {text}"),
            }
            if missing.is_empty() {
                break;
            }
        }
        assert!(missing.is_empty(), "{missing}");
        let Some(folder) = std::env::var_os("CAIRN_SCREENSHOTS") else { return };
        for (name, size, more) in [
            ("wide", "1200,1000", "--force-color-profile=srgb"),
            ("phone", "400,1600", "--force-device-scale-factor=2"),
            ("dark", "1200,1000", "--blink-settings=preferredColorScheme=0"),
        ] {
            let to = format!("--screenshot={}", Path::new(&folder).join(format!("{name}.png")).display());
            browse(profile.path(), &url, &["--virtual-time-budget=60000", &to, &format!("--window-size={size}"), more]);
        }
    });
}

/// Charts have lines, and numbers.
fn check_page(text: &str) -> std::result::Result<(), String> {
    let after =
        |text: &str, mark: &str, end: char| text.split_once(mark)?.1.split_once(end).map(|(found, _)| found.to_owned());
    let samples = after(text, "data-samples=\"", '"').and_then(|samples| samples.parse::<u32>().ok());
    if samples.is_none_or(|samples| samples < 3) {
        return Err(format!("{samples:?} samples"));
    }
    let charts: Vec<&str> = text.split("<div class=\"card\">").skip(1).take(8).collect();
    for chart in &charts {
        let line = after(chart, "class=\"line0\" d=\"", '"').unwrap_or_default();
        let value = after(chart, "<b>", '<').unwrap_or_default();
        if !line.starts_with('M') || !line.contains('L') || !value.starts_with(|first: char| first.is_ascii_digit()) {
            return Err(format!("{value:?} and {line:?} in {chart}"));
        }
    }
    let there = [">live</div>", ">INCR</td>", ">db0</td>", "survives <b id=\"survives\">power loss"];
    match there.iter().find(|part| !text.contains(**part)) {
        Some(part) => Err(format!("no {part}")),
        None if text.contains("data-lost") || charts.len() < 8 => Err("the server was lost, or charts were".into()),
        None => Ok(()),
    }
}

/// The page says so when the server has gone.
#[test]
fn the_page_tells_when_it_is_alone() {
    assert!(Path::new(CHROMIUM).exists(), "no {CHROMIUM}; run `make setup`");
    let page = {
        let running = Running::start(DomainChoice::Emulated);
        running.get("/").body
    };
    // One that has the page, and nothing else.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while let Ok((mut socket, _)) = listener.accept() {
                if stop.load(Relaxed) {
                    return;
                }
                let mut line = String::new();
                let _ = BufReader::new(&socket).read_line(&mut line);
                if line.starts_with("GET / ") {
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                        page.len()
                    );
                    let _ = socket.write_all(head.as_bytes()).and_then(|()| socket.write_all(page.as_bytes()));
                }
            }
        });
        let profile = tempfile::tempdir().unwrap();
        let text = browse(profile.path(), &format!("http://{at}/"), &["--virtual-time-budget=4000", "--dump-dom"]);
        stop.store(true, Relaxed);
        drop(TcpStream::connect(at));
        let text = text.unwrap_or_default();
        assert!(text.contains(">cannot be reached</div>") && text.contains("has not answered since"), "{text}");
    });
}
