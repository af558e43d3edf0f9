//! One replica of a log: what it promised, what it has, what it acknowledges. Requests and written records come in, answers go out; there is no clock, no thread
//! and no network in it, so that the simulator drives what the process drives.
//!
//! Invariants, and what keeps them:
//!
//! * A session that has no promise changes nothing: [`StoredReplica::answer`] and [`StoredReplica::written`] know the session that has it. That its writes do not land in
//!   the window either is the business of the owner of the connections: [`Answer::revoke`] names them *before* the answer goes out.
//! * A promise is persistent before it is given, and never gets smaller.
//! * What is acknowledged is whole, without a gap and persistent: [`StoredReplica::written`] verifies each record where it stands, [`StoredReplica::persist`] drains.
//! * The superline has the epoch of a leader only behind everything that leader said the log has: [`StoredReplica::install`].

use std::sync::Arc;

use pmem::{ChecksumKey, LINE, Pool, Region, TwoSlot};

use super::at::{At, PIECE, Span};
use super::members::{Config, Layout, MAGIC, Origin, Promise};
use super::message::{DIGESTS, DIGESTS_MAX, Formed, Reply, Request, State, Walked};
use super::window::ReplicaWindow;
use super::wire::Versions;
use crate::Lsn;
use crate::error::{Error, Result};
use crate::failpoints::{Failpoints, Step};
use crate::front::{Front, NAME, Parts, REGION_KIND};
use crate::raw::{self, Claim};
use crate::record::{Header, Kind, RECORD_HEADER};
use crate::recovery::{Reader, Walk};
use crate::space::{Geometry, read_header};
use crate::superline::{REPLICA_VERSION, SEGMENT_MAX, SEGMENT_MIN, Superline, front_of, is_unfinished};

/// What one walk reads, at most: a candidate that asks waits for the answer only so long, and a log that is not in memory is read slowly.
pub(crate) const WALK_BYTES: u64 = if cfg!(test) { 1 << 10 } else { 64 << 20 };

/// A replica of a log, in a pool. It is empty until a leader says of which log it is to be a replica.
pub(crate) struct StoredReplica {
    pool: Pool,
    region: String,
    log: Option<Log>,
    window: Arc<ReplicaWindow>,
    /// The session that has the promise.
    writer: Option<u64>,
    speaks: Versions,
    failpoints: Failpoints,
}

/// The log that it is a replica of.
pub(crate) struct Log {
    region: Region,
    pub(crate) geometry: Geometry,
    cell: TwoSlot<Superline>,
    pub(super) promise: TwoSlot<Promise>,
    pub(crate) key: ChecksumKey,
    /// Records before this are whole here.
    received: At,
    /// And persistent, and acknowledged.
    persisted: At,
    /// Records through this one are committed, by what leaders said: whatever comes, they stay.
    committed: u64,
    /// Written since, from the start of the pool: offset and length.
    dirty: Vec<(u64, u64)>,
    /// Since `persisted` was set nothing was lost: what is behind it was never acknowledged.
    knows: bool,
    /// What is verified is copied here first: a device may write where it stands.
    scratch: Vec<u8>,
}

/// What there is to do after a request, in this order.
pub(crate) struct Answer {
    /// These sessions may not touch the window any more.
    pub(super) revoke: Option<u64>,
    /// This one may.
    pub(crate) grant: bool,
    /// To be sent.
    pub(crate) reply: Reply,
}

impl Answer {
    fn plain(reply: Reply) -> Self {
        Self { revoke: None, grant: false, reply }
    }
}

impl StoredReplica {
    /// The replica in this pool, which may be empty.
    pub(crate) fn open(pool: &Pool, failpoints: Failpoints) -> Result<Self> {
        Self::open_in(pool, NAME, failpoints)
    }

    /// The replica in this region of a pool, which need not be there yet.
    pub(crate) fn open_in(pool: &Pool, region: &str, failpoints: Failpoints) -> Result<Self> {
        let window = Arc::new(ReplicaWindow::new(pool.clone()));
        let log = match pool.region(region) {
            Err(pmem::Error::NoRegion { .. }) => None,
            Err(other) => return Err(other.into()),
            Ok(found) => {
                drop(found);
                if is_unfinished(pool, region, 0)? { None } else { Some(Log::open(pool, region)?) }
            }
        };
        if let Some(log) = &log {
            window.set(&log.geometry);
        }
        let (pool, region, speaks) = (pool.clone(), region.to_owned(), Versions::default());
        Ok(Self { pool, region, log, window, writer: None, speaks, failpoints })
    }

    /// The same for a replica that speaks these versions.
    pub(crate) fn speaking(self, speaks: Versions) -> Self {
        Self { speaks, ..self }
    }

    pub(super) fn speaks(&self) -> Versions {
        self.speaks
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// What peers write into.
    pub(crate) fn window(&self) -> Arc<ReplicaWindow> {
        Arc::clone(&self.window)
    }

    pub(crate) fn log(&self) -> Option<&Log> {
        self.log.as_ref()
    }

    pub(super) fn log_mut(&mut self) -> Option<&mut Log> {
        self.log.as_mut()
    }

    pub(crate) fn into_log(self) -> Option<Log> {
        self.log
    }

    pub(crate) fn is_writer(&self, session: u64) -> bool {
        self.writer == Some(session)
    }

    // ---- requests ---------------------------------------------------------------------------------------------

    /// Does what a session asks. An error is this replica's own: it can do nothing any more.
    pub(crate) fn answer(&mut self, session: u64, request: &Request) -> Result<Answer> {
        match request {
            // Its session knows the number of the call as well, and asks `look` itself.
            Request::Look { oldest } => Ok(self.look(Versions::only(*oldest))),
            Request::Format { layout, me } => self.format(layout, *me),
            Request::Promise { epoch, owner } => self.promise(session, *epoch, *owner),
            _ if !self.is_writer(session) && !self.failpoints.skips(Step::Fence) => {
                Ok(self.refused().unwrap_or_else(|| failed("it has promised nothing yet".into())))
            }
            Request::Walk { from, until, epoch } => {
                self.with_log(|log, pool, failpoints| log.walk(pool, *from, *until, *epoch, failpoints))
            }
            Request::Digest { span } => self.with_log(|log, pool, _| log.digests(pool, *span)),
            Request::Install { head, end, config, origin } => {
                self.with_log(|log, pool, failpoints| log.install(pool, *head, *end, config, *origin, failpoints))
            }
            Request::Head { head } => self.with_log(|log, _, _| log.set_head(*head)),
        }
    }

    /// Whether all records through this one are whole, as far as it has not forgotten them.
    #[cfg(test)]
    pub(crate) fn has_through(&self, lsn: u64) -> bool {
        let Some(log) = &self.log else { return lsn == 0 };
        let superline = log.cell.get();
        let (head, epoch) = (superline.head(), superline.head_epoch);
        let mut reader =
            Reader::new(&self.pool, &log.region, &log.geometry, &log.key, superline, self.failpoints).shared();
        let walk = reader.walk_until(lsn + 1, head.lsn, head.position, epoch, u64::MAX);
        walk.is_ok_and(|walk| walk.lsn > lsn)
    }

    /// What it says to a leader that speaks these versions.
    pub(super) fn look(&self, asking: Versions) -> Answer {
        let Versions { oldest, newest } = self.speaks;
        let common = match self.speaks.common(asking) {
            None => return failed(self.speaks.refusal(asking)),
            Some(_) if self.failpoints.skips(Step::CommonVersion) => newest,
            Some(common) => common,
        };
        let state = self.state();
        Answer::plain(if Versions::tells(common) {
            Reply::Speaks { oldest, newest, state }
        } else {
            Reply::State(state)
        })
    }

    fn with_log(&mut self, act: impl FnOnce(&mut Log, &Pool, Failpoints) -> Result<Reply>) -> Result<Answer> {
        match &mut self.log {
            Some(log) => act(log, &self.pool, self.failpoints).map(Answer::plain),
            None => Ok(failed("it is no replica of a log yet".into())),
        }
    }

    fn state(&self) -> State {
        State { formed: self.log.as_ref().map(Log::formed) }
    }

    fn refused(&self) -> Option<Answer> {
        let promise = self.log.as_ref()?.promise.get();
        Some(Answer::plain(Reply::Refused { promised: promise.promised, owner: promise.owner }))
    }

    /// Makes the region of an empty replica; done again, it says what is there.
    fn format(&mut self, layout: &Layout, me: u64) -> Result<Answer> {
        if let Some(log) = &self.log {
            let formed = log.formed();
            if formed.layout != *layout || formed.me != me {
                return Ok(failed(format!("it is replica {:x} of log {:x} already", formed.me, formed.layout.log)));
            }
        } else {
            if let Err(why) = layout.check() {
                return Ok(failed(why));
            }
            match Log::create(&self.pool, &self.region, layout, me, self.failpoints) {
                Err(Error::Pool(
                    why @ (pmem::Error::NoSpace { .. } | pmem::Error::Limit { .. } | pmem::Error::Reserve { .. }),
                )) => {
                    return Ok(failed(format!("it has no room for the log: {why}")));
                }
                other => self.log = Some(other?),
            }
        }
        if let Some(log) = &self.log {
            self.window.set(&log.geometry);
        }
        Ok(Answer::plain(Reply::State(self.state())))
    }

    fn promise(&mut self, session: u64, epoch: u32, owner: u64) -> Result<Answer> {
        let Some(log) = &mut self.log else { return Ok(Answer::plain(Reply::State(self.state()))) };
        if epoch == u32::MAX {
            return Ok(failed("there is no epoch behind that one".into()));
        }
        let promise = log.promise.get();
        let mine = epoch == promise.promised && owner == promise.owner;
        let again = self.failpoints.skips(Step::PromiseOnce) || self.failpoints.skips(Step::RaisePromise);
        if epoch < promise.promised || epoch == promise.promised && !mine && !again {
            return Ok(self.refused().unwrap_or_else(|| Answer::plain(Reply::State(self.state()))));
        }
        if !mine {
            log.promise.update_mirrored(&promise.promising(epoch, owner))?;
        }
        if self.failpoints.skips(Step::TwoEpochs) {
            // One field for both: a replica that promised passes for repaired.
            let superline = log.cell.get();
            let (config, origin) =
                (log.promise.get().config(superline.epoch), log.promise.get().origin(superline.epoch));
            if let Some(config) = config {
                log.promise.update_mirrored(&log.promise.get().with_config(superline.epoch, epoch, &config, origin))?;
                log.cell.update_mirrored(&Superline { epoch, ..superline })?;
            }
        }
        let fences = !self.failpoints.skips(Step::Fence);
        let revoke = self.writer.replace(session).filter(|&old| old != session && fences);
        Ok(Answer { revoke, grant: true, reply: Reply::State(self.state()) })
    }

    /// The session is over.
    pub(super) fn closed(&mut self, session: u64) {
        if self.is_writer(session) {
            self.writer = None;
        }
    }

    // ---- records ----------------------------------------------------------------------------------------------

    /// The leader has written so many bytes of records behind those before; they are acknowledged with the next [`persist`](Self::persist).
    /// Returns why the session has to be closed, if it has.
    pub(crate) fn written(&mut self, session: u64, len: u64) -> Result<std::result::Result<(), String>> {
        if !self.is_writer(session) && !self.failpoints.skips(Step::Fence) {
            return Ok(Err("another leader has the promise".into()));
        }
        let Some(log) = &mut self.log else { return Ok(Err("it is no replica of a log yet".into())) };
        if log.cell.get().epoch != log.promise.get().promised && !self.failpoints.skips(Step::Fence) {
            return Ok(Err("it was not repaired yet".into()));
        }
        log.take(&self.pool, len)
    }

    /// True if records were written that are not persistent.
    pub(super) fn has_dirty(&self) -> bool {
        self.log.as_ref().is_some_and(|log| !log.dirty.is_empty())
    }

    /// Makes what was written persistent: one barrier, whatever the number of writes. Returns through which record all is.
    pub(crate) fn persist(&mut self) -> Result<u64> {
        let Some(log) = &mut self.log else { return Ok(0) };
        for (offset, len) in log.dirty.drain(..) {
            self.pool.flush(offset, len)?;
        }
        if !self.failpoints.skips(Step::PersistFirst) {
            self.pool.drain()?;
        }
        log.persisted = log.received;
        Ok(log.persisted.lsn - 1)
    }
}

fn failed(why: String) -> Answer {
    Answer::plain(Reply::Failed { why })
}

impl Layout {
    /// What came from outside.
    fn check(&self) -> std::result::Result<(), String> {
        if !(1..=2).contains(&self.checksums) {
            return Err(format!(
                "its records are checksummed as in format version {}, which this build does not know",
                self.checksums
            ));
        }
        let (bytes, segments) = (self.segment_bytes, self.segments);
        let good = (SEGMENT_MIN..=SEGMENT_MAX).contains(&bytes) && bytes.is_multiple_of(LINE);
        if !good || !(2..=1 << 32).contains(&segments) || bytes.checked_mul(segments).is_none_or(|all| all > 1 << 46) {
            return Err(format!("a log of {segments} segments of {bytes} bytes cannot be"));
        }
        Ok(())
    }
}

// ---- the log of a replica -----------------------------------------------------------------------------------

/// Bytes of the pool, as they are now.
fn fill<'a>(scratch: &'a mut Vec<u8>, pool: &Pool, offset: u64, len: u64) -> Result<&'a [u8]> {
    scratch.resize(scratch.len().max(len as usize), 0);
    let into = &mut scratch[..len as usize];
    raw::copy_out(Claim::Shared, pool, offset, into)?;
    Ok(into)
}

impl Log {
    fn create(pool: &Pool, name: &str, layout: &Layout, me: u64, failpoints: Failpoints) -> Result<Self> {
        let front = Front::Two;
        let len = front.bytes() + layout.segment_bytes * layout.segments;
        let region = match pool.add_region_as(name, len, REGION_KIND, 0) {
            Err(pmem::Error::RegionExists { .. }) => pool.region(name)?, // its making was cut short
            other => other?,
        };
        if region.len() < len || region.areas().len() != 1 {
            let (offset, why) =
                (region.areas().first().map_or(0, pmem::Area::offset), "it was begun with another size");
            return Err(Error::NotALog { region: name.to_owned(), offset, why });
        }
        let Parts { superline: superline_area, promise: promise_area, region } = front.split(region)?;
        let promise = Promise::new(layout, me);
        let mut superline = Superline::new(front, layout.log, layout.segment_bytes, layout.segments);
        superline.version = REPLICA_VERSION;
        superline.closed = 0;
        if failpoints.skips(Step::PromiseFirst) {
            let cell = front.create(superline_area, &superline)?;
            return Ok(Self::assemble(region, cell, front.create(promise_area, &promise)?));
        }
        // The superline last: a replica without one is not a replica yet.
        let promise_cell = front.create(promise_area, &promise)?;
        let cell = front.create(superline_area, &superline)?;
        Ok(Self::assemble(region, cell, promise_cell))
    }

    /// Opens the replica in a region.
    fn open(pool: &Pool, name: &str) -> Result<Self> {
        let region = pool.region(name)?;
        let first = region.areas().first().map_or(0, pmem::Area::offset);
        let not = |why| Error::NotALog { region: name.to_owned(), offset: first, why };
        let front = front_of(&region);
        if region.kind() != REGION_KIND.code() || region.areas()[0].len() <= front.bytes() {
            return Err(not("the directory says it is something else"));
        }
        let Parts { superline: superline_area, promise: promise_area, region } = front.split(region)?;
        let (cell, _) = front.open::<Superline>(superline_area)?;
        let superline = cell.get();
        superline.validate(front, first, name, region.len())?;
        if !superline.is_replica() {
            return Err(not("it is a log of its own, not a replica of one"));
        }
        if region.areas().len() != 1 {
            return Err(not("its segments are not one behind the other"));
        }
        let (promise_cell, _) = front.open::<Promise>(promise_area)?;
        if promise_cell.get().magic != MAGIC {
            return Err(not("its promise has another magic"));
        }
        Ok(Self::assemble(region, cell, promise_cell))
    }

    fn assemble(region: Region, cell: TwoSlot<Superline>, promise: TwoSlot<Promise>) -> Self {
        let superline = cell.get();
        let geometry = Geometry::new(superline.segment_bytes, superline.circle(), &region);
        let head = superline.head();
        let key = promise.get().checksum_key(superline.id);
        let committed = head.lsn - 1;
        let (received, persisted, dirty, scratch) = (head, head, Vec::new(), Vec::new());
        Self { region, geometry, cell, promise, key, received, persisted, committed, dirty, knows: false, scratch }
    }

    /// For the log's leader: region, offsets, superline, promise, key of the records.
    pub(crate) fn into_parts(self) -> (Region, Geometry, TwoSlot<Superline>, TwoSlot<Promise>, ChecksumKey) {
        (self.region, self.geometry, self.cell, self.promise, self.key)
    }

    pub(super) fn head(&self) -> At {
        self.cell.get().head()
    }

    pub(crate) fn formed(&self) -> Formed {
        let (superline, promise) = (self.cell.get(), self.promise.get());
        let layout = Layout {
            log: superline.id,
            key: promise.key,
            segment_bytes: superline.segment_bytes,
            segments: self.geometry.circle.segments(),
            checksums: promise.checksums(),
        };
        Formed {
            layout,
            me: promise.me,
            promised: promise.promised,
            owner: promise.owner,
            log_epoch: superline.epoch,
            config: promise.config(superline.epoch),
            origin: promise.origin(superline.epoch),
            head: superline.head(),
            next: self.persisted.lsn,
            knows: self.knows,
        }
    }

    pub(crate) fn reader<'a>(&'a self, pool: &'a Pool) -> Reader<'a> {
        Reader::new(pool, &self.region, &self.geometry, &self.key, self.cell.get(), Failpoints::default())
    }

    /// True if positions from `from` to `to` can be in the log at once.
    fn has(&self, from: u64, to: u64) -> bool {
        let all = self.geometry.circle.segments() * self.geometry.segment_bytes;
        from < 1 << 62 && from.is_multiple_of(8) && to.is_multiple_of(8) && from <= to && to - from <= all
    }

    fn walk(&mut self, pool: &Pool, from: At, until: u64, epoch: u32, failpoints: Failpoints) -> Result<Reply> {
        if !self.has(from.position, from.position) || from.lsn == 0 || from.lsn >= 1 << 62 {
            return Ok(Reply::Failed { why: format!("no record can be at {}", from.position) });
        }
        let head = self.cell.get().head();
        let head = if from.position > head.position { from } else { head };
        // A head that others have already moved frees what is before it.
        let superline = Superline { head_lsn: head.lsn, head_position: head.position, epoch, ..self.cell.get() };
        let mut reader = Reader::new(pool, &self.region, &self.geometry, &self.key, superline, failpoints).shared();
        let Walk { lsn, position, epoch, .. } =
            reader.walk_until(until, from.lsn, from.position, from.epoch, WALK_BYTES)?;
        let end = At { lsn, position, epoch };
        if position - from.position >= WALK_BYTES {
            return Ok(Reply::Walked(Walked { end, doubt: false, through: 0 })); // it is asked on from there
        }
        let walk = Walk { lsn, position, epoch, opened: [].into(), records: 0, bytes: 0 };
        let (through, doubt) = reader.behind(&walk)?;
        // A replica that has been there all the time knows better than the bytes do.
        let doubt = if self.knows { lsn < self.persisted.lsn } else { doubt };
        Ok(Reply::Walked(Walked { end, doubt, through }))
    }

    fn digests(&mut self, pool: &Pool, span: Span) -> Result<Reply> {
        if !self.has(span.from, span.to) || (span.to - span.from) / PIECE.min(self.geometry.segment_bytes) > DIGESTS_MAX
        {
            return Ok(Reply::Failed { why: format!("there are no bytes {} to {}", span.from, span.to) });
        }
        let mut digests = Vec::new();
        let key = self.key.derived(DIGESTS);
        for piece in span.pieces(self.geometry.segment_bytes) {
            let len = piece.to - piece.from;
            let offset = self.geometry.locate(piece.from);
            self.region.areas()[0].probe("segment of a log", offset - self.region.areas()[0].offset(), len)?;
            digests.push(key.checksum(fill(&mut self.scratch, pool, offset, len)?));
        }
        Ok(Reply::Digests(digests))
    }

    /// Everything the leader says the log has stands here now: makes it so. Four barriers.
    fn install(
        &mut self,
        pool: &Pool,
        head: At,
        end: At,
        config: &Config,
        origin: Origin,
        failpoints: Failpoints,
    ) -> Result<Reply> {
        if !self.has(head.position, end.position) || head.lsn == 0 || end.lsn < head.lsn || end.lsn >= 1 << 62 {
            return Ok(Reply::Failed { why: format!("a log from {} to {} cannot be", head.position, end.position) });
        }
        if let Err(why) = config.check() {
            return Ok(Reply::Failed { why: why.to_string() });
        }
        let (superline, promise) = (self.cell.get(), self.promise.get());
        let epoch = promise.promised;
        // A leader has its replicas say that they know a head before its own is there: to install its log once more takes none back.
        let told =
            superline.epoch == epoch && superline.head_position > head.position && !failpoints.skips(Step::KeepHead);
        let head = if told { superline.head() } else { head };
        let line = Superline {
            head_lsn: head.lsn,
            head_position: head.position,
            head_epoch: head.epoch.min(epoch),
            ..superline
        };
        // Flushes from the head to the end, and erases what begins behind. Persistent with the first barrier of the promise, before the superline vouches for it.
        let walk = Walk { lsn: end.lsn, position: end.position, epoch, opened: [].into(), records: 0, bytes: 0 };
        Reader::new(pool, &self.region, &self.geometry, &self.key, line, failpoints).shared().persist_read(&walk)?;
        if failpoints.skips(Step::ConfigFirst) {
            self.cell.update_mirrored(&Superline { epoch, ..line })?;
        }
        self.promise.update_mirrored(&promise.with_config(superline.epoch, epoch, config, origin))?;
        self.cell.update_mirrored(&Superline { epoch, ..line })?;
        (self.received, self.persisted, self.knows) = (end, end, true);
        self.committed = self.committed.max(head.lsn - 1);
        self.dirty.clear();
        Ok(Reply::Installed)
    }

    /// The leader's log begins here: what is before it is committed. False if that cannot be.
    pub(super) fn vouch(&mut self, head: At) -> bool {
        let superline = self.cell.get();
        let behind = self.has(superline.head_position, head.position) && head.lsn >= superline.head_lsn;
        if behind && head.lsn <= self.received.lsn {
            self.committed = self.committed.max(head.lsn - 1);
            return true;
        }
        false
    }

    fn set_head(&mut self, head: At) -> Result<Reply> {
        let superline = self.cell.get();
        if !self.vouch(head) {
            return Ok(Reply::Failed { why: format!("the head cannot be at {}", head.position) });
        }
        let (head_lsn, head_position, head_epoch) = (head.lsn, head.position, head.epoch.min(superline.epoch));
        self.cell.update_mirrored(&Superline { head_lsn, head_position, head_epoch, ..superline })?;
        Ok(Reply::HeadMoved)
    }

    /// Takes note of so many bytes of records behind those before, each verified where it stands.
    fn take(&mut self, pool: &Pool, len: u64) -> Result<std::result::Result<(), String>> {
        let mut start = None;
        let mut at = self.received;
        for candidate in self.geometry.candidates(at.position) {
            if let Some(header) = self.whole(pool, candidate, at.lsn)? {
                start = Some(candidate);
                at = At { lsn: at.lsn + 1, position: candidate + header.space(candidate), epoch: header.epoch };
                self.committed = self.committed.max(header.forced());
                break;
            }
        }
        let Some(start) = start else { return Ok(Err(format!("record {} did not arrive whole", at.lsn))) };
        let end = start.saturating_add(len);
        while at.position < end {
            let Some(header) = self.whole(pool, at.position, at.lsn)? else {
                return Ok(Err(format!("record {} did not arrive whole", at.lsn)));
            };
            self.committed = self.committed.max(header.forced());
            at = At { lsn: at.lsn + 1, position: at.position + header.space(at.position), epoch: header.epoch };
        }
        if at.position != end {
            return Ok(Err(format!("record {} is longer than what arrived", at.lsn - 1)));
        }
        let mut from = start;
        while from < end {
            let to = end.min(from + self.geometry.rest(from));
            self.dirty.push((self.geometry.locate(from), to - from));
            from = to;
        }
        self.received = at;
        Ok(Ok(()))
    }

    /// Adds what is committed and stands here from `at` on, about so many bytes of it; returns where it ends.
    pub(super) fn read(&self, pool: &Pool, at: At, most: usize, records: &mut Vec<(Lsn, Vec<u8>)>) -> Result<At> {
        let head = self.cell.get().head();
        let mut at = if at.position < head.position { head } else { at };
        let (mut bytes, mut payload) = (0, Vec::new());
        'next: while at.lsn <= self.committed && bytes < most {
            for position in self.geometry.candidates(at.position) {
                let found = self.stands(pool, position, at.lsn, &mut payload)?;
                let Some(header) = found.filter(|header| header.epoch >= at.epoch) else { continue };
                bytes += header.len as usize + RECORD_HEADER as usize;
                if header.kind == Kind::Data {
                    records.push((Lsn(at.lsn), payload[..header.len as usize].to_vec()));
                }
                at = At { lsn: at.lsn + 1, position: position + header.space(position), epoch: header.epoch };
                continue 'next;
            }
            break; // it is being repaired
        }
        Ok(at)
    }

    /// The record that stands there, if it is this one and of this epoch.
    fn whole(&mut self, pool: &Pool, position: u64, lsn: u64) -> Result<Option<Header>> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let found = self.stands(pool, position, lsn, &mut scratch);
        self.scratch = scratch;
        Ok(found?.filter(|header| header.epoch == self.cell.get().epoch))
    }

    /// The record that stands there, if it is this one, and its payload, copied: a device may write there.
    fn stands(&self, pool: &Pool, position: u64, lsn: u64, payload: &mut Vec<u8>) -> Result<Option<Header>> {
        let offset = self.geometry.locate(position);
        if self.geometry.rest(position) < RECORD_HEADER {
            return Ok(None);
        }
        let bytes = read_header(pool, Claim::Shared, offset)?;
        let header = Header::decode(&bytes, lsn).filter(|h| h.lsn == lsn);
        let fits = |h: &Header| RECORD_HEADER + u64::from(h.len) <= self.geometry.rest(position);
        let Some(header) = header.filter(fits) else { return Ok(None) };
        let payload = fill(payload, pool, offset + RECORD_HEADER, u64::from(header.len))?;
        Ok(header.verifies(&self.key, &bytes, payload).then_some(header))
    }
}
