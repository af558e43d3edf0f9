//! `cairn man`: the manual pages, from the same definition as the help.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;

use super::Outcome;
use crate::args::{Args, Man};
use crate::failure::Failure;
use crate::output::say;

pub fn run(args: &Man) -> Outcome {
    fs::create_dir_all(&args.dir).map_err(|error| Failure::file("make the folder", &args.dir, &error))?;
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    pages(&command, "", &args.dir)?;
    say!("{}", args.dir.display())?;
    Ok(ExitCode::SUCCESS)
}

/// A page for the command, and one for each that is below it.
fn pages(command: &clap::Command, above: &str, dir: &Path) -> Result<(), Failure> {
    let name = if above.is_empty() { command.get_name().to_owned() } else { format!("{above}-{}", command.get_name()) };
    let path = dir.join(format!("{name}.1"));
    let mut page = Vec::new();
    let failed = |error| Failure::file("write", &path, &error);
    clap_mangen::Man::new(command.clone().name(name.clone())).render(&mut page).map_err(failed)?;
    fs::write(&path, page).map_err(failed)?;
    command.get_subcommands().filter(|below| !below.is_hide_set()).try_for_each(|below| pages(below, &name, dir))
}
