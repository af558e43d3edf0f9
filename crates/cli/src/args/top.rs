//! What can be asked for of a running server.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;

/// Watch a running server
///
/// What it does each second, how long replies and commits take, which commands are called most. Asks by Redis' protocol (INFO), so it shows of a Redis
/// what that tells, too. When the server goes away it says so, and asks on. q or Ctrl-C ends it.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  done
  2  wrong usage, or with --once or --json: the server cannot be asked

Examples:
  cairn top
  cairn top --redis 10.0.0.7:6379 --password-file secret.txt
  cairn top --once
      one look, as text, after a second
  cairn top --json --interval 5 | jq .per_second.commands")]
pub struct Top {
    /// Where it speaks Redis' protocol
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6379")]
    pub redis: String,
    /// The user that asks, if not the default one
    #[arg(long, value_name = "NAME", requires = "password_file")]
    pub user: Option<String>,
    /// The password is in the first line of this file
    #[arg(long, value_name = "FILE", env = "CAIRN_PASSWORD_FILE")]
    pub password_file: Option<PathBuf>,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub interval: Duration,
    /// Print one look as text
    #[arg(long)]
    pub once: bool,
    /// Print one look as a JSON object
    #[arg(long)]
    pub json: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds @ 0.1..=3600.0) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected 0.1 to 3600".into()),
    }
}
