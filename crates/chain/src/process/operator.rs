//! A chain as an operator sees it, and changes it.
//!
//! Which replicas are in is said by the view at etcd, and what is said of a machine by the machine itself. A change is a next view, by compare-and-swap like all others; so it is right at every moment, whatever the members
//! do meanwhile.

use std::time::Duration;

use membership::{Access, Member, Members, Swapped};

use super::report::{Report, ask};
use super::{Failure, Text, VIEW, by_machine};
use crate::View;

/// Between two looks at a chain that is to change.
const PAUSE: Duration = Duration::from_millis(100);
/// Looks that a change is tried after: each failed since a member, or another operator, was faster.
const ATTEMPTS: usize = 20;
/// Sessions of operators have this name; no machine does.
const OPERATOR: &str = "operator";

/// The way to a chain.
#[derive(Debug)]
pub struct Chain {
    nodes: Members,
    fabric: fabric::Options,
    prefix: String,
    most: Duration,
}

/// A machine of a chain, and what it says.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Which.
    pub machine: u32,
    /// Where others reach it, if it is announced.
    pub address: Option<String>,
    /// Where clients reach it.
    pub serves: Option<String>,
    /// What it says, or why it says nothing.
    pub report: Result<Report, String>,
}

/// A chain at one moment.
#[derive(Clone, Debug)]
pub struct Look {
    /// The replicas that are in.
    pub view: View,
    /// Machines that were taken out, and do not join by themselves.
    pub removed: Vec<u32>,
    /// Members in their order, then all others that are announced.
    pub machines: Vec<Seen>,
}

/// What the loss of a machine would mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// It has no part in the chain.
    Unchanged,
    /// The others have all that was acknowledged, and go on when its lease has ended.
    GoesOn {
        /// The machine that leads then, if it is the head that is lost.
        leads: Option<u32>,
        /// How many more of those that serve now may be lost.
        more: usize,
    },
    /// No other machine serves: the chain stands still until this one, or another member, is back.
    Stops,
}

impl Chain {
    /// The chain whose keys at this etcd are below `prefix`. An answer of etcd, or of a machine, is waited for `most`.
    ///
    /// # Errors
    /// etcd cannot be reached; there is no chain.
    pub fn find(
        etcd: impl Into<Access>,
        prefix: &str,
        fabric: fabric::Options,
        most: Duration,
    ) -> Result<Self, Failure> {
        let prefix = prefix.trim_end_matches('/').to_owned();
        let nodes = Members::connect(etcd, &format!("{prefix}/nodes"), most.max(Duration::from_secs(1)))?;
        let fabric = fabric::Options { greeting_timeout: most, send_timeout: most, ..fabric };
        let chain = Self { nodes, fabric, prefix, most };
        chain.text()?;
        Ok(chain)
    }

    fn text(&self) -> Result<Text, Failure> {
        let held = self.nodes.held(VIEW)?.ok_or_else(|| Failure::NoChain { prefix: self.prefix.clone() })?;
        Text::from_bytes(&held.value)
    }

    /// How it is. Changes nothing.
    ///
    /// # Errors
    /// etcd does not answer. A machine that does not is no error.
    pub fn look(&self) -> Result<Look, Failure> {
        let (text, mut announced) = (self.text()?, by_machine(self.nodes.copies()?));
        let view = text.view();
        let mut all: Vec<(u32, Option<Member>)> =
            view.members.iter().map(|id| (id.machine, announced.remove(&id.machine))).collect();
        all.extend(announced.into_iter().map(|(machine, member)| (machine, Some(member))));
        let asked = |machine, member: Option<Member>| {
            let report = match &member {
                None => Err("it is not announced".to_owned()),
                Some(member) => ask(&member.address, &self.fabric, self.most),
            };
            let (address, serves) = member.map_or((None, None), |member| (Some(member.address), member.serves));
            let report = report.and_then(|report| {
                if report.prefix == self.prefix && report.id.machine == machine {
                    return Ok(report);
                }
                Err(format!("machine {} of {} answers there", report.id.machine, report.prefix))
            });
            Seen { machine, address, serves, report }
        };
        // All at once: those that are gone are waited for once.
        let machines = std::thread::scope(|threads| {
            let asking: Vec<_> =
                all.into_iter().map(|(machine, member)| threads.spawn(move || asked(machine, member))).collect();
            asking.into_iter().map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        Ok(Look { view, removed: text.out().to_vec(), machines })
    }

    /// Takes a machine out of the chain: it gives up its copy, and does not join by itself. It returns when another member serves without it. False: it was out before.
    ///
    /// # Errors
    /// The machine is not known; it is the last member, or the only one that serves; no member answers; [`Failure::Late`].
    pub fn remove(&self, machine: u32, wait: Duration) -> Result<bool, Failure> {
        let is_out = self.again(|| {
            let look = self.look()?;
            if look.seen(machine).is_none() && !look.removed.contains(&machine) {
                return Err(look.unknown(machine));
            }
            look.check_answers()?;
            if look.is_member(machine) {
                look.check_not_needed(machine)?;
            } else if look.removed.contains(&machine) {
                return Ok(Some(true));
            }
            let is_done = self.change(&look, |text| text.without(machine, look.view.f))?;
            Ok(is_done.then_some(false))
        })?;
        if is_out {
            return Ok(false);
        }
        self.until(wait, &format!("machine {machine} is out, and no other member serves without it"), |look| {
            !look.is_member(machine)
                && look.serving().any(|seen| seen.report.as_ref().is_ok_and(|r| r.view == Some(look.view.id.0)))
        })?;
        Ok(true)
    }

    /// Lets a machine join, which runs already, and returns when it is a member: a chain that is full gets longer, or, with `instead_of`, another member goes then. `tell` is told what it is
    /// doing. False: it was a member before.
    ///
    /// # Errors
    /// The machine is not known; it does not answer, or something else does; it cannot have the heap; no member answers; [`Failure::Late`].
    pub fn join(
        &self,
        machine: u32,
        instead_of: Option<u32>,
        wait: Duration,
        tell: &mut dyn FnMut(&Report),
    ) -> Result<bool, Failure> {
        let (was_member, f) = self.again(|| {
            let look = self.look()?;
            if let Some(old) = instead_of.filter(|old| !look.is_member(*old) || *old == machine) {
                return Err(Failure::NoMember { machine: old, members: look.members() });
            }
            let Some(seen) = look.seen(machine) else { return Err(look.unknown(machine)) };
            look.check_answers()?;
            self.check_joiner(&look, seen)?;
            let was_member = look.is_member(machine);
            let may_join = look.view.has_room() && !look.removed.contains(&machine) && instead_of.is_none();
            let is_done = was_member || may_join || self.change(&look, |text| Some(text.letting_in(machine)))?;
            Ok(is_done.then_some((was_member, look.view.f)))
        })?;
        let what = format!("machine {machine} has not joined");
        self.until(wait, &what, |look| {
            if let Some(Ok(report)) = look.seen(machine).map(|seen| &seen.report) {
                tell(report);
            }
            look.is_member(machine) && look.serving().any(|seen| seen.machine == machine)
        })?;
        if let Some(old) = instead_of {
            self.again(|| {
                let look = self.look()?;
                look.check_not_needed(old)?;
                Ok(self.change(&look, |text| text.without(old, f))?.then_some(()))
            })?;
        }
        Ok(!was_member || instead_of.is_some())
    }

    /// What answers there is the machine that it is to be. That it can have the heap it proves by taking it.
    fn check_joiner(&self, look: &Look, seen: &Seen) -> Result<(), Failure> {
        let Some(address) = &seen.address else { return Err(look.unknown(seen.machine)) };
        let (machine, address) = (seen.machine, address.clone());
        let report = match ask(&address, &self.fabric, self.most) {
            Err(why) => return Err(Failure::NoAnswer { machine, address, why }),
            Ok(report) => report,
        };
        if report.prefix != self.prefix || report.id.machine != machine {
            let (prefix, found, of) = (self.prefix.clone(), report.id.machine, report.prefix);
            return Err(Failure::OtherAnswers { machine, address, prefix, found, of });
        }
        Ok(())
    }

    /// Replaces the view by the next one, if it is still the one that was looked at. False: look again.
    fn change(&self, look: &Look, next: impl FnOnce(&Text) -> Option<Text>) -> Result<bool, Failure> {
        let register = self.nodes.register(VIEW, OPERATOR)?;
        let held = register.read()?.ok_or_else(|| Failure::NoChain { prefix: self.prefix.clone() })?;
        let text = Text::from_bytes(&held.value)?;
        let next = if text.view().id == look.view.id { next(&text) } else { None };
        match next {
            Some(next) => Ok(register.swap(held.revision, next.to_bytes()?)? == Swapped::Yes),
            None => Ok(false),
        }
    }

    /// Until it is done, or the view has changed too often meanwhile.
    fn again<T>(&self, mut attempt: impl FnMut() -> Result<Option<T>, Failure>) -> Result<T, Failure> {
        for _ in 0..ATTEMPTS {
            if let Some(done) = attempt()? {
                return Ok(done);
            }
        }
        Err(Failure::Chain(format!("the view of {} changes all the time", self.prefix)))
    }

    fn until(&self, wait: Duration, what: &str, mut is_so: impl FnMut(&Look) -> bool) -> Result<(), Failure> {
        let end = crate::clock::now().0.saturating_add(wait.as_nanos() as u64);
        loop {
            match self.look() {
                Ok(look) if is_so(&look) => return Ok(()),
                // etcd is away for a moment.
                Ok(_) | Err(Failure::Membership(membership::Error::Unreachable { .. })) => {}
                Err(error) => return Err(error),
            }
            if crate::clock::now().0 >= end {
                return Err(Failure::Late { what: what.to_owned(), seconds: wait.as_secs() });
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl Look {
    /// A machine, if it is a member or announced.
    #[must_use]
    pub fn seen(&self, machine: u32) -> Option<&Seen> {
        self.machines.iter().find(|seen| seen.machine == machine)
    }

    /// True of a machine in the view.
    #[must_use]
    pub fn is_member(&self, machine: u32) -> bool {
        self.view.members.iter().any(|id| id.machine == machine)
    }

    /// Members that answer, and work.
    pub fn serving(&self) -> impl Iterator<Item = &Seen> {
        let serves = |seen: &&Seen| {
            let works = |report: &Report| report.serves() && self.view.contains(report.id);
            self.is_member(seen.machine) && seen.report.as_ref().is_ok_and(works)
        };
        self.machines.iter().filter(serves)
    }

    /// If this machine were lost now.
    #[must_use]
    pub fn outlook(&self, machine: u32) -> Outlook {
        if !self.is_member(machine) {
            return Outlook::Unchanged;
        }
        let left: Vec<u32> = self.serving().map(|seen| seen.machine).filter(|other| *other != machine).collect();
        let is_head = self.view.head().is_some_and(|head| head.machine == machine);
        match left[..] {
            [] => Outlook::Stops,
            [first, ..] => Outlook::GoesOn { leads: is_head.then_some(first), more: left.len() - 1 },
        }
    }

    fn members(&self) -> String {
        list(self.view.members.iter().map(|id| id.machine.to_string()))
    }

    fn unknown(&self, machine: u32) -> Failure {
        let announced = self.machines.iter().filter(|seen| seen.address.is_some()).map(|seen| seen.machine.to_string());
        Failure::Unknown { machine, members: self.members(), announced: list(announced) }
    }

    /// A member that answers has said that the secret is the chain's.
    fn check_answers(&self) -> Result<(), Failure> {
        let members: Vec<&Seen> = self.machines.iter().filter(|seen| self.is_member(seen.machine)).collect();
        if members.iter().any(|seen| seen.report.is_ok()) {
            return Ok(());
        }
        Err(Failure::Silent { members: list(members.into_iter().map(Seen::why)) })
    }

    fn check_not_needed(&self, machine: u32) -> Result<(), Failure> {
        if self.view.members.len() == 1 {
            return Err(Failure::LastMember { machine });
        }
        if self.outlook(machine) != Outlook::Stops {
            return Ok(());
        }
        let others = self.machines.iter().filter(|seen| seen.machine != machine && self.is_member(seen.machine));
        Err(Failure::Needed { machine, others: list(others.map(Seen::why)) })
    }
}

impl Seen {
    /// Why it does not serve.
    fn why(&self) -> String {
        let machine = self.machine;
        match &self.report {
            Ok(Report { stopped: Some(why), .. }) => format!("{machine} has stopped: {why}"),
            Ok(report) => format!("{machine} is {}", format!("{:?}", report.stage).to_lowercase()),
            Err(why) => format!("{machine}: {why}"),
        }
    }
}

fn list(words: impl Iterator<Item = String>) -> String {
    let words: Vec<String> = words.collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mode, ReplicaId, Stage, ViewId};

    fn id(machine: u32) -> ReplicaId {
        ReplicaId { machine, incarnation: 0 }
    }

    fn seen(machine: u32, stage: Option<Stage>) -> Seen {
        let report = |stage| Report {
            prefix: "/p".into(),
            id: id(machine),
            stage,
            view: Some(4),
            last: 1,
            executed: 1,
            acknowledged: 1,
            has_lease: true,
            reads: true,
            joiner: None,
            stopped: None,
        };
        Seen { machine, address: None, serves: None, report: stage.map(report).ok_or_else(|| "gone".to_owned()) }
    }

    fn look(members: &[u32], machines: Vec<Seen>) -> Look {
        let members = members.iter().map(|&machine| id(machine)).collect();
        let view = View { id: ViewId(4), members, f: 2, mode: Mode::Values };
        Look { view, removed: vec![], machines }
    }

    #[test]
    fn what_a_loss_means() {
        let serving = |machine| seen(machine, Some(Stage::Serving));
        let all = look(&[3, 1, 2], vec![serving(3), serving(1), serving(2), seen(4, Some(Stage::Void))]);
        assert_eq!(all.outlook(3), Outlook::GoesOn { leads: Some(1), more: 1 });
        assert_eq!(all.outlook(2), Outlook::GoesOn { leads: None, more: 1 });
        assert_eq!((all.outlook(4), all.outlook(9)), (Outlook::Unchanged, Outlook::Unchanged));
        let one_away = look(&[3, 1, 2], vec![serving(3), seen(1, None), serving(2)]);
        assert_eq!(one_away.outlook(3), Outlook::GoesOn { leads: Some(2), more: 0 });
        let alone = look(&[3, 1], vec![serving(3), seen(1, Some(Stage::Recovering))]);
        assert_eq!(alone.outlook(3), Outlook::Stops);
        assert_eq!(alone.outlook(1), Outlook::GoesOn { leads: None, more: 0 });
    }

    #[test]
    fn who_is_needed_is_not_taken_out() {
        let alone = look(&[3, 1], vec![seen(3, Some(Stage::Serving)), seen(1, None)]);
        let needed = alone.check_not_needed(3).unwrap_err().to_string();
        assert!(needed.contains("machine 3 is needed") && needed.contains("1: gone"), "{needed}");
        assert!(alone.check_not_needed(1).is_ok());
        let last = look(&[3], vec![seen(3, Some(Stage::Serving))]);
        assert!(matches!(last.check_not_needed(3), Err(Failure::LastMember { machine: 3 })));
        let silent = look(&[3], vec![seen(3, None)]);
        assert!(matches!(silent.check_answers(), Err(Failure::Silent { .. })) && last.check_answers().is_ok());
    }

    /// A copy that was voided is not the one that the view names.
    #[test]
    fn who_has_another_copy_than_the_view_names_does_not_serve() {
        let mut looked = look(&[3], vec![seen(3, Some(Stage::Serving))]);
        looked.view.members[0].incarnation = 1;
        assert_eq!(looked.serving().count(), 0);
    }
}
