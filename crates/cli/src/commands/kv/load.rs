//! `cairn kv load`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kv::{KEY_MAX, Loaded, Loader, Options, VALUE_MAX};

use super::super::Outcome;
use super::format;
use crate::args::Load;
use crate::failure::Failure;
use crate::output::say;
use crate::size;

/// Longest line that can be a pair: each byte takes six characters at most, as JSON.
const LINE_MAX: u64 = 6 * (KEY_MAX + VALUE_MAX) as u64 + 256;

pub fn run(args: &Load) -> Outcome {
    let (mut input, name): (Box<dyn BufRead>, &Path) = if args.file == Path::new("-") {
        (Box::new(io::stdin().lock()), Path::new("standard input"))
    } else {
        let file = File::open(&args.file).map_err(|error| Failure::file("open", &args.file, &error))?;
        (Box::new(BufReader::with_capacity(1 << 20, file)), &args.file)
    };
    let bar = progress(args.file != Path::new("-"), "loaded");
    let loaded = super::write(&args.path, &Options::new(), |store| {
        let mut loader = store.loader();
        let read = read(args, &mut input, name, &mut loader, &bar);
        // What was read before something failed is loaded, too.
        let before = loader.loaded();
        let loaded = loader.finish().map_err(|error| Failure::kv(&args.path, &error).after(&told(before)));
        bar.finish_and_clear();
        let loaded = loaded?;
        read.map_err(|failure| failure.after(&told(loaded)))?;
        Ok(loaded)
    })?;
    say!("{}", told(loaded))?;
    Ok(ExitCode::SUCCESS)
}

fn told(loaded: Loaded) -> String {
    let pairs = if loaded.pairs == 1 { "pair" } else { "pairs" };
    format!("{} {pairs} loaded, {}", loaded.pairs, size::human(loaded.bytes))
}

fn read(
    args: &Load,
    input: &mut dyn BufRead,
    name: &Path,
    loader: &mut Loader<'_>,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let mut line = Vec::new();
    let mut number = 0u64;
    loop {
        line.clear();
        let len = input.take(LINE_MAX).read_until(b'\n', &mut line);
        if len.map_err(|error| Failure::file("read", name, &error))? == 0 {
            return Ok(());
        }
        number += 1;
        line.pop_if(|end| *end == b'\n');
        let pair = format::line(&line, args.format).map_err(|why| {
            let next = "`cairn help kv load` tells about formats; what is loaded already may be loaded again";
            Failure::new(format!("{}, line {number}: {why}", name.display()), next)
        })?;
        let Some(pair) = pair else { continue };
        let durable = loader
            .put(&pair.key, &pair.value, pair.expires)
            .map_err(|error| Failure::kv(&args.path, &error).after(&format!("line {number}")))?;
        if durable {
            show(bar, loader.loaded());
        }
    }
}

/// A line on the terminal, if there is one and no user types there.
pub fn progress(quiet_input: bool, done: &'static str) -> ProgressBar {
    let terminal = io::stderr().is_terminal() && (quiet_input || !io::stdin().is_terminal());
    let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = ProgressStyle::with_template("{msg} pairs {prefix}, {bytes}, {bytes_per_sec}") {
        bar.set_style(style);
    }
    bar.set_prefix(done);
    bar
}

pub fn show(bar: &ProgressBar, loaded: Loaded) {
    bar.set_message(loaded.pairs.to_string());
    bar.set_position(loaded.bytes);
}
