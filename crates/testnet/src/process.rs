//! A process that can be stopped and killed.

use std::process::{Child, ExitStatus};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::{Error, Result};

/// Killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    program: String,
}

impl Process {
    pub(crate) fn new(child: Child, program: String) -> Self {
        Self { child, program }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// For its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Ends it as a loss of power would, and waits until it has ended.
    ///
    /// # Errors
    /// The system refuses.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        self.child.kill().map_err(|why| self.refused("kill", why))?;
        self.wait()
    }

    /// Stops it where it is. When this returns it runs no more; if it has ended, so it has.
    ///
    /// # Errors
    /// The system refuses.
    pub fn pause(&self) -> Result<()> {
        self.signal("stop", Signal::STOP)?;
        // A signal takes its time. How a process ended is left for the caller that waits for that.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(Pid::from_child(&self.child)), options) {
            Ok(_) => Ok(()),
            Err(why) => Err(self.refused("wait for the stop of", why)),
        }
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// The system refuses.
    pub fn resume(&self) -> Result<()> {
        self.signal("resume", Signal::CONT)
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// The system refuses.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.child.wait().map_err(|why| self.refused("wait for", why))
    }

    fn signal(&self, doing: &'static str, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.child), signal).map_err(|why| self.refused(doing, why))
    }

    fn refused(&self, doing: &'static str, why: impl Into<std::io::Error>) -> Error {
        Error::system(doing, format!("{} (process {})", self.program, self.child.id()), why)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // No caller is left to be told.
        drop(self.kill());
    }
}
