//! A takeover on its way: its commands go out over connections, and to the leader's own image; what comes back goes in. Driven by events and by time alone.

use std::collections::VecDeque;

use fabric::{Event, Sender};

use super::at::Span;
use super::copy::Copy;
use super::members::{Config, Layout};
use super::message::{Formed, FromCopy, Reply, Request, ToCopy, WIRE_VERSION, decode, encode};
use super::takeover::{Command, Heard, Plan, Progress, Taken, Takeover};
use crate::error::{Away, Error, Result};
use crate::failpoints::{Failpoints, Step};
use crate::raw::{self, Claim};

/// The leader's own session at its image.
const OWN: u64 = u64::MAX;
/// Reads of one copy under way at once.
const READS: usize = 8;

/// The way to a copy.
pub(crate) struct Link {
    pub(super) id: u64,
    /// For messages.
    pub(crate) name: String,
    pub(crate) sender: Box<dyn Sender>,
    call: u32,
    /// What is still to be read, and what is being read, by tag.
    to_read: VecDeque<Span>,
    reading: Vec<(u32, Span)>,
}

impl Link {
    pub(crate) fn new(id: u64, name: String, sender: Box<dyn Sender>) -> Self {
        Self { id, name, sender, call: 0, to_read: VecDeque::new(), reading: Vec::new() }
    }

    /// Sends a request; the answer has this number.
    pub(super) fn ask(&mut self, request: Request) -> fabric::Result<u32> {
        self.call = self.call.wrapping_add(1);
        self.sender.send(&encode(&ToCopy { call: self.call, request }))?;
        self.sender.flush()?;
        Ok(self.call)
    }
}

/// Where a copy is reached.
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
    /// It is on a medium that lasts: it can be one of the log's copies.
    pub(crate) image_counts: bool,
    pub(crate) accept_doubt: bool,
    /// Copies that will never come back, and the ids of new ones that are to take their places.
    pub(crate) lost: Vec<Lost>,
    pub(crate) failpoints: Failpoints,
}

/// A copy that is lost for good.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    pub(crate) id: u64,
    /// Of a new copy, if an empty one is found.
    pub(crate) new_id: u64,
}

/// A log that is not there yet.
pub(crate) struct Make {
    pub(crate) layout: Layout,
    pub(crate) write_quorum: u32,
    /// Of the copies, in the order of the links.
    pub(crate) ids: Vec<u64>,
    /// Copies may be there already of a making that was cut short.
    pub(crate) again: bool,
}

enum Stage {
    /// Each copy is asked what it is; those that have not answered.
    Look(Vec<usize>),
    /// New copies are told of which log they are.
    Format(Vec<usize>),
    Take(Box<Takeover>),
}

/// A candidate. The image is copy 0, the links are those behind it.
pub(crate) struct Candidate {
    stand: Stand,
    stage: Stage,
    image: Copy,
    copies: Vec<Reach>,
    formed: Vec<Option<Formed>>,
    /// Copies that take no part any more.
    away: Vec<Away>,
    epoch: u32,
}

/// What a takeover leaves.
pub(crate) struct Elected {
    pub(crate) taken: Taken,
    pub(crate) epoch: u32,
    /// Whose it is.
    pub(crate) owner: u64,
    /// The id of the image, if it is one of the copies that count.
    pub(crate) own: Option<u64>,
    pub(crate) image: Copy,
    /// The ways to the copies that are live, with their numbers.
    pub(crate) links: Vec<(usize, Link)>,
}

impl Candidate {
    /// Begins: asks which copies are there. What the links are given as ids is nothing yet.
    ///
    /// # Errors
    /// Those of the image; with no links the takeover may be over at once, too.
    pub(crate) fn stand(stand: Stand, image: Copy, links: Vec<Link>) -> Result<(Self, Option<Taken>)> {
        let copies: Vec<Reach> = std::iter::once(Reach::Image).chain(links.into_iter().map(Reach::Link)).collect();
        let formed = vec![None; copies.len()];
        let waiting = (1..copies.len()).collect();
        let mut this = Self { stand, stage: Stage::Look(waiting), image, copies, formed, away: Vec::new(), epoch: 0 };
        this.formed[0] = this.image.log().map(super::copy::Log::formed);
        for copy in 1..this.copies.len() {
            if let Some(heard) = this.ask(copy, Request::Look { version: WIRE_VERSION })? {
                this.looked(copy, heard)?;
            }
        }
        let taken = if this.copies.len() == 1 { this.who_is_there()? } else { None };
        Ok((this, taken))
    }

    /// Something arrived from a copy.
    pub(crate) fn on_event(&mut self, copy: usize, event: Event) -> Result<Option<Taken>> {
        let heard = match event {
            Event::Message(bytes) => match decode::<FromCopy>(&bytes) {
                Some(FromCopy::Answer { call, reply }) => match self.copies.get(copy) {
                    Some(Reach::Link(link)) if link.call == call => Heard::Reply(reply),
                    _ => return Ok(None),
                },
                Some(FromCopy::Fenced { epoch, owner }) => Heard::Reply(Reply::Refused { promised: epoch, owner }),
                None => self.give_up(copy, "it sent what makes no sense".into()),
            },
            Event::Read { tag, bytes } => match self.read(copy, tag, &bytes)? {
                Some(heard) => heard,
                None => return Ok(None),
            },
            Event::Closed(reason) => self.give_up(copy, reason.to_string()),
            _ => return Ok(None),
        };
        self.heard(copy, heard)
    }

    /// Nothing came for too long: the copies that were asked are lost.
    pub(crate) fn on_timeout(&mut self) -> Result<Option<Taken>> {
        let waiting = match &self.stage {
            Stage::Look(waiting) | Stage::Format(waiting) => waiting.clone(),
            Stage::Take(takeover) => takeover.waiting().to_vec(),
        };
        for copy in waiting {
            let heard = self.give_up(copy, "it did not answer in time".into());
            if let Some(taken) = self.heard(copy, heard)? {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    /// The image and the ways to the live copies.
    pub(crate) fn finish(self, taken: Taken) -> Elected {
        let member = |copy: usize| self.formed[copy].as_ref().map(|f| f.me).filter(|me| taken.config.ids.contains(me));
        let own = member(0);
        let mut links = Vec::new();
        for (copy, reach) in self.copies.into_iter().enumerate() {
            // A copy of this log that is none of those that count was repaired, and makes no quorum.
            if let (Reach::Link(mut link), Some(id), true) = (reach, member(copy), taken.live.contains(&copy)) {
                link.id = id;
                links.push((copy, link));
            }
        }
        Elected { taken, epoch: self.epoch, owner: self.stand.owner, own, image: self.image, links }
    }

    // ---- who is there -----------------------------------------------------------------------------------------

    fn heard(&mut self, copy: usize, heard: Heard) -> Result<Option<Taken>> {
        match &mut self.stage {
            Stage::Look(_) | Stage::Format(_) => self.looked(copy, heard),
            Stage::Take(takeover) => {
                let why = if let Heard::Reply(Reply::Failed { why }) = &heard { Some(why.clone()) } else { None };
                let progress = takeover.hear(copy, heard);
                if let Some(why) = why {
                    self.without(copy, &why, true);
                }
                match progress? {
                    Progress::Ask(commands) => self.run(commands.into()),
                    Progress::Taken(taken) => Ok(Some(taken)),
                }
            }
        }
    }

    fn looked(&mut self, copy: usize, heard: Heard) -> Result<Option<Taken>> {
        match heard {
            Heard::Reply(Reply::State(state)) => self.formed[copy] = state.formed,
            Heard::Reply(Reply::Failed { why }) => drop(self.refused(copy, why)),
            _ => {}
        }
        let (Stage::Look(waiting) | Stage::Format(waiting)) = &mut self.stage else { return Ok(None) };
        waiting.retain(|&w| w != copy);
        if !waiting.is_empty() {
            return Ok(None);
        }
        if matches!(self.stage, Stage::Look(_)) { self.who_is_there() } else { self.take() }
    }

    fn gone(&self, copy: usize) -> bool {
        matches!(self.copies[copy], Reach::Gone)
    }

    /// Every copy has said what it is, or is lost.
    fn who_is_there(&mut self) -> Result<Option<Taken>> {
        let found = (1..self.copies.len()).filter(|&c| !self.gone(c)).count();
        let unavailable = |why| Error::QuorumUnavailable { why, found, missing: Vec::new(), away: Vec::new() };
        let Some(make) = &self.stand.make else {
            let Some(layout) = self.formed.iter().flatten().map(|f| f.layout).next() else {
                return Err(unavailable("none that was reached is one of a log"));
            };
            let mut new_ids = self.stand.lost.iter().map(|lost| lost.new_id).collect::<VecDeque<u64>>();
            // This machine's own copy says which log it is: one of another log, at an address that it should not have, is not in the way.
            let knows = self.formed[0].is_some();
            if !knows {
                let id = if self.stand.image_counts { new_ids.pop_front() } else { None };
                self.format_image(layout, id.unwrap_or(self.stand.image_id))?;
            }
            let mut formats = Vec::new();
            for copy in 1..self.copies.len() {
                match self.formed[copy].as_ref().map(|f| f.layout) {
                    _ if self.gone(copy) => {}
                    Some(its) if its == layout => {}
                    Some(its) => {
                        let why = format!("it is of log {:x}, others are of log {:x}", its.log, layout.log);
                        if !knows {
                            return Err(Error::Copy { copy: self.name(copy), why });
                        }
                        self.formed[copy] = None;
                        drop(self.give_up(copy, why));
                    }
                    None => match new_ids.pop_front() {
                        Some(me) => formats.push((copy, Request::Format { layout, me })),
                        None => drop(self.give_up(copy, "it is new: let it join when the log is open".into())),
                    },
                }
            }
            return self.format(formats);
        };
        // A copy that no leader has installed a log on has had no record. With one that was cut short there is a log, to be opened.
        let is_new = |formed: &Formed| make.again && formed.log_epoch == 0 && formed.config.is_none();
        if found + 1 < self.copies.len() || !self.formed.iter().flatten().all(is_new) || make.ids.len() != found {
            return Err(unavailable("a log is made only of new copies, and of all of them"));
        }
        let begun = self.formed.iter().flatten().map(|formed| formed.layout).next();
        let (layout, ids) = (begun.unwrap_or(make.layout), make.ids.clone());
        if self.formed.iter().flatten().any(|formed| formed.layout != layout) {
            return Err(unavailable("its copies are of makings of several logs that were cut short"));
        }
        if self.formed[0].is_none() {
            self.format_image(layout, self.stand.image_id)?;
        }
        let format = |copy: usize| (copy, Request::Format { layout, me: ids[copy - 1] });
        self.format((1..self.copies.len()).filter(|&copy| self.formed[copy].is_none()).map(format).collect())
    }

    /// New copies become copies of the log; then the takeover begins.
    fn format(&mut self, formats: Vec<(usize, Request)>) -> Result<Option<Taken>> {
        if formats.is_empty() {
            return self.take();
        }
        self.stage = Stage::Format(formats.iter().map(|(copy, _)| *copy).collect());
        for (copy, request) in formats {
            if let Some(heard) = self.ask(copy, request)?
                && let Some(taken) = self.looked(copy, heard)?
            {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    fn format_image(&mut self, layout: Layout, me: u64) -> Result<()> {
        match self.image.answer(OWN, &Request::Format { layout, me })?.reply {
            Reply::State(state) => self.formed[0] = state.formed,
            other => return Err(Error::Copy { copy: "this machine".into(), why: format!("{other:?}") }),
        }
        Ok(())
    }

    fn name(&self, copy: usize) -> String {
        match &self.copies[copy] {
            Reach::Link(link) => link.name.clone(),
            Reach::Image => "this machine".into(),
            Reach::Gone => format!("place {copy}"),
        }
    }

    /// Begins the takeover itself.
    fn take(&mut self) -> Result<Option<Taken>> {
        let ids: Vec<u64> = self.formed.iter().map(|f| f.as_ref().map_or(0, |f| f.me)).collect();
        for (copy, &id) in ids.iter().enumerate() {
            if id != 0 && ids[..copy].contains(&id) {
                return Err(Error::TwiceACopy { id });
            }
        }
        if self.stand.make.is_some() && self.formed.iter().any(Option::is_none) {
            let found = self.formed.iter().flatten().count();
            let why = "a log is made only of new copies, and of all of them";
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

    fn give_up(&mut self, copy: usize, why: String) -> Heard {
        self.without(copy, &why, false);
        Heard::Lost(why)
    }

    /// It is there, may be one of the log's, and takes no part.
    fn refused(&mut self, copy: usize, why: String) -> Heard {
        self.without(copy, &why, true);
        Heard::Lost(why)
    }

    fn without(&mut self, copy: usize, why: &str, answered: bool) {
        if let Some(reach) = self.copies.get_mut(copy)
            && let Reach::Link(link) = std::mem::replace(reach, Reach::Gone)
        {
            tracing::warn!(copy = link.name, why, "a copy of the log takes no part any more");
            self.away.push(Away { copy: link.name, why: why.to_owned(), answered });
        }
    }

    /// Copies that take no part, and why.
    pub(crate) fn away(&self) -> &[Away] {
        &self.away
    }

    /// Carries commands out, and those that come of the image's answers.
    fn run(&mut self, mut commands: VecDeque<Command>) -> Result<Option<Taken>> {
        while let Some(command) = commands.pop_front() {
            let (copy, heard) = match command {
                Command::Ask(copy, request) => (copy, self.ask(copy, request)?),
                Command::Fetch(copy, spans) => (copy, self.fetch(copy, spans)),
                Command::Push(copy, spans) => (copy, self.push(copy, &spans)?),
            };
            let (Some(heard), Stage::Take(takeover)) = (heard, &mut self.stage) else { continue };
            match takeover.hear(copy, heard)? {
                Progress::Ask(more) => commands.extend(more),
                Progress::Taken(taken) => return Ok(Some(taken)),
            }
        }
        Ok(None)
    }

    fn ask(&mut self, copy: usize, request: Request) -> Result<Option<Heard>> {
        Ok(match self.copies.get_mut(copy) {
            Some(Reach::Image) => Some(Heard::Reply(self.image.answer(OWN, &request)?.reply)),
            Some(Reach::Link(link)) => match link.ask(request) {
                Ok(_) => None,
                Err(error) => Some(self.give_up(copy, error.to_string())),
            },
            _ => Some(Heard::Lost("it was lost before".into())),
        })
    }

    // ---- pieces -----------------------------------------------------------------------------------------------

    /// The place of a piece in the pool of the image, and in every copy's window.
    fn place(&self, span: Span) -> Option<(u64, u64)> {
        let log = self.image.log()?;
        let offset = log.geometry.locate(span.from);
        Some((offset, offset - log.geometry.offset(0)))
    }

    fn fetch(&mut self, copy: usize, spans: Vec<Span>) -> Option<Heard> {
        let Some(Reach::Link(link)) = self.copies.get_mut(copy) else {
            return Some(Heard::Lost("it was lost before".into()));
        };
        link.to_read = spans.into();
        self.read_more(copy)
    }

    fn read_more(&mut self, copy: usize) -> Option<Heard> {
        loop {
            let Some(Reach::Link(link)) = self.copies.get(copy) else { return None };
            let next = link.to_read.front().copied().filter(|_| link.reading.len() < READS);
            let Some(span) = next else { break };
            let (_, offset) = self.place(span)?;
            let Some(Reach::Link(link)) = self.copies.get_mut(copy) else { return None };
            link.call = link.call.wrapping_add(1);
            let tag = link.call;
            if let Err(error) = link.sender.read(offset, (span.to - span.from) as u32, tag) {
                return Some(self.give_up(copy, error.to_string()));
            }
            link.to_read.pop_front();
            link.reading.push((tag, span));
        }
        let Some(Reach::Link(link)) = self.copies.get_mut(copy) else { return None };
        if link.reading.is_empty() {
            return Some(Heard::Fetched);
        }
        match link.sender.flush() {
            Ok(()) => None,
            Err(error) => Some(self.give_up(copy, error.to_string())),
        }
    }

    fn read(&mut self, copy: usize, tag: u32, bytes: &[u8]) -> Result<Option<Heard>> {
        let Some(Reach::Link(link)) = self.copies.get_mut(copy) else { return Ok(None) };
        let Some(at) = link.reading.iter().position(|(t, _)| *t == tag) else { return Ok(None) };
        let (_, span) = link.reading.swap_remove(at);
        if span.to - span.from != bytes.len() as u64 {
            return Ok(Some(self.give_up(copy, "it sent another number of bytes than was asked for".into())));
        }
        if let Some((offset, _)) = self.place(span) {
            raw::bytes_mut(Claim::Opening, &self.image, self.image.pool(), offset, bytes.len() as u64)?
                .copy_from_slice(bytes);
        }
        Ok(self.read_more(copy))
    }

    fn push(&mut self, copy: usize, spans: &[Span]) -> Result<Option<Heard>> {
        for &span in spans {
            let Some((offset, at)) = self.place(span) else { return Ok(None) };
            let bytes = raw::bytes(Claim::Opening, &self.image, self.image.pool(), offset, span.to - span.from)?;
            let Some(Reach::Link(link)) = self.copies.get_mut(copy) else { return Ok(None) };
            if let Err(error) = link.sender.write(at, bytes) {
                // The question behind it finds the copy gone.
                let _: Heard = self.give_up(copy, error.to_string());
                return Ok(None);
            }
        }
        Ok(None)
    }
}
