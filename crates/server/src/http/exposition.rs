//! What Prometheus collects. What redis_exporter has a name for has that one, so its dashboards work.

use std::fmt::{Display, Write};
use std::sync::atomic::Ordering::Relaxed;

use super::keyspace::Counted;
use crate::clock::now;
use crate::commands::COMMANDS;
use crate::engine::Counts;
use crate::info::resident_bytes;
use crate::metrics::{CLASSES, Summed, Totals, class_end};
use crate::shared::Shared;
use crate::topic::Of;

type Labels<'l> = &'l [(&'l str, &'l str)];

/// Families of metrics, in its text format 0.0.4.
#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").unwrap_or(());
    }

    fn value(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        self.0.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(self.0, "{}{label}=\"{value}\"", if at == 0 { '{' } else { ',' }).unwrap_or(());
        }
        writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" }).unwrap_or(());
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.value(name, &[], value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help);
        self.value(name, &[], value);
    }

    fn histogram(&mut self, name: &str, help: &str, durations: &Summed) {
        self.family(name, "histogram", help);
        let (bucket, mut seen) = (format!("{name}_bucket"), 0);
        for (class, count) in durations.classes.iter().enumerate() {
            seen += count;
            // The last class has no end.
            let end = if class == CLASSES - 1 { "+Inf".to_owned() } else { seconds(class_end(class)).to_string() };
            self.value(&bucket, &[("le", &end)], seen);
        }
        self.value(&format!("{name}_sum"), &[], seconds(durations.nanos));
        self.value(&format!("{name}_count"), &[], seen);
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Everything, as of now, and the keys that were counted.
pub(super) fn text(shared: &Shared, keys: Option<&Counted>) -> String {
    let (totals, counts) = (shared.totals(), shared.engine.counts());
    let mut text = Text::default();
    server(&mut text, shared, &counts);
    clients(&mut text, shared, &totals);
    work(&mut text, shared, &totals);
    store(&mut text, &counts);
    keyspace(&mut text, keys);
    text.histogram(
        "cairn_reply_seconds",
        "From when requests were read until their replies were written",
        &totals.replies,
    );
    text.histogram("cairn_commit_seconds", "Of transactions that write, until they were durable", &totals.commits);
    text.0
}

fn server(text: &mut Text, shared: &Shared, counts: &Counts) {
    let healthy = u8::from(shared.engine.healthy().is_ok());
    text.gauge("redis_up", "Whether the server answers", 1);
    text.family("redis_instance_info", "gauge", "What this server is, in labels");
    let port =
        shared.listens.lock().first().and_then(|at| at.rsplit(':').next().map(str::to_owned)).unwrap_or_default();
    let process = std::process::id().to_string();
    let labels = [
        ("role", "master"),
        ("redis_version", "7.0.15"),
        ("redis_mode", "standalone"),
        ("os", std::env::consts::OS),
        ("maxmemory_policy", shared.settings().eviction.name()),
        ("tcp_port", &port),
        ("run_id", &shared.run_id),
        ("process_id", &process),
    ];
    text.value("redis_instance_info", &labels, 1);
    text.family("cairn_info", "gauge", "Version, engine, and what survives when a reply was sent");
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("engine", counts.engine), ("survives", counts.survives)];
    text.value("cairn_info", &labels, 1);
    text.gauge("redis_start_time_seconds", "When the server was started, in Unix time", shared.started / 1000);
    text.gauge("redis_uptime_in_seconds", "How long it runs", now().saturating_sub(shared.started) / 1000);
    text.gauge("cairn_threads", "Threads that serve connections", shared.recorders.len());
    text.gauge("cairn_healthy", "Whether the store takes writes: 0 after a barrier has failed", healthy);
    let writes = u8::from(shared.takes_writes().is_ok());
    text.gauge("redis_aof_last_write_status", "The same, and 0 while writes find no room", writes);
    text.gauge("redis_aof_enabled", "Every write is durable when its reply is sent", 1);
    text.gauge("redis_rdb_changes_since_last_save", "Acknowledged writes that a crash would lose", 0);
    text.gauge("redis_loading_dump_file", "Whether data are still being loaded", 0);
    text.gauge("redis_connected_slaves", "Replicas", 0);
}

fn clients(text: &mut Text, shared: &Shared, totals: &Totals) {
    let refused = shared.refused.load(Relaxed);
    text.gauge("redis_connected_clients", "Connections", totals.connected);
    text.gauge("redis_blocked_clients", "Connections that wait for an element", shared.waiters.len());
    let [channels, patterns, shards] = Of::ALL.map(|of| shared.pubsub.count(of));
    text.gauge("redis_pubsub_channels", "Channels that somebody subscribes to", channels);
    text.gauge("redis_pubsub_patterns", "Patterns that somebody subscribes to", patterns);
    text.gauge("redis_pubsubshard_channels", "Channels of shards that somebody subscribes to", shards);
    let cut_off = shared.pubsub.cut_off.load(Relaxed);
    text.counter("cairn_subscribers_cut_off_total", "Subscribers that did not take their messages", cut_off);
    text.gauge("redis_max_clients", "Connections that are accepted at one time", shared.settings().connections);
    text.counter("redis_connections_received_total", "Connections accepted", totals.connections);
    text.counter("redis_rejected_connections_total", "Connections refused because there were too many", refused);
    text.counter("redis_acl_access_denied_auth_total", "Passwords that were wrong", totals.denied);
    text.counter("redis_net_input_bytes_total", "Bytes read from connections", totals.read);
    text.counter("redis_net_output_bytes_total", "Bytes written to connections", totals.written);
}

fn work(text: &mut Text, shared: &Shared, totals: &Totals) {
    text.counter("redis_commands_processed_total", "Commands run", totals.commands);
    text.family("redis_commands_total", "counter", "Calls of each command");
    for (command, calls) in COMMANDS.iter().zip(&totals.calls).filter(|(_, calls)| **calls > 0) {
        text.value("redis_commands_total", &[("cmd", command.name)], calls);
    }
    text.counter("redis_keyspace_hits_total", "Reads that found their key", totals.hits);
    text.counter("redis_keyspace_misses_total", "Reads that did not", totals.misses);
    text.counter("cairn_early_answers_total", "Answers before their commit, as their connections wanted", totals.early);
    text.counter("cairn_early_answers_lost_total", "Those whose commit failed or is in doubt", totals.early_lost);
    text.counter("cairn_error_replies_total", "Error replies", totals.errors);
    text.counter("cairn_batches_total", "Requests that had come together and were run together", totals.batches);
    text.counter("cairn_transactions_total", "Transactions these became", totals.transactions);
    text.counter("cairn_attempts_conflicted_total", "Attempts at them that met a conflict", totals.conflicts);
    text.counter("cairn_reaped_total", "Elements of removed collections that were swept", shared.reaped.load(Relaxed));
}

fn store(text: &mut Text, counts: &Counts) {
    text.gauge("redis_memory_used_bytes", "Memory of the index", counts.index_bytes);
    text.gauge("redis_memory_used_rss_bytes", "Memory of the process", resident_bytes());
    text.gauge("redis_memory_used_dataset_bytes", "Live records on the medium", counts.live_bytes);
    text.gauge("redis_memory_max_bytes", "0: no limit", 0);
    text.gauge("redis_aof_current_size_bytes", "The store's file", counts.file_bytes);
    text.gauge("cairn_entries", "Pairs in the store; a collection has one for each element", counts.entries);
    text.counter("cairn_commits_total", "Commits", counts.commits);
    text.counter("cairn_conflicts_total", "Conflicts the store has found", counts.conflicts);
    text.counter("cairn_barriers_total", "Barriers: waits until what was flushed is persistent", counts.barriers);
    text.counter("cairn_flushed_bytes_total", "Bytes flushed to the medium", counts.flushed_bytes);
    text.counter("cairn_checkpoints_total", "Checkpoints", counts.checkpoints);
}

fn keyspace(text: &mut Text, keys: Option<&Counted>) {
    let Some(counted) = keys else { return };
    text.family("redis_db_keys", "gauge", "Keys of each database that has some");
    for (db, keys) in counted.used() {
        text.value("redis_db_keys", &[("db", &format!("db{db}"))], keys);
    }
    text.gauge("cairn_keys_counted_seconds", "How long ago keys were counted", counted.age().as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = Text::default();
        text.value("name", &[("a", "x\"y\\z\n"), ("b", "1")], 7);
        text.value("name", &[], 0.25);
        assert_eq!(text.0, "name{a=\"x\\\"y\\\\z\\n\",b=\"1\"} 7\nname 0.25\n");
    }
}
