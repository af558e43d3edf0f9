//! A worker, seen from the parent.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use crate::config::{Job, WORKER};
use crate::message::Message;
use crate::{Error, Result};

/// A worker process. One that is dropped is killed.
pub(crate) struct Worker {
    child: Option<Child>,
    orders: Option<ChildStdin>,
    heard: BufReader<ChildStdout>,
    line: String,
    kind: String,
}

/// The program that runs, whatever has become of its file since.
fn program() -> PathBuf {
    std::env::current_exe().ok().filter(|path| path.exists()).unwrap_or_else(|| "/proc/self/exe".into())
}

impl Worker {
    pub(crate) fn start(job: &Job) -> Result<Self> {
        let kind = job.kind.clone();
        let failed = |what: String| Error::Worker { kind: kind.clone(), what };
        let text = serde_json::to_string(job).map_err(|error| failed(error.to_string()))?;
        let mut command = Command::new(program());
        command.arg0("cairn").arg(WORKER).arg(text).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(format!("does not start: {error}")))?;
        let orders = child.stdin.take();
        let heard = child.stdout.take().ok_or_else(|| failed("has no standard output".into()))?;
        let heard = BufReader::with_capacity(1 << 16, heard);
        Ok(Self { child: Some(child), orders, heard, line: String::new(), kind })
    }

    /// What it says next, or that it has ended.
    pub(crate) fn hear(&mut self) -> Result<Option<Message>> {
        self.line.clear();
        let heard = self.heard.read_line(&mut self.line).map_err(|error| self.failed(error.to_string()))?;
        if heard == 0 {
            return Ok(None);
        }
        let message = self.line.strip_suffix('\n').ok_or_else(|| format!("broke off in {:?}", self.line));
        message.and_then(str::parse).map(Some).map_err(|what| self.failed(what))
    }

    pub(crate) fn tell(&mut self, order: &str) -> Result<()> {
        let told = self.orders.as_mut().map_or(Ok(()), |orders| writeln!(orders, "{order}"));
        told.map_err(|error| self.failed(error.to_string()))
    }

    pub(crate) fn failed(&self, what: impl Into<String>) -> Error {
        Error::Worker { kind: self.kind.clone(), what: what.into() }
    }

    /// That message instead of the one that was due.
    pub(crate) fn unexpected(&self, message: Option<Message>) -> Error {
        self.failed(match message {
            None => "ended".to_owned(),
            Some(Message::Failed(why)) => why,
            Some(other) => format!("said {other}"),
        })
    }

    /// Waits for its end by itself.
    pub(crate) fn end(mut self) -> Result<()> {
        let status = self.child.take().map(|mut child| child.wait());
        match status {
            Some(Ok(status)) if status.success() => Ok(()),
            Some(Ok(status)) => Err(self.failed(format!("ended with {status}"))),
            Some(Err(error)) => Err(self.failed(error.to_string())),
            None => Ok(()),
        }
    }

    /// Listens, and kills it with SIGKILL that long after `trigger` has said yes to a message. Everything it had said before it died is heard.
    pub(crate) fn kill(mut self, delay: Duration, mut listen: impl FnMut(Message) -> Result<Flow>) -> Result<Death> {
        let Some(child) = self.child.take() else { return Err(self.failed("is dead already")) };
        let (trigger, triggered) = channel();
        let mut trigger = Some(trigger);
        thread::scope(|scope| {
            let killer = scope.spawn(move || kill(child, &triggered, delay));
            let listened = loop {
                match self.hear() {
                    Ok(Some(Message::Failed(why))) => break Ok(Some(why)),
                    Ok(Some(message)) => match listen(message) {
                        Ok(Flow::Wait) => {}
                        // A killer that is gone has done its work.
                        Ok(Flow::Kill) => _ = trigger.as_ref().map(|trigger| trigger.send(())),
                        Err(error) => break Err(error),
                    },
                    Ok(None) => break Ok(None),
                    Err(error) => break Err(error),
                }
            };
            trigger = None; // do not wait longer
            let status = killer.join().map_err(|_| self.failed("could not be killed"))?;
            let status = status.map_err(|error| self.failed(error.to_string()))?;
            match (listened?, status.signal()) {
                (Some(why), _) => Ok(Death::Failed(why)),
                (None, Some(SIGKILL)) => Ok(Death::Killed),
                (None, _) => Ok(Death::Failed(format!("ended with {status}"))),
            }
        })
    }
}

/// What a listener wants.
pub(crate) enum Flow {
    Wait,
    /// The time until it dies begins now.
    Kill,
}

/// How it died.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Death {
    Killed,
    /// Before it could be killed: what it said.
    Failed(String),
}

const SIGKILL: i32 = 9;
/// A worker that has not opened its pool by then hangs.
const TIMEOUT: Duration = Duration::from_secs(300);

fn kill(mut child: Child, triggered: &Receiver<()>, delay: Duration) -> std::io::Result<ExitStatus> {
    if triggered.recv_timeout(TIMEOUT).is_ok() {
        thread::sleep(delay);
    }
    child.kill()?;
    child.wait()
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}
