//! A takeover on its way: its commands go out over connections, and to the leader's own image; what comes back goes in. Driven by events and by time alone.

use std::collections::VecDeque;

use fabric::{Event, Sender};

use super::at::Span;
use super::members::{Config, Layout};
use super::message::{Formed, FromReplica, Reply, Request, ToReplica, decode, encode};
use super::stored::StoredReplica;
use super::takeover::{Command, Heard, Plan, Progress, Taken, Takeover};
use super::wire::{OLDEST, Versions};
use crate::error::{Away, Error, Result};
use crate::failpoints::{Failpoints, Step};
use crate::raw::{self, Claim};

/// The leader's own session at its image.
const OWN: u64 = u64::MAX;
/// Reads of one replica under way at once.
const READS: usize = 8;

/// The way to a replica.
pub(crate) struct Link {
    pub(super) id: u64,
    /// For messages.
    pub(crate) name: String,
    pub(crate) sender: Box<dyn Sender>,
    call: u32,
    /// What this end speaks, and what the replica has said that it does.
    speaks: Versions,
    theirs: Versions,
    /// What is still to be read, and what is being read, by tag.
    to_read: VecDeque<Span>,
    reading: Vec<(u32, Span)>,
}

impl Link {
    pub(crate) fn new(id: u64, name: String, sender: Box<dyn Sender>) -> Self {
        let (speaks, theirs) = (Versions::default(), Versions::only(OLDEST));
        let call = speaks.first_call() - 1;
        Self { id, name, sender, call, speaks, theirs, to_read: VecDeque::new(), reading: Vec::new() }
    }

    /// The same for a leader that speaks these versions.
    pub(super) fn speaking(self, speaks: Versions) -> Self {
        Self { speaks, call: speaks.first_call() - 1, ..self }
    }

    /// The first question.
    pub(super) fn look(&self, failpoints: Failpoints) -> Request {
        let keeps = !failpoints.skips(Step::CommonVersion);
        Request::Look { oldest: if keeps { self.speaks.oldest } else { self.speaks.newest } }
    }

    /// What a replica sent over it, if this end knows it.
    pub(super) fn decode(&self, bytes: &[u8]) -> Option<FromReplica> {
        decode(bytes, self.speaks.newest)
    }

    /// Notes which versions the replica says that it speaks; its reply is then that of any version.
    pub(super) fn noted(&mut self, reply: Reply) -> Reply {
        let Reply::Speaks { oldest, newest, state } = reply else { return reply };
        let theirs = Versions { oldest, newest };
        if self.speaks.common(theirs).is_none() {
            return Reply::Failed { why: theirs.refusal(self.speaks) };
        }
        self.theirs = theirs;
        Reply::State(state)
    }

    /// The newest version that the replica speaks.
    pub(crate) fn newest(&self) -> u32 {
        self.theirs.newest
    }

    /// Sends a request; the answer has this number.
    pub(super) fn ask(&mut self, request: Request) -> fabric::Result<u32> {
        self.call = self.call.wrapping_add(1);
        self.sender.send(&encode(&ToReplica { call: self.call, request }))?;
        self.sender.flush()?;
        Ok(self.call)
    }
}

/// Where a replica is reached.
enum Reach {
    Image,
    Link(Link),
    Gone,
}

/// How a candidate stands.
pub(crate) struct Stand {
    /// Tells this candidate from every other.
    pub(crate) owner: u64,
    /// Its epoch is at least this: from the election service.
    pub(crate) term: u32,
    /// The log is made; else it is there.
    pub(crate) make: Option<Make>,
    /// The id of the image, if it has none yet.
    pub(crate) image_id: u64,
    /// It is on a medium that lasts: it can be one of the log's replicas.
    pub(crate) image_counts: bool,
    pub(crate) accept_doubt: bool,
    /// Replicas that will never come back, and the ids of new ones that are to take their places.
    pub(crate) lost: Vec<Lost>,
    /// Which wire versions it speaks.
    pub(crate) speaks: Versions,
    pub(crate) failpoints: Failpoints,
}

/// A replica that is lost for good.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    pub(crate) id: u64,
    /// Of a new replica, if an empty one is found.
    pub(crate) new_id: u64,
}

/// A log that is not there yet.
pub(crate) struct Make {
    pub(crate) layout: Layout,
    pub(crate) write_quorum: u32,
    /// Of the replicas, in the order of the links.
    pub(crate) ids: Vec<u64>,
    /// Replicas may be there already of a making that was cut short.
    pub(crate) again: bool,
}

enum Stage {
    /// Each replica is asked what it is; those that have not answered.
    Look(Vec<usize>),
    /// New replicas are told of which log they are.
    Format(Vec<usize>),
    Take(Box<Takeover>),
}

/// A candidate. The image is replica 0, the links are those behind it.
pub(crate) struct Candidate {
    stand: Stand,
    stage: Stage,
    image: StoredReplica,
    replicas: Vec<Reach>,
    formed: Vec<Option<Formed>>,
    /// Replicas that take no part any more.
    away: Vec<Away>,
    epoch: u32,
}

/// What a takeover leaves.
pub(crate) struct Elected {
    pub(crate) taken: Taken,
    pub(crate) epoch: u32,
    /// Whose it is.
    pub(crate) owner: u64,
    /// The id of the image, if it is one of the replicas that count.
    pub(crate) own: Option<u64>,
    pub(crate) speaks: Versions,
    pub(crate) image: StoredReplica,
    /// The ways to the replicas that are live, with their numbers.
    pub(crate) links: Vec<(usize, Link)>,
}

impl Candidate {
    /// Begins: asks which replicas are there. What the links are given as ids is nothing yet.
    ///
    /// # Errors
    /// Those of the image; with no links the takeover may be over at once, too.
    pub(crate) fn stand(stand: Stand, image: StoredReplica, links: Vec<Link>) -> Result<(Self, Option<Taken>)> {
        let replicas: Vec<Reach> = std::iter::once(Reach::Image)
            .chain(links.into_iter().map(|link| Reach::Link(link.speaking(stand.speaks))))
            .collect();
        let formed = vec![None; replicas.len()];
        let waiting = (1..replicas.len()).collect();
        let mut this = Self { stand, stage: Stage::Look(waiting), image, replicas, formed, away: Vec::new(), epoch: 0 };
        this.formed[0] = this.image.log().map(super::stored::Log::formed);
        for replica in 1..this.replicas.len() {
            let Reach::Link(link) = &this.replicas[replica] else { continue };
            let look = link.look(this.stand.failpoints);
            if let Some(heard) = this.ask(replica, look)? {
                this.looked(replica, heard)?;
            }
        }
        let taken = if this.replicas.len() == 1 { this.who_is_there()? } else { None };
        Ok((this, taken))
    }

    /// Something arrived from a replica.
    pub(crate) fn on_event(&mut self, replica: usize, event: Event) -> Result<Option<Taken>> {
        let heard = match event {
            Event::Message(bytes) => match self.decode(replica, &bytes) {
                Some(FromReplica::Answer { call, reply }) => match self.replicas.get_mut(replica) {
                    Some(Reach::Link(link)) if link.call == call => Heard::Reply(link.noted(reply)),
                    _ => return Ok(None),
                },
                Some(FromReplica::Fenced { epoch, owner }) => Heard::Reply(Reply::Refused { promised: epoch, owner }),
                None => self.give_up(replica, "it sent what makes no sense".into()),
            },
            Event::Read { tag, bytes } => match self.read(replica, tag, &bytes)? {
                Some(heard) => heard,
                None => return Ok(None),
            },
            Event::Closed(reason) => self.give_up(replica, reason.to_string()),
            _ => return Ok(None),
        };
        self.heard(replica, heard)
    }

    fn decode(&self, replica: usize, bytes: &[u8]) -> Option<FromReplica> {
        match self.replicas.get(replica) {
            Some(Reach::Link(link)) => link.decode(bytes),
            _ => decode(bytes, self.stand.speaks.newest), // it was lost before
        }
    }

    /// Nothing came for too long: the replicas that were asked are lost.
    pub(crate) fn on_timeout(&mut self) -> Result<Option<Taken>> {
        let waiting = match &self.stage {
            Stage::Look(waiting) | Stage::Format(waiting) => waiting.clone(),
            Stage::Take(takeover) => takeover.waiting().to_vec(),
        };
        for replica in waiting {
            let heard = self.give_up(replica, "it did not answer in time".into());
            if let Some(taken) = self.heard(replica, heard)? {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    /// The image and the ways to the live replicas.
    pub(crate) fn finish(self, taken: Taken) -> Elected {
        let member =
            |replica: usize| self.formed[replica].as_ref().map(|f| f.me).filter(|me| taken.config.ids.contains(me));
        let own = member(0);
        let mut links = Vec::new();
        for (replica, reach) in self.replicas.into_iter().enumerate() {
            // A replica of this log that is none of those that count was repaired, and makes no quorum.
            if let (Reach::Link(mut link), Some(id), true) = (reach, member(replica), taken.live.contains(&replica)) {
                link.id = id;
                links.push((replica, link));
            }
        }
        Elected {
            taken,
            epoch: self.epoch,
            owner: self.stand.owner,
            own,
            speaks: self.stand.speaks,
            image: self.image,
            links,
        }
    }

    // ---- who is there -----------------------------------------------------------------------------------------

    fn heard(&mut self, replica: usize, heard: Heard) -> Result<Option<Taken>> {
        match &mut self.stage {
            Stage::Look(_) | Stage::Format(_) => self.looked(replica, heard),
            Stage::Take(takeover) => {
                let why = if let Heard::Reply(Reply::Failed { why }) = &heard { Some(why.clone()) } else { None };
                let progress = takeover.hear(replica, heard);
                if let Some(why) = why {
                    self.without(replica, &why, true);
                }
                match progress? {
                    Progress::Ask(commands) => self.run(commands.into()),
                    Progress::Taken(taken) => Ok(Some(taken)),
                }
            }
        }
    }

    fn looked(&mut self, replica: usize, heard: Heard) -> Result<Option<Taken>> {
        match heard {
            Heard::Reply(Reply::State(state)) => self.formed[replica] = state.formed,
            Heard::Reply(Reply::Failed { why }) => drop(self.refused(replica, why)),
            _ => {}
        }
        let (Stage::Look(waiting) | Stage::Format(waiting)) = &mut self.stage else { return Ok(None) };
        waiting.retain(|&w| w != replica);
        if !waiting.is_empty() {
            return Ok(None);
        }
        if matches!(self.stage, Stage::Look(_)) { self.who_is_there() } else { self.take() }
    }

    fn gone(&self, replica: usize) -> bool {
        matches!(self.replicas[replica], Reach::Gone)
    }

    /// Every replica has said what it is, or is lost.
    fn who_is_there(&mut self) -> Result<Option<Taken>> {
        let found = (1..self.replicas.len()).filter(|&c| !self.gone(c)).count();
        let unavailable = |why| Error::QuorumUnavailable { why, found, missing: Vec::new(), away: Vec::new() };
        let Some(make) = &self.stand.make else {
            let Some(layout) = self.formed.iter().flatten().map(|f| f.layout).next() else {
                return Err(unavailable("none that was reached is one of a log"));
            };
            let mut new_ids = self.stand.lost.iter().map(|lost| lost.new_id).collect::<VecDeque<u64>>();
            // This machine's own replica says which log it is: one of another log, at an address that it should not have, is not in the way.
            let knows = self.formed[0].is_some();
            if !knows {
                let id = if self.stand.image_counts { new_ids.pop_front() } else { None };
                self.format_image(layout, id.unwrap_or(self.stand.image_id))?;
            }
            let mut formats = Vec::new();
            for replica in 1..self.replicas.len() {
                match self.formed[replica].as_ref().map(|f| f.layout) {
                    _ if self.gone(replica) => {}
                    Some(its) if its == layout => {}
                    Some(its) => {
                        let why = format!("it is of log {:x}, others are of log {:x}", its.log, layout.log);
                        if !knows {
                            return Err(Error::Replica { replica: self.name(replica), why });
                        }
                        self.formed[replica] = None;
                        drop(self.give_up(replica, why));
                    }
                    None => match new_ids.pop_front() {
                        Some(me) => formats.push((replica, Request::Format { layout, me })),
                        None => drop(self.give_up(replica, "it is new: let it join when the log is open".into())),
                    },
                }
            }
            return self.format(formats);
        };
        // A replica that no leader has installed a log on has had no record. With one that was cut short there is a log, to be opened.
        let is_new = |formed: &Formed| make.again && formed.log_epoch == 0 && formed.config.is_none();
        if found + 1 < self.replicas.len() || !self.formed.iter().flatten().all(is_new) || make.ids.len() != found {
            return Err(unavailable("a log is made only of new replicas, and of all of them"));
        }
        let begun = self.formed.iter().flatten().map(|formed| formed.layout).next();
        let (layout, ids) = (begun.unwrap_or(make.layout), make.ids.clone());
        if self.formed.iter().flatten().any(|formed| formed.layout != layout) {
            return Err(unavailable("its replicas are of makings of several logs that were cut short"));
        }
        if self.formed[0].is_none() {
            self.format_image(layout, self.stand.image_id)?;
        }
        let format = |replica: usize| (replica, Request::Format { layout, me: ids[replica - 1] });
        self.format((1..self.replicas.len()).filter(|&replica| self.formed[replica].is_none()).map(format).collect())
    }

    /// New replicas become replicas of the log; then the takeover begins.
    fn format(&mut self, formats: Vec<(usize, Request)>) -> Result<Option<Taken>> {
        if formats.is_empty() {
            return self.take();
        }
        self.stage = Stage::Format(formats.iter().map(|(replica, _)| *replica).collect());
        for (replica, request) in formats {
            if let Some(heard) = self.ask(replica, request)?
                && let Some(taken) = self.looked(replica, heard)?
            {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    fn format_image(&mut self, layout: Layout, me: u64) -> Result<()> {
        match self.image.answer(OWN, &Request::Format { layout, me })?.reply {
            Reply::State(state) => self.formed[0] = state.formed,
            other => return Err(Error::Replica { replica: "this machine".into(), why: format!("{other:?}") }),
        }
        Ok(())
    }

    fn name(&self, replica: usize) -> String {
        match &self.replicas[replica] {
            Reach::Link(link) => link.name.clone(),
            Reach::Image => "this machine".into(),
            Reach::Gone => format!("replica {replica}"),
        }
    }

    /// Begins the takeover itself.
    fn take(&mut self) -> Result<Option<Taken>> {
        let ids: Vec<u64> = self.formed.iter().map(|f| f.as_ref().map_or(0, |f| f.me)).collect();
        for (replica, &id) in ids.iter().enumerate() {
            if id != 0 && ids[..replica].contains(&id) {
                return Err(Error::ReplicaTwice { id });
            }
        }
        if self.stand.make.is_some() && self.formed.iter().any(Option::is_none) {
            let found = self.formed.iter().flatten().count();
            let why = "a log is made only of new replicas, and of all of them";
            return Err(Error::QuorumUnavailable { why, found, missing: Vec::new(), away: Vec::new() });
        }
        let make = self.stand.make.as_ref().map(|make| {
            Config::of(ids.iter().copied().skip(usize::from(!self.stand.image_counts)).collect(), make.write_quorum)
        });
        if let Some(config) = &make {
            config.check()?;
        }
        let highest = self.formed.iter().flatten().map(|f| (f.promised, f.owner)).max();
        let (promised, owner) = highest.unwrap_or_default();
        let by = u32::from(!self.stand.failpoints.skips(Step::RaisePromise) || promised == 0);
        let raised = promised.checked_add(by).ok_or(Error::Fenced { epoch: promised, owner })?;
        self.epoch = raised.max(self.stand.term);
        let Stand { owner, image_counts, accept_doubt, failpoints, .. } = self.stand;
        let lost = self.stand.lost.iter().map(|lost| lost.id).collect();
        let (takeover, commands) =
            Takeover::begin(Plan { epoch: self.epoch, owner, ids, image_counts, make, accept_doubt, lost, failpoints });
        self.stage = Stage::Take(Box::new(takeover));
        self.run(commands.into())
    }

    // ---- commands ---------------------------------------------------------------------------------------------

    fn give_up(&mut self, replica: usize, why: String) -> Heard {
        self.without(replica, &why, false);
        Heard::Lost(why)
    }

    /// It is there, may be one of the log's, and takes no part.
    fn refused(&mut self, replica: usize, why: String) -> Heard {
        self.without(replica, &why, true);
        Heard::Lost(why)
    }

    fn without(&mut self, replica: usize, why: &str, answered: bool) {
        if let Some(reach) = self.replicas.get_mut(replica)
            && let Reach::Link(link) = std::mem::replace(reach, Reach::Gone)
        {
            tracing::warn!(replica = link.name, why, "a replica of the log takes no part any more");
            self.away.push(Away { replica: link.name, why: why.to_owned(), answered });
        }
    }

    /// Replicas that take no part, and why.
    pub(crate) fn away(&self) -> &[Away] {
        &self.away
    }

    /// Carries commands out, and those that come of the image's answers.
    fn run(&mut self, mut commands: VecDeque<Command>) -> Result<Option<Taken>> {
        while let Some(command) = commands.pop_front() {
            let (replica, heard) = match command {
                Command::Ask(replica, request) => (replica, self.ask(replica, request)?),
                Command::Fetch(replica, spans) => (replica, self.fetch(replica, spans)),
                Command::Push(replica, spans) => (replica, self.push(replica, &spans)?),
            };
            let (Some(heard), Stage::Take(takeover)) = (heard, &mut self.stage) else { continue };
            match takeover.hear(replica, heard)? {
                Progress::Ask(more) => commands.extend(more),
                Progress::Taken(taken) => return Ok(Some(taken)),
            }
        }
        Ok(None)
    }

    fn ask(&mut self, replica: usize, request: Request) -> Result<Option<Heard>> {
        Ok(match self.replicas.get_mut(replica) {
            Some(Reach::Image) => Some(Heard::Reply(self.image.answer(OWN, &request)?.reply)),
            Some(Reach::Link(link)) => match link.ask(request) {
                Ok(_) => None,
                Err(error) => Some(self.give_up(replica, error.to_string())),
            },
            _ => Some(Heard::Lost("it was lost before".into())),
        })
    }

    // ---- pieces -----------------------------------------------------------------------------------------------

    /// The offset of a piece in the pool of the image, and in every replica's window.
    fn locate(&self, span: Span) -> Option<(u64, u64)> {
        let log = self.image.log()?;
        let offset = log.geometry.locate(span.from);
        Some((offset, offset - log.geometry.offset(0)))
    }

    fn fetch(&mut self, replica: usize, spans: Vec<Span>) -> Option<Heard> {
        let Some(Reach::Link(link)) = self.replicas.get_mut(replica) else {
            return Some(Heard::Lost("it was lost before".into()));
        };
        link.to_read = spans.into();
        self.read_more(replica)
    }

    fn read_more(&mut self, replica: usize) -> Option<Heard> {
        loop {
            let Some(Reach::Link(link)) = self.replicas.get(replica) else { return None };
            let next = link.to_read.front().copied().filter(|_| link.reading.len() < READS);
            let Some(span) = next else { break };
            let (_, offset) = self.locate(span)?;
            let Some(Reach::Link(link)) = self.replicas.get_mut(replica) else { return None };
            link.call = link.call.wrapping_add(1);
            let tag = link.call;
            if let Err(error) = link.sender.read(offset, (span.to - span.from) as u32, tag) {
                return Some(self.give_up(replica, error.to_string()));
            }
            link.to_read.pop_front();
            link.reading.push((tag, span));
        }
        let Some(Reach::Link(link)) = self.replicas.get_mut(replica) else { return None };
        if link.reading.is_empty() {
            return Some(Heard::Fetched);
        }
        match link.sender.flush() {
            Ok(()) => None,
            Err(error) => Some(self.give_up(replica, error.to_string())),
        }
    }

    fn read(&mut self, replica: usize, tag: u32, bytes: &[u8]) -> Result<Option<Heard>> {
        let Some(Reach::Link(link)) = self.replicas.get_mut(replica) else { return Ok(None) };
        let Some(at) = link.reading.iter().position(|(t, _)| *t == tag) else { return Ok(None) };
        let (_, span) = link.reading.swap_remove(at);
        if span.to - span.from != bytes.len() as u64 {
            return Ok(Some(self.give_up(replica, "it sent another number of bytes than was asked for".into())));
        }
        if let Some((offset, _)) = self.locate(span) {
            raw::bytes_mut(Claim::Opening, &self.image, self.image.pool(), offset, bytes.len() as u64)?
                .copy_from_slice(bytes);
        }
        Ok(self.read_more(replica))
    }

    fn push(&mut self, replica: usize, spans: &[Span]) -> Result<Option<Heard>> {
        for &span in spans {
            let Some((offset, at)) = self.locate(span) else { return Ok(None) };
            let bytes = raw::bytes(Claim::Opening, &self.image, self.image.pool(), offset, span.to - span.from)?;
            let Some(Reach::Link(link)) = self.replicas.get_mut(replica) else { return Ok(None) };
            if let Err(error) = link.sender.write(at, bytes) {
                // The question behind it finds the replica gone.
                let _: Heard = self.give_up(replica, error.to_string());
                return Ok(None);
            }
        }
        Ok(None)
    }
}
