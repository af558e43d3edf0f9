//! Members go and come.

use super::{A, B, Bench, C, J, X, appends, entry, proposes, record, retires, rule, says, ships, view};
use crate::failpoints::{Failpoints, Step};
use crate::simulate::service::{Answer, Ask, Service};
use crate::{Body, Command, Event, Message, ReplicaId, TransactionId, ViewId};

fn ships_part(commands: &[Command]) -> bool {
    commands.iter().any(|command| matches!(command, Command::ShipPart { .. }))
}

/// The image is one part.
fn whole(through: u64) -> Body {
    Body::Part { through, part: 0, last: true, image: vec![1] }
}

fn part(through: u64, part: u32) -> Body {
    Body::Part { through, part, last: part == 2, image: vec![1] }
}

/// A process that was paused wakes in an old view, and forwards what no other replica has.
#[test]
fn messages_of_an_old_view_are_not_taken() {
    rule(Step::RefuseOldViews, |failpoints| {
        let mut c = Bench::member_of(C, &view(1, &[A, C]), failpoints);
        c.install(&view(2, &[C]));
        let old = Message { view: ViewId(1), from: A, to: C, body: Body::Records(vec![record(1, X)]) };
        appends(&c.step(Event::Message(old))) == 0
    });
}

#[test]
fn a_message_of_a_newer_view_leads_to_the_service() {
    let mut c = Bench::member(C, Failpoints(None));
    let newer = Message { view: ViewId(2), from: B, to: C, body: Body::Records(vec![record(1, X)]) };
    assert_eq!(c.step(Event::Message(newer)), [Command::FetchView]);
}

/// A tail to which one joins, and which has proposed it.
fn proposed(failpoints: Failpoints) -> Bench {
    let mut c = Bench::member(C, failpoints);
    c.hear(J, Body::Join);
    assert!(proposes(&c.hear(J, Body::Have(0))));
    c
}

/// The view may be installed, and the new tail lack what the old one acknowledges.
#[test]
fn a_tail_acknowledges_nothing_while_its_proposal_is_open() {
    rule(Step::HoldDuringProposal, |failpoints| {
        let mut c = proposed(failpoints);
        c.hear(B, Body::Records(vec![record(1, X)]));
        let early = says(&c.run(), &Body::Acknowledged(1));
        let came_to_nothing = Event::Proposed { proposal: ViewId(2), view: view(2, &[B, C]) };
        c.step(came_to_nothing);
        !early && says(&c.step(Event::LeasesEnded(ViewId(2))), &Body::Acknowledged(1))
    });
}

/// An earlier proposal of the same tail is not the one that is open.
#[test]
fn the_outcome_of_another_proposal_decides_nothing() {
    let mut c = proposed(Failpoints(None));
    c.hear(B, Body::Records(vec![record(1, X)]));
    c.run();
    let commands = c.step(Event::Proposed { proposal: ViewId(1), view: view(1, &[A, B, C]) });
    assert!(!says(&commands, &Body::Acknowledged(1)), "{commands:?}");
}

/// A replica that is removed may read under its lease, and would not see it.
#[test]
fn a_new_tail_acknowledges_when_earlier_leases_have_ended() {
    rule(Step::AwaitLeases, |failpoints| {
        let mut b = Bench::member(B, failpoints);
        b.hear(A, Body::Records(vec![record(1, X)]));
        b.run();
        let early = says(&b.install(&view(2, &[A, B])), &Body::Acknowledged(1));
        let stale = says(&b.step(Event::LeasesEnded(ViewId(1))), &Body::Acknowledged(1));
        !early && !stale && says(&b.step(Event::LeasesEnded(ViewId(2))), &Body::Acknowledged(1))
    });
}

/// A process starts again, reads the view, acknowledges; and what it had proposed before is installed.
#[test]
fn a_proposal_of_a_process_that_is_gone_is_not_installed() {
    rule(Step::GuardSession, |failpoints| {
        let mut service = Service::new(view(1, &[A, B, C]), !failpoints.skips(Step::GuardSession));
        service.answer(0, 2, 1, Ask::Open);
        let late = Ask::Propose(view(2, &[A, B, C, J]));
        let read = service.answer(1, 2, 2, Ask::Open);
        service.answer(2, 2, 1, late);
        matches!(read, Some(Answer::Opened(_))) && service.view.id == ViewId(1)
    });
}

#[test]
fn a_joiner_is_proposed_when_it_is_whole() {
    rule(Step::CountWhenComplete, |failpoints| {
        let mut c = Bench::member(C, failpoints);
        c.hear(B, Body::Records(vec![record(1, X)]));
        c.run();
        let early = proposes(&c.hear(J, Body::Join));
        !early && proposes(&c.hear(J, Body::Have(1)))
    });
}

/// While it waits for the joiner the tail goes on to execute, and to show that to readers.
#[test]
fn a_joiner_is_proposed_when_it_has_what_readers_were_shown() {
    rule(Step::ShownToReaders, |failpoints| {
        let mut c = Bench::member(C, failpoints);
        c.hear(J, Body::Join);
        c.hear(B, Body::Records((1..=9).map(|n| record(n, X)).collect()));
        c.barrier();
        c.execution();
        c.execution(); // and acknowledged: nothing waits for the joiner yet
        let mut early = proposes(&c.hear(J, Body::Have(1)));
        c.run();
        early |= c.replica.progress().acknowledged != 2 || proposes(&c.hear(J, Body::Have(2)));
        !early && proposes(&c.hear(J, Body::Have(9)))
    });
}

/// A member that was behind has acknowledged it, and is gone; here a reader still holds up the execution.
#[test]
fn a_joiner_is_proposed_when_it_has_what_another_tail_acknowledged() {
    let read = crate::ReadId(1);
    let mut b = Bench::member_of(B, &view(1, &[A, B]), Failpoints(None));
    assert!(b.step(Event::Read { read, objects: vec![X] }).contains(&Command::Read(read)));
    b.install(&view(2, &[A, B, C]));
    b.hear(A, Body::Records(vec![record(1, X)]));
    b.run();
    b.hear(C, Body::CleanUp(1));
    b.install(&view(3, &[A, B]));
    b.step(Event::LeasesEnded(ViewId(3)));
    b.hear(J, Body::Join);
    let early = proposes(&b.hear(J, Body::Have(0)));
    assert_eq!((early, b.replica.progress().executed, b.replica.progress().acknowledged), (false, 0, 1));
    assert!(proposes(&b.hear(J, Body::Have(1))));
}

#[test]
fn a_joiner_with_an_earlier_image_is_refused() {
    // Its first process has sent one at 0.
    let mut c = Bench::start(crate::Found { entries: vec![entry(1, X)], ..crate::Found::new(C) }, Failpoints(None));
    c.install(&view(1, &[A, B, C]));
    c.barrier();
    c.step(Event::Recovered);
    c.run();
    c.step(Event::LeasesEnded(ViewId(1)));
    assert!(ships_part(&c.hear(J, Body::Join)));
    let commands = c.hear(J, Body::Have(0));
    assert!(says(&commands, &Body::Refused) && !proposes(&commands), "{commands:?}");
    assert!(says(&c.hear(J, Body::Join), &Body::Refused), "whatever of it is still under way");
}

/// It starts again on a whole copy, before it has all: nothing goes on from there.
#[test]
fn a_joiner_that_starts_again_is_refused() {
    let mut c = Bench::member(C, Failpoints(None));
    c.hear(J, Body::Join);
    c.hear(B, Body::Records(vec![record(1, X)]));
    c.run();
    c.hear(J, Body::Have(0));
    c.hear(B, Body::Records(vec![record(2, X)]));
    assert!(!says(&c.run(), &Body::Acknowledged(2)), "the joiner is waited for");
    let mut j = Bench::start(crate::Found::new(J), Failpoints(None));
    let asks = j.install(&view(1, &[A, B, C]));
    let [Command::Send(ask)] = &asks[..] else { panic!("{asks:?}") };
    let commands = c.step(Event::Message(ask.clone()));
    assert!(says(&commands, &Body::Refused) && says(&commands, &Body::Acknowledged(2)), "{commands:?}");
}

/// Its medium hangs, or the way to it is cut: it says what it has, and never more.
#[test]
fn a_joiner_that_does_not_get_on_is_refused() {
    let mut c = Bench::member(C, Failpoints(None));
    c.hear(J, Body::Join);
    c.hear(B, Body::Records(vec![record(1, X)]));
    c.run();
    let refused = (0..100).any(|_| {
        c.hear(J, Body::Have(0));
        says(&c.step(Event::Tick), &Body::Refused)
    });
    assert!(refused && c.replica.progress().acknowledged == 1);
}

/// The image takes longer than the time after which the joiner asks again.
#[test]
fn a_joiner_that_asks_again_gets_no_other_image() {
    let mut c = Bench::member(C, Failpoints(None));
    assert!(ships_part(&c.hear(J, Body::Join)));
    c.hear(B, Body::Records(vec![record(1, X)]));
    c.run();
    assert!(!ships_part(&c.hear(J, Body::Join)));
    assert!(ships(&c.hear(J, Body::Have(0)), 1));
    assert!(proposes(&c.hear(J, Body::Have(1))));
}

/// A message of the copy before is late.
#[test]
fn the_copy_before_does_not_join_again() {
    let mut c = Bench::member(C, Failpoints(None));
    let next = ReplicaId { incarnation: J.incarnation + 1, ..J };
    assert!(ships_part(&c.hear(J, Body::Join)));
    assert!(ships_part(&c.hear(next, Body::Join)), "it was voided meanwhile");
    assert!(!ships_part(&c.hear(J, Body::Join)));
    assert!(proposes(&c.hear(next, Body::Have(0))));
}

/// What the tail and the joiner say to each other, but for parts of another number than these, until they have no more to say; true if the joiner is proposed.
fn talk(c: &mut Bench, j: &mut Bench, mut to_j: Vec<Command>, parts: std::ops::Range<u32>) -> bool {
    let mut is_proposed = false;
    for _ in 0..100 {
        is_proposed |= proposes(&to_j);
        let mut to_c = Vec::new();
        for command in std::mem::take(&mut to_j) {
            match command {
                Command::Ship { to: J, first, last, .. } => {
                    to_c.extend(j.hear(C, Body::Records((first..=last).map(|n| record(n, X)).collect())));
                }
                Command::ShipPart { through, part: n, .. } if parts.contains(&n) => {
                    to_c.extend(j.hear(C, part(through, n)));
                }
                Command::Send(message) if message.to == J => to_c.extend(j.step(Event::Message(message))),
                _ => {}
            }
        }
        to_c.extend(j.run());
        for command in to_c {
            if let Command::Send(message) = command
                && message.to == C
            {
                to_j.extend(c.step(Event::Message(message)));
            }
        }
        to_j.extend(c.run());
        if to_j.is_empty() {
            return is_proposed;
        }
    }
    panic!("they go on for ever: {:?} {:?}", c.replica.progress(), j.replica.progress());
}

/// A copy that is nothing yet, in view 1.
fn void(failpoints: Failpoints) -> Bench {
    let mut j = Bench::start(crate::Found { whole: false, ..crate::Found::new(J) }, failpoints);
    j.run();
    j.install(&view(1, &[A, B, C]));
    j
}

/// Records come faster than a joiner can say that it has them, and each of its parts takes longer than a full queue.
#[test]
fn a_joiner_of_a_busy_chain_is_proposed() {
    for between in [0, 1, 100] {
        let (mut c, mut j) = (Bench::member(C, Failpoints(None)), void(Failpoints(None)));
        let mut heard = vec![c.hear(J, Body::Join)];
        let is_proposed = (0..1000).any(|_| {
            // What was said before comes late.
            for _ in 0..between {
                heard.push(busy(&mut c));
            }
            let said = heard.drain(..).flatten().collect();
            heard.push(busy(&mut c));
            talk(&mut c, &mut j, said, 0..3)
        });
        assert!(is_proposed, "{between}: {:?} {:?}", c.replica.progress(), j.replica.progress());
    }
}

/// It was on its way when the joiner executed a record that has changed what is in it.
#[test]
fn a_part_of_before_a_record_is_not_taken() {
    rule(Step::PartBeforeRecords, |failpoints| {
        let mut j = void(failpoints);
        j.hear(C, part(0, 0));
        j.hear(C, Body::Records(vec![record(1, X)]));
        j.barrier();
        let restores = |commands: &[Command]| commands.iter().any(|c| matches!(c, Command::Restore(_)));
        let half = j.hear(C, part(0, 1));
        let asks = Body::Copied { part: Some(1), through: 1, retired: 0 };
        !restores(&half) && says(&half, &asks) && restores(&j.hear(C, part(1, 1)))
    });
}

/// Another part may be of before what this one shows.
#[test]
fn a_copy_is_whole_when_all_that_its_parts_show_is_executed() {
    rule(Step::WholeBehindParts, |failpoints| {
        let mut j = void(failpoints);
        (0..3).for_each(|n| drop(j.hear(C, part(u64::from(n), n))));
        let is_whole = |commands: &[Command]| commands.iter().any(|c| matches!(c, Command::Whole(_)));
        let mut early = is_whole(&j.run());
        j.hear(C, Body::Records(vec![record(1, X)]));
        early |= is_whole(&j.run());
        j.hear(C, Body::Records(vec![record(2, X)]));
        !early && is_whole(&j.run())
    });
}

/// Its records have the id of the copy that comes next.
#[test]
fn half_a_copy_is_given_up_with_its_records() {
    rule(Step::VoidHalf, |failpoints| {
        let half = crate::Found { whole: false, entries: vec![entry(5, X)], ..crate::Found::new(J) };
        let mut j = Bench::start(half, failpoints);
        j.run();
        j.replica.id().incarnation == J.incarnation + 1
    });
}

/// A replica that gets parts holds nothing up: the tail acknowledges, and both retire.
#[test]
fn the_chain_goes_on_while_one_gets_parts() {
    let (mut c, mut j) = (Bench::member(C, Failpoints(None)), void(Failpoints(None)));
    let first = c.hear(J, Body::Join);
    assert!(!talk(&mut c, &mut j, first, 0..1));
    for n in 1..=100 {
        let commands = c.hear(B, Body::Records(vec![record(n, X)]));
        assert!(!ships(&commands, n) && !ships(&c.barrier(), n), "the next part may be of before it");
        let commands = c.run();
        assert!(ships(&commands, n) && says(&commands, &Body::Acknowledged(n)), "{commands:?}");
        talk(&mut c, &mut j, commands, 0..0);
        let mut commands = c.step(Event::Tick);
        assert!(!says(&commands, &Body::Refused), "{n}: it gets on");
        commands.extend(c.run());
        talk(&mut c, &mut j, commands, 0..0);
    }
    let (tail, joiner) = (c.replica.progress(), j.replica.progress());
    assert_eq!((tail.acknowledged, joiner.executed), (100, 100));
    assert!(tail.retired > 90 && joiner.retired > 90, "{tail:?} {joiner:?}");
}

#[test]
fn a_part_that_is_lost_is_sent_again() {
    let mut c = Bench::member(C, Failpoints(None));
    c.hear(J, Body::Join);
    let asks = Body::Copied { part: Some(1), through: 0, retired: 0 };
    assert!(ships_part(&c.hear(J, asks.clone())));
    assert!(!ships_part(&c.hear(J, asks.clone())), "it may be on its way");
    let again = (0..20).any(|_| {
        let tick = c.step(Event::Tick);
        assert!(!says(&tick, &Body::Refused));
        ships_part(&c.hear(J, asks.clone()))
    });
    assert!(again);
}

/// The head has as many in flight as it may, and the tail executes them.
fn busy(c: &mut Bench) -> Vec<Command> {
    let progress = c.replica.progress();
    let most = progress.acknowledged + crate::IN_FLIGHT_MAX as u64;
    let mut commands = c.hear(B, Body::Records((progress.last + 1..=most).map(|n| record(n, X)).collect()));
    commands.extend(c.run());
    commands
}

/// A record is ready whenever one is executed.
#[test]
fn a_tail_that_always_executes_makes_an_image() {
    let mut c = Bench::member(C, Failpoints(None));
    c.hear(B, Body::Records(vec![record(1, X), record(2, X)]));
    c.barrier();
    assert!(!ships_part(&c.hear(J, Body::Join)), "half a record is executed");
    let commands = c.execution();
    let at = |wanted: fn(&Command) -> bool| commands.iter().position(wanted);
    let made = at(|c| matches!(c, Command::ShipPart { through: 1, .. }));
    assert!(made.is_some() && made < at(|c| *c == Command::Execute(2)), "{commands:?}");
}

/// While a proposal that names it may be carried out, a whole copy stays whole.
#[test]
fn a_copy_that_is_no_member_is_voided_on_the_tails_word_alone() {
    let mut found = crate::Found::new(J);
    found.retired = 5;
    let mut j = Bench::start(found, Failpoints(None));
    let asks = j.install(&view(1, &[A, B, C]));
    assert!(says(&asks, &Body::Restarted) && !asks.iter().any(|c| matches!(c, Command::Void(_))), "{asks:?}");
    assert!(j.hear(C, Body::Refused).iter().any(|c| matches!(c, Command::Void(_))));

    let mut c = proposed(Failpoints(None));
    assert!(!says(&c.hear(J, Body::Restarted), &Body::Refused));
}

fn is_void(command: &Command) -> bool {
    matches!(command, Command::Void(_))
}

#[test]
fn the_note_that_a_copy_is_void_comes_before_it_is_erased() {
    rule(Step::VoidFirst, |failpoints| {
        let mut b = Bench::member(B, failpoints);
        let commands = b.install(&view(2, &[A, C]));
        commands.iter().any(is_void) && !commands.contains(&Command::Erase) && b.barrier().contains(&Command::Erase)
    });
}

/// A late proposal of the old copy names the old copy: the new one does not count by it.
#[test]
fn a_voided_copy_has_another_id() {
    rule(Step::NewIncarnation, |failpoints| {
        let mut b = Bench::member(B, failpoints);
        b.install(&view(2, &[A, C]));
        b.run();
        b.replica.id() == ReplicaId { machine: B.machine, incarnation: 1 }
            && b.install(&view(3, &[A, C, B])).is_empty()
            && b.replica.serves().is_none()
    });
}

#[test]
fn a_part_is_of_one_number() {
    rule(Step::PartAtOneNumber, |failpoints| {
        let mut c = Bench::member(C, failpoints);
        c.hear(B, Body::Records(vec![record(1, X)]));
        c.barrier();
        let half = ships_part(&c.hear(J, Body::Join));
        !half && ships_part(&c.execution())
    });
}

/// What transactions at a head that is the tail, too, have changed is no record's yet.
#[test]
fn a_part_at_the_head_waits_for_its_transactions() {
    rule(Step::PartAtOneNumber, |failpoints| {
        let mut a = Bench::member_of(A, &view(1, &[A]), failpoints);
        assert!(a.lock(1, 0, &[], &[X]));
        let half = ships_part(&a.hear(J, Body::Join));
        let admits = a.lock(2, 1, &[], &[crate::Object(9)]);
        a.step(Event::Commit(TransactionId(1)));
        !half && !admits && ships_part(&a.step(Event::Committed(1)))
    });
}

/// The joiner takes all of it for acknowledged.
#[test]
fn a_part_has_only_what_is_acknowledged() {
    let mut b = Bench::member(B, Failpoints(None));
    b.hear(A, Body::Records(vec![record(1, X)]));
    b.run();
    b.install(&view(2, &[A, B]));
    assert!(!ships_part(&b.hear(J, Body::Join)), "leases of an earlier view may be held");
    assert!(ships_part(&b.step(Event::LeasesEnded(ViewId(2)))));
}

#[test]
fn a_tail_keeps_what_a_joiner_lacks() {
    rule(Step::KeepForJoiner, |failpoints| {
        let mut c = Bench::member(C, failpoints);
        c.hear(J, Body::Join);
        c.hear(B, Body::Records(vec![record(1, X)]));
        let mut early = retires(&c.run());
        c.step(Event::Tick);
        early |= retires(&c.run());
        !early && retires(&c.hear(J, Body::Have(1)))
    });
}

/// From nothing to a member, step by step.
#[test]
fn a_copy_joins() {
    let found = crate::Found { whole: false, ..crate::Found::new(J) };
    let mut j = Bench::start(found, Failpoints(None));
    assert_eq!(j.run(), []);
    j.install(&view(1, &[A, B, C]));
    assert!(says(&j.step(Event::Tick), &Body::Join));
    let commands = j.hear(C, whole(4));
    assert!(commands.contains(&Command::Restore(vec![1])), "{commands:?}");
    let commands = j.barrier();
    assert!(commands.contains(&Command::Whole(4)) && !says(&commands, &Body::Have(4)), "{commands:?}");
    assert!(says(&j.barrier(), &Body::Have(4)));
    assert_eq!(appends(&j.hear(C, Body::Records(vec![record(5, X)]))), 1);
    assert!(says(&j.run(), &Body::Have(5)));
    assert!(j.replica.serves().is_none());
    j.install(&view(2, &[A, B, C, J]));
    assert!(j.replica.serves().is_some());
    assert!(says(&j.step(Event::LeasesEnded(ViewId(2))), &Body::Acknowledged(5)));
}
