//! A server for one test, and a client that speaks Redis' protocol byte by byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use pmem::DomainChoice;
use server::engine::{Commit, Engine, Error, Excess, Keys, Kv, Result, Run, Tx, Visit};
use server::tree::{self, Tree};
use server::{Config, Server, Step};

/// Nothing here takes longer.
pub const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// Waits until it is so, for as long as it takes on a machine that is busy with other things.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let looks = WAIT_LIMIT.as_millis() / 10;
    let came = (0..looks).any(|look| {
        if look > 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
        is_so()
    });
    assert!(came, "not in {WAIT_LIMIT:?}: {what}");
}

/// Of an engine around another one: what it leaves to that one.
macro_rules! left_to {
    ($inner:ident) => {
        fn is_slow(&self) -> bool {
            self.$inner.is_slow()
        }
        fn key_max(&self) -> usize {
            self.$inner.key_max()
        }
        fn value_max(&self) -> usize {
            self.$inner.value_max()
        }
        fn counts(&self) -> server::engine::Counts {
            self.$inner.counts()
        }
    };
}

pub(crate) use left_to;

/// Engines that a server runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    Kv,
    Tree,
    /// As `Kv`, on a device so slow that its syncs are left to another thread.
    Slow,
}

impl Store {
    pub const ALL: [Self; 2] = [Self::Kv, Self::Tree];

    /// Opens the store, or makes one.
    pub fn open(self, path: impl AsRef<Path>, pool: pmem::Options) -> Box<dyn Engine> {
        match self {
            Self::Kv => Box::new(Kv::new(kv::Options::new().pool(pool).open_or_create(path).unwrap())),
            Self::Slow => {
                let engine = Box::new(Kv::new(kv::Options::new().pool(pool).open_or_create(path).unwrap()));
                Box::new(Around { slow: true, ..Around::of(engine, |tx, run| run(tx)) })
            }
            Self::Tree => {
                let options = tree::Options::new().bytes(8 << 20).pool(pool);
                Box::new(Tree::open_or_create(path, &options).unwrap())
            }
        }
    }
}

/// A store around whose transactions something happens; all else is the store's.
struct Around<F> {
    engine: Box<dyn Engine>,
    /// Runs what a transaction that may write is to do.
    run: F,
    /// No thread waits for a commit itself.
    slow: bool,
    /// Called in each transaction that only reads, when it has begun.
    at_read: Option<AtCommit>,
    /// Called there with each key that is read by its name.
    at_get: Option<Before>,
    /// What is to go, instead of what the store says.
    excess: Option<Excess>,
}

impl<F: Fn(&mut dyn Tx, Run<'_>) -> Result<()> + Send + Sync + 'static> Around<F> {
    fn of(engine: Box<dyn Engine>, run: F) -> Self {
        Self { engine, run, slow: false, at_read: None, at_get: None, excess: None }
    }

    fn boxed(engine: Box<dyn Engine>, run: F) -> Box<dyn Engine> {
        Box::new(Self::of(engine, run))
    }
}

impl<F: Fn(&mut dyn Tx, Run<'_>) -> Result<()> + Send + Sync + 'static> Engine for Around<F> {
    fn read(&self, run: Run<'_>) -> Result<()> {
        self.engine.read(&mut |tx| {
            self.at_read.iter().for_each(|at_read| at_read());
            match &self.at_get {
                Some(at_get) => run(&mut AroundTx(tx, &mut |_, _| Ok(()), at_get)),
                None => run(tx),
            }
        })
    }
    fn write(&self, run: Run<'_>) -> Result<()> {
        self.engine.write(&mut |tx| (self.run)(tx, run))
    }
    fn write_once(&self, run: Run<'_>, here: bool) -> Result<Commit> {
        self.engine.write_once(&mut |tx| (self.run)(tx, run), here && !self.slow)
    }
    fn sweep(&self, now: u64) -> Result<bool> {
        self.engine.sweep(now)
    }
    fn waits(&self) -> bool {
        self.engine.waits()
    }
    fn together_max(&self) -> usize {
        self.engine.together_max()
    }
    fn spare_bytes(&self) -> usize {
        self.engine.spare_bytes()
    }
    fn excess(&self) -> Excess {
        self.excess.unwrap_or_else(|| self.engine.excess())
    }
    fn reclaim(&self) -> Result<()> {
        self.engine.reclaim()
    }
    left_to!(engine);
    fn healthy(&self) -> Result<()> {
        self.engine.healthy()
    }
    fn close(self: Box<Self>) -> Result<()> {
        self.engine.close()
    }
}

/// A transaction of which the test hears what it is about to change, a key, as it is in the store, and whether it is set, and may refuse it; and what it reads by its name.
struct AroundTx<'t>(&'t mut dyn Tx, &'t mut dyn FnMut(&[u8], bool) -> Result<()>, &'t dyn Fn(&[u8]));

impl Tx for AroundTx<'_> {
    fn prefetch(&self, keys: &[&[u8]]) {
        self.0.prefetch(keys);
    }
    fn get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        self.2(key);
        self.0.get(key)
    }
    fn put(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) -> Result<()> {
        self.1(key, true)?;
        self.0.put(key, value, expires)
    }
    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        self.1(key, false)?;
        self.0.delete(key)
    }
    fn expires(&self, key: &[u8]) -> Result<Option<u64>> {
        self.0.expires(key)
    }
    fn version(&self, key: &[u8]) -> Result<Option<u64>> {
        self.0.version(key)
    }
    fn scan(&self, keys: Keys, visit: Visit<'_>) -> Result<()> {
        self.0.scan(keys, visit)
    }
}

/// What is called with each key, as it is in the store, that is about to be set or removed.
pub type Before = Box<dyn Fn(&[u8]) + Send + Sync>;

/// A store in whose writes the test may interfere.
pub fn watched(engine: Box<dyn Engine>, before: Before) -> Box<dyn Engine> {
    Around::boxed(engine, move |tx, run| {
        let mut change = |key: &[u8], _| {
            before(key);
            Ok(())
        };
        run(&mut AroundTx(tx, &mut change, &|_| ()))
    })
}

/// The same store, which says that so many keys are to go.
pub fn crowded(engine: Box<dyn Engine>, keys: u64) -> Box<dyn Engine> {
    let excess = Some(Excess { keys, ..Excess::default() });
    Box::new(Around { excess, ..Around::of(engine, |tx, run| run(tx)) })
}

/// Whether there is no room for a change: of this key, whether it is set, behind so many deletions of its transaction.
pub type NoRoom = Box<dyn Fn(&[u8], bool, usize) -> bool + Send + Sync>;

/// A store that is full when the test says so.
pub fn scarce(engine: Box<dyn Engine>, no_room: NoRoom) -> Box<dyn Engine> {
    Around::boxed(engine, move |tx, run| {
        let mut deletions = 0;
        let mut change = |key: &[u8], sets| {
            if no_room(key, sets, deletions) {
                return Err(Error::Full("a test takes all the room".to_owned()));
            }
            deletions += usize::from(!sets);
            Ok(())
        };
        run(&mut AroundTx(tx, &mut change, &|_| ()))
    })
}

/// A store of which the test hears when transactions that only read have begun.
pub fn read_slowly(engine: Box<dyn Engine>, at_read: AtCommit) -> Box<dyn Engine> {
    Box::new(Around { at_read: Some(at_read), ..Around::of(engine, |tx, run| run(tx)) })
}

/// A store of which the test hears which keys transactions that only read get, as they are in the store.
pub fn looked_at(engine: Box<dyn Engine>, at_get: Before) -> Box<dyn Engine> {
    Box::new(Around { at_get: Some(at_get), ..Around::of(engine, |tx, run| run(tx)) })
}

/// What is called where a transaction that has changed something is about to be committed: not those that the server begins now and then, and finds nothing to do in.
pub type AtCommit = Box<dyn Fn() + Send + Sync>;

/// A store of which the test hears when its transactions are about to be committed.
pub fn told(engine: Box<dyn Engine>, at_commit: AtCommit) -> Box<dyn Engine> {
    Around::boxed(engine, move |tx, run| {
        let mut changes = false;
        let mut note = |_: &[u8], _| {
            changes = true;
            Ok(())
        };
        run(&mut AroundTx(tx, &mut note, &|_| ()))?;
        if changes {
            at_commit();
        }
        Ok(())
    })
}

/// A server, and the directory with its store.
pub struct Running {
    server: Option<Server>,
    _dir: tempfile::TempDir,
}

impl Running {
    pub fn start(domain: DomainChoice) -> Self {
        Self::with(domain, |config| config, |options| options)
    }

    pub fn with(
        domain: DomainChoice,
        config: impl FnOnce(Config) -> Config,
        options: impl FnOnce(kv::Options) -> kv::Options,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pool = pmem::Options::new().domain(domain);
        let store = options(kv::Options::new().pool(pool)).create(dir.path().join("store")).unwrap();
        Self::serve(dir, config, Box::new(Kv::new(store)))
    }

    /// On a B+tree in a heap.
    pub fn tree() -> Self {
        Self::on(Store::Tree, DomainChoice::Emulated)
    }

    pub fn on(store: Store, domain: DomainChoice) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine = store.open(dir.path().join("store"), pmem::Options::new().domain(domain));
        Self::serve(dir, |config| config, engine)
    }

    /// The same, without a step, if one is named.
    pub fn without(step: Option<Step>, store: Store, domain: DomainChoice) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine = store.open(dir.path().join("store"), pmem::Options::new().domain(domain));
        Self { server: Some(start(step, usual(), engine)), _dir: dir }
    }

    fn serve(dir: tempfile::TempDir, config: impl FnOnce(Config) -> Config, engine: Box<dyn Engine>) -> Self {
        Self { server: Some(start(None, config(usual()), engine)), _dir: dir }
    }

    pub fn address(&self) -> SocketAddr {
        self.server.as_ref().unwrap().redis()[0]
    }

    pub fn port(&self) -> String {
        self.address().port().to_string()
    }

    pub fn client(&self) -> Client {
        Client::to(self.address())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
            if !std::thread::panicking() {
                server.join().unwrap();
            }
        }
    }
}

/// Ends the threads of a test, which look at this, however the test ends.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Two threads, and any port.
pub fn usual() -> Config {
    Config { redis: vec!["127.0.0.1:0".parse().unwrap()], threads: 2, ..Config::default() }
}

/// Without a step, if one is named.
pub fn start(step: Option<Step>, config: Config, engine: Box<dyn Engine>) -> Server {
    match step {
        Some(step) => Server::start_without(step, config, engine),
        None => Server::start(config, engine),
    }
    .unwrap()
}

/// A connection.
pub struct Client(pub BufReader<TcpStream>);

/// What comes back.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Reply>),
}

impl Client {
    pub fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    /// One request, and its reply.
    pub fn ask(&mut self, words: &[&str]) -> Reply {
        self.send(&request(words));
        self.reply()
    }

    /// An inline request of words without spaces.
    pub fn say(&mut self, line: &str) -> Reply {
        self.ask(&line.split(' ').collect::<Vec<_>>())
    }

    pub fn reply(&mut self) -> Reply {
        self.try_reply().unwrap_or_else(|| panic!("the connection ended"))
    }

    /// None when the connection has ended.
    pub fn try_reply(&mut self) -> Option<Reply> {
        let mut line = String::new();
        if self.0.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let text = line.trim_end();
        let number = || text[1..].parse::<i64>().unwrap();
        Some(match text.as_bytes()[0] {
            b'+' => Reply::Simple(text[1..].to_owned()),
            b'-' => Reply::Error(text[1..].to_owned()),
            b':' => Reply::Int(number()),
            b'$' | b'=' if number() < 0 => Reply::Null,
            b'$' | b'=' => {
                let mut bytes = vec![0; number() as usize + 2];
                self.0.read_exact(&mut bytes).ok()?;
                bytes.truncate(bytes.len() - 2);
                Reply::Bulk(bytes)
            }
            b'*' if number() < 0 => Reply::Null,
            b'*' | b'~' | b'>' => Reply::Array((0..number()).map(|_| self.try_reply()).collect::<Option<_>>()?),
            b'%' => Reply::Array((0..2 * number()).map(|_| self.try_reply()).collect::<Option<_>>()?),
            b'_' => Reply::Null,
            other => panic!("{}: {line:?}", other.escape_ascii()),
        })
    }

    /// How often the server has run something on a thread that serves no connections.
    pub fn runs_apart(&mut self) -> u64 {
        let Reply::Bulk(text) = self.say("INFO stats") else { panic!("no text") };
        let text = String::from_utf8(text).unwrap();
        text.lines().find_map(|line| line.strip_prefix("cairn_runs_apart:")).unwrap().parse().unwrap()
    }

    /// Whether the other side has closed.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.0.fill_buf(), Ok([]) | Err(_))
    }
}

impl Reply {
    pub fn ok() -> Self {
        Self::Simple("OK".to_owned())
    }

    pub fn text(text: &str) -> Self {
        Self::Bulk(text.as_bytes().to_vec())
    }

    #[track_caller]
    pub fn error(&self) -> &str {
        match self {
            Self::Error(text) => text,
            other => panic!("no error: {other:?}"),
        }
    }
}

pub fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    bytes
}

/// Runs a program to its end, which must come in time and be a success; returns what it said.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.as_mut().unwrap_or_else(|error| panic!("{command:?}: {error}; run `make setup`"));
    let mut out = child.stdout.take().unwrap();
    let mut err = child.stderr.take().unwrap();
    let both = std::thread::scope(|scope| {
        let reader = |from: &mut dyn Read| {
            let mut text = Vec::new();
            from.read_to_end(&mut text).unwrap();
            String::from_utf8_lossy(&text).into_owned()
        };
        let out = scope.spawn(move || reader(&mut out));
        let err = scope.spawn(move || reader(&mut err));
        let status = in_time(&mut child);
        (status, out.join().unwrap(), err.join().unwrap())
    });
    let (status, out, err) = both;
    assert!(status.is_some_and(|status| status.success()), "{command:?}: {status:?}\n{out}\n{err}");
    out
}

#[expect(clippy::disallowed_methods, reason = "a program that does not end is a failure")]
fn in_time(child: &mut &mut std::process::Child) -> Option<std::process::ExitStatus> {
    let end = Instant::now() + 2 * WAIT_LIMIT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
