//! `cargo xtask check`: all rules of the crate's documentation, read-only. `cargo xtask header`: writes the C header.

#![forbid(unsafe_code)]

use std::io;
use std::process::ExitCode;

use xtask::metadata::Metadata;
use xtask::{Problem, arrows, circles, header, licences, links, messages, unsafe_code};

const USAGE: &str = "usage: cargo xtask check | circles [CRATE..] | header

check   dependency arrows, circles of modules, licences, where unsafe code is, the links in Markdown files, the messages of errors, the C header
circles how many circles of modules each crate has; of a crate that is named, which, and what ties them
header  writes crates/capi/include/cairn.h from the sources of capi
Exit code 0: all hold; 1: violations, each printed; 2: wrong usage, or cargo or a file could not be read.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let problems = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["check"] => check(),
        ["header"] => Metadata::load().and_then(|metadata| header::write(&metadata.workspace_root)).map(|()| vec![]),
        ["circles", ref names @ ..] => {
            Metadata::load().and_then(|metadata| circles::print(&metadata, names)).map(|()| vec![])
        }
        ["--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match problems {
        Ok(problems) if problems.is_empty() => ExitCode::SUCCESS,
        Ok(problems) => {
            for problem in &problems {
                eprintln!("{problem}");
            }
            eprintln!("{} problems", problems.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn check() -> io::Result<Vec<Problem>> {
    let metadata = Metadata::load()?;
    let rules = [
        ("dependency arrows", [arrows::check(&metadata), arrows::unused(&metadata)].concat()),
        ("circles of modules", circles::check(&metadata)?),
        ("licences", licences::check(&metadata)),
        ("unsafe code", unsafe_code::check(&metadata)?),
        ("links", links::check(&metadata.workspace_root)?),
        ("messages of errors", messages::check(&metadata.workspace_root)?),
        ("C header", header::check(&metadata.workspace_root)?),
    ];
    let mut all = Vec::new();
    for (rule, problems) in rules {
        println!("xtask: {rule}: {}", if problems.is_empty() { "ok" } else { "VIOLATED" });
        all.extend(problems);
    }
    Ok(all)
}
