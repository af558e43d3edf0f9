//! `SWAPDB`: two databases exchange their numbers.

use super::flag::{DANGEROUS, FAST, KEYSPACE, WRITE};
use super::{Command, Context, KeysAt, Outcome, data};
use crate::data::DATABASES;
use crate::databases;
use crate::engine::Error;
use crate::failpoints::Step;
use crate::request::{Arguments, number};

pub(super) const COMMANDS: &[Command] = &[data("swapdb", 3, WRITE | FAST | KEYSPACE | DANGEROUS, KeysAt::None, swapdb)];

fn swapdb(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let index = |at| number(args.get(at)).filter(|index| i32::try_from(*index).is_ok());
    let one = index(1).ok_or("ERR invalid first DB index")?;
    let other = index(2).ok_or("ERR invalid second DB index")?;
    let known = |index: i64| u8::try_from(index).ok().filter(|number| *number < DATABASES);
    let (one, other) = known(one).zip(known(other)).ok_or("ERR DB index is out of range")?;
    if one != other {
        // All others go by the map in memory.
        let failpoints = c.shared.failpoints;
        if !c.shared.databases.may_change() && !failpoints.skips(Step::SwapAlone) {
            return Err(Error::Alone.into());
        }
        let map = c.looks.databases.swapped(one, other);
        if !failpoints.skips(Step::MapWritten) {
            databases::put(c.tx, c.shared.seed, map)?;
        }
        c.shared.databases.change(map);
        c.looks.databases = map;
    }
    c.reply.ok();
    Ok(())
}
