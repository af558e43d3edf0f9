//! A bar for stores that take their time to open.

use std::io::{IsTerminal, stderr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kv::{Options, Part};

/// A shorter wait needs no bar.
const TIMEOUT: Duration = Duration::from_millis(300);

/// Shows how far opening has come, once it takes longer than that.
#[expect(clippy::disallowed_methods, reason = "somebody waits")]
pub fn shown(options: Options) -> Options {
    if !stderr().is_terminal() {
        return options;
    }
    let began = Instant::now();
    let bar: Mutex<Option<(Part, ProgressBar)>> = Mutex::new(None);
    options.progress(move |opening| {
        let Ok(mut bar) = bar.lock() else { return };
        if bar.as_ref().is_none_or(|(part, _)| *part != opening.part) && began.elapsed() >= TIMEOUT {
            *bar = Some((opening.part, new(opening.part)));
        }
        if let Some((_, bar)) = &*bar {
            bar.set_length(opening.of);
            bar.set_position(opening.done);
            if opening.done >= opening.of {
                bar.finish_and_clear();
            }
        }
    })
}

fn new(part: Part) -> ProgressBar {
    let what = match part {
        Part::Index => "index, keys",
        _ => "logs, segments",
    };
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("opening: {prefix} {wide_bar} {pos} of {len}, {eta} left") {
        bar.set_style(style);
    }
    bar.with_prefix(what)
}
