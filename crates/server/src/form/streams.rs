//! Which streams `XREAD` and `XREADGROUP` read, for which group, and how long they wait.

use std::time::Duration;

use super::is;
use crate::request::{Arguments, number};

/// The longest wait.
const WAIT_MAX: u64 = u32::MAX as u64 * 1000;

/// Where words stand among options that are whole.
#[derive(Default)]
struct Words {
    streams: Option<usize>,
    block: Option<usize>,
    group: Option<usize>,
}

fn words(args: &Arguments<'_>) -> Words {
    let (mut words, mut at) = (Words::default(), 1);
    while at < args.len() {
        let values = match args.get(at) {
            o if is(o, "STREAMS") => {
                words.streams = Some(at);
                break;
            }
            o if is(o, "BLOCK") => {
                words.block = Some(at);
                1
            }
            o if is(o, "GROUP") => {
                words.group = Some(at);
                2
            }
            o if is(o, "COUNT") => 1,
            _ => 0,
        };
        at += 1 + values;
    }
    words
}

/// The streams among the arguments.
pub(crate) fn keys<'b>(args: &Arguments<'b>) -> Vec<&'b [u8]> {
    let Some(at) = words(args).streams else { return Vec::new() };
    args.from(at + 1).take((args.len() - at - 1) / 2).collect()
}

pub(crate) fn blocks(args: &Arguments<'_>) -> bool {
    words(args).block.is_some()
}

/// The group that is read for.
pub(crate) fn group<'b>(args: &Arguments<'b>) -> Option<&'b [u8]> {
    words(args).group.map(|at| args.get(at + 1))
}

/// How long it is to wait; none for ever.
pub(crate) fn wait_limit(args: &Arguments<'_>) -> Option<Duration> {
    let asked = number(args.get(words(args).block? + 1)).and_then(|ms| u64::try_from(ms).ok())?;
    (asked > 0).then(|| Duration::from_millis(asked.min(WAIT_MAX)))
}
