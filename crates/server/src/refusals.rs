//! Lines of the program's log about requests that were refused. A full store refuses each write, thousands in a second: of one kind there is one line in ten seconds, which says how many
//! there were since the line before.

use parking_lot::Mutex;

use crate::clock::now;
use crate::engine::Error;

/// Milliseconds from one line to the next of its kind, at least.
const REST: u64 = 10_000;

/// Why a request was refused, as far as one line stands for many.
#[derive(Clone, Copy)]
enum Kind {
    Full,
    LogFull,
    Memory,
    InDoubt,
    Stopped,
    Damaged,
    Other,
}

/// What was said of each [`Kind`].
#[derive(Debug, Default)]
pub(crate) struct Refusals([Mutex<Said>; Kind::Other as usize + 1]);

#[derive(Debug, Default)]
struct Said {
    /// When the last line was written, in milliseconds of Unix time; none if there is none.
    at: Option<u64>,
    /// Refusals since then.
    more: u64,
}

impl Said {
    /// Counts one; if a line is to be written, how many had none since the last one.
    fn due(&mut self, now: u64) -> Option<u64> {
        // A clock that was set back must not keep lines from being written.
        if self.at.is_some_and(|at| (at..at.saturating_add(REST)).contains(&now)) {
            self.more += 1;
            return None;
        }
        self.at = Some(now);
        Some(std::mem::take(&mut self.more))
    }
}

impl Refusals {
    /// A request was refused, or may have been done.
    pub(crate) fn note(&self, error: &Error) {
        let (kind, what) = match error {
            Error::Full(_) => (Kind::Full, "a write was refused"),
            Error::LogFull(_) => (Kind::LogFull, "a write was refused"),
            Error::Memory(_) => (Kind::Memory, "a write was refused"),
            Error::InDoubt(_) => (Kind::InDoubt, "a write is in doubt"),
            Error::Stopped(_) => (Kind::Stopped, "a command was refused"),
            Error::Damaged(_) => (Kind::Damaged, "a command met damage"),
            _ => (Kind::Other, "a command failed"),
        };
        let said = self.0.get(kind as usize).and_then(|said| said.lock().due(now()));
        match said {
            None => {}
            Some(0) => tracing::error!("{what}: {error}"),
            Some(more) => tracing::error!("{what}: {error} ({more} more like it since the last such line)"),
        }
    }

    /// Says how many had no line, before the server ends.
    pub(crate) fn end(&self) {
        let more: u64 = self.0.iter().map(|said| std::mem::take(&mut said.lock().more)).sum();
        if more > 0 {
            tracing::error!("{more} more commands were refused, like those of the lines before");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_kind_there_is_a_line_in_ten_seconds_and_all_are_counted() {
        let mut said = Said::default();
        let lines: Vec<_> = (0..30_000).step_by(10).filter_map(|now| said.due(1_000_000 + now)).collect();
        assert_eq!(lines, [0, 999, 999]);
        assert_eq!(said.more, 999);
        // The clock is set back.
        assert_eq!(said.due(5), Some(999));
        assert_eq!(said.due(6), None);
    }
}
