//! `LATENCY`.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use super::flag::{ADMIN, DANGEROUS};
use super::second::second;
use super::{COMMANDS as ALL, Command, Outcome, is, session};
use crate::clock::now;
use crate::latency::{Series, event};
use crate::metrics::time_class_end;
use crate::reply::Reply;
use crate::request::Arguments;
use crate::session::Session;

pub(super) const COMMANDS: &[Command] = &[session("latency", -2, ADMIN | DANGEROUS, latency)];

/// As Redis has it.
const HELP: [&str; 17] = [
    "LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DOCTOR",
    "    Return a human readable latency analysis report.",
    "GRAPH <event>",
    "    Return an ASCII latency graph for the <event> class.",
    "HISTORY <event>",
    "    Return time-latency samples for the <event> class.",
    "LATEST",
    "    Return the latest latency samples for all events.",
    "RESET [<event> ...]",
    "    Reset latency data of one or more <event> classes.",
    "    (default: reset all data for all event classes)",
    "HISTOGRAM [COMMAND ...]",
    "    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.",
    "    If no commands are specified then all histograms are replied.",
    "HELP",
    "    Prints this help.",
];

fn latency(s: &mut Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let all = s.shared.latency.all();
    let of = |name: &[u8]| all.iter().find(|(event, _)| event.as_bytes() == name);
    match second(args)? {
        "doctor" => reply.verbatim(&doctor(s, &all)),
        "graph" => {
            let name = args.get(2);
            let (event, series) = of(name)
                .ok_or_else(|| format!("ERR No samples available for event '{}'", String::from_utf8_lossy(name)))?;
            reply.verbatim(&graph(event, series, now() / 1000));
        }
        "histogram" => return histogram(s, args, reply),
        "history" => {
            let none = VecDeque::new();
            let samples = of(args.get(2)).map_or(&none, |(_, series)| &series.samples);
            reply.array(samples.len());
            for (second, ms) in samples {
                reply.array(2);
                reply.int(*second as i64);
                reply.int(*ms as i64);
            }
        }
        "latest" => {
            reply.array(all.len());
            for (event, series) in &all {
                let (second, ms) = series.samples.back().copied().unwrap_or_default();
                reply.array(4);
                reply.bulk(event.as_bytes());
                [second, ms, series.max].into_iter().for_each(|number| reply.int(number as i64));
            }
        }
        "reset" => {
            let named = |event: &str| args.len() == 2 || args.from(2).any(|name| name == event.as_bytes());
            reply.int(s.shared.latency.reset(named) as i64);
        }
        _ => {
            reply.array(HELP.len());
            HELP.iter().for_each(|line| reply.simple(line));
        }
    }
    Ok(())
}

/// A command with all its second names; or one of these, with a bar between both names.
fn named<I: Iterator<Item = (String, usize)>>(
    s: &Session,
    name: &[u8],
    all: impl Fn(usize) -> I,
) -> Vec<(String, usize)> {
    if let Some((number, _)) = super::find(name) {
        return all(number).collect();
    }
    let first = name.split(|byte| *byte == b'|').next().unwrap_or_default();
    let Some((number, _)) = super::find(first) else { return Vec::new() };
    s.shared.commands.times_of_seconds(number).filter(|(second, _)| is(name, second)).collect()
}

/// Of commands that were run, how many took at most so many microseconds.
fn histogram(s: &Session, args: &Arguments<'_>, reply: &mut Reply) -> Outcome {
    let all = |number: usize| {
        let name = ALL.get(number).map_or("", |command| command.name).to_owned();
        std::iter::once((name, number)).chain(s.shared.commands.times_of_seconds(number))
    };
    let every = || (0..if args.len() == 2 { ALL.len() } else { 0 }).flat_map(all);
    let asked = || every().chain(args.from(2).flat_map(|name| named(s, name, all)));
    // A name may be there very often: its times are taken once, and what is said of it is not kept.
    let (mut times, mut used) = (BTreeMap::new(), 0);
    for (_, number) in asked() {
        let classes = times.entry(number).or_insert_with(|| s.shared.times(number));
        used += usize::from(classes.iter().any(|count| *count > 0));
    }
    reply.map(used);
    for (name, number) in asked() {
        let classes = times.get(&number).map_or(&[][..], |classes| classes);
        if classes.iter().all(|count| *count == 0) {
            continue;
        }
        reply.check_room()?;
        reply.bulk(name.as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.int(classes.iter().sum::<u64>() as i64);
        reply.bulk(b"histogram_usec");
        reply.map(classes.iter().filter(|count| **count > 0).count());
        let mut sum = 0;
        for (class, count) in classes.iter().enumerate().filter(|(_, count)| **count > 0) {
            sum += count;
            reply.int((time_class_end(class) / 1000) as i64);
            reply.int(sum as i64);
        }
    }
    Ok(())
}

// ---- GRAPH ------------------------------------------------------------------------------------------------------

const COLUMNS: usize = 80;
const ROWS: usize = 4;
/// Of one row, from low to high.
const FILL: [u8; 3] = *b"_o#";

/// Bars of all samples, with how long ago each was below them, as Redis draws them.
fn graph(event: &str, series: &Series, now: u64) -> String {
    let of = |ms: Option<u64>| ms.unwrap_or(0);
    let low = of(series.samples.iter().map(|(_, ms)| *ms).min());
    let high = of(series.samples.iter().map(|(_, ms)| *ms).max());
    let mut text = format!("{event} - high {high} ms, low {low} ms (all time high {} ms)\n", series.max);
    text.push_str(&"-".repeat(COLUMNS));
    text.push('\n');
    let bars: Vec<(usize, String)> = series
        .samples
        .iter()
        .map(|(second, ms)| {
            let steps = FILL.len() * ROWS;
            let step = (ms - low) as usize * steps / (high - low).max(1) as usize;
            (step.min(steps - 1), ago(now.saturating_sub(*second)))
        })
        .collect();
    for (at, some) in bars.chunks(COLUMNS).enumerate() {
        if at > 0 {
            text.push('\n');
        }
        draw(some, &mut text);
    }
    text
}

fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn draw(bars: &[(usize, String)], text: &mut String) {
    for row in (0..ROWS).rev() {
        text.extend(bars.iter().map(|(step, _)| match step.checked_sub(row * FILL.len()) {
            None => ' ',
            Some(over) => FILL.get(over).map_or('|', |byte| *byte as char),
        }));
        text.push('\n');
    }
    text.push_str(&" ".repeat(bars.len()));
    text.push('\n');
    let longest = bars.iter().map(|(_, label)| label.len()).max().unwrap_or(0);
    for row in 0..longest {
        text.extend(bars.iter().map(|(_, label)| label.as_bytes().get(row).map_or(' ', |byte| *byte as char)));
        text.push('\n');
    }
}

// ---- DOCTOR -----------------------------------------------------------------------------------------------------

const DISABLED: &str = "I'm sorry, Dave, I can't do that. Latency monitoring is disabled in this Redis instance. You may use \"CONFIG SET latency-monitor-threshold <milliseconds>.\" in order to enable it. If we weren't in a deep space mission I'd suggest to take a look at https://redis.io/topics/latency-monitor.\n";
const NOTHING: &str = "Dave, no latency spike was observed during the lifetime of this Redis instance, not in the slightest bit. I honestly think you ought to sit down calmly, take a stress pill, and think things over.\n";
const SPIKES: &str =
    "Dave, I have observed latency spikes in this Redis instance. You don't mind talking about it, do you Dave?\n\n";

fn doctor(s: &Session, all: &[(&'static str, Series)]) -> String {
    if all.is_empty() {
        let off = s.shared.latency.threshold.load(Relaxed) == 0;
        return if off { DISABLED } else { NOTHING }.to_owned();
    }
    let (mut text, now) = (SPIKES.to_owned(), now() / 1000);
    let mut advice: Vec<&str> = Vec::new();
    for (at, (name, series)) in all.iter().enumerate() {
        let count = series.samples.len().max(1) as u64;
        let average = series.samples.iter().map(|(_, ms)| ms).sum::<u64>() / count;
        let deviation = series.samples.iter().map(|(_, ms)| ms.abs_diff(average)).sum::<u64>() / count;
        let first = series.samples.front().map_or(now, |(second, _)| *second);
        let period = now.saturating_sub(first).max(1) as f64 / count as f64;
        writeln!(
            text,
            "{}. {name}: {count} latency spikes (average {average}ms, mean deviation {deviation}ms, period {period:.2} sec). Worst all time event {}ms.",
            at + 1,
            series.max
        )
        .unwrap_or(());
        advice.extend(advice_about(s, name));
    }
    advice.dedup();
    text.push_str("\nI have a few advices for you:\n\n");
    advice.iter().for_each(|line| writeln!(text, "- {line}").unwrap_or(()));
    text
}

/// What helps here: not all of it would with Redis.
fn advice_about(s: &Session, name: &str) -> Vec<&'static str> {
    let slow = &s.shared.slow;
    let silent = slow.threshold.load(Relaxed) < 0 || slow.len_max.load(Relaxed) == 0;
    match name {
        event::COMMAND if silent => vec![
            "There may be commands that take long: have SLOWLOG keep them, with CONFIG SET slowlog-log-slower-than and slowlog-max-len.",
        ],
        event::COMMAND => vec![
            "Look at SLOWLOG GET for the commands that take long. The time of a command is that of its transaction, with the barrier or the sync that makes it durable.",
        ],
        event::FAST_COMMAND => vec![
            "Commands that take little time took long: the machine may be busy with something else, or out of memory, or the store waits for its medium.",
        ],
        event::EXPIRE_CYCLE => vec![
            "Sweeping what has expired or was removed took long, beside the commands: large collections that go at once make much of it.",
        ],
        event::EVICTION_CYCLE => {
            vec!["Eviction took long: give the store more room (--max-size, --max-memory), or let keys expire earlier."]
        }
        event::SYNC => vec![
            "Syncs of the store's file take long, and each write waits for one: put it on a faster device, or on one that nothing else writes to.",
        ],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Stop;

    /// A name takes a few bytes, and its times hundreds.
    #[test]
    fn a_name_repeated_very_often_makes_no_reply_without_end() {
        const MOST: usize = 1 << 16;
        let dir = tempfile::tempdir().unwrap();
        let store = kv::Options::new().create(dir.path().join("s")).unwrap();
        let shared = crate::shared::tests::shared(Box::new(crate::engine::Kv::new(store)));
        let session = crate::session::tests::session(&shared);
        let number = super::super::find(b"get").map(|(number, _)| number).unwrap();
        session.recorder.times[number].iter().for_each(|class| class.add(1));
        let told = |count: usize| {
            let mut batch = crate::request::Batch::default();
            batch.push_words(["LATENCY", "HISTOGRAM"].iter().chain(&vec!["get"; count]).map(|word| word.as_bytes()));
            let mut reply = Reply::up_to(MOST);
            (histogram(&session, &batch.arguments(0, &[]), &mut reply), reply.len())
        };
        let (one, bytes) = told(1);
        assert!(one.is_ok() && bytes > 100, "{bytes}");
        let (many, most) = told(20_000);
        assert!(matches!(&many, Err(Stop::Error(text)) if text.contains("ask for less")), "{many:?}");
        assert!((MOST..MOST + 2 * bytes).contains(&most), "{most}");
    }

    /// What redis-server 7.0.15 draws of the same samples.
    #[test]
    fn bars_are_those_of_redis() {
        let one = Series { samples: [(100, 29)].into(), max: 31 };
        let head = format!("command - high 29 ms, low 29 ms (all time high 31 ms)\n{}\n", "-".repeat(80));
        assert_eq!(graph("command", &one, 100), format!("{head} \n \n \n_\n \n0\ns\n"));
        let some = Series { samples: [(0, 10), (3550, 16), (3599, 22)].into(), max: 22 };
        let drawn = graph("command", &some, 3605);
        assert!(drawn.ends_with("\n  #\n _|\n ||\n_||\n   \n156\nh5s\n s \n"), "{drawn}");
    }
}
