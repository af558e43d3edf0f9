//! A replica and its medium, on one thread: what tests, the explorer and a chain of one are driven by.

use std::collections::VecDeque;

use crate::{Command, Event, Found, Medium, Moment, Replica, Result};

/// Carries out at once what is to the medium, one barrier for all that waits for one, and leaves the rest to the caller.
#[derive(Debug)]
pub struct Driven {
    replica: Replica,
    medium: Medium,
}

impl Driven {
    /// A process starts on what its medium has.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn start(medium: Medium, found: Found) -> Result<(Self, Vec<Command>)> {
        let (replica, commands) = Replica::start(found);
        let mut driven = Self { replica, medium };
        let rest = driven.run(Moment(0), commands)?;
        Ok((driven, rest))
    }

    /// The state machine.
    #[must_use]
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// The medium.
    #[must_use]
    pub fn medium(&self) -> &Medium {
        &self.medium
    }

    /// The medium, of a process that ends.
    #[must_use]
    pub fn into_medium(self) -> Medium {
        self.medium
    }

    /// Takes an event, and what follows from it here. What others are to do.
    ///
    /// # Errors
    /// Those of the medium: it is of no use any more.
    pub fn event(&mut self, now: Moment, event: Event) -> Result<Vec<Command>> {
        let commands = self.replica.step(now, event);
        self.run(now, commands)
    }

    fn run(&mut self, now: Moment, commands: Vec<Command>) -> Result<Vec<Command>> {
        let (mut commands, mut rest) = (VecDeque::from(commands), Vec::new());
        loop {
            let mut events = Vec::new();
            match commands.pop_front() {
                Some(command) if command.is_to_medium() => events.extend(self.medium.carry_out(command)?),
                Some(command) => rest.push(command),
                None if self.medium.wants_barrier() => events = self.medium.barrier()?,
                None => return Ok(rest),
            }
            events.into_iter().for_each(|event| commands.extend(self.replica.step(now, event)));
        }
    }
}
