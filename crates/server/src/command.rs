//! Commands: their forms, and what runs them.

use std::ops::Deref;
use std::sync::LazyLock;
use std::time::Duration;

use crate::context::{Context, Looks};
use crate::engine::Tx;
use crate::form::{Catalogue, Form, streams};
use crate::outcome::{Outcome, SYNTAX};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::session::Session;

/// A command: its form, and what runs it.
pub(crate) struct Command {
    pub(crate) form: Form,
    pub(crate) run: Run,
}

impl Deref for Command {
    type Target = Form;

    fn deref(&self) -> &Form {
        &self.form
    }
}

impl Command {
    /// Whether it runs in a transaction and is done then, whatever it finds.
    pub(crate) fn is_at_once(&self, args: &Arguments<'_>) -> bool {
        match self.run {
            Run::Data(_) => true,
            Run::Read(_) => !streams::blocks(args),
            _ => false,
        }
    }
}

/// What runs a command.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// On data: in a transaction, alone or with others. It may be run again, so it must do nothing outside of its context.
    Data(fn(&mut Context<'_>, &Arguments<'_>) -> Outcome),
    /// On the connection or the server, at once. It may be run again if it stands between `MULTI` and `EXEC`.
    Session(fn(&mut Session, &Arguments<'_>, &mut Reply) -> Outcome),
    /// The same, until it finds something if it is told to block; between `MULTI` and `EXEC` once.
    Read(fn(&mut Context<'_>, &Arguments<'_>) -> Outcome),
    /// On data, until it finds something; between `MULTI` and `EXEC` once.
    Block(fn(&mut Context<'_>, &Arguments<'_>) -> Outcome, Timeout),
    /// On the server, again until the answer is good enough or its time is over; between `MULTI` and `EXEC` once.
    Await(Ask),
    /// A script: commands on data, and on the connection, in a transaction.
    Script(fn(&mut Env<'_>, &Arguments<'_>, &mut Reply) -> Outcome),
    /// By the connection itself: it needs what [`Session`] has not.
    Connection(Special),
}

/// Which argument says how long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timeout {
    First,
    Last,
    /// The last one, which is looked at behind the two ends of lists before it.
    BehindEnds,
}

impl Timeout {
    /// How long that is; for ever if it is 0.
    pub(crate) fn limit(self, args: &Arguments<'_>) -> Result<Option<Duration>, &'static str> {
        let last = args.len() - 1;
        let is_end = |end: &[u8]| [&b"left"[..], b"right"].iter().any(|name| end.eq_ignore_ascii_case(name));
        if self == Self::BehindEnds && !(is_end(args.get(last - 2)) && is_end(args.get(last - 1))) {
            return Err(SYNTAX);
        }
        seconds(args.get(if self == Self::First { 1 } else { last }))
    }
}

/// No client waits for longer, whatever it says: 136 years.
const LONGEST: Duration = Duration::from_secs(u32::MAX as u64);

fn seconds(text: &[u8]) -> Result<Option<Duration>, &'static str> {
    let number = crate::numbers::float(text).ok().filter(|number| number.is_finite());
    let number = number.ok_or("ERR timeout is not a float or out of range")?;
    if number < 0.0 {
        return Err("ERR timeout is negative");
    }
    // As many milliseconds as Redis can count.
    let out_of_range = "ERR timeout is out of range";
    if number * 1000.0 >= i64::MAX as f64 {
        return Err(out_of_range);
    }
    let duration = Duration::try_from_secs_f64(number).map_err(|_| out_of_range)?;
    Ok((number > 0.0).then_some(duration.min(LONGEST)))
}

/// Answers with what there is; with nothing only if it is to be asked again, and its time is [not over](Asked::is_over).
pub(crate) type Ask = fn(&Session, &Arguments<'_>, &mut Asked, &mut Reply) -> Outcome<WaitLimit>;

/// What is known of a request that is asked about again.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// What it is about, from the first time on.
    pub(crate) since: Option<u64>,
    /// It has waited as long as it may: it is not asked again.
    pub(crate) is_over: bool,
}

/// How long a client waits for a better answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    /// It is as good as it was asked for.
    Enough,
    /// In all.
    For(Duration),
    Forever,
}

/// What the connection does itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Exec,
    Watch,
}

/// What a command has of the transaction it runs in.
pub(crate) struct Env<'e> {
    pub(crate) tx: &'e mut dyn Tx,
    pub(crate) session: &'e mut Session,
    pub(crate) now: u64,
    pub(crate) looks: &'e mut Looks,
    /// The commands that there are.
    pub(crate) commands: &'static LazyLock<Table>,
}

/// Commands by their numbers.
pub(crate) struct Table {
    all: Vec<&'static Command>,
    forms: Catalogue,
}

impl Table {
    /// In any order.
    pub(crate) fn of(mut all: Vec<&'static Command>) -> Self {
        all.sort_unstable_by_key(|command| command.name);
        let forms = Catalogue::new(all.iter().map(|command| &command.form));
        Self { all, forms }
    }

    pub(crate) fn forms(&self) -> &Catalogue {
        &self.forms
    }

    /// The command of that name, however it is written, and its number.
    pub(crate) fn find(&self, name: &[u8]) -> Option<(usize, &'static Command)> {
        let number = self.forms.find(name)?;
        Some((number, self.all.get(number)?))
    }
}

impl Deref for Table {
    type Target = [&'static Command];

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(seconds(b"0x0.8"), Ok(Some(Duration::from_millis(500))));
        assert_eq!((seconds(b"0"), seconds(b"0.5")), (Ok(None), Ok(Some(Duration::from_millis(500)))));
        assert!(
            seconds(b"-1").is_err() && seconds(b"x").is_err() && seconds(b"1e300").is_err() && seconds(b"nan").is_err()
        );
    }
}
