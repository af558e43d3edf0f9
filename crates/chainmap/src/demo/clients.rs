//! Clients that ask until there is an answer.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use redis::{Connection, RedisError, RedisResult, Value};

use super::MOST;
use super::bank::{ACCOUNTS, BEGINNING, account, transfer};
use crate::now_ns;

/// An answer that takes longer is waited for no more: the request is asked again elsewhere.
const ANSWER: Duration = Duration::from_secs(4);
const CONNECT: Duration = Duration::from_millis(500);
/// Before it is asked again.
const PAUSE: Duration = Duration::from_millis(10);
/// Each of so many requests is asked twice.
const TWICE: u64 = 5;
/// Between two looks at all accounts.
const SUMS: Duration = Duration::from_millis(50);
/// After so many a look asks again which machine leads, and which is the tail.
const AIM: u64 = 8;
/// The client that makes the accounts.
const MAKER: u64 = 1 << 40;
/// Violations that are told.
const TOLD_MAX: usize = 20;

/// A connection to its leader, as far as is known.
pub(super) struct Asker {
    addresses: Vec<String>,
    at: usize,
    connection: Option<Connection>,
}

impl Asker {
    pub(super) fn new(addresses: Vec<String>) -> Self {
        Self { addresses, at: 0, connection: None }
    }

    /// Goes on at this machine; what it does not answer, another one does.
    pub(super) fn go_to(&mut self, at: usize) {
        if self.at != at {
            (self.at, self.connection) = (at, None);
        }
    }

    /// Asks until there is an answer; why not, if none comes in time, or it is an error that stays.
    fn ask(&mut self, words: &[&str], stop: &mut dyn FnMut() -> bool) -> Result<Value, String> {
        let end = now_ns() + MOST.as_nanos() as u64;
        loop {
            let error = match self.try_once(words) {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            if stop() || now_ns() > end {
                return Err(format!("no answer to {}: {error}", words.join(" ")));
            }
            match error.code() {
                Some("TRYAGAIN" | "UNKNOWN") => {}
                Some("MOVED") => self.follow(&error),
                Some(_) => return Err(format!("{}: {error}", words.join(" "))),
                // It is gone, or hangs.
                None => {
                    self.connection = None;
                    self.at += 1;
                }
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn follow(&mut self, error: &RedisError) {
        let to = error.redirect_node().and_then(|(to, _)| self.addresses.iter().position(|address| address == to));
        self.connection = None;
        self.at = to.unwrap_or(self.at + 1);
    }

    fn try_once(&mut self, words: &[&str]) -> RedisResult<Value> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(connect(&self.addresses[self.at % self.addresses.len()])?),
        };
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let said = command.query::<Value>(connection);
        if said.as_ref().is_err_and(|error| error.code().is_none()) {
            self.connection = None;
        }
        said
    }

    /// A numbered request; its reply, a number.
    fn once(
        &mut self,
        client: u64,
        number: u64,
        change: &[&str],
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<i64, String> {
        let (client, number) = (client.to_string(), number.to_string());
        let words = [&["ONCE", &client, &number][..], change].concat();
        match self.ask(&words, stop)? {
            Value::Int(reply) => Ok(reply),
            other => Err(format!("{}: {other:?}", words.join(" "))),
        }
    }

    /// All accounts have what they begin with.
    pub(super) fn open_accounts(&mut self, stop: &mut dyn FnMut() -> bool) -> Result<(), String> {
        for at in 0..ACCOUNTS {
            self.once(MAKER, at + 1, &["INCRBY", &account(at), &BEGINNING.to_string()], stop)?;
        }
        Ok(())
    }

    /// What so many accounts have at one moment.
    pub(super) fn balances(&mut self, accounts: u64, stop: &mut dyn FnMut() -> bool) -> Result<Vec<i64>, String> {
        let keys: Vec<String> = (0..accounts).map(account).collect();
        let words: Vec<&str> = ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
        let said = self.ask(&words, stop)?;
        redis::from_redis_value::<Vec<i64>>(said).map_err(|error| format!("MGET: {error}"))
    }

    /// Which machines are members, counted from 0, head first: as the head says.
    pub(super) fn members(&self) -> Option<Vec<usize>> {
        self.addresses.iter().find_map(|address| {
            let mut connection = connect(address).ok()?;
            let info: String = redis::cmd("INFO").query(&mut connection).ok()?;
            let value = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            if value("role") != Some("head") || value("has_lease") != Some("1") {
                return None;
            }
            let machine = |word: &str| word.parse::<usize>().ok()?.checked_sub(1);
            value("members")?.split(',').map(machine).collect()
        })
    }
}

fn connect(address: &str) -> RedisResult<Connection> {
    let connection = redis::Client::open(format!("redis://{address}/"))?.get_connection_with_timeout(CONNECT)?;
    connection.set_read_timeout(Some(ANSWER))?;
    connection.set_write_timeout(Some(ANSWER))?;
    Ok(connection)
}

/// Clients at work, and what they were told.
pub(super) struct Load {
    addresses: Vec<String>,
    /// The last request of each client that was acknowledged.
    done: Vec<AtomicU64>,
    /// When the request was asked that was, of all that were answered, asked last.
    latest: AtomicU64,
    repeated: AtomicU64,
    sums: AtomicU64,
    ends: AtomicBool,
    violations: Mutex<Vec<String>>,
}

impl Load {
    pub(super) fn new(clients: u64, addresses: Vec<String>) -> Self {
        Self {
            addresses,
            done: (0..clients).map(|_| AtomicU64::new(0)).collect(),
            latest: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            sums: AtomicU64::new(0),
            ends: AtomicBool::new(false),
            violations: Mutex::default(),
        }
    }

    pub(super) fn start<'s>(&'s self, threads: &'s std::thread::Scope<'s, '_>) {
        for (client, done) in (1..).zip(&self.done) {
            threads.spawn(move || self.work(client, done));
        }
        for at_tail in [false, true] {
            threads.spawn(move || self.look(at_tail));
        }
    }

    /// A request that is under way is asked to its end: it is known of each whether it happened.
    fn work(&self, client: u64, done: &AtomicU64) {
        let mut asker = Asker::new(self.addresses.clone());
        asker.at = client as usize;
        for number in 1.. {
            if self.ends.load(SeqCst) || self.is_wrong() {
                return;
            }
            let asked = now_ns();
            let Some(reply) = self.transfer(&mut asker, client, number) else { return };
            done.store(number, SeqCst);
            self.latest.fetch_max(asked, SeqCst);
            if number % TWICE == 0 {
                match self.transfer(&mut asker, client, number) {
                    Some(again) if again == reply => drop(self.repeated.fetch_add(1, SeqCst)),
                    Some(again) => self.wrong(format!(
                        "TWICE: request {number} of client {client} had the reply {reply}, and when it was asked again {again}"
                    )),
                    None => return,
                }
            }
        }
    }

    fn transfer(&self, asker: &mut Asker, client: u64, number: u64) -> Option<i64> {
        let of = transfer(client, number);
        let (from, to, amount) = (account(of.from), account(of.to), of.amount.to_string());
        let said = asker.once(client, number, &["TRANSFER", &from, &to, &amount], &mut || self.is_wrong());
        said.map_err(|why| self.wrong(why)).ok()
    }

    /// At each moment all the money is there: at the machine that leads, and at the tail.
    fn look(&self, at_tail: bool) {
        let mut asker = Asker::new(self.addresses.clone());
        for looks in 0.. {
            if self.ends.load(SeqCst) || self.is_wrong() {
                return;
            }
            if looks % AIM == 0
                && let Some(members) = asker.members()
                && let Some(at) = if at_tail { members.last() } else { members.first() }
            {
                asker.go_to(*at);
            }
            match asker.balances(ACCOUNTS, &mut || self.ends.load(SeqCst)) {
                Ok(found) if found.iter().sum::<i64>() == BEGINNING * ACCOUNTS as i64 => {
                    self.sums.fetch_add(1, SeqCst);
                }
                Ok(found) => self.wrong(format!("LOST: a look at all accounts found {found:?}")),
                Err(_) if self.ends.load(SeqCst) => {}
                Err(why) => self.wrong(why),
            }
            std::thread::sleep(SUMS);
        }
    }

    fn wrong(&self, what: String) {
        let mut violations = self.violations.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if violations.len() < TOLD_MAX {
            violations.push(what);
        }
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    pub(super) fn is_wrong(&self) -> bool {
        !self.violations().is_empty()
    }

    pub(super) fn stop(&self) {
        self.ends.store(true, SeqCst);
    }

    pub(super) fn latest(&self) -> u64 {
        self.latest.load(SeqCst)
    }

    pub(super) fn done(&self) -> Vec<u64> {
        self.done.iter().map(|done| done.load(SeqCst)).collect()
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.done().iter().sum()
    }

    pub(super) fn repeated(&self) -> u64 {
        self.repeated.load(SeqCst)
    }

    pub(super) fn sums(&self) -> u64 {
        self.sums.load(SeqCst)
    }
}
