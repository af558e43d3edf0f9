//! The program inside the guest of the power-cut tests (`tools/vm`).
//!
//! ```text
//! vm_worker DIR verify-and-write [--need A,B,PAGES] [--created] [--domain NAME] [--verify-only] [--no-sync]
//! vm_worker DIR bytes-per-sync [--compare] [--assert BYTES]
//! ```
//!
//! `verify-and-write` opens or creates a pool in `DIR`, demands that what was acknowledged before is in it (`--need`: one
//! sequence number for each of the two writers, and the pages that the pool grew by), and then updates records on two threads, while
//! a third makes the pool longer, until the power is cut. A writer says `ack WRITER SEQUENCE` on standard output only
//! after the drain of that record has returned, and begins the next record only then: so the newest whole record found proves that all before it were acknowledged, and each of
//! them must be there too, whatever the host had time to read.
//!
//! `bytes-per-sync` measures with the block device's own statistics what one drain of one dirty line writes; `--assert` bounds it,
//! `--compare` measures files that were filled in other ways.

mod bytes;
mod records;

use std::path::PathBuf;
use std::process::ExitCode;

/// What the command line asks for.
#[derive(Default)]
struct Arguments {
    directory: PathBuf,
    command: String,
    /// What was acknowledged so far.
    need: [u64; records::COUNTERS],
    /// The creation of the pool was acknowledged.
    created: bool,
    /// The domain that must be detected.
    domain: Option<String>,
    verify_only: bool,
    no_sync: bool,
    compare: bool,
    /// Bytes per sync at most.
    bytes_max: Option<f64>,
}

fn parse() -> Result<Arguments, String> {
    let mut words = std::env::args().skip(1);
    let mut next = |what: &str| words.next().ok_or(format!("{what} is missing"));
    let mut arguments =
        Arguments { directory: next("directory")?.into(), command: next("command")?, ..Arguments::default() };
    while let Ok(word) = next("") {
        match word.as_str() {
            "--need" => {
                let list = next("list after --need")?;
                let numbers: Vec<u64> = list.split(',').map_while(|n| n.parse().ok()).collect();
                arguments.need =
                    numbers.try_into().map_err(|_| format!("--need {list}: one number for each counter"))?;
            }
            "--domain" => arguments.domain = Some(next("name after --domain")?),
            "--created" => arguments.created = true,
            "--verify-only" => arguments.verify_only = true,
            "--no-sync" => arguments.no_sync = true,
            "--compare" => arguments.compare = true,
            "--assert" => {
                let bytes = next("number after --assert")?;
                arguments.bytes_max = Some(bytes.parse().map_err(|_| format!("--assert {bytes}: no number"))?);
            }
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    Ok(arguments)
}

fn main() -> ExitCode {
    let done = parse().and_then(|arguments| match arguments.command.as_str() {
        "verify-and-write" => records::verify_and_write(&arguments),
        "bytes-per-sync" => bytes::measure(&arguments.directory, arguments.compare, arguments.bytes_max),
        other => Err(format!("unknown command {other}")),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            // LOST and DAMAGED are verdicts about the pool; anything else is trouble on the way.
            let verdict = ["LOST", "DAMAGED"].iter().any(|v| message.starts_with(v));
            println!("{}{message}", if verdict { "" } else { "ERROR " });
            ExitCode::FAILURE
        }
    }
}
