//! A server in a process of its own, and clients that remember what they were told by it, whatever becomes of it. Also what the tests of `cairn serve` do it with.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Error, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

/// A process that serves, killed when it is dropped.
pub struct Served {
    pub child: Child,
    pub address: String,
    /// Where it tells how it is.
    pub http: String,
    /// What it says later is little, and must have somewhere to go.
    said: BufReader<ChildStderr>,
}

impl Served {
    /// Returns when it serves.
    pub fn start(command: &mut Command) -> Self {
        let mut this = Self::spawn(command);
        this.await_word("serving").unwrap_or_else(|all| panic!("it ended before it served: {all}"));
        this
    }

    /// Does not wait for anything.
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        Self { child, address: String::new(), http: String::new(), said }
    }

    /// Reads what it says up to a line with this word; all that it said if it ends before.
    pub fn await_word(&mut self, word: &str) -> Result<(), String> {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            if self.said.read_line(&mut line).unwrap() == 0 {
                return Err(all);
            }
            if let Some(at) = line.trim_end().strip_prefix("cairn: redis at ") {
                self.address = at.to_owned();
            }
            if let Some(at) = line.trim_end().strip_prefix("cairn: status at http://") {
                self.http = at.trim_end_matches('/').to_owned();
            }
            if line.contains(word) {
                return Ok(());
            }
            all.push_str(&line);
        }
    }

    pub fn connect(&self) -> Connection {
        Connection::to(&self.address).unwrap()
    }

    /// The status of `/healthz`.
    pub fn health(&self) -> u16 {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub struct Connection(BufReader<TcpStream>);

impl Connection {
    pub fn to(address: &str) -> std::io::Result<Self> {
        Self::within(address, Duration::from_secs(60))
    }

    /// One that waits so long for a connection, and for each answer.
    pub fn within(address: &str, wait_limit: Duration) -> std::io::Result<Self> {
        let address = address.parse().map_err(Error::other)?;
        let stream = TcpStream::connect_timeout(&address, wait_limit)?;
        stream.set_read_timeout(Some(wait_limit))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// The first line of the reply, and what stands in the second if there is one.
    pub fn ask(&mut self, line: &str) -> std::io::Result<String> {
        self.send(line)?;
        self.reply()
    }

    /// Without waiting for the reply.
    pub fn send(&mut self, line: &str) -> std::io::Result<()> {
        // A longer line is refused; a request may be longer.
        let request = if line.len() < 1 << 15 { format!("{line}\r\n") } else { array(line) };
        self.0.get_mut().write_all(request.as_bytes())
    }

    pub fn reply(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_owned();
        match line.as_bytes() {
            [b'$', b'-', ..] => Ok("nil".to_owned()),
            [b'$', ..] => {
                let mut text = String::new();
                self.0.read_line(&mut text)?;
                Ok(text.trim_end().to_owned())
            }
            _ => Ok(line),
        }
    }

    /// The number at a name: that of a string, or of a hash's field `at` if the name begins with `h`; 0 if there is none.
    fn number(&mut self, name: &str) -> u64 {
        let found = match name.starts_with('h') {
            true => self.ask(&format!("HGET {name} at")),
            false => self.ask(&format!("GET {name}")),
        };
        let found = found.unwrap();
        if found == "nil" { 0 } else { found.parse().unwrap_or_else(|_| panic!("{name}: {found}")) }
    }
}

/// The words of a line as an array.
fn array(line: &str) -> String {
    let words = line.split(' ');
    let one = |word: &str| format!("${}\r\n{word}\r\n", word.len());
    format!("*{}\r\n", words.clone().count()) + &words.map(one).collect::<String>()
}

// ---- what a client was told -------------------------------------------------------------------------------------

/// By name the last number that was acknowledged, and what was on its way.
#[derive(Default)]
pub struct Told {
    client: u64,
    /// The last number that was given.
    last: u64,
    /// Requests that were acknowledged.
    pub acknowledged: u64,
    done: BTreeMap<String, u64>,
    /// Of one transaction, if there is more than one.
    on_its_way: Vec<(String, u64)>,
}

impl Told {
    pub fn clients(count: u64) -> Vec<Self> {
        (0..count).map(|client| Self { client, ..Self::default() }).collect()
    }

    /// Sends requests that set these names. The last of so many replies says whether they did; an error is returned.
    fn set(
        &mut self,
        connection: &mut Connection,
        lines: &str,
        replies: usize,
        names: &[(&str, u64)],
    ) -> std::io::Result<()> {
        self.on_its_way = names.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect();
        connection.0.get_mut().write_all(lines.as_bytes())?;
        let mut said = String::new();
        for _ in 0..replies {
            said = connection.reply()?;
        }
        if said.starts_with('-') {
            return Err(Error::other(said));
        }
        self.done.extend(std::mem::take(&mut self.on_its_way));
        self.acknowledged += 1;
        Ok(())
    }

    /// The next write: a single command, a transaction, a pipeline, a collection that comes or goes.
    fn write(&mut self, connection: &mut Connection) -> std::io::Result<()> {
        self.last += 1;
        let (number, client) = (self.last, self.client);
        let key = format!("c{client}:k{}", number % 17);
        match number % 6 {
            0 => {
                let twin = format!("{key}:twin");
                let lines = format!("MULTI\r\nSET {key} {number}\r\nSET {twin} {number}\r\nEXEC\r\n");
                // OK, twice QUEUED, and an array of two.
                self.set(connection, &lines, 4, &[(&key, number), (&twin, number)])?;
                for _ in 0..2 {
                    assert_eq!(connection.reply()?, "+OK");
                }
                Ok(())
            }
            1 => {
                let hash = format!("h{client}:{}", number / 30);
                self.set(connection, &format!("HSET {hash} at {number}\r\n"), 1, &[(&hash, number)])
            }
            2 => {
                // Every other one stays.
                let gone = format!("h{client}:{}", (number / 30).saturating_sub(3) | 1);
                self.set(connection, &format!("DEL {gone}\r\n"), 1, &[(&gone, 0)])
            }
            _ => self.set(connection, &format!("SET {key} {number}\r\n"), 1, &[(&key, number)]),
        }
    }
}

/// Writes until the server is gone, or refuses; what it said then.
pub fn write(served: &Served, told: &mut Told) -> Option<String> {
    let mut connection = Connection::to(&served.address).ok()?;
    loop {
        if let Err(error) = told.write(&mut connection) {
            let text = error.to_string();
            return text.starts_with('-').then_some(text);
        }
    }
}

/// Everything that was acknowledged is there; of what was on its way, all or nothing. From now on what is there counts as told.
pub fn check(served: &Served, all: &mut [Told]) {
    let mut connection = served.connect();
    for told in all {
        let way = std::mem::take(&mut told.on_its_way);
        let arrived: Vec<bool> = way.iter().map(|(name, number)| connection.number(name) == *number).collect();
        let before = |(name, _): &(String, u64)| told.done.get(name).copied().unwrap_or(0);
        let same = way.iter().all(|one| before(one) == one.1);
        assert!(
            same || arrived.iter().all(|there| *there == arrived[0]),
            "half of a transaction: {way:?}, {arrived:?}"
        );
        if arrived.first().is_some_and(|there| *there) {
            told.done.extend(way);
        }
        for (name, number) in &told.done {
            assert_eq!(connection.number(name), *number, "{name}: not what was acknowledged last");
        }
    }
}

/// The server is killed so often, while four clients write: how many writes it has acknowledged.
pub fn killed(start: &dyn Fn() -> Served, rounds: u64) -> u64 {
    let mut all = Told::clients(4);
    for round in 0..rounds {
        let mut served = start();
        check(&served, &mut all);
        std::thread::scope(|scope| {
            for told in &mut all {
                let served = &served;
                scope.spawn(move || assert_eq!(write(served, told), None));
            }
            std::thread::sleep(Duration::from_millis(20 + round * 37 % 150));
            let id = served.child.id().to_string();
            assert!(Command::new("kill").args(["-9", &id]).status().unwrap().success());
        });
        served.child.wait().unwrap();
    }
    check(&start(), &mut all);
    all.iter().map(|told| told.acknowledged).sum()
}

// ---- syncs ------------------------------------------------------------------------------------------------------

/// Each thread's syncs fail from this one on.
const FAILS: u64 = 200;

/// Runs a server under `strace`, so that its calls are seen, and its syncs fail in the end.
pub fn traced(program: &Path, log: &Path) -> Command {
    let mut command = Command::new("strace");
    // The tracer is not in between: the child is the server.
    command.args([
        "-D",
        "-f",
        "-qq",
        "-s",
        "48",
        "-e",
        "trace=fdatasync,fsync,msync,recvfrom,sendto,writev,read,write",
    ]);
    command.args(["-e", &format!("inject=fdatasync:error=EIO:when={FAILS}+"), "-o"]).arg(log).arg(program);
    command
}

/// One client sets a key again and again until it is refused; others are, too; then the server is started anew. `start` is given whether syncs fail;
/// `reads` says whether the engine reads what a transaction in doubt has written.
pub fn synced(start: &dyn Fn(bool) -> Served, log: &Path, reads: bool) {
    let served = start(true);
    assert_eq!(served.health(), 200);
    let mut connection = served.connect();
    let mut acknowledged = 0;
    let refused = loop {
        match connection.ask(&format!("SET one {}", acknowledged + 1)).unwrap() {
            said if said == "+OK" => acknowledged += 1,
            said => break said,
        }
        if acknowledged == 50 * FAILS {
            replies_follow_syncs(&std::fs::read_to_string(log).unwrap(), acknowledged);
            panic!("no sync has failed");
        }
    };
    assert!(refused.starts_with("-MISCONF") && refused.contains("in doubt: it may or may not be there"), "{refused}");
    assert!(acknowledged > 0, "nothing was acknowledged");
    // No client's writes are taken any more; what is there can be read.
    let mut other = served.connect();
    for line in ["SET other 1", "DEL one", "HSET hash field 1", "INCR one"] {
        for client in [&mut other, &mut connection] {
            let said = client.ask(line).unwrap();
            assert!(said.starts_with("-MISCONF") && said.contains("has written nothing"), "{line}: {said}");
        }
    }
    assert_eq!(other.ask("MULTI").unwrap(), "+OK");
    assert_eq!(other.ask("SET other 2").unwrap(), "+QUEUED");
    assert!(other.ask("EXEC").unwrap().starts_with("-MISCONF"));
    let (none, one) = (other.ask("GET other").unwrap(), other.ask("GET one").unwrap());
    if reads {
        assert!(none == "nil" && one.parse::<u64>().is_ok(), "{none}, {one}");
    } else {
        assert!(one.parse::<u64>().is_ok() || one.starts_with("-MISCONF"), "{one}");
    }
    assert_eq!(served.health(), 503);
    drop(served);
    replies_follow_syncs(&std::fs::read_to_string(log).unwrap(), acknowledged);

    let served = start(false);
    let found = served.connect().number("one");
    assert!((acknowledged..=acknowledged + 1).contains(&found), "{acknowledged} acknowledged, {found} there");
    assert_eq!(served.connect().ask("GET other").unwrap(), "nil");
    assert_eq!((served.health(), served.connect().ask("SET other 3").unwrap().as_str()), (200, "+OK"));
}

/// Between a request to set the key and `OK` a sync has begun and ended well, each time: as one client asks, one thing after the other.
fn replies_follow_syncs(calls: &str, acknowledged: u64) {
    // Whether a request waits, a sync has begun since, and has ended.
    let (mut waits, mut begun, mut done, mut replies) = (false, BTreeMap::new(), false, 0);
    for (at, line) in calls.lines().enumerate() {
        let thread = line.split(' ').next().unwrap_or_default();
        let call = line[thread.len()..].trim_start();
        if line.contains("SET one ") {
            (waits, done) = (true, false);
            begun.clear();
        } else if call.starts_with("fdatasync(") {
            begun.insert(thread, waits);
        }
        if call.contains("fdatasync") && call.ends_with("= 0") {
            done |= begun.remove(thread) == Some(true);
        }
        waits &= !line.contains("\"-MISCONF");
        if line.contains("\"+OK\\r\\n\"") && waits {
            let before: Vec<&str> = calls.lines().take(at + 1).skip(at.saturating_sub(12)).collect();
            assert!(done, "reply {replies} was sent before a sync had ended well:\n{}", before.join("\n"));
            (waits, replies) = (false, replies + 1);
        }
    }
    assert_eq!(replies, acknowledged, "calls were overlooked");
}

/// Whether this program can be told to fail calls of others.
pub fn check_strace() {
    let there = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).status();
    assert!(there.is_ok_and(|status| status.success()), "strace does not run here; `make setup` installs it");
}
