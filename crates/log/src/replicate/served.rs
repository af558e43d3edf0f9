//! A replica and the sessions of those who reach it. The owner of the connections brings their events; what there is to send goes out here.

use std::collections::BTreeMap;

use fabric::{Access, Event, Rights, Sender};

use super::at::At;
use super::message::{FromReplica, Reply, Request, ToReplica, decode, encode};
use super::stored::{Answer, StoredReplica};
use super::wire::Versions;
use crate::error::Result;

/// Bytes that may wait for one peer: one that takes no answers keeps no other from getting theirs.
const QUEUE_BYTES: usize = 4 << 20;

struct Session {
    sender: Box<dyn Sender>,
    access: Access,
    peer: String,
    /// It wrote records that are not acknowledged.
    waits: bool,
    /// Its last request. One that comes again was answered: to install a log a second time would cut off what was appended since.
    last_call: u32,
}

pub(crate) struct Served {
    stored: StoredReplica,
    sessions: BTreeMap<u64, Session>,
    /// Ways to peers whose session is over, which may have something to take still, where closing them can wait for the peer: that is for the thread that hears
    /// the session, without a lock.
    leaving: Option<Vec<(u64, Box<dyn Sender>)>>,
    next: u64,
    /// A thread here reads the replica, and has no need any more of records through this one.
    released: Option<u64>,
    /// Heads that go further: session, call. They are answered when everything before them is released, for then a leader uses its space again.
    heads: Vec<(u64, u32, At)>,
}

impl Served {
    /// If it is `held`, a thread reads the replica, and [releases](Self::release) what it has read.
    pub(crate) fn new(stored: StoredReplica, held: bool) -> Self {
        Self {
            stored,
            sessions: BTreeMap::new(),
            leaving: None,
            next: 1,
            released: held.then_some(0),
            heads: Vec::new(),
        }
    }

    /// The thread that hears a session closes it, too, when it has [left](Self::left).
    pub(super) fn closed_by_sessions(self) -> Self {
        Self { leaving: Some(Vec::new()), ..self }
    }

    pub(crate) fn stored(&self) -> &StoredReplica {
        &self.stored
    }

    #[cfg(test)]
    pub(crate) fn into_stored(self) -> StoredReplica {
        self.stored
    }

    /// Whether a thread reads it, and leaders are to wait for that.
    pub(super) fn is_held(&self) -> bool {
        self.released.is_some()
    }

    /// A peer has connected; nothing is granted yet.
    pub(crate) fn connected(&mut self, mut sender: Box<dyn Sender>, access: Access, peer: String) -> u64 {
        sender.queue_up_to(QUEUE_BYTES);
        let session = self.next;
        self.next += 1;
        self.sessions.insert(session, Session { sender, access, peer, waits: false, last_call: 0 });
        session
    }

    /// Something arrived in a session. An error is the replica's own: it has to stop.
    pub(crate) fn on_event(&mut self, session: u64, event: Event) -> Result<()> {
        if !self.sessions.contains_key(&session) {
            return Ok(()); // it was shut out
        }
        match event {
            Event::Message(bytes) => match decode::<ToReplica>(&bytes, self.stored.speaks().newest) {
                Some(ToReplica { call, request }) => {
                    let last = self.sessions.get_mut(&session).map(|s| &mut s.last_call);
                    if let Some(last) = last {
                        if call <= *last {
                            return Ok(());
                        }
                        *last = call;
                    }
                    if let Request::Head { head } = request
                        && self.is_to_wait(session, head)
                    {
                        self.heads.push((session, call, head));
                        return Ok(());
                    }
                    let answer = match request {
                        Request::Look { oldest } => self.stored.look(Versions::of_look(oldest, call)),
                        request => self.stored.answer(session, &request)?,
                    };
                    self.carry_out(session, call, answer);
                }
                None => self.close(session, "it sent what makes no sense"),
            },
            Event::Written { imm } => {
                match self.stored.written(session, u64::from(imm) * 8)? {
                    Ok(()) => self.sessions.entry(session).and_modify(|s| s.waits = true),
                    Err(why) => {
                        self.fail(session, why);
                        return Ok(());
                    }
                };
            }
            Event::Closed(reason) => self.close(session, &reason.to_string()),
            _ => {}
        }
        Ok(())
    }

    // ---- who reads it here ------------------------------------------------------------------------------------

    /// Whether the leader is to wait before it uses the space before this head again. It says that all of that is committed, which lets the reader go on.
    fn is_to_wait(&mut self, session: u64, head: At) -> bool {
        let needed = self.released.is_some_and(|released| head.lsn > released.saturating_add(1));
        needed && self.stored.is_writer(session) && self.stored.log_mut().is_some_and(|log| log.vouch(head))
    }

    /// The reader of the replica here has no need any more of records through this one.
    pub(super) fn release(&mut self, lsn: u64) -> Result<()> {
        let Some(released) = &mut self.released else { return Ok(()) };
        *released = lsn.max(*released);
        let (free, held) =
            std::mem::take(&mut self.heads).into_iter().partition(|head| head.2.lsn <= lsn.saturating_add(1));
        self.heads = held;
        for (session, call, head) in free {
            let answer = self.stored.answer(session, &Request::Head { head })?;
            self.carry_out(session, call, answer);
        }
        Ok(())
    }

    /// A leader waits for a release.
    pub(super) fn is_awaited(&self) -> bool {
        !self.heads.is_empty()
    }

    // ---- sessions ---------------------------------------------------------------------------------------------

    fn carry_out(&mut self, session: u64, call: u32, answer: Answer) {
        if let Some(old) = answer.revoke {
            self.shut_out(old);
        }
        if answer.grant
            && let Some(granted) = self.sessions.get(&session)
        {
            granted.access.set(Rights::Write);
        }
        let failed = matches!(answer.reply, Reply::Failed { .. });
        let message = FromReplica::Answer { call, reply: answer.reply };
        if failed {
            self.dismiss(session, &message, "it asked for what cannot be");
        } else {
            self.send(session, &message);
        }
    }

    /// A leader with a lower epoch: nothing it has under way arrives any more, and it is told.
    fn shut_out(&mut self, session: u64) {
        let why = "another leader has the promise";
        match self.stored.log().map(|log| log.promise.get()) {
            Some(promise) => {
                self.dismiss(session, &FromReplica::Fenced { epoch: promise.promised, owner: promise.owner }, why)
            }
            None => self.close(session, why),
        }
    }

    /// Ends a session with a last message. Rights go first, and with them the connection, if a device has used them.
    fn dismiss(&mut self, session: u64, last: &FromReplica, why: &str) {
        let Some(dismissed) = self.sessions.get(&session) else { return };
        if !dismissed.access.withdraw(&encode(last)) {
            self.send(session, last);
        }
        self.close(session, why);
    }

    fn send(&mut self, session: u64, message: &FromReplica) {
        let Some(to) = self.sessions.get_mut(&session) else { return };
        let sent = to.sender.send(&encode(message)).and_then(|()| to.sender.flush());
        if let Err(error) = sent {
            self.close(session, &error.to_string());
        }
    }

    fn fail(&mut self, session: u64, why: String) {
        let last = FromReplica::Answer { call: 0, reply: Reply::Failed { why: why.clone() } };
        self.dismiss(session, &last, &why);
    }

    /// False if the session is over.
    pub(super) fn has(&self, session: u64) -> bool {
        self.sessions.contains_key(&session)
    }

    /// No thread hears this session any more: it can do nothing further, nor can a device for it.
    pub(super) fn unheard(&mut self, session: u64) {
        self.close(session, "it is not heard any more");
    }

    fn close(&mut self, session: u64, why: &str) {
        self.stored.closed(session);
        self.heads.retain(|head| head.0 != session);
        if let Some(mut closed) = self.sessions.remove(&session) {
            tracing::info!(peer = closed.peer, why, "a session is over");
            closed.access.set(Rights::None);
            match &mut self.leaving {
                Some(leaving) => leaving.push((session, closed.sender)),
                None => closed.sender.close(),
            }
        }
    }

    /// The way to a session that is over, to be closed.
    pub(super) fn left(&mut self, session: u64) -> Option<Box<dyn Sender>> {
        let leaving = self.leaving.as_mut()?;
        let at = leaving.iter().position(|(left, _)| *left == session)?;
        Some(leaving.swap_remove(at).1)
    }

    /// True if records were written that are not acknowledged.
    pub(crate) fn has_dirty(&self) -> bool {
        self.stored.has_dirty()
    }

    /// Makes what was written persistent, with one barrier, and acknowledges it to the sessions that wrote it.
    pub(crate) fn persist(&mut self) -> Result<()> {
        let lsn = self.stored.persist()?;
        let mut lost = Vec::new();
        for (&id, session) in self.sessions.iter_mut().filter(|(_, session)| session.waits) {
            session.waits = false;
            let sent = session.sender.write_imm(0, &[], lsn as u32).and_then(|()| session.sender.flush());
            lost.extend(sent.err().map(|error| (id, error.to_string())));
        }
        lost.into_iter().for_each(|(session, why)| self.close(session, &why));
        Ok(())
    }
}
