//! One end, under its lock: every step of it that takes no time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::control::{Control, Heard};
use super::desk::{Desk, Grant};
use crate::answers::Piece;
use crate::raw::libfabric::{Completion, Device, Failure, RemoteAddress, SLOTS};
use crate::wire::{ANSWER_MAX, HEADER, Header, Kind, Refusal};
use crate::{Event, Reason, Rights, clock};

/// Bytes of one operation. Longer writes are several.
pub(super) const PIECE: usize = ANSWER_MAX;
pub(super) const SLOT_LEN: usize = HEADER + PIECE;
/// Credit that is left for what no sender waits for: grants and goodbyes.
const RESERVE: u64 = 4;
/// The peer is told how much was taken when it is so much, or when there is nothing else to do.
const RETURN_AT: u64 = SLOTS as u64 / 4;
/// An endpoint that failed: so long the peer may still say why.
const LAST_WORD: Duration = Duration::from_millis(500);
/// A peer that is gone: so long what it sent may still arrive.
const LAST_MESSAGE: Duration = Duration::from_millis(100);

/// Two endpoints that know each other: this one, and where the other's word is.
pub(super) struct Met {
    pub(super) device: Device,
    pub(super) control: Control,
    pub(super) word: RemoteAddress,
    /// What has arrived already.
    pub(super) early: Vec<Completion>,
    /// Windows may be registered: the provider can take away what it gave.
    pub(super) may_register: bool,
}

pub(super) struct State {
    pub(super) device: Device,
    pub(super) control: Control,
    pub(super) desk: Desk,
    pub(super) over: Option<Reason>,
    /// The endpoint failed.
    pub(super) broken: Option<(String, Instant)>,
    /// The control connection ended.
    gone: Option<Instant>,
    /// Where the peer's word is.
    word: RemoteAddress,
    /// What used up credit here, and at the peer.
    sent: u64,
    taken: u64,
    /// ... as the peer was told.
    told: u64,
    /// Credit was used up by writes as messages until here: only when they are done may the device write.
    software_until: u64,
    to_grant: Option<Grant>,
    to_answer: Option<Vec<u8>>,
    arrived: VecDeque<Completion>,
    scratch: Vec<Completion>,
    last_arrival: Option<Instant>,
    /// What the peer said when it took its window away: the last that arrives.
    farewell: Option<Vec<u8>>,
    /// Raised whenever something moved.
    pub(super) moved: u64,
    next_key: u64,
    /// The provider can take away what it gave.
    may_register: bool,
}

/// How an operation reaches a window.
#[derive(Clone, Copy)]
pub(super) enum Way {
    Device(RemoteAddress),
    Software,
}

impl State {
    pub(super) fn new(met: Met, desk: Desk, key: u64) -> Self {
        let Met { device, control, word, early, may_register } = met;
        Self {
            device,
            control,
            desk,
            over: None,
            broken: None,
            gone: None,
            word,
            sent: 0,
            taken: 0,
            told: 0,
            software_until: 0,
            to_grant: None,
            to_answer: None,
            arrived: early.into(),
            scratch: Vec::new(),
            last_arrival: None,
            farewell: None,
            moved: 0,
            next_key: key,
            may_register,
        }
    }

    fn key(&mut self) -> u64 {
        // Odd steps from a random number: each is new, and as hard to guess.
        self.next_key = self.next_key.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.next_key
    }

    fn fail(&mut self, what: String) {
        self.broken.get_or_insert_with(|| (what, clock::now()));
    }

    fn failed(&mut self, failure: Failure) -> Reason {
        let what = format!("{}: {}", failure.what, failure.text);
        self.fail(what.clone());
        Reason::Lost { what }
    }

    /// Takes notice of what happened.
    pub(super) fn progress(&mut self) {
        let mut done = std::mem::take(&mut self.scratch);
        loop {
            self.device.poll(&mut done);
            if done.is_empty() {
                break;
            }
            self.moved += 1;
            for completion in done.drain(..) {
                match completion {
                    Completion::Sent => {}
                    Completion::Read(read, bytes) => self.desk.reads.device_answered(read, bytes),
                    Completion::Failed(what) => self.fail(what),
                    arrival => self.arrived.push_back(arrival),
                }
            }
            if self.broken.is_some() {
                break;
            }
        }
        self.scratch = done;
    }

    // ---- sending -------------------------------------------------------------------------------------------

    fn credit(&self) -> u64 {
        let used = self.sent.checked_sub(self.device.word()).unwrap_or(u64::MAX);
        u64::from(SLOTS).saturating_sub(used)
    }

    /// Whether an operation may begin; grants that were made go before it.
    fn is_free(&mut self, uses_credit: bool) -> Result<bool, Reason> {
        Ok(self.tell_grant()? && (!uses_credit || self.credit() > RESERVE))
    }

    /// Sends a message, whatever it is. `Ok(false)`: not now.
    fn post(&mut self, parts: [&[u8]; 2]) -> Result<bool, Reason> {
        let sent = self.device.send(parts).map_err(|failure| self.failed(failure))?;
        self.sent += u64::from(sent);
        Ok(sent)
    }

    /// Sends a frame. `Ok(false)`: not now.
    pub(super) fn send(&mut self, header: Header, payload: &[u8]) -> Result<bool, Reason> {
        let sent = self.is_free(true)? && self.device.may_send() && self.post([&header.encode(), payload])?;
        if sent && matches!(header.kind, Kind::Write | Kind::WriteImm | Kind::Read) {
            self.software_until = self.sent;
        }
        Ok(sent)
    }

    /// The last frame, from the reserve.
    pub(super) fn send_bye(&mut self) -> bool {
        let bye = Header::plain(Kind::Bye, 0).encode();
        self.device.may_send() && self.credit() > 0 && self.post([&bye, &[]]).unwrap_or(false)
    }

    /// How an operation is to be done, if that can be told now.
    pub(super) fn way(&mut self, wanted: Rights, offset: u64, len: u64) -> Option<Way> {
        match self.desk.granted.and_then(|grant| grant.covers(wanted, offset, len)) {
            None => Some(Way::Software),
            Some(at) => (self.device.word() >= self.software_until).then_some(Way::Device(at)),
        }
    }

    /// Lets the device write. `Ok(false)`: not now.
    pub(super) fn write(&mut self, bytes: &[u8], to: RemoteAddress, imm: Option<u32>) -> Result<bool, Reason> {
        if !self.is_free(imm.is_some())? || !self.device.may_write() {
            return Ok(false);
        }
        let begun = self.device.write(bytes, to, imm).map_err(|failure| self.failed(failure))?;
        self.sent += u64::from(begun && imm.is_some());
        Ok(begun)
    }

    /// Lets the device read. `Ok(false)`: not now.
    pub(super) fn read(&mut self, len: u32, from: RemoteAddress, tag: u32) -> Result<bool, Reason> {
        if !self.is_free(false)? || !self.device.may_write() {
            return Ok(false);
        }
        let key = self.key();
        let read = self.device.read(len, from, key).map_err(|failure| self.failed(failure))?;
        if let Some(read) = read {
            self.desk.reads.ask_device(read, tag);
        }
        Ok(read.is_some())
    }

    // ---- what the peer waits for ---------------------------------------------------------------------------

    /// Does what it can of that. Credit is returned late while there is more to do.
    pub(super) fn serve(&mut self, is_idle: bool) -> Result<(), Reason> {
        self.tell_grant()?;
        let owed = self.taken - self.told;
        if (owed >= RETURN_AT || is_idle && owed > 0)
            && self.device.write_word(self.taken, self.word).map_err(|failure| self.failed(failure))?
        {
            self.told = self.taken;
        }
        loop {
            if self.to_answer.is_none() {
                self.to_answer = self.next_answer()?;
            }
            let Some(frame) = self.to_answer.take() else { return Ok(()) };
            if !self.is_free(true)? || !self.device.may_send() || !self.post([&frame, &[]])? {
                self.to_answer = Some(frame);
                return Ok(());
            }
        }
    }

    fn next_answer(&mut self) -> Result<Option<Vec<u8>>, Reason> {
        let Some(Piece { offset, len, tag, at }) = self.desk.answers.next() else { return Ok(None) };
        let mut frame = vec![0; HEADER + len as usize];
        frame[..HEADER].copy_from_slice(&Header { kind: Kind::Answer, len, offset: at.into(), word: tag }.encode());
        self.desk.target.read(offset, &mut frame[HEADER..])?;
        Ok(Some(frame))
    }

    /// The peer gets these rights: it is told where its device finds the window, if one can.
    pub(super) fn grant(&mut self, rights: Rights) {
        let Some(window) = &self.desk.target.window else { return };
        let Some(address) = window.address().filter(|_| self.over.is_none() && self.may_register) else { return };
        let (window, key) = (window.clone(), self.key());
        let len = window.len();
        match self.device.register(window, address, rights == Rights::Write, key) {
            Ok(at) => {
                self.to_grant = Some(Grant { rights, at, len });
                // An error shows again where a caller can be told.
                let _ = self.tell_grant();
            }
            Err(Failure { what, text, .. }) => {
                tracing::debug!(what, text, "the window is reached by software");
            }
        }
    }

    /// Whether there is none to be told any more.
    fn tell_grant(&mut self) -> Result<bool, Reason> {
        let Some(grant) = self.to_grant else { return Ok(true) };
        if self.device.may_send() && self.credit() > 1 && self.post([&grant.frame(), &[]])? {
            self.to_grant = None;
        }
        Ok(self.to_grant.is_none())
    }

    // ---- receiving -----------------------------------------------------------------------------------------

    /// What arrived, up to the next event.
    pub(super) fn take(&mut self) -> Result<Option<Event>, Reason> {
        loop {
            if let Some(event) = self.desk.reads.next() {
                return Ok(Some(event));
            }
            let (event, used) = match self.arrived.pop_front() {
                None => return Ok(None),
                Some(Completion::Told(imm, used)) => (Some(Event::Written { imm }), used),
                Some(Completion::Message(message)) => {
                    (self.desk.message(self.device.incoming(&message))?, Some(message))
                }
                Some(_) => continue,
            };
            self.taken += 1;
            self.last_arrival = None;
            if let Some(Err(failure)) = used.map(|message| self.device.receive(message)) {
                // What has arrived counts all the same.
                self.failed(failure);
            }
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// Whether there is something to take.
    pub(super) fn has_arrived(&mut self) -> bool {
        !self.arrived.is_empty() || self.desk.reads.has_next()
    }

    /// The endpoint, or the connection beside it, has failed: the rest is a matter of time.
    pub(super) const fn is_ending(&self) -> bool {
        self.broken.is_some() || self.gone.is_some()
    }

    /// What arrived before the end, and was not taken.
    pub(super) fn take_rest(&mut self) -> Option<Event> {
        self.take().unwrap_or(None).or_else(|| self.farewell.take().map(Event::Message))
    }

    /// Why the peer ended the connection, if it has said so.
    pub(super) fn last_word(&mut self) -> Option<Reason> {
        match self.control.hear() {
            Heard::Word(reason) => return Some(reason),
            Heard::Gone => drop(self.gone.get_or_insert_with(clock::now)),
            Heard::Message(message) => self.farewell = Some(message),
            Heard::Nothing => {}
        }
        None
    }

    /// Whether the connection is over, where nothing more arrives.
    pub(super) fn ending(&mut self) -> Option<Reason> {
        if let Some(reason) = self.last_word() {
            return Some(reason);
        }
        if self.device.is_shut() {
            self.fail("its endpoint is gone".into());
        }
        let waited = |since: &Instant, wait| since.elapsed() >= wait;
        match (&self.broken, &self.gone) {
            (Some((what, since)), gone) if gone.is_some() || waited(since, LAST_WORD) => {
                Some(Reason::Lost { what: what.clone() })
            }
            (None, Some(_)) => {
                let quiet = self.last_arrival.get_or_insert_with(clock::now);
                waited(quiet, LAST_MESSAGE).then(|| Reason::Lost { what: "it went away".into() })
            }
            _ => None,
        }
    }

    // ---- endings -------------------------------------------------------------------------------------------

    /// It is over, if it was not; the peer is told why where that is known.
    pub(super) fn end(&mut self, reason: Reason) {
        if self.over.is_some() {
            return;
        }
        match &reason {
            Reason::Here => {
                self.progress();
                self.send_bye();
            }
            Reason::Peer | Reason::Lost { .. } | Reason::Violated(_) => {}
            other => self.control.say(&Refusal::frame(other)),
        }
        self.over = Some(reason);
        self.desk.answers.clear();
        self.to_answer = None;
        self.control.hang_up();
    }

    /// No device of the peer reaches the window any more. If one did, the connection ends, with `last` as its last message.
    pub(super) fn revoke(&mut self, last: &[u8]) -> bool {
        if !self.device.has_regions() {
            return false;
        }
        self.device.revoke();
        if self.over.is_none() && !last.is_empty() {
            self.control.say_message(last);
        }
        self.end(Reason::Revoked);
        true
    }
}
