//! `XCLAIM` and `XAUTOCLAIM`.

use super::super::{Context, Outcome, SYNTAX, Stop, is};
use super::entries;
use super::groups::{self, Desk};
use super::ids::{start, strict};
use super::pending::there;
use crate::data::Head;
use crate::data::streams::{Id, Pending};
use crate::outcome::naming;
use crate::request::{Arguments, number};

/// Entries that are looked at for each that may be claimed.
const LOOKS: u64 = 10;
/// Entries that `XAUTOCLAIM` claims if it is not told how many.
const USUAL: u64 = 100;
/// ... and the most that it can be told, as Redis has it.
const MOST: i64 = i64::MAX / 16;

/// The consumer that claims, and how.
struct Claim<'b> {
    /// The group's name, and the consumer's.
    group: &'b [u8],
    name: &'b [u8],
    idle: i64,
    delivered: u64,
    deliveries: Option<u64>,
    force: bool,
    ids_only: bool,
    /// Its number, once it has claimed something.
    number: Option<u64>,
}

impl Claim<'_> {
    /// Takes an entry over that is pending, unless it has not been for long enough, and answers with it. The entry is there.
    fn take(
        &mut self,
        c: &mut Context<'_>,
        head: &Head,
        desk: &mut Desk,
        id: Id,
        before: Option<Pending>,
    ) -> Outcome<bool> {
        let age = |pending: Pending| (c.now as i64).saturating_sub(pending.delivered as i64);
        if before.is_some_and(|before| self.idle > 0 && age(before) < self.idle) {
            return Ok(false);
        }
        let consumer = match self.number {
            Some(number) => number,
            None => *self.number.insert(desk.see(c, self.group, self.name)?),
        };
        // One that is made by FORCE counts as sent once.
        let had = before.map_or(1, |before| before.deliveries);
        let deliveries = self.deliveries.unwrap_or(if self.ids_only { had } else { had.wrapping_add(1) });
        desk.give(c, id, before, Pending { consumer, delivered: self.delivered, deliveries })?;
        if self.ids_only {
            c.reply.bulk(id.to_string().as_bytes());
        } else {
            entries::answer_one(c, head, id)?;
        }
        Ok(true)
    }
}

fn milliseconds(text: &[u8], what: &str) -> Outcome<i64> {
    number(text).ok_or_else(|| Stop::Error(format!("ERR Invalid {what}")))
}

// ---- by ids -----------------------------------------------------------------------------------------------------

pub(super) fn xclaim(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (key, name) = (args.get(1), args.get(2));
    let (head, group) = there(c, key, name)?;
    let idle = milliseconds(args.get(4), "min-idle-time argument for XCLAIM")?.max(0);
    let ids: Vec<Id> = args.from(5).map_while(|text| strict(text, 0).ok()).collect();
    let (mut claim, last) = claim_options(c.now, args, 5 + ids.len())?;
    claim.idle = idle;
    groups::check(c, claim.name)?;
    let mut desk = Desk::new(&head, group);
    if last > desk.group.last {
        desk.group.last = last;
        groups::save(c, &head, name, &desk.group)?;
    }
    let (mark, mut count) = (c.reply.len(), 0);
    for id in ids {
        let before = desk.pending(c, id)?;
        if !entries::is_there(c, &head, id)? {
            // What is gone is not pending any more.
            if let Some(before) = before {
                desk.take(c, id, before)?;
            }
        } else if before.is_some() || claim.force {
            count += usize::from(claim.take(c, &head, &mut desk, id, before)?);
        }
    }
    entries::counted(c.reply, mark, count);
    desk.save(c)
}

fn claim_options<'b>(now: u64, args: &Arguments<'b>, mut at: usize) -> Outcome<(Claim<'b>, Id)> {
    let (mut last, mut delivered, mut deliveries, mut force, mut ids_only) = (Id::MIN, None, -1, false, false);
    while at < args.len() {
        let (more, value) = (at + 1 < args.len(), args.get(at + 1));
        match args.get(at) {
            o if is(o, "FORCE") => {
                force = true;
                at += 1;
                continue;
            }
            o if is(o, "JUSTID") => {
                ids_only = true;
                at += 1;
                continue;
            }
            o if more && is(o, "IDLE") => {
                let idle = milliseconds(value, "IDLE option argument for XCLAIM")?;
                delivered = Some((now as i64).wrapping_sub(idle));
            }
            o if more && is(o, "TIME") => delivered = Some(milliseconds(value, "TIME option argument for XCLAIM")?),
            o if more && is(o, "RETRYCOUNT") => {
                deliveries = milliseconds(value, "RETRYCOUNT option argument for XCLAIM")?;
            }
            o if more && is(o, "LASTID") => last = strict(value, 0)?,
            o => return Err(naming("ERR Unrecognized XCLAIM option '%'", &[o])),
        }
        at += 2;
    }
    let delivered = delivered.and_then(|at| u64::try_from(at).ok()).filter(|at| *at <= now).unwrap_or(now);
    let deliveries = u64::try_from(deliveries).ok();
    let (group, name) = (args.get(2), args.get(3));
    Ok((Claim { group, name, idle: 0, delivered, deliveries, force, ids_only, number: None }, last))
}

// ---- by age -----------------------------------------------------------------------------------------------------

pub(super) fn xautoclaim(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let idle = milliseconds(args.get(4), "min-idle-time argument for XAUTOCLAIM")?.max(0);
    let from = start(args.get(5))?;
    let (mut most, mut ids_only, mut at) = (USUAL, false, 6);
    while at < args.len() {
        match args.get(at) {
            o if is(o, "COUNT") && at + 1 < args.len() => {
                at += 1;
                let count = number(args.get(at)).filter(|count| (1..=MOST).contains(count));
                most = count.ok_or("ERR COUNT must be > 0")? as u64;
            }
            o if is(o, "JUSTID") => ids_only = true,
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    let (group, name, delivered) = (args.get(2), args.get(3), c.now);
    let (head, found) = there(c, args.get(1), group)?;
    groups::check(c, name)?;
    let mut desk = Desk::new(&head, found);
    let mut claim = Claim { group, name, idle, delivered, deliveries: None, force: false, ids_only, number: None };
    let (mut looks, mut next, mut gone) = (most.saturating_mul(LOOKS), Some(from), Vec::new());
    let (mark, mut count) = (c.reply.len(), 0);
    // One more than is looked at, which is where the next call goes on.
    let mut after = None;
    while let Some(start) = next.take() {
        let together = looks.min(most).saturating_add(1).clamp(2, 257);
        let ids = desk.ids(c, None, (start, Id::MAX), together)?;
        if ids.len() as u64 == together {
            next = ids.last().and_then(|last| last.next());
        }
        for id in ids {
            if looks == 0 || most == 0 {
                (after, next) = (Some(id), None);
                break;
            }
            looks -= 1;
            let Some(before) = desk.pending(c, id)? else { continue };
            if !entries::is_there(c, &head, id)? {
                desk.take(c, id, before)?;
                gone.push(id);
                most -= 1;
            } else if claim.take(c, &head, &mut desk, id, Some(before))? {
                count += 1;
                most -= 1;
            }
        }
    }
    entries::headed(c.reply, mark, |reply| {
        reply.array(3);
        reply.bulk(after.unwrap_or(Id::MIN).to_string().as_bytes());
        reply.array(count);
    });
    c.reply.array(gone.len());
    gone.iter().for_each(|id| c.reply.bulk(id.to_string().as_bytes()));
    desk.save(c)
}
