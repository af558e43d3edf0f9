//! What clients have asked and been told, and whether a chain that loses nothing, doubles nothing, and has one order could have said so.
//!
//! Every object is a list, and a request appends its own id to some: so each list that is read shows all that was done to the object before.

use std::collections::{BTreeMap, BTreeSet};

use super::medium::{Cell, WORDS};
use crate::ViewId;

pub(super) const OBJECTS: u64 = 10;
pub(super) const CLIENTS: u64 = 4;
/// Cells of each client, and requests that it has under way.
pub(super) const WIDTH: u64 = 3;

/// A request: it appends to objects, and says how long others are.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) client: u64,
    pub(super) sequence: u64,
    pub(super) writes: Vec<u64>,
    pub(super) reads: Vec<u64>,
}

impl Request {
    pub(super) fn id(&self) -> u64 {
        id(self.client, self.sequence)
    }

    pub(super) fn cell(&self) -> u64 {
        OBJECTS + self.client * WIDTH + self.sequence % WIDTH
    }
}

pub(super) fn id(client: u64, sequence: u64) -> u64 {
    (client + 1) << 32 | sequence
}

pub(super) fn list(cell: &Cell) -> &[u64] {
    &cell[1..=(cell[0] as usize).min(WORDS - 1)]
}

/// Position of each append, then lengths of what was read.
pub(super) type Reply = Vec<u64>;

pub(super) struct Done {
    pub(super) request: Request,
    pub(super) first_asked: u64,
    pub(super) replied: Option<(u64, Reply)>,
}

pub(super) struct Seen {
    pub(super) begun: u64,
    pub(super) ended: u64,
    pub(super) lists: Vec<(u64, Vec<u64>)>,
}

#[derive(Default)]
pub(super) struct History {
    pub(super) requests: BTreeMap<u64, Done>,
    pub(super) reads: Vec<Seen>,
    /// Drawn for a request: by view, and in a view, which has one head, by time. The last counts, if any.
    pub(super) numbers: BTreeMap<u64, BTreeMap<(ViewId, u64), u64>>,
}

impl History {
    /// A client was told. It must not be told another thing later.
    pub(super) fn replied(&mut self, id: u64, now: u64, reply: Reply) -> Result<bool, String> {
        let Some(done) = self.requests.get_mut(&id) else { return Err(format!("a reply to no request, {id:x}")) };
        match &done.replied {
            Some((_, earlier)) if *earlier != reply => {
                Err(format!("request {id:x} was told {earlier:?}, and then {reply:?}"))
            }
            Some(_) => Ok(false),
            None => {
                done.replied = Some((now, reply));
                Ok(true)
            }
        }
    }

    /// Holds all of it against what the objects are in the end.
    pub(super) fn check(&self, cells: &[Cell]) -> Result<(), String> {
        let lists: Vec<&[u64]> = cells[..OBJECTS as usize].iter().map(list).collect();
        self.check_requests(&lists)?;
        self.check_order(&lists)?;
        self.check_reads(&lists)
    }

    fn check_requests(&self, lists: &[&[u64]]) -> Result<(), String> {
        for (object, list) in lists.iter().enumerate() {
            let distinct: BTreeSet<&u64> = list.iter().collect();
            if distinct.len() != list.len() {
                return Err(format!("object {object} has a request twice: {list:x?}"));
            }
        }
        for (id, done) in &self.requests {
            let at: Vec<Option<usize>> =
                done.request.writes.iter().map(|&o| lists[o as usize].iter().position(|have| have == id)).collect();
            if at.iter().any(Option::is_some) && at.iter().any(Option::is_none) {
                return Err(format!("request {id:x} is there in part: {at:?}"));
            }
            let Some((_, reply)) = &done.replied else { continue };
            if at.iter().any(Option::is_none) {
                return Err(format!("request {id:x} was acknowledged, and is lost: {done:?}", done = done.request));
            }
            let said = reply.iter().take(at.len());
            if !at.iter().zip(said).all(|(at, said)| *at == Some(*said as usize)) {
                return Err(format!("request {id:x} is at {at:?}, and was told {reply:?}"));
            }
        }
        Ok(())
    }

    /// Numbers give an order in which all could have run one after the other, and one that respects which request was answered before which began.
    fn check_order(&self, lists: &[&[u64]]) -> Result<(), String> {
        let number = |id: &u64| self.numbers.get(id).and_then(BTreeMap::last_key_value).map(|(_, n)| *n);
        for (object, list) in lists.iter().enumerate() {
            if !list.is_sorted_by_key(number) {
                return Err(format!("object {object} is not in the order of numbers: {list:x?}"));
            }
            for (at, id) in list.iter().enumerate() {
                let asked = self.requests.get(id).map_or(0, |done| done.first_asked);
                let earlier = |later: &u64| {
                    let told = self.requests.get(later).and_then(|done| done.replied.as_ref());
                    told.is_some_and(|(told, _)| *told < asked)
                };
                if let Some(later) = list[at..].iter().find(|later| earlier(later)) {
                    return Err(format!(
                        "object {object}: {id:x} began when {later:x} was acknowledged, and is before it"
                    ));
                }
            }
        }
        for (id, done) in &self.requests {
            let Some((_, reply)) = &done.replied else { continue };
            for (object, said) in done.request.reads.iter().zip(&reply[done.request.writes.len()..]) {
                let before = lists[*object as usize].iter().filter(|other| number(other) < number(id)).count() as u64;
                if before != *said {
                    return Err(format!("request {id:x} read {said} in object {object}; {before} have lower numbers"));
                }
            }
        }
        Ok(())
    }

    fn check_reads(&self, lists: &[&[u64]]) -> Result<(), String> {
        // The longest list of each object that a read had shown by then.
        let mut ended: Vec<(u64, u64, usize)> = Vec::new();
        for seen in &self.reads {
            for (object, list) in &seen.lists {
                let last = lists[*object as usize];
                if !last.starts_with(list) {
                    return Err(format!("a read of object {object} saw {list:x?}; it is {last:x?}"));
                }
                let told = |id: &u64| {
                    let told = self.requests.get(id).and_then(|done| done.replied.as_ref());
                    told.is_some_and(|(told, _)| *told < seen.begun)
                };
                if let Some(missed) = last[list.len()..].iter().find(|id| told(id)) {
                    let at = seen.begun;
                    return Err(format!(
                        "a read of object {object} at {at} did not see {missed:x}, acknowledged before"
                    ));
                }
                ended.push((seen.ended, *object, list.len()));
            }
            self.check_whole(seen)?;
        }
        for seen in &self.reads {
            for (object, list) in &seen.lists {
                let later =
                    |(ended, of, len): &&(u64, u64, usize)| of == object && *ended < seen.begun && *len > list.len();
                if let Some((at, _, len)) = ended.iter().find(later) {
                    let (now, begun) = (list.len(), seen.begun);
                    return Err(format!(
                        "a read of object {object} at {begun} saw {now} where one that ended at {at} saw {len}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// What a request has written is seen together.
    fn check_whole(&self, seen: &Seen) -> Result<(), String> {
        let has =
            |object: &u64, id: u64| seen.lists.iter().find(|(of, _)| of == object).map(|(_, list)| list.contains(&id));
        for id in seen.lists.iter().flat_map(|(_, list)| list) {
            let Some(done) = self.requests.get(id) else {
                return Err(format!("a read saw {id:x}, which nobody wrote"));
            };
            if done.request.writes.iter().any(|object| has(object, *id) == Some(false)) {
                return Err(format!("a read at {} saw a part of {id:x}", seen.begun));
            }
        }
        Ok(())
    }
}
