//! What `INFO` says: the names are Redis', the values are true.

use std::cell::LazyCell;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tx::Keys;

use crate::apart::is_apart;
use crate::clock::{Watch, now};
use crate::data::{DATABASES, all};
use crate::engine::{Error, Result, Tx};
use crate::group::split;
use crate::metrics::{KeyCount, Summed};
use crate::shared::Shared;
use crate::topic::Of;

type Lines = Vec<(&'static str, String)>;
type Owned = Vec<(String, String)>;

/// Made when it is looked at: a client that asks for one section does not wait for the others.
type Section<'s> = LazyCell<Owned, Box<dyn FnOnce() -> Owned + 's>>;

/// Sections in the order in which they are told; keys as they were counted last.
pub(crate) fn sections(shared: &Shared) -> Vec<(&'static str, Section<'_>)> {
    fn owned<'s>(shared: &'s Shared, lines: fn(&Shared) -> Lines) -> Section<'s> {
        section(move || lines(shared).into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
    fn section<'s>(lines: impl FnOnce() -> Owned + 's) -> Section<'s> {
        LazyCell::new(Box::new(lines))
    }
    vec![
        ("server", owned(shared, server)),
        ("clients", owned(shared, clients)),
        ("memory", owned(shared, memory)),
        ("persistence", owned(shared, persistence)),
        ("stats", owned(shared, stats)),
        ("replication", section(|| replication(shared))),
        ("commandstats", section(|| command_stats(shared))),
        ("keyspace", section(|| keyspace(shared))),
    ]
}

fn server(shared: &Shared) -> Lines {
    let up = now().saturating_sub(shared.started) / 1000;
    let port = shared.listens.lock().first().and_then(|at| at.rsplit(':').next().map(str::to_owned));
    vec![
        ("redis_version", "7.0.15".to_owned()),
        ("redis_mode", "standalone".to_owned()),
        ("cairn_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("cairn_engine", shared.engine.counts().engine.to_owned()),
        ("os", std::env::consts::OS.to_owned()),
        ("arch_bits", usize::BITS.to_string()),
        ("process_id", std::process::id().to_string()),
        ("run_id", shared.run_id.clone()),
        ("tcp_port", port.unwrap_or_else(|| "0".to_owned())),
        ("uptime_in_seconds", up.to_string()),
        ("uptime_in_days", (up / 86_400).to_string()),
        ("io_threads", shared.recorders.len().to_string()),
    ]
}

fn clients(shared: &Shared) -> Lines {
    let totals = shared.totals();
    vec![
        ("connected_clients", totals.connected.to_string()),
        ("blocked_clients", (shared.waiters.len() + shared.readers.len()).to_string()),
        ("maxclients", shared.settings().connections.to_string()),
        ("tracking_clients", shared.tracking.counts()[0].to_string()),
    ]
}

/// Bytes of memory this process has, by what the system says.
pub(crate) fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

fn memory(shared: &Shared) -> Lines {
    let scripts = shared.scripts.count();
    let counts = shared.engine.counts();
    vec![
        ("used_memory", counts.index_bytes.to_string()),
        ("used_memory_rss", resident_bytes().to_string()),
        ("used_memory_dataset", counts.live_bytes.to_string()),
        ("number_of_cached_scripts", scripts.0.to_string()),
        ("used_memory_scripts", scripts.1.to_string()),
        ("scripts_running_long", shared.scripts.longs().to_string()),
        ("maxmemory", shared.settings().memory.to_string()),
        ("maxmemory_policy", shared.settings().eviction.name().to_owned()),
    ]
}

/// Nothing is pending at any time: what was acknowledged is durable, unless its connection has settled for less.
fn persistence(shared: &Shared) -> Lines {
    let (totals, counts) = (shared.totals(), shared.engine.counts());
    let fine = || if shared.takes_writes().is_ok() { "ok" } else { "err" }.to_owned();
    vec![
        ("loading", "0".to_owned()),
        ("rdb_changes_since_last_save", "0".to_owned()),
        ("rdb_bgsave_in_progress", "0".to_owned()),
        ("rdb_last_save_time", (now() / 1000).to_string()),
        ("rdb_last_bgsave_status", fine()),
        ("aof_enabled", "1".to_owned()),
        ("aof_rewrite_in_progress", "0".to_owned()),
        ("aof_last_write_status", fine()),
        ("aof_current_size", counts.file_bytes.to_string()),
        ("cairn_survives", counts.survives.to_owned()),
        ("cairn_unacknowledged_at_risk", "0".to_owned()),
        ("cairn_least_durability", shared.settings().least_durability.name().to_owned()),
        ("cairn_early_answers", totals.early.to_string()),
        ("cairn_early_answers_lost", totals.early_lost.to_string()),
        ("cairn_barriers", counts.barriers.to_string()),
        ("cairn_flushed_bytes", counts.flushed_bytes.to_string()),
        ("cairn_checkpoints", counts.checkpoints.to_string()),
    ]
}

fn stats(shared: &Shared) -> Lines {
    let (totals, counts) = (shared.totals(), shared.engine.counts());
    let refused = shared.refused.load(Relaxed);
    let [_, tracked_keys, tracked_items, tracked_prefixes] = shared.tracking.counts();
    vec![
        ("total_connections_received", totals.connections.to_string()),
        ("rejected_connections", refused.to_string()),
        ("total_commands_processed", totals.commands.to_string()),
        ("total_error_replies", totals.errors.to_string()),
        ("evicted_keys", shared.evictor.evicted.load(Relaxed).to_string()),
        ("pubsub_channels", shared.pubsub.count(Of::Channel).to_string()),
        ("pubsub_patterns", shared.pubsub.count(Of::Pattern).to_string()),
        ("pubsubshard_channels", shared.pubsub.count(Of::Shard).to_string()),
        ("client_output_buffer_limit_disconnections", shared.pubsub.cut_off.load(Relaxed).to_string()),
        ("tracking_total_keys", tracked_keys.to_string()),
        ("tracking_total_items", tracked_items.to_string()),
        ("tracking_total_prefixes", tracked_prefixes.to_string()),
        ("total_net_input_bytes", totals.read.to_string()),
        ("total_net_output_bytes", totals.written.to_string()),
        ("acl_access_denied_auth", totals.denied.to_string()),
        ("cairn_batches", totals.batches.to_string()),
        ("cairn_transactions", totals.transactions.to_string()),
        ("cairn_conflicts", (totals.conflicts + counts.conflicts).to_string()),
        ("cairn_runs_apart", totals.apart.to_string()),
        ("cairn_commits", counts.commits.to_string()),
        ("cairn_reply_p50_usec", (totals.replies.quantile(0.5) / 1000).to_string()),
        ("cairn_reply_p99_usec", (totals.replies.quantile(0.99) / 1000).to_string()),
        ("cairn_commit_p50_usec", (totals.commits.quantile(0.5) / 1000).to_string()),
        ("cairn_commit_p99_usec", (totals.commits.quantile(0.99) / 1000).to_string()),
        ("cairn_reply_classes", classes(&totals.replies)),
        ("cairn_commit_classes", classes(&totals.commits)),
    ]
}

/// How many took up to 1 µs, 2 µs, 4 µs and so on: the differences of two moments are the latencies between them.
fn classes(durations: &Summed) -> String {
    let all: Vec<String> = durations.classes.iter().map(ToString::to_string).collect();
    all.join(",")
}

fn replication(shared: &Shared) -> Owned {
    let mut lines = Vec::new();
    let mut line = |name: &str, value: String| lines.push((name.to_owned(), value));
    let Some(group) = &shared.group else {
        line("role", "master".to_owned());
        line("connected_slaves", "0".to_owned());
        return lines;
    };
    let view = group.view();
    if group.follows() {
        line("role", "slave".to_owned());
        let (host, port) = view.leader.as_deref().map_or(("", "0"), split);
        line("master_host", host.to_owned());
        line("master_port", port.to_owned());
        line("master_link_status", if view.leader.is_some() { "up" } else { "down" }.to_owned());
        line("slave_repl_offset", view.commits.to_string());
        line("slave_read_only", "1".to_owned());
        line("connected_slaves", "0".to_owned());
    } else {
        line("role", "master".to_owned());
        line("connected_slaves", view.others.iter().filter(|other| other.live).count().to_string());
        for (at, other) in view.others.iter().enumerate() {
            let (host, port) = split(&other.address);
            let (state, offset) = (other.state(), view.commits.saturating_sub(other.behind));
            line(&format!("slave{at}"), format!("ip={host},port={port},state={state},offset={offset},lag=0"));
            if let Some(trouble) = &other.trouble {
                line(&format!("cairn_slave{at}_trouble"), one_line(trouble));
            }
            if let Some(wire) = other.wire {
                line(&format!("cairn_slave{at}_wire"), wire.to_string());
            }
        }
    }
    line("master_failover_state", group.failover_state().to_owned());
    line("master_repl_offset", view.commits.to_string());
    if let Some(trouble) = &view.trouble {
        line("cairn_trouble", one_line(trouble));
    }
    if let Some(wire) = view.wire {
        line("cairn_wire", wire.to_string());
    }
    line("cairn_group", view.name);
    line("cairn_term", view.term.to_string());
    line("cairn_write_quorum", view.write_quorum.to_string());
    lines
}

/// What another machine has said of itself.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

fn command_stats(shared: &Shared) -> Vec<(String, String)> {
    let calls = shared.totals().calls;
    let used = shared.commands.iter().zip(calls).filter(|(_, calls)| *calls > 0);
    used.map(|(command, calls)| (format!("cmdstat_{}", command.name), format!("calls={calls}"))).collect()
}

/// Keys of each database, as they were counted last.
fn keyspace(shared: &Shared) -> Owned {
    let counted = shared.counted.lock();
    let used = counted.keys.iter().enumerate().filter(|(_, count)| count.keys > 0);
    used.map(|(db, KeyCount { keys, expires, ttl })| {
        let average = ttl.checked_div(*expires).unwrap_or(0);
        (format!("db{db}"), format!("keys={keys},expires={expires},avg_ttl={average}"))
    })
    .collect()
}

/// Counts keys at once, if they are few. Otherwise they are counted on another thread from now on, unless they are already: false.
fn counts_now(shared: &Arc<Shared>) -> bool {
    let few = count_few(shared);
    let mut counted = shared.counted.lock();
    if let Some(keys) = few {
        (counted.keys, counted.is_known) = (keys, true);
        return true;
    }
    if counted.ended == counted.begun {
        counted.begun += 1;
        // Where it is not run it ends at once.
        drop(counted);
        let counting = Counting(shared.clone());
        tokio::task::spawn_blocking(move || {
            let shared = &counting.0;
            let keys: Result<Vec<_>> = (0..DATABASES).map(|db| count(shared, db)).collect();
            // What cannot be counted is as it was.
            if let Ok(keys) = keys {
                let mut counted = shared.counted.lock();
                (counted.keys, counted.is_known) = (keys, true);
            }
        });
    }
    false
}

/// A count that is on its way, until it ends in whichever way.
struct Counting(Arc<Shared>);

impl Drop for Counting {
    fn drop(&mut self) {
        let mut counted = self.0.counted.lock();
        counted.ended = counted.begun;
        self.0.count_ended.notify_all();
    }
}

/// How long a client waits for a count.
pub(crate) const COUNT_TIME: Duration = Duration::from_secs(5);

/// Whether the keys have been counted since the client has asked. It asks for the first time if `asked` is none, which then says which count is its own.
pub(crate) fn is_counted(shared: &Shared, asked: &mut Option<u64>) -> bool {
    let Some(shared) = shared.itself.upgrade() else { return true };
    let Some(own) = *asked else {
        // One that is on its way may have passed what this client has just written.
        *asked = Some(shared.counted.lock().begun + 1);
        return counts_now(&shared);
    };
    let (begun, ended) = {
        let counted = shared.counted.lock();
        (counted.begun, counted.ended)
    };
    ended >= own || begun == ended && counts_now(&shared)
}

/// For `INFO` within a transaction, which cannot be asked again: keys are told as they were counted last. Where they never were, and are not few, it waits for the first count, on a
/// thread that serves no connections. The nanoseconds that it has waited.
pub(crate) fn count_within(shared: &Shared) -> Result<u64> {
    let Some(shared) = shared.itself.upgrade() else { return Ok(0) };
    if counts_now(&shared) || shared.counted.lock().is_known {
        return Ok(0);
    }
    if !is_apart() {
        return Err(Error::TooLong);
    }
    // Where transactions wait for each other, the count may wait for what this one has locked.
    let began = Watch::start();
    if !shared.engine.waits() {
        let mut counted = shared.counted.lock();
        let own = counted.begun;
        shared.count_ended.wait_while_for(&mut counted, |counted| counted.ended < own, COUNT_TIME);
    }
    Ok(began.nanos())
}

/// Keys that are counted each time it is asked.
const FEW: usize = 1 << 12;

/// Keys of each database, if they are few.
fn count_few(shared: &Shared) -> Option<Vec<KeyCount>> {
    let (mut counts, mut keys) = (Vec::new(), Vec::new());
    let looked = shared.look(&mut |tx| {
        counts = vec![KeyCount::default(); DATABASES.into()];
        keys = some_keys(tx, Keys::from(&[]).until(&[DATABASES]), FEW + 1)?;
        if keys.len() > FEW {
            return Ok(());
        }
        let (map, now) = (shared.databases.now(), now());
        for key in &keys {
            let number = key.first().map_or(0, |database| map.number_of(*database));
            counts[usize::from(number)].add(tx.expires(key)?, now);
        }
        Ok(())
    });
    (looked.is_ok() && keys.len() <= FEW).then_some(counts)
}

/// So many at most.
fn some_keys(tx: &dyn Tx, range: Keys, most: usize) -> Result<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    tx.scan(range, &mut |key, _| {
        keys.push(key.to_vec());
        if keys.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(keys)
}

/// Keys that are counted in one transaction: a long one would keep the store from forgetting old versions.
const AT_ONCE: usize = 1 << 14;

/// Keys of a database, whose transactions together are no snapshot; fewer if the server stops meanwhile.
pub(crate) fn count(shared: &Shared, db: u8) -> Result<KeyCount> {
    let (mut all, mut last) = (KeyCount::default(), None);
    loop {
        let (some, next) = count_some(shared, db, last, AT_ONCE)?;
        all.merge(some);
        if next.is_none() || *shared.stop.borrow() {
            return Ok(all);
        }
        last = next;
    }
}

/// Some keys behind `last`, and the last of them if there may be more.
fn count_some(shared: &Shared, db: u8, last: Option<Vec<u8>>, most: usize) -> Result<(KeyCount, Option<Vec<u8>>)> {
    let mut range = all(shared.databases.now().of(db), &[]);
    if let Some(last) = last {
        range.from = Bound::Excluded(last);
    }
    let (mut count, mut last) = (KeyCount::default(), None);
    shared.look(&mut |tx| {
        let mut keys = some_keys(tx, range.clone(), most)?;
        let now = now();
        count = KeyCount::default();
        for key in &keys {
            count.add(tx.expires(key)?, now);
        }
        last = if keys.len() < most { None } else { keys.pop() };
        Ok(())
    })?;
    Ok((count, last))
}
