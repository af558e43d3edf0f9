//! A leader leaves the leadership to a machine that was named, or to the one that has most.
//!
//! | step | writes meanwhile |
//! |---|---|
//! | the successor takes part, says of nothing that keeps it from leading, lacks few records, and answers | are done |
//! | etcd names it: the others do not stand, and give the leadership back if they are elected all the same | are done |
//! | this machine fences itself and resigns, as when it is to stop | are refused, or end with their connection |
//! | the successor is elected, and takes the log over as behind the loss of a leader | are refused |
//!
//! So nothing depends on the successor: its name is bound to a lease, and if it cannot lead, or is gone, another machine is elected.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use ::log::fabric::Options as Trusted;
use kv::{Store, Transfer};
use membership::{Leadership, Member};
use server::Server;
use server::group::{Failover, Group};

use super::machine::{Machine, now};
use crate::output::note;

/// How long it is waited until the successor has nearly all, unless the client says.
const CATCH_UP: Duration = Duration::from_secs(5);
/// The longest that is waited, whatever the client says: an operator asks again.
const CATCH_UP_MOST: Duration = Duration::from_secs(60);
/// Records that the successor may lack: it gets them when it takes the log over.
const BEHIND: u64 = 256;
/// For so long the others leave the leadership to the successor: to take the log over takes a fraction of it, unless it is gone.
const NAMED: Duration = Duration::from_secs(5);
/// A machine that asks has its answer by then.
const ANSWER: Duration = Duration::from_secs(10);
/// The successor, which may hang, answers by then; or sooner, if the client says so.
const ANSWERS: Duration = Duration::from_secs(1);
/// It has so long, whatever the client says.
const LEAST: Duration = Duration::from_millis(100);
/// Between two looks at how far the successor is.
const LOOK: Duration = Duration::from_millis(20);

/// What another machine has asked for, at which address the successor is announced, until when the answer is waited for, and where it goes.
pub struct Asked {
    address: String,
    until: Instant,
    answer: mpsc::SyncSender<Result<(), String>>,
}

/// What the steward does with such a request. It ends when this machine does not lead any more.
pub fn asking(asks: mpsc::Sender<Asked>) -> Box<Transfer> {
    asking_within(asks, ANSWER)
}

fn asking_within(asks: mpsc::Sender<Asked>, limit: Duration) -> Box<Transfer> {
    Box::new(move |address| {
        // Without room: what is sent has been taken.
        let (answer, answered) = mpsc::sync_channel(0);
        let over = || "it does not lead any more; see what `cairn group status` says".to_owned();
        let until = now() + limit;
        asks.send(Asked { address: address.to_owned(), until, answer }).map_err(|_| over())?;
        answered.recv_timeout(limit).unwrap_or_else(|_| Err(if now() < until { over() } else { late(limit) }))
    })
}

/// A request that was not answered in time; [`next`] may have dropped it for that.
fn late(limit: Duration) -> String {
    format!(
        "it has not begun within {limit:?}, as another failover is under way or etcd does not answer; see what `cairn group status` says, and ask again"
    )
}

/// The next request whose machine still waits for the answer: the others have been told that nothing comes of them.
fn next(asked: &mpsc::Receiver<Asked>) -> Option<Asked> {
    asked.try_iter().find(|asked| now() < asked.until)
}

/// The name of the machine that is to lead, if a transfer was asked for and can be: the caller steps down at once.
pub fn begun(
    machine: &Machine,
    store: &Store,
    running: &Server,
    group: &Group,
    leadership: &Leadership,
    asked: &mpsc::Receiver<Asked>,
) -> Option<String> {
    let leads_on = || leadership.is_held() && !machine.is_stopped() && !running.is_stopping();
    if let Some(Asked { address, until, answer }) = next(asked) {
        let is_it = |member: &Member| member.address == address;
        let goes_on = || leads_on() && now() < until;
        let begun = begin(machine, store, &is_it, CATCH_UP, &goes_on);
        let was_told = answer.send(begun.as_ref().map(drop).map_err(Clone::clone)).is_ok();
        let name = begun.ok()?;
        if !was_told {
            // etcd took too long, and the machine that asked has been told that this one leads on.
            drop(machine.members.expect_any(&name)); // else that ends by itself
            return None;
        }
        return Some(name);
    }
    let Failover { to, within, .. } = group.take_failover()?;
    let is_it = |member: &Member| to.is_none() || member.serves == to;
    let goes_on = || leads_on() && group.is_failing_over();
    let begun = begin(machine, store, &is_it, within.unwrap_or(CATCH_UP).min(CATCH_UP_MOST), &goes_on);
    if let Err(why) = &begun {
        group.failover_is_over();
        note!("cairn: a failover came to nothing, this machine leads on: {why}");
    }
    let name = begun.ok()?;
    if !group.commit_failover() {
        // A client has called it off while etcd was asked, and was told so.
        note!("cairn: a failover was called off, this machine leads on");
        drop(machine.members.expect_any(&name)); // else that ends by itself
        return None;
    }
    Some(name)
}

const CALLED_OFF: &str = "it was called off, or this machine does not lead any more";

/// Finds the successor, waits until it has nearly all, sees whether it answers, and has etcd name it.
fn begin(
    machine: &Machine,
    store: &Store,
    is_it: &dyn Fn(&Member) -> bool,
    within: Duration,
    goes_on: &dyn Fn() -> bool,
) -> Result<String, String> {
    let began = now();
    let found = loop {
        let others = machine.others().map_err(|error| error.to_string())?;
        if !goes_on() {
            return Err(CALLED_OFF.to_owned());
        }
        let found = successor(store, others.iter().filter(|member| is_it(member)));
        match found {
            Ok((found, behind)) if behind <= BEHIND => break found.clone(),
            Ok((found, behind)) if began.elapsed() >= within => {
                return Err(format!(
                    "{} lacks {behind} records, and does not get them fast enough; ask again when fewer are written",
                    found.name
                ));
            }
            Ok(_) => std::thread::sleep(LOOK),
            Err(why) => return Err(why),
        }
    };
    // Where nothing is written, one that hangs lacks nothing.
    let limit = within.clamp(LEAST, ANSWERS);
    let trust = Trusted { greeting_timeout: limit, send_timeout: limit, ..machine.trust.clone() };
    if let Err(why) = ::log::look(&found.address, &trust, limit) {
        return Err(format!("{} does not answer: {why}; see what `cairn group status` shows", found.name));
    }
    if !goes_on() {
        return Err(CALLED_OFF.to_owned());
    }
    machine.members.expect_successor(&found.name, NAMED.max(machine.ttl)).map_err(|error| error.to_string())?;
    Ok(found.name)
}

/// The one that lacks least, and how many records; or why none can lead.
fn successor<'a>(store: &Store, members: impl Iterator<Item = &'a Member>) -> Result<(&'a Member, u64), String> {
    let status = store.leader_status().map_err(|error| error.to_string())?;
    let (mut best, mut why) = (None, "no such machine is announced; see what `cairn group status` shows".to_owned());
    for member in members {
        let copy = status.copies.iter().find(|copy| copy.live && copy.what == member.address);
        match (copy, &member.trouble) {
            (None, _) => why = format!("{} takes no part: its replica is away", member.name),
            (_, Some(trouble)) => why = format!("{} cannot lead: {trouble}", member.name),
            (Some(copy), None) => {
                let behind = status.next.saturating_sub(copy.through + 1);
                if best.as_ref().is_none_or(|(_, least)| behind < *least) {
                    best = Some((member, behind));
                }
            }
        }
    }
    best.ok_or(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_was_given_up_is_not_carried_out() {
        let (asks, asked) = mpsc::channel();
        let why = asking_within(asks.clone(), Duration::ZERO)("one:7400").unwrap_err();
        assert!(why.contains("has not begun") && why.contains("cairn group status"), "{why}");
        assert!(next(&asked).is_none(), "it is carried out behind the error");

        // It does not stand in the way of one that is waited for.
        asking_within(asks.clone(), Duration::ZERO)("one:7400").unwrap_err();
        std::thread::scope(|scope| {
            let two = scope.spawn(|| asking_within(asks, Duration::from_secs(60))("two:7400"));
            let mut taken = None;
            while taken.is_none() && !two.is_finished() {
                taken = next(&asked);
                std::thread::yield_now();
            }
            let taken = taken.expect("the request that is waited for is dropped");
            assert_eq!(taken.address, "two:7400");
            taken.answer.send(Ok(())).unwrap();
            two.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_machine_that_leads_no_more_says_so() {
        let (asks, asked) = mpsc::channel();
        drop(asked);
        let why = asking(asks)("one:7400").unwrap_err();
        assert!(why.contains("does not lead any more"), "{why}");
    }

    /// Before or after the one that asked has seen it.
    #[test]
    fn a_request_that_is_dropped_as_its_time_is_over_was_late() {
        let (asks, asked) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let Asked { until, answer, .. } = asked.recv().unwrap();
                while now() < until {
                    std::thread::yield_now();
                }
                drop(answer);
            });
            let why = asking_within(asks, Duration::from_millis(20))("one:7400").unwrap_err();
            assert!(why.contains("has not begun") && why.contains("ask again"), "{why}");
        });
    }
}
