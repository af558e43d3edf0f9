//! What two `INFO`s of one server tell about the time between them.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::size;

/// What a server said, by name.
#[derive(Clone, Debug, Default)]
pub struct Info(BTreeMap<String, String>);

impl Info {
    pub fn parse(text: &str) -> Self {
        let pairs = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(':'));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.trim_end().to_owned())).collect())
    }

    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// 0 if it was not said.
    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }

    /// Calls of each command.
    fn calls(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().filter_map(|(name, value)| {
            let calls = value.split(',').find_map(|part| part.strip_prefix("calls="))?;
            Some((name.strip_prefix("cmdstat_")?, calls.parse().ok()?))
        })
    }

    /// How many took up to 1 µs, 2 µs, 4 µs and so on.
    fn classes(&self, name: &str) -> Vec<u64> {
        self.text(name).split(',').map_while(|count| count.parse().ok()).collect()
    }
}

/// The JSON object; field names are a contract.
#[derive(Clone, Debug, Serialize)]
pub struct Look {
    pub address: String,
    /// Of cairn; empty for another server.
    pub version: String,
    pub redis_version: String,
    pub engine: String,
    pub survives: String,
    pub uptime_s: u64,
    pub process: u64,
    /// What rates and latencies are of; 0 if this is the first look.
    pub seconds: f64,
    pub per_second: Rates,
    pub totals: Totals,
    pub reply: Latency,
    pub commit: Latency,
    pub connections: Connections,
    pub memory: Memory,
    /// Those that were called, the most frequent ones first.
    pub commands: Vec<Called>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Rates {
    pub commands: f64,
    pub errors: f64,
    pub transactions: f64,
    pub commits: f64,
    pub conflicts: f64,
    pub barriers: f64,
    pub received_bytes: f64,
    pub sent_bytes: f64,
    pub flushed_bytes: f64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    pub commands: u64,
    pub errors: u64,
    pub transactions: u64,
    pub commits: u64,
    pub conflicts: u64,
    pub barriers: u64,
    pub checkpoints: u64,
}

/// Of what ended between two looks; none if nothing did, or it is not told.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Latency {
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Connections {
    pub now: u64,
    pub max: u64,
    pub blocked: u64,
    pub refused: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Memory {
    pub index_bytes: u64,
    pub process_bytes: u64,
    pub live_bytes: u64,
    pub file_bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Called {
    pub name: String,
    pub per_second: f64,
    pub calls: u64,
}

impl Look {
    /// `before` is `seconds` older than `now`, and of the same run of the server.
    pub fn new(address: &str, before: Option<&Info>, now: &Info, seconds: f64) -> Self {
        let rate = |to: u64, from: u64| if seconds > 0.0 { to.saturating_sub(from) as f64 / seconds } else { 0.0 };
        let total = |name: &str| now.number(name);
        let per_second = |name: &str| before.map_or(0.0, |before| rate(total(name), before.number(name)));
        let latency = |name: &str| before.map(|before| latency(&before.classes(name), &now.classes(name)));
        let called_before: BTreeMap<&str, u64> = before.map(|before| before.calls().collect()).unwrap_or_default();
        let called = |(name, calls): (&str, u64)| {
            let from = called_before.get(name).copied().unwrap_or(0);
            let per_second = if before.is_some() { rate(calls, from) } else { 0.0 };
            Called { name: name.to_owned(), per_second, calls }
        };
        let mut commands: Vec<Called> = now.calls().map(called).collect();
        commands.sort_by(|a, b| b.per_second.total_cmp(&a.per_second).then(b.calls.cmp(&a.calls)));
        Self {
            address: address.to_owned(),
            version: now.text("cairn_version").to_owned(),
            redis_version: now.text("redis_version").to_owned(),
            engine: now.text("cairn_engine").to_owned(),
            survives: now.text("cairn_survives").to_owned(),
            uptime_s: total("uptime_in_seconds"),
            process: total("process_id"),
            seconds,
            per_second: Rates {
                commands: per_second("total_commands_processed"),
                errors: per_second("total_error_replies"),
                transactions: per_second("cairn_transactions"),
                commits: per_second("cairn_commits"),
                conflicts: per_second("cairn_conflicts"),
                barriers: per_second("cairn_barriers"),
                received_bytes: per_second("total_net_input_bytes"),
                sent_bytes: per_second("total_net_output_bytes"),
                flushed_bytes: per_second("cairn_flushed_bytes"),
            },
            totals: Totals {
                commands: total("total_commands_processed"),
                errors: total("total_error_replies"),
                transactions: total("cairn_transactions"),
                commits: total("cairn_commits"),
                conflicts: total("cairn_conflicts"),
                barriers: total("cairn_barriers"),
                checkpoints: total("cairn_checkpoints"),
            },
            reply: latency("cairn_reply_classes").unwrap_or_default(),
            commit: latency("cairn_commit_classes").unwrap_or_default(),
            connections: Connections {
                now: total("connected_clients"),
                max: total("maxclients"),
                blocked: total("blocked_clients"),
                refused: total("rejected_connections"),
            },
            memory: Memory {
                index_bytes: total("used_memory"),
                process_bytes: total("used_memory_rss"),
                live_bytes: total("used_memory_dataset"),
                file_bytes: total("aof_current_size"),
            },
            commands,
        }
    }

    /// What it is, in a line.
    pub fn title(&self) -> String {
        let what = if self.version.is_empty() {
            format!("redis {}", self.redis_version)
        } else {
            format!("cairn {}, engine {}", self.version, self.engine)
        };
        format!("{what}, process {}, up {}", self.process, lasting(self.uptime_s))
    }

    /// What else there is to say, with names.
    pub fn numbers(&self) -> Vec<(&'static str, String)> {
        let (rates, memory) = (&self.per_second, &self.memory);
        vec![
            ("connections", format!("{} of {}", self.connections.now, count(self.connections.max as f64))),
            ("blocked, refused", format!("{}, {}", self.connections.blocked, self.connections.refused)),
            ("received", format!("{}/s", size::human(rates.received_bytes as u64))),
            ("sent", format!("{}/s", size::human(rates.sent_bytes as u64))),
            ("flushed", format!("{}/s", size::human(rates.flushed_bytes as u64))),
            ("barriers", format!("{}/s", count(rates.barriers))),
            ("conflicts", format!("{}/s", count(rates.conflicts))),
            ("error replies", format!("{}/s", count(rates.errors))),
            ("index", size::human(memory.index_bytes)),
            ("process", size::human(memory.process_bytes)),
            ("live data", size::human(memory.live_bytes)),
            ("file", size::human(memory.file_bytes)),
        ]
    }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.address, self.title())?;
        if !self.survives.is_empty() {
            writeln!(f, "acknowledged writes survive {}", self.survives)?;
        }
        let rates = &self.per_second;
        writeln!(f, "{:<18}{:>14}/s", "commands", count(rates.commands))?;
        writeln!(f, "{:<18}{:>14}/s", "transactions", count(rates.transactions))?;
        writeln!(f, "{:<18}{:>14}/s", "commits", count(rates.commits))?;
        for (name, of) in [("reply", &self.reply), ("commit", &self.commit)] {
            writeln!(f, "{name:<18}{:>16}  p99 {}", format!("p50 {}", time(of.p50_us)), time(of.p99_us))?;
        }
        for (name, value) in self.numbers() {
            writeln!(f, "{name:<18}{value:>16}")?;
        }
        for called in self.commands.iter().take(10) {
            let rate = format!("{}/s", count(called.per_second));
            writeln!(f, "  {:<16}{rate:>16}  {} calls", called.name, called.calls)?;
        }
        Ok(())
    }
}

/// Percentiles of what is in `to` and not in `from`; within a class it counts as spread evenly.
fn latency(from: &[u64], to: &[u64]) -> Latency {
    let classes: Vec<u64> = to.iter().zip(from).map(|(to, from)| to.saturating_sub(*from)).collect();
    let all: u64 = classes.iter().sum();
    let quantile = |share: f64| {
        let mut left = all as f64 * share;
        for (class, count) in classes.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = *count as f64;
            if count >= left {
                let low = if class == 0 { 0.0 } else { 2_f64.powi(class as i32 - 1) };
                return Some(low + (2_f64.powi(class as i32) - low) * left / count);
            }
            left -= count;
        }
        None
    };
    Latency { p50_us: quantile(0.5), p99_us: quantile(0.99) }
}

/// A number as people read it: `17`, `3.46k`, `1.20M`.
pub fn count(value: f64) -> String {
    let (mut value, mut unit) = (value, 0);
    while value >= 999.5 && unit < 4 {
        (value, unit) = (value / 1000.0, unit + 1);
    }
    let digits = if value.fract() == 0.0 && unit == 0 || value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$}{}", ["", "k", "M", "G", "T"][unit])
}

pub fn time(us: Option<f64>) -> String {
    let Some(us) = us else { return "-".to_owned() };
    let (value, unit) = if us < 999.5 {
        (us, "µs")
    } else if us < 999_500.0 {
        (us / 1e3, "ms")
    } else {
        (us / 1e6, "s")
    };
    let digits = if value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {unit}")
}

fn lasting(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_looks_make_rates() {
        let before = Info::parse(
            "# Stats\r\ntotal_commands_processed:100\r\ncmdstat_get:calls=7\r\ncairn_reply_classes:5,0,0,0\r\n",
        );
        let now = Info::parse(
            "total_commands_processed:300\r\ncmdstat_get:calls=9\r\ncmdstat_set:calls=198,usec=1\r\ncairn_reply_classes:5,0,100,100\r\nconnected_clients:3\r\n",
        );
        let look = Look::new("x", Some(&before), &now, 2.0);
        assert_eq!((look.per_second.commands, look.totals.commands, look.connections.now), (100.0, 300, 3));
        let called: Vec<_> = look.commands.iter().map(|one| (one.name.as_str(), one.per_second, one.calls)).collect();
        assert_eq!(called, [("set", 99.0, 198), ("get", 1.0, 9)]);
        assert_eq!((look.reply.p50_us, look.reply.p99_us), (Some(4.0), Some(7.92)));
        assert_eq!(look.commit.p50_us, None);
        let first = Look::new("x", None, &now, 0.0);
        assert_eq!((first.per_second.commands, first.reply.p50_us, first.commands[0].per_second), (0.0, None, 0.0));
    }

    #[test]
    fn numbers_are_short() {
        let of = [0.0, 7.0, 0.254, 12.34, 999.4, 999.6, 1_234.0, 45_678.0, 9.9e6].map(count);
        assert_eq!(of, ["0", "7", "0.25", "12.3", "999", "1.00k", "1.23k", "45.7k", "9.90M"]);
        assert_eq!([None, Some(0.5), Some(1_500.0), Some(2e6)].map(time), ["-", "0.50 µs", "1.50 ms", "2.00 s"]);
        assert_eq!([59, 61, 3_660, 90_000].map(lasting), ["59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
    }
}
