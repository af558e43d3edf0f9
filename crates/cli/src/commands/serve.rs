//! `cairn serve`: alone, or as one of a [group] of machines.

mod group;
mod leading;
mod machine;
mod node;
mod transfer;

pub(super) use machine::is_nowhere;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use ::log::Replicas;
use kv::Options;
use pmem::DomainChoice;
use server::tree::{self, Tree};
use server::{Config, Server, Settings, Tls};

use super::kv::opening;
use super::{Outcome, copies};
use crate::args::{Asked, Engine, Serve};
use crate::failure::Failure;
use crate::output::note;

/// Bytes of a log, unless the user says.
const LOG: u64 = 64 << 20;
/// The longest segment of one. Space is free again by segments, and a record as long as one takes a replica its time.
const SEGMENT: u64 = 64 << 20;

pub fn run(args: &Serve) -> Outcome {
    let asked = match &args.config {
        Some(path) => args.asked.clone().or(read(path)?),
        None => args.asked.clone(),
    };
    let path = asked.store.clone().ok_or_else(|| {
        Failure::new("no store to serve was given", "cairn serve data.cairn: it is made if there is none")
    })?;
    let config = config(&asked)?;
    if !asked.etcd.is_empty() {
        return group::run(&path, &asked, config);
    }
    if asked.access().is_given() {
        note!(
            "note: --etcd-ca, --etcd-cert, --etcd-key, --etcd-user and --etcd-password-file are without effect, as no --etcd is given"
        );
    }
    let wanted = config.settings.connections;
    let engine = open(&path, &asked)?;
    let survives = engine.counts().survives;
    let running = Server::start(config, engine).map_err(|error| failure(&path, &error))?;
    tell_addresses(&running, wanted);
    note!("cairn: serving {}; what was acknowledged survives {survives}", path.display());

    wait(&running)?;
    note!("cairn: stopping");
    running.stop();
    running.join().map_err(|error| failure(&path, &error))?;
    note!("cairn: stopped, the store is closed");
    Ok(ExitCode::SUCCESS)
}

fn tell_addresses(running: &Server, wanted: usize) {
    for address in running.redis() {
        note!("cairn: redis at {address}");
    }
    for address in running.memcached() {
        note!("cairn: memcached at {address}");
    }
    if let Some(address) = running.http() {
        note!("cairn: status at http://{address}/");
    }
    let there = running.connections();
    if there < wanted {
        note!(
            "cairn: at most {there} connections at a time, not {wanted}: the system allows no more files (ulimit -n)"
        );
    }
}

/// Until a signal comes, or a client says `SHUTDOWN`.
fn wait(running: &Server) -> Result<(), Failure> {
    let (send, receive) = mpsc::channel();
    ctrlc::set_handler(move || send.send(()).unwrap_or(()))
        .map_err(|error| Failure::new(format!("signals cannot be waited for: {error}"), "see `cairn help serve`"))?;
    while !running.is_stopping() && receive.recv_timeout(Duration::from_millis(100)).is_err() {}
    Ok(())
}

fn read(path: &Path) -> Result<Asked, Failure> {
    let text = fs::read_to_string(path).map_err(|error| Failure::file("read", path, &error))?;
    toml::from_str(&text).map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = 1 + before.matches('\n').count();
        Failure::new(format!("{}: line {line}: {}", path.display(), error.message()), "see `cairn help serve`")
    })
}

/// Of a store of engine kv.
fn options(asked: &Asked) -> Options {
    // What a client reads it may write back, under a checksum of its own.
    let options = Options::new().pool(pool(asked)).verify(true);
    asked.max_memory.map_or(options.clone(), |bytes| options.index_memory(bytes))
}

fn pool(asked: &Asked) -> pmem::Options {
    let pool = pmem::Options::new().domain(asked.domain.unwrap_or(DomainChoice::Auto));
    asked.max_size.map_or(pool.clone(), |bytes| pool.max_size(bytes))
}

fn open(path: &Path, asked: &Asked) -> Result<Box<dyn server::engine::Engine>, Failure> {
    let pool = pool(asked);
    match engine(path, asked, &pool)? {
        Engine::Kv => {
            let mut options = options(asked);
            if let Some((replicas, log)) = replicas(asked)? {
                options = options.replicated(&replicas, &log);
            }
            let store = opening::shown(options).open_or_create(path).map_err(|error| Failure::kv(path, &error))?;
            Ok(Box::new(server::engine::Kv::new(store)))
        }
        Engine::Heap if !asked.replica.is_empty() => Err(Failure::new(
            "--replica is for stores of engine kv, which are made of a log",
            "leave it out, or name another file to make one of engine kv",
        )),
        Engine::Heap if asked.max_memory.is_some() => Err(Failure::new(
            "--max-memory is for the index of keys in memory, and a store of engine heap has none",
            "leave it out; --max-size bounds the file",
        )),
        Engine::Heap => {
            let mut options = tree::Options::new().pool(pool);
            if let Some(bytes) = asked.max_size {
                // Objects, their backup, logs: and room to grow.
                options = options.bytes((bytes / 4).clamp(1 << 20, 64 << 20));
            }
            let tree = Tree::open_or_create(path, &options).map_err(|error| failure(path, &error.into()))?;
            Ok(Box::new(tree))
        }
    }
}

/// The replicas of the store's log, if it has one.
fn replicas(asked: &Asked) -> Result<Option<(Replicas, ::log::Options)>, Failure> {
    if asked.replica.is_empty() {
        let given = [asked.log.is_some(), asked.write_quorum.is_some(), asked.log_size.is_some()];
        if given.contains(&true) {
            let what = "--log, --write-quorum and --log-size are about a log with replicas on other machines";
            return Err(Failure::new(what, "name them with --replica, or leave those out"));
        }
        return Ok(None);
    }
    let trusted = copies::known(&asked.known())?;
    let mut replicas = asked.replica.iter().fold(Replicas::new().trust(trusted), |all, address| all.at(address));
    if let Some(path) = &asked.log {
        replicas = replicas.local(path);
    }
    if let Some(quorum) = asked.write_quorum {
        replicas = replicas.write_quorum(quorum);
    }
    let pool = pmem::Options::new().domain(asked.domain.unwrap_or(DomainChoice::Auto));
    Ok(Some((replicas, log_options(asked).pool(pool))))
}

/// Of a log that is made now. What one command writes is one record, and no record is longer than a segment: so segments are as long as a log of that size has use for.
fn log_options(asked: &Asked) -> ::log::Options {
    let bytes = asked.log_size.unwrap_or(LOG);
    ::log::Options::new().bytes(bytes).segment_bytes((bytes / 8).clamp(4096, SEGMENT) / 4096 * 4096)
}

/// What the store is: what it says itself, if it is there.
fn engine(path: &Path, asked: &Asked, pool: &pmem::Options) -> Result<Engine, Failure> {
    let Some(found) = tree::engine_of(path, pool).map_err(|error| Failure::pool(path, &error))? else {
        return Ok(asked.engine.unwrap_or(Engine::Kv));
    };
    let file = path.display();
    match (Engine::named(&found), asked.engine) {
        (None, _) => {
            let what = if found.is_empty() { "no store".to_owned() } else { format!("a store of engine {found}") };
            Err(Failure::new(
                format!("{file}: holds {what}, which cannot be served"),
                "name another file: a store is made if there is none",
            ))
        }
        (Some(own), Some(asked)) if own != asked => Err(Failure::new(
            format!("{file}: is a store of engine {}, and --engine {} was asked for", own.name(), asked.name()),
            format!(
                "leave --engine out to serve this one, or name another file to make one of engine {}",
                asked.name()
            ),
        )),
        (Some(own), _) => Ok(own),
    }
}

fn config(asked: &Asked) -> Result<Config, Failure> {
    let password = asked.password_file.as_deref().map(password).transpose()?;
    let tls = match (&asked.tls_certificate, &asked.tls_key) {
        (Some(certificate), Some(key)) => {
            Some(Tls { certificate: certificate.clone(), key: key.clone(), clients: asked.tls_clients.clone() })
        }
        (None, None) => None,
        _ => return Err(Failure::new("TLS needs both --tls-certificate and --tls-key", "give both, or none")),
    };
    let mut settings = Settings::default();
    let size =
        |bytes: Option<u64>, usual: usize| bytes.map_or(usual, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    settings.connections = asked.max_connections.unwrap_or(settings.connections);
    settings.idle = asked.idle.map_or(settings.idle, Duration::from_secs);
    settings.script_time =
        asked.lua_time_limit.map_or(settings.script_time, |ms| Duration::from_millis(ms.clamp(1, 86_400_000)));
    if let Some(classes) = &asked.notify_keyspace_events {
        let wrong = |what| Failure::new(what, "give some of g$lshzxetdmnA, and K or E, or both");
        settings.notify = server::Notify::parse(classes.as_bytes()).map_err(wrong)?;
    }
    if let Some(policy) = &asked.max_memory_policy {
        let wrong = || {
            let all: Vec<&str> = server::Eviction::names().collect();
            Failure::new(format!("{policy} is no max-memory-policy"), format!("give one of {}", all.join(", ")))
        };
        settings.eviction = server::Eviction::named(policy).ok_or_else(wrong)?;
    }
    if let Some(name) = &asked.least_durability {
        let wrong = || {
            let all: Vec<&str> = server::Durability::names().collect();
            Failure::new(format!("{name} is no durability"), format!("give one of {}", all.join(", ")))
        };
        settings.least_durability = server::Durability::named(name.as_bytes()).ok_or_else(wrong)?;
    }
    settings.memory = asked.max_memory.unwrap_or(0);
    settings.argument = size(asked.max_argument, settings.argument);
    settings.request = size(asked.max_request, settings.request);
    // A configuration that asks only for another way to listen does not get the usual one.
    let usual = asked.redis_tls.is_empty() && asked.unix.is_none() && asked.memcached.is_empty();
    let redis = if asked.redis.is_empty() && usual { Config::default().redis } else { asked.redis.clone() };
    Ok(Config {
        redis,
        redis_tls: asked.redis_tls.clone(),
        unix: asked.unix.clone(),
        memcached: asked.memcached.clone(),
        http: asked.http,
        tls,
        password,
        open: asked.open,
        threads: asked.threads.map_or(0, usize::from),
        group: None,
        settings,
        ignore_kept: asked.ignore_kept_config,
    })
}

/// The first line of the file.
pub(super) fn password(path: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(path).map_err(|error| Failure::file("read", path, &error))?;
    let first = text.lines().next().unwrap_or_default().to_owned();
    if first.is_empty() {
        return Err(Failure::new(format!("{}: its first line is empty", path.display()), "write the password there"));
    }
    Ok(first)
}

fn failure(path: &Path, error: &server::Error) -> Failure {
    let text = error.to_string();
    let (what, next) = text.split_once("; ").unwrap_or((&text, "see `cairn help serve`"));
    let file = path.display().to_string();
    let of_store =
        || Failure::new(if what.contains(&file) { what.to_owned() } else { format!("{file}: {what}") }, next);
    match error {
        server::Error::Engine(server::engine::Error::Damaged(_)) => of_store().damaged(),
        server::Error::Engine(_) => of_store(),
        _ => Failure::new(what, next),
    }
}
