//! A replica by itself.

use pmem::{ChecksumKey, Pool};

use super::wiring::LAYOUT;
use crate::Options;
use crate::at::At;
use crate::error::Result;
use crate::raw::{self, Claim};
use crate::record::{Header, Kind, RECORD_HEADER, space};
use crate::recovery::Walk;
use crate::replicate::members::{Config, Origin};
use crate::replicate::message::{Reply, Request, Walked};
use crate::replicate::stored::{Answer, StoredReplica};
use crate::space::read_header;

const ME: u64 = 1;

/// A position between two records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The record behind it.
    pub lsn: u64,
    /// Where the record before it ends.
    pub position: u64,
    /// The record behind it has at least this epoch.
    pub epoch: u32,
}

impl From<At> for Position {
    fn from(At { lsn, position, epoch }: At) -> Self {
        Self { lsn, position, epoch }
    }
}

impl From<Position> for At {
    fn from(Position { lsn, position, epoch }: Position) -> Self {
        Self { lsn, position, epoch }
    }
}

/// A replica, and the leader that it hears.
pub struct Alone {
    replica: StoredReplica,
    /// Of the leader: its epoch.
    session: u64,
}

/// What a replica says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// No leader with a lower epoch is heard.
    pub promised: u32,
    /// Of the last leader that repaired it.
    pub epoch: u32,
    /// The oldest record there is.
    pub head: Position,
    /// The log's replicas and the write quorum, by that epoch.
    pub members: Option<(Vec<u64>, u32)>,
}

/// What a replica has from its head on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Number and payload of each record.
    pub records: Vec<(u64, Vec<u8>)>,
    /// Behind them.
    pub end: Position,
    /// The replica says that there may have been more.
    pub doubt: bool,
}

impl Alone {
    /// The replica in a pool, which may be empty.
    ///
    /// # Errors
    /// Those of the pool; it is damaged.
    pub fn open(pool: &Pool, options: &Options) -> Result<Self> {
        Self::open_in(pool, crate::NAME, options)
    }

    /// The replica in a region of a pool.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_in(pool: &Pool, region: &str, options: &Options) -> Result<Self> {
        Ok(Self { replica: StoredReplica::open_in(pool, region, options.failpoints())?, session: 0 })
    }

    /// What it is; none for an empty one.
    pub fn told(&self) -> Option<Told> {
        let formed = self.replica.log()?.formed();
        Some(Told {
            promised: formed.promised,
            epoch: formed.log_epoch,
            head: formed.head.into(),
            members: formed.config.map(|config| (config.ids, config.write_quorum)),
        })
    }

    /// It becomes a replica. Like each of the others, false if it refuses.
    ///
    /// # Errors
    /// Its own: like each of the others', it can do nothing any more.
    pub fn format(&mut self) -> Result<bool> {
        let answer = self.replica.answer(0, &Request::Format { layout: LAYOUT, me: ME })?;
        Ok(matches!(answer.reply, Reply::State(state) if state.formed.is_some()))
    }

    /// It promises to hear no leader before the one of this epoch.
    ///
    /// # Errors
    /// Its own.
    pub fn promise(&mut self, epoch: u32) -> Result<bool> {
        let (session, owner) = (u64::from(epoch), u64::from(epoch));
        let Answer { grant, .. } = self.replica.answer(session, &Request::Promise { epoch, owner })?;
        if grant {
            self.session = session;
        }
        Ok(grant)
    }

    /// The leader writes into the segments.
    ///
    /// # Errors
    /// Outside of them.
    pub fn put(&mut self, position: u64, bytes: &[u8]) -> std::io::Result<()> {
        let Some(log) = self.replica.log() else { return Ok(()) };
        let offset = log.geometry.locate(position) - log.geometry.offset(0);
        fabric::Window::write(&*self.replica.window(), offset, bytes)
    }

    /// It says that so many bytes were records.
    ///
    /// # Errors
    /// Its own.
    pub fn written(&mut self, len: u64) -> Result<bool> {
        Ok(self.replica.written(self.session, len)?.is_ok())
    }

    /// What was written becomes persistent; through which record all is then.
    ///
    /// # Errors
    /// Its own.
    pub fn persist(&mut self) -> Result<u64> {
        self.replica.persist()
    }

    /// It hears where the log is, and of which replicas.
    ///
    /// # Errors
    /// Its own.
    pub fn install(&mut self, head: Position, end: Position, members: &[u64], write_quorum: u32) -> Result<bool> {
        let config = Config::of(members.to_vec(), write_quorum);
        let request = Request::Install { head: head.into(), end: end.into(), config, origin: Origin::default() };
        Ok(self.replica.answer(self.session, &request)?.reply == Reply::Installed)
    }

    /// It hears that records before this are not needed.
    ///
    /// # Errors
    /// Its own.
    pub fn move_head(&mut self, head: Position) -> Result<bool> {
        Ok(self.replica.answer(self.session, &Request::Head { head: head.into() })?.reply == Reply::HeadMoved)
    }

    /// What it would tell the leader that it promised to.
    ///
    /// # Errors
    /// Its own.
    pub fn walk(&mut self) -> Result<Option<Found>> {
        let Some(told) = self.told() else { return Ok(None) };
        let request = Request::Walk { from: told.head.into(), until: u64::MAX, epoch: told.epoch };
        let Reply::Walked(Walked { end, doubt, through }) = self.replica.answer(self.session, &request)?.reply else {
            return Ok(None);
        };
        let (doubt, end) = (doubt || through >= end.lsn, Position::from(end));
        Ok(Some(Found { records: self.read(told.head, end)?, end, doubt }))
    }

    /// The records that are whole here, without a gap, whichever leader is heard.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn records(&self) -> Result<Vec<(u64, Vec<u8>)>> {
        let (Some(log), Some(told)) = (self.replica.log(), self.told()) else { return Ok(Vec::new()) };
        let Walk { lsn, position, epoch, .. } = log.reader(self.replica.pool()).walk()?;
        self.read(told.head, Position { lsn, position, epoch })
    }

    /// The records between two positions, each known to be whole.
    fn read(&self, head: Position, end: Position) -> Result<Vec<(u64, Vec<u8>)>> {
        let Some(log) = self.replica.log() else { return Ok(Vec::new()) };
        let pool = self.replica.pool();
        let (mut records, mut lsn, mut position) = (Vec::new(), head.lsn, head.position);
        while lsn < end.lsn {
            for at in log.geometry.candidates(position) {
                let offset = log.geometry.locate(at);
                let bytes = read_header(pool, Claim::Opening, offset)?;
                let Some(header) = Header::decode(&bytes, lsn).filter(|h| h.lsn == lsn) else { continue };
                let payload = raw::bytes(Claim::Opening, pool, pool, offset + RECORD_HEADER, u64::from(header.len))?;
                if header.verifies(&log.key, &bytes, payload) {
                    records.push((lsn, payload.to_vec()));
                    position = at + header.space(at);
                    break;
                }
            }
            lsn += 1;
        }
        Ok(records)
    }
}

/// The bytes of a record at a position, as its leader writes them.
#[must_use]
pub fn record(at: Position, payload: &[u8]) -> Vec<u8> {
    let key = ChecksumKey::new(LAYOUT.key, LAYOUT.log);
    let (lsn, epoch, len) = (at.lsn, at.epoch, payload.len() as u32);
    let header = Header { lsn, forced_back: 0, epoch, kind: Kind::Data, len, to_line: false };
    let mut bytes = header.encode(&key, key.sum(payload)).to_vec();
    bytes.extend(payload);
    bytes.resize(space(at.position, payload.len() as u64, false) as usize, 0);
    bytes
}
