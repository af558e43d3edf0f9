//! What `stats` says: what the server counts, of all protocols together.

use super::request::Request;
use super::{ERROR, VERSION, answer};
use std::sync::atomic::Ordering::Relaxed;

use crate::config::Eviction;
use crate::context::Context;
use crate::outcome::Outcome;

pub(super) fn stats(c: &mut Context<'_>, request: &Request<'_>) -> Outcome {
    match request.word(1) {
        b"" => general(c),
        b"settings" => settings(c),
        // There are no slabs.
        b"items" | b"slabs" => answer(c, "END"),
        b"sizes" => lines(c, &[("sizes_status", "disabled".to_owned())]),
        b"reset" => answer(c, "SERVER_ERROR counters are not reset"),
        b"detail" => answer(c, "SERVER_ERROR prefixes are not counted"),
        _ => answer(c, ERROR),
    }
}

fn lines(c: &mut Context<'_>, stats: &[(&str, String)]) -> Outcome {
    for (name, value) in stats {
        c.reply.raw(format!("STAT {name} {value}\r\n").as_bytes());
    }
    answer(c, "END")
}

fn general(c: &mut Context<'_>) -> Outcome {
    let (totals, counts) = (c.shared.totals(), c.shared.engine.counts());
    let stats = [
        ("pid", std::process::id().into()),
        ("uptime", c.now.saturating_sub(c.shared.started) / 1000),
        ("time", c.now / 1000),
        ("pointer_size", usize::BITS.into()),
        ("curr_connections", totals.connected),
        ("total_connections", totals.connections),
        ("cmd_total", totals.commands),
        ("get_hits", totals.hits),
        ("get_misses", totals.misses),
        ("bytes_read", totals.read),
        ("bytes_written", totals.written),
        ("threads", c.shared.recorders.len() as u64),
        // With elements of Redis' collections.
        ("curr_items", counts.entries),
        ("bytes", counts.live_bytes),
        ("evictions", c.shared.evictor.evicted.load(Relaxed)),
        ("commits", counts.commits),
        ("barriers", counts.barriers),
    ];
    c.reply.raw(format!("STAT version {VERSION}\r\n").as_bytes());
    lines(c, &stats.map(|(name, value)| (name, value.to_string())))
}

fn settings(c: &mut Context<'_>) -> Outcome {
    let settings = c.shared.settings();
    let stats = [
        ("maxconns", settings.connections.to_string()),
        ("item_size_max", settings.item.to_string()),
        ("num_threads", c.shared.recorders.len().to_string()),
        ("idle_timeout", settings.idle.as_secs().to_string()),
        ("evictions", if settings.eviction == Eviction::Never { "off" } else { "on" }.to_owned()),
        ("cas_enabled", "yes".to_owned()),
        ("flush_enabled", "yes".to_owned()),
        ("dump_enabled", "no".to_owned()),
        ("slab_reassign", "no".to_owned()),
    ];
    lines(c, &stats)
}
