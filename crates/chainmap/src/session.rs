//! One client: requests in, replies out.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chain::NodeTx;
use server::reply::Reply;
use server::request::{Batch, Limits, Parser};
use subtle::ConstantTimeEq as _;
use tx::{Engine as _, Isolation::Strict, RetryPolicy};

use crate::map::Maps;
use crate::member::{Member, Settings};
use crate::now_ns;
use crate::request::{Change, KEY_MAX, KEYS_MAX, Request, VALUE_MAX};

/// What a request may be; each key and value has a bound of its own.
const LIMITS: Limits =
    Limits { arguments: KEYS_MAX + 8, argument: 2 * VALUE_MAX, request: 2 * VALUE_MAX + KEYS_MAX * KEY_MAX };
/// Bytes that are read at once.
const PIECE: usize = 16 << 10;
/// No attempt begins later than that after the first one: a transaction that others are in the way of.
const ATTEMPTS: Duration = Duration::from_secs(5);
/// A client that has not taken all of a reply by then is given up.
const TAKES: Duration = Duration::from_secs(5);
/// The same when the service ends.
const TAKES_LAST: Duration = Duration::from_secs(1);
/// A client that has not said the password by then gives its place to others.
const STRANGER_MOST: Duration = Duration::from_secs(5);
/// Between the reply and the commit, where that order is planted: a kill comes nearly always within.
const EARLY: Duration = Duration::from_millis(200);

/// What has happened since the service began.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) moved: AtomicU64,
    /// Answered here, as the tail's.
    pub(crate) reads_at_tail: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// What all sessions share.
pub(crate) struct Shared<M> {
    pub(crate) member: M,
    pub(crate) settings: Settings,
    pub(crate) counters: Counters,
    pub(crate) ends: AtomicBool,
    /// One at a time, so that nothing but a kill shows the fault.
    pub(crate) early: Mutex<()>,
}

/// What becomes of the connection behind a reply.
#[derive(PartialEq, Eq)]
enum Then {
    GoOn,
    End,
}

/// Answers a client until it leaves, or the service ends.
pub(crate) fn run<M: Member>(shared: &Shared<M>, stream: &mut TcpStream) -> io::Result<()> {
    let (mut parser, mut batch, mut buffer) = (Parser::default(), Batch::default(), Vec::new());
    let mut is_known = shared.settings.password.is_none();
    let late = now_ns() + STRANGER_MOST.as_nanos() as u64;
    while !shared.ends.load(Relaxed) {
        if !is_known && now_ns() > late {
            let mut reply = Reply::new();
            reply.error(&format!("NOAUTH no password in {} s", STRANGER_MOST.as_secs()));
            return say(shared, stream, reply.bytes());
        }
        let limits = if is_known { LIMITS } else { Limits::STRANGER };
        match parser.advance(&buffer, &limits, &mut batch) {
            Ok(true) => {
                let then = answer(shared, &batch, &buffer, &mut is_known, stream)?;
                batch.clear();
                drop(buffer.drain(..parser.discard()));
                if then == Then::End {
                    return Ok(());
                }
            }
            Ok(false) if buffer.len() > LIMITS.request + PIECE => return Ok(()),
            Ok(false) => {
                let len = buffer.len();
                buffer.resize(len + PIECE, 0);
                let read = stream.read(&mut buffer[len..]);
                buffer.truncate(len + read.as_ref().map_or(0, |read| *read));
                match read {
                    Ok(0) => return Ok(()),
                    Ok(_) => {}
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            Err(malformed) => {
                let mut reply = Reply::new();
                reply.error(&format!("ERR {malformed}"));
                return say(shared, stream, reply.bytes());
            }
        }
    }
    Ok(())
}

/// Sends a reply; each piece may wait for as long as the socket's time is, so that the end of the service is seen.
fn say<M: Member>(shared: &Shared<M>, stream: &mut TcpStream, mut reply: &[u8]) -> io::Result<()> {
    let after = |time: Duration| now_ns() + time.as_nanos() as u64;
    let (mut late, mut ends) = (after(TAKES), false);
    while !reply.is_empty() {
        match stream.write(reply) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(taken) => reply = &reply[taken..],
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        if !ends && shared.ends.load(Relaxed) {
            (late, ends) = (late.min(after(TAKES_LAST)), true);
        }
        if !reply.is_empty() && now_ns() > late {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

fn answer<M: Member>(
    shared: &Shared<M>,
    batch: &Batch,
    buffer: &[u8],
    is_known: &mut bool,
    stream: &mut TcpStream,
) -> io::Result<Then> {
    let mut reply = Reply::new();
    shared.counters.requests.fetch_add(1, Relaxed);
    let request = match Request::parse(batch.arguments(0, buffer)) {
        Ok(request) => request,
        Err(why) => {
            reply.error(if *is_known { &why } else { STRANGER });
            return say(shared, stream, reply.bytes()).map(|()| Then::GoOn);
        }
    };
    let mut then = Then::GoOn;
    match &request {
        Request::Quit => {
            reply.ok();
            then = Then::End;
        }
        Request::Auth { password } => match &shared.settings.password {
            None => reply.error("ERR this service has no password"),
            Some(right) if right.as_bytes().ct_eq(password).into() => {
                *is_known = true;
                reply.ok();
            }
            Some(_) => reply.error("WRONGPASS that is not the password"),
        },
        _ if !*is_known => reply.error(STRANGER),
        Request::Ping => reply.simple("PONG"),
        Request::Greeting => reply.ok(),
        Request::Commands => reply.array(0),
        Request::Info => reply.bulk(info(shared).as_bytes()),
        Request::Once { change: Change::Transfer { .. }, .. } if shared.settings.early => {
            early(shared, &request, stream)?;
            return Ok(Then::GoOn);
        }
        _ => reply.raw(&transact(shared, &request)),
    }
    say(shared, stream, reply.bytes()).map(|()| then)
}

const STRANGER: &str = "NOAUTH say AUTH and the password first";

/// Carries it out; the reply, which is an error if it could not be.
fn transact<M: Member>(shared: &Shared<M>, request: &Request<'_>) -> Vec<u8> {
    let policy = RetryPolicy::default().deadline(ATTEMPTS);
    let seed = shared.settings.seed;
    // Only the tail runs it as one that only reads; whether it is that is known by the transaction alone.
    let mut at_tail = false;
    let carried_out = shared.member.node().transact_with(Strict, policy, |tx| {
        at_tail = tx.only_reads();
        carry_out(tx, request, seed)
    });
    match carried_out {
        Ok(bytes) => {
            shared.counters.reads_at_tail.fetch_add(u64::from(at_tail), Relaxed);
            bytes
        }
        Err(error) => refused(shared, request, &error),
    }
}

/// For tests of what looks for losses: replies before the commit.
fn early<M: Member>(shared: &Shared<M>, request: &Request<'_>, stream: &mut TcpStream) -> io::Result<()> {
    let _one = shared.early.lock().unwrap_or_else(PoisonError::into_inner);
    let mut said = Vec::new();
    let tried = shared.member.node().transact(Strict, |tx| {
        said = carry_out(tx, request, shared.settings.seed)?;
        Err::<(), tx::Error>(tx::Error::Aborted { reason: String::new() })
    });
    if !matches!(tried, Err(tx::Error::Aborted { .. })) {
        said = tried.map_or_else(|error| refused(shared, request, &error), |()| Vec::new());
    }
    say(shared, stream, &said)?;
    std::thread::sleep(EARLY);
    transact(shared, request);
    Ok(())
}

fn carry_out(tx: &mut NodeTx<'_>, request: &Request<'_>, seed: u64) -> tx::Result<Vec<u8>> {
    let mut reply = Reply::new();
    match request {
        Request::Get { key } => reply.maybe(get(tx, Maps::find(tx)?, key)?.as_deref()),
        Request::GetAll { keys } => {
            let maps = Maps::find(tx)?;
            reply.array(keys.len());
            for key in keys {
                reply.maybe(get(tx, maps, key)?.as_deref());
            }
        }
        Request::Change(change) => reply = Maps::open(tx, seed)?.change(tx, change)?,
        Request::Once { client, number, change } => {
            return Maps::open(tx, seed)?.once(tx, *client, *number, change);
        }
        Request::Forget { client } => reply.int(Maps::open(tx, seed)?.forget(tx, *client)?),
        // Answered before.
        Request::Info
        | Request::Ping
        | Request::Greeting
        | Request::Commands
        | Request::Auth { .. }
        | Request::Quit => {}
    }
    Ok(reply.bytes().to_vec())
}

/// Before the first change no key has anything.
fn get(tx: &NodeTx<'_>, maps: Option<Maps>, key: &[u8]) -> tx::Result<Option<Vec<u8>>> {
    maps.map_or(Ok(None), |maps| maps.get(tx, key))
}

/// What is replied instead, and what to do next.
fn refused<M: Member>(shared: &Shared<M>, request: &Request<'_>, error: &tx::Error) -> Vec<u8> {
    let counters = &shared.counters;
    let own = match error {
        tx::Error::Engine { source, .. } => source.downcast_ref::<chain::Error>(),
        _ => None,
    };
    let text = match (own, error) {
        (Some(chain::Error::NotHead), _) => {
            counters.moved.fetch_add(1, Relaxed);
            elsewhere(&shared.member, request.only_reads())
        }
        (Some(chain::Error::Unknown { .. } | chain::Error::Stopped { .. }), _) => {
            counters.unknown.fetch_add(1, Relaxed);
            "UNKNOWN it may have happened or not; ask again, at the machine that leads: with ONCE and the same number it is carried out once".to_owned()
        }
        (None, tx::Error::Conflict { .. } | tx::Error::GaveUp { .. } | tx::Error::NoSlot { .. }) => {
            counters.failed.fetch_add(1, Relaxed);
            "TRYAGAIN others are in its way, and nothing has changed; ask again".to_owned()
        }
        (None, tx::Error::Pool(pmem::Error::HeapFull { .. })) => {
            counters.failed.fetch_add(1, Relaxed);
            "FULL the heap has no room, and nothing has changed; delete keys, or FORGET clients that are gone"
                .to_owned()
        }
        (_, error) => {
            counters.failed.fetch_add(1, Relaxed);
            tracing::warn!(%error, "a request has failed");
            format!("ERR {error}")
        }
    };
    let mut reply = Reply::new();
    reply.error(&text);
    reply.bytes().to_vec()
}

/// What only reads is sent to the tail, and by a tail that cannot answer to the machine that leads: so nothing goes round.
fn elsewhere<M: Member>(member: &M, only_reads: bool) -> String {
    let (own, leader) = (member.machine(), member.leader());
    let leads = leader.as_ref().is_some_and(|(machine, _)| *machine == own);
    if only_reads
        && !leads
        && let Some((machine, Some(address))) = member.tail()
        && machine != own
    {
        return format!("MOVED 0 {address} machine {machine} answers reads; nothing was read here, ask there");
    }
    match leader {
        Some((machine, Some(address))) if machine != own => {
            format!("MOVED 0 {address} machine {machine} leads; nothing has changed here, ask there")
        }
        Some((machine, _)) if machine != own => {
            format!("TRYAGAIN machine {machine} leads, and is not announced now; nothing has changed, ask again")
        }
        Some(_) => format!(
            "TRYAGAIN machine {own} leads and has no lease now, since it has just begun or etcd does not answer; nothing has changed, ask again"
        ),
        None => "TRYAGAIN it is not known who leads; nothing has changed, ask again".to_owned(),
    }
}

fn role(status: &chain::Status) -> &'static str {
    match (status.is_head(), status.is_tail()) {
        (true, _) => "head",
        (false, true) => "tail",
        (false, false) => "replica",
    }
}

/// As Redis has it: sections of `name:value`.
fn info<M: Member>(shared: &Shared<M>) -> String {
    let (status, counters) = (shared.member.node().status(), &shared.counters);
    let view = status.view.as_ref();
    let members: Vec<String> =
        view.into_iter().flat_map(|view| &view.members).map(|id| id.machine.to_string()).collect();
    let (leader, tail) = (shared.member.leader(), shared.member.tail());
    let mut text = String::from("# Chain\r\n");
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        writeln!(text, "{name}:{value}\r").unwrap_or(()); // a String takes all
    };
    line("machine", &status.id.machine);
    line("role", &role(&status));
    line("stage", &format!("{:?}", status.stage).to_lowercase());
    line("leader", &leader.as_ref().map_or(0, |leader| leader.0));
    line("leader_address", &leader.and_then(|leader| leader.1).unwrap_or_default());
    line("tail", &tail.as_ref().map_or(0, |tail| tail.0));
    line("tail_address", &tail.and_then(|tail| tail.1).unwrap_or_default());
    line("view", &view.map_or(0, |view| view.id.0));
    line("members", &members.join(","));
    line("failures_wanted", &view.map_or(0, |view| view.f));
    line("has_lease", &u8::from(status.has_lease));
    line("answers_reads", &u8::from(status.reads));
    line("transactions_last", &status.progress.last);
    line("transactions_executed", &status.progress.executed);
    line("transactions_acknowledged", &status.progress.acknowledged);
    line("joining", &status.joiner.map_or(0, |id| id.machine));
    line("barriers", &shared.member.node().stats().drains);
    text += "\r\n# Stats\r\n";
    for (name, counter) in [
        ("connected_clients", &counters.connections),
        ("requests", &counters.requests),
        ("moved", &counters.moved),
        ("reads_at_tail", &counters.reads_at_tail),
        ("unknown", &counters.unknown),
        ("failed", &counters.failed),
    ] {
        writeln!(text, "{name}:{}\r", counter.load(Relaxed)).unwrap_or(());
    }
    text
}
