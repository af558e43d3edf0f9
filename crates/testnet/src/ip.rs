//! The commands `ip` and `iptables`.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use crate::{Error, Result};

/// Runs `iptables` in the namespace of the calling thread.
pub(crate) fn iptables(arguments: &[&str]) -> Result<()> {
    // With -w it waits for others that change rules.
    let mut command = Command::new("iptables");
    command.arg("-w").args(arguments);
    let output = command.output().map_err(|why| Error::NoProgram { program: "iptables", why })?;
    judge(&format!("iptables {}", arguments.join(" ")), &output).map(drop)
}

/// Runs `ip` and returns what it says.
pub(crate) fn ip(arguments: &[&str]) -> Result<String> {
    let output = Command::new("ip").args(arguments).output().map_err(|why| Error::NoProgram { program: "ip", why })?;
    judge(&format!("ip {}", arguments.join(" ")), &output)
}

/// Runs a line each, in a namespace or outside all.
pub(crate) fn batch(namespace: Option<&str>, lines: &[String]) -> Result<()> {
    let mut command = Command::new("ip");
    command.args(namespace.iter().flat_map(|name| ["-n", name])).args(["-batch", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|why| Error::NoProgram { program: "ip", why })?;
    let text = lines.join("\n") + "\n";
    // A program that reads no input says why when it ends.
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().map_err(|why| Error::system("wait for", "ip", why))?;
    judge(&format!("ip -batch: {}", lines.join("; ")), &output)?;
    written.unwrap_or(Ok(())).map_err(|why| Error::system("write to", "ip", why))
}

fn judge(command: &str, output: &Output) -> Result<String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(Error::Failed { command: command.to_owned(), said })
}
