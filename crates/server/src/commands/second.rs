//! The second names of commands that have two.

use super::{Outcome, SYNTAX, find};
use crate::form::Fit;
use crate::request::Arguments;

/// The second name of the command that runs. What does not fit was refused before.
pub(super) fn second(args: &Arguments<'_>) -> Outcome<&'static str> {
    let found = find(args.get(0)).map(|(_, command)| (command, command.fit(args)));
    match found {
        Some((_, Fit::Fits(Some(name)))) => Ok(name),
        Some((command, fit)) => Err(fit.error(command).unwrap_or_else(|| SYNTAX.to_owned()).into()),
        None => Err(SYNTAX.into()),
    }
}
