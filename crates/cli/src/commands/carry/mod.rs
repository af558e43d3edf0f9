//! `cairn import`, `cairn export`: keys between files and servers. [`source`] gives them one by one, [`target`] writes them.

mod peer;
mod source;
mod target;

use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use server::rdb::{FileReader, FileWriter};

use self::peer::Peer;
use self::source::{Item, Key, Source};
use self::target::Target;
use super::Outcome;
use crate::args::{Export, Import};
use crate::failure::Failure;
use crate::output::say;
use crate::size;

pub fn import(args: &Import) -> Outcome {
    let mut target = Target::new(Peer::connect(&args.to)?, args.replace);
    let mut source = match (&args.rdb, &args.from) {
        (Some(path), _) => {
            Source::File(path.clone(), FileReader::new(opened(path)?).map_err(|error| bad(path, &error))?)
        }
        (None, Some(url)) => Source::scan(Peer::connect(url)?)?,
        (None, None) => return Err(Failure::new("nothing to import", "give --rdb or --from")),
    };
    let bar = progress("{human_pos} keys  {elapsed}");
    while let Some(item) = source.next()? {
        target.put(item)?;
        bar.set_position(target.counts.keys + target.counts.there);
    }
    target.flush()?;
    bar.finish_and_clear();
    let counts = &target.counts;
    let mut text = format!("{} keys, {}", counts.keys, size::human(counts.bytes));
    for (count, what) in [
        (counts.functions, "libraries of functions"),
        (counts.there, "keys that were there already, and stay (--replace overwrites them)"),
        (counts.expired, "keys that have expired"),
    ] {
        if count > 0 {
            text += &format!("; {count} {what}");
        }
    }
    say!("{}: {text}", target.name())?;
    Ok(ExitCode::SUCCESS)
}

pub fn export(args: &Export) -> Outcome {
    let path = &args.rdb;
    if path.exists() {
        return Err(Failure::new(
            format!("{}: there is a file already", path.display()),
            "choose another path, or remove what is there",
        ));
    }
    let mut source = Source::scan(Peer::connect(&args.from)?)?;
    // Under another name until it is whole and synced.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = folder.join(format!(".{name}.unfinished-{}", std::process::id()));
    let written = write(&mut source, &unfinished).and_then(|counts| {
        let op = |op, error: io::Error| Failure::file(op, path, &error);
        // Does not overwrite what has come there in between.
        std::fs::hard_link(&unfinished, path).map_err(|error| op("create", error))?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| op("sync", error))?;
        Ok(counts)
    });
    let _ = std::fs::remove_file(&unfinished); // it has its name, or is of no use
    let (keys, bytes) = written?;
    say!("{}: {keys} keys, {}", path.display(), size::human(bytes))?;
    Ok(ExitCode::SUCCESS)
}

/// Keys, and bytes of the file.
fn write(source: &mut Source, path: &Path) -> Result<(u64, u64), Failure> {
    let failed = |op: &'static str| move |error: io::Error| Failure::file(op, path, &error);
    let file = File::create_new(path).map_err(failed("create"))?;
    let mut writer = FileWriter::new(BufWriter::new(file)).map_err(failed("write"))?;
    let bar = progress("{human_pos} keys  {elapsed}");
    let mut keys = 0;
    while let Some(item) = source.next()? {
        match item {
            Item::Functions(body) => writer.functions(&body).map_err(failed("write"))?,
            Item::Function(code) => writer.function(&code).map_err(failed("write"))?,
            Item::Key(Key { db, key, expires, body, .. }) => {
                writer.key(db, &key, expires, &body).map_err(failed("write"))?;
                keys += 1;
                bar.set_position(keys);
            }
        }
    }
    bar.finish_and_clear();
    let buffer = writer.end().map_err(failed("write"))?;
    let file = buffer.into_inner().map_err(|error| failed("write")(error.into_error()))?;
    file.sync_all().map_err(failed("sync"))?;
    let bytes = file.metadata().map_err(failed("read"))?.len();
    Ok((keys, bytes))
}

fn opened(path: &Path) -> Result<Box<dyn Read>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path).map_err(|error| Failure::file("open", path, &error))?;
    Ok(Box::new(BufReader::with_capacity(1 << 20, file)))
}

/// A file that cannot be read, or not to its end.
fn bad(path: &Path, error: &server::rdb::Error) -> Failure {
    let message = error.to_string();
    let (what, next) = message.rsplit_once("; ").or_else(|| message.rsplit_once(": ")).unwrap_or((&message, ""));
    Failure::new(format!("{}: {what}", path.display()), next)
}

fn progress(template: &str) -> ProgressBar {
    let target = if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(None, target);
    ProgressStyle::with_template(template).map_or(bar.clone(), |style| bar.with_style(style))
}
