//! The status page, and what it draws.

use std::sync::LazyLock;
use std::sync::atomic::Ordering::Relaxed;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::keyspace::Counted;
use super::reply;
use crate::clock::now;
use crate::commands::COMMANDS;
use crate::metrics::{CLASSES, Summed, class_end};
use crate::shared::Shared;

const PAGE: &str = include_str!("status.html");

/// Nothing but the page's own script and style runs, and it talks to no server but the one that sent it.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        digest("<script>", "</script>"),
        digest("<style>", "</style>"),
    );
    HeaderValue::from_str(&policy).unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"))
});

/// As a policy names what stands between two tags of the page.
fn digest(from: &str, to: &str) -> String {
    let rest = PAGE.split_once(from).map_or("", |(_, rest)| rest);
    let inside = rest.split_once(to).map_or("", |(inside, _)| inside);
    format!("sha256-{}", base64(&Sha256::digest(inside.as_bytes())))
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for some in bytes.chunks(3) {
        let number = some.iter().enumerate().fold(0, |number, (at, byte)| number | u32::from(*byte) << (16 - 8 * at));
        for at in 0..4 {
            let letter = LETTERS[(number >> (18 - 6 * at)) as usize & 63];
            text.push(if at <= some.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

pub(super) fn page() -> Response<Full<Bytes>> {
    let mut page = reply(StatusCode::OK, "text/html; charset=utf-8", PAGE);
    let headers = page.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    page
}

/// Counters since the start: a client that draws rates takes the differences of two moments. The names are a contract.
pub(super) fn json(shared: &Shared, keys: Option<&Counted>) -> String {
    let (totals, counts, settings) = (shared.totals(), shared.engine.counts(), shared.settings());
    let calls: Map<String, Value> = COMMANDS
        .iter()
        .zip(&totals.calls)
        .filter(|(_, calls)| **calls > 0)
        .map(|(command, calls)| (command.name.to_owned(), json!(calls)))
        .collect();
    let keys = keys.map(|counted| {
        let databases: Vec<Value> = counted.used().map(|(db, keys)| json!({ "db": db, "keys": keys })).collect();
        json!({ "age_ms": counted.age().as_millis() as u64, "databases": databases })
    });
    let ends: Vec<u64> = (0..CLASSES).map(class_end).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "engine": counts.engine,
        "survives": counts.survives,
        "unhealthy": shared.engine.healthy().err().map(|why| why.to_string()),
        "process": std::process::id(),
        "run_id": shared.run_id,
        "listens": *shared.listens.lock(),
        "threads": shared.recorders.len(),
        "now_ms": now(),
        "started_ms": shared.started,
        "connections": {
            "now": totals.connected,
            "max": settings.connections,
            "blocked": shared.waiters.len(),
            "total": totals.connections,
            "refused": shared.refused.load(Relaxed),
        },
        "commands": totals.commands,
        "errors": totals.errors,
        "denied": totals.denied,
        "hits": totals.hits,
        "misses": totals.misses,
        "read_bytes": totals.read,
        "written_bytes": totals.written,
        "batches": totals.batches,
        "transactions": totals.transactions,
        "conflicts": totals.conflicts + counts.conflicts,
        "commits": counts.commits,
        "barriers": counts.barriers,
        "flushed_bytes": counts.flushed_bytes,
        "checkpoints": counts.checkpoints,
        "entries": counts.entries,
        "index_bytes": counts.index_bytes,
        "live_bytes": counts.live_bytes,
        "file_bytes": counts.file_bytes,
        "resident_bytes": crate::info::resident_bytes(),
        "calls": calls,
        "keys": keys,
        "class_ends_ns": ends,
        "reply_latency": durations(&totals.replies),
        "commit_latency": durations(&totals.commits),
    })
    .to_string()
}

fn durations(summed: &Summed) -> Value {
    json!({ "classes": summed.classes, "sum_ns": summed.nanos })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_names_what_is_on_the_page() {
        assert_eq!(base64(b"foobar"), "Zm9vYmFy");
        assert_eq!(base64(b"foob"), "Zm9vYg==");
        for tag in ["<script>", "</script>", "<style>", "</style>"] {
            assert_eq!(PAGE.matches(tag).count(), 1, "{tag}: the policy has one digest");
        }
        assert!(!PAGE.contains("style=\""), "the policy forbids style attributes");
        assert!(POLICY.to_str().is_ok_and(|policy| policy.contains("script-src 'sha256-")));
    }
}
