//! A machine that leads: it serves until it is to stop, or does not lead any more.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use kv::{Steward, Store};
use membership::Leadership;
use server::group::{self, Group, View};
use server::{Config, Server};

use super::failure;
use super::machine::{Machine, Notice, resign};
use super::transfer::{self, Asked, asking};
use crate::failure::Failure;
use crate::output::note;

/// Between two looks at whether this machine still leads: reads ask for themselves.
const LOOK: Duration = Duration::from_millis(50);
/// What is being committed when this machine is to stop has so long to come to its end.
const FAREWELL: Duration = Duration::from_millis(200);
/// Between two looks at the other machines.
const OTHERS: Duration = Duration::from_millis(500);

/// Serves the store; true if it is to follow again, false if it is to stop. An error is one that a start again would meet, too.
pub fn lead(
    machine: &Machine,
    store: Store,
    leadership: Leadership,
    address: &str,
    notice: &mut Option<Notice>,
) -> Result<bool, Failure> {
    let store = Arc::new(store);
    let term = leadership.term();
    let view = view_of(machine, &store, term, &[]);
    let group = Arc::new(Group::new(false, view));
    let config = Config { group: Some(Arc::clone(&group)), ..machine.config.clone() };
    let tenure = leadership.tenure();
    let engine = Box::new(server::engine::Kv::elected(Arc::clone(&store), move || tenure.is_held()));
    let running = match Server::start(config, engine) {
        Ok(running) => running,
        // It may have lost the log meanwhile.
        Err(error @ server::Error::Engine(_)) => {
            note!("cairn: elected, and cannot lead: {error}");
            resign(leadership);
            return Ok(true);
        }
        Err(error) => return Err(failure(&machine.path, &error)),
    };
    let (asks, asked) = mpsc::channel();
    let steward = Steward::serve_with(&store, address, &machine.trust, asking(asks));
    let steward = steward.map_err(|error| machine.failure(&error))?;
    note!("cairn: leading with term {term}");
    note!("cairn: serving {}; what was acknowledged survives {}", machine.path.display(), survives(&store));

    let over = AtomicBool::new(false);
    let (why, goes_on) = std::thread::scope(|scope| {
        scope.spawn(|| look_after(machine, &store, &running, &group, term, notice, &over));
        let why = wait(machine, &store, &running, &group, &leadership, asked);
        group.step_down();
        over.store(true, Release);
        why
    });
    note!("cairn: not leading any more: {why}");
    if leadership.is_held() {
        std::thread::sleep(FAREWELL);
    }
    let is_fenced = store.check_leading().is_err();
    store.fence();
    // What closing says of a log that this machine has shut itself, in the words for one that another leader has taken over.
    let own = store.check_leading().err().filter(|_| !is_fenced).map(|error| error.to_string());
    // From here on nothing is acknowledged, and no read answered: the next one need not wait for what this machine has yet to end.
    resign(leadership);
    running.stop();
    drop(steward);
    drop(store);
    match running.join() {
        Ok(()) => {}
        Err(error) if own.is_some_and(|own| error.to_string().contains(&own)) => {
            note!("cairn: the store is left as it is, and recovered when it is opened next");
        }
        Err(error) => {
            // What is not closed is recovered; but the pool must be free.
            note!("cairn: the store was not closed, and is recovered at the next start: {error}");
        }
    }
    Ok(goes_on)
}

fn survives(store: &Store) -> &'static str {
    store.effective_durability().survives()
}

/// Until it does not lead any more; says why, and whether it may again. No other machine is waited for behind that: what asks for a transfer then is refused.
fn wait(
    machine: &Machine,
    store: &Store,
    running: &Server,
    group: &Group,
    leadership: &Leadership,
    asked: mpsc::Receiver<Asked>,
) -> (String, bool) {
    loop {
        if machine.is_stopped() || running.is_stopping() {
            return ("it is to stop".to_owned(), false);
        }
        if let Some(why) = leadership.lost_within(LOOK) {
            return (leadership.reason().unwrap_or_else(|| why.to_string()), true);
        }
        if let Err(error) = store.check_leading() {
            return (error.to_string(), true);
        }
        if let Some(name) = transfer::begun(machine, store, running, group, leadership, &asked) {
            return (format!("it leaves the leadership to {name}"), true);
        }
    }
}

/// Tells clients of the other machines, and has replicas looked for whose machines are there again.
fn look_after(
    machine: &Machine,
    store: &Store,
    running: &Server,
    group: &Group,
    term: u64,
    notice: &mut Option<Notice>,
    over: &AtomicBool,
) {
    // The leader before may have named this machine: it leads now, and any may behind it. By now this one may have named another, which stays.
    drop(machine.members.expect_any(&machine.me.name)); // else that ends by itself
    let mut known: Vec<String> = Vec::new();
    let mut rest = Duration::ZERO;
    while !over.load(Acquire) {
        std::thread::sleep(LOOK);
        rest = rest.saturating_sub(LOOK);
        if !rest.is_zero() {
            continue;
        }
        rest = OTHERS;
        let trouble = running.refuses_writes();
        let trouble = trouble.map(|why| if why.starts_with("full: ") { why } else { format!("stopped: {why}") });
        if let Some(notice) = notice.as_mut() {
            notice.tell(trouble.clone());
        }
        let Ok(others) = machine.others() else { continue };
        for member in others.iter().filter(|member| !known.contains(&member.address)) {
            store.expect_copy_at(&member.address);
        }
        let mut view = view_of(machine, store, term, &others);
        view.trouble = trouble;
        group.tell(view);
        known = others.into_iter().map(|member| member.address).collect();
    }
}

fn view_of(machine: &Machine, store: &Store, term: u64, others: &[membership::Member]) -> View {
    let mut view = machine.view();
    view.leader = machine.me.serves.clone();
    view.term = term;
    let Ok(status) = store.leader_status() else { return view };
    (view.commits, view.write_quorum) = (status.commits, status.write_quorum);
    let machine = |member: &membership::Member| {
        let copy = status.copies.iter().find(|copy| copy.live && copy.what == member.address);
        let behind = copy.map_or(status.next, |copy| status.next.saturating_sub(copy.through + 1));
        let one = group::Machine::new(member.serves.clone()?, copy.is_some(), behind);
        Some(one.in_trouble(member.trouble.clone()).speaking(copy.and_then(|copy| copy.wire)))
    };
    view.others = others.iter().filter_map(machine).collect();
    view
}
