//! A thread that draws operations of an open log.

use log::{Error, Iter, Log, Lsn, Reservation};
use pmem::sync::switch_point;

use super::model::{State, World};
use super::operations::Kind;
use super::outside::Outside;
use crate::support::Rng;

/// A reservation, and what it is filled with.
struct Held<'a> {
    record: Reservation<'a>,
    number: usize,
    payload: Vec<u8>,
    filled: usize,
}

/// An iterator, and how far it is.
struct Reading<'a> {
    iter: Iter<'a>,
    kind: Kind,
    /// It gives nothing before this record, and misses nothing from the other on.
    least: u64,
    from: u64,
}

pub struct Thread<'a> {
    pub number: usize,
    pub log: &'a Log,
    pub outside: &'a Outside,
    /// What it draws from.
    pub kinds: Vec<Kind>,
    pub rng: Rng,
    held: Option<Held<'a>>,
    reading: Option<Reading<'a>>,
}

impl<'a> Thread<'a> {
    pub fn new(number: usize, log: &'a Log, outside: &'a Outside, kinds: Vec<Kind>, rng: Rng) -> Self {
        Self { number, log, outside, kinds, rng, held: None, reading: None }
    }

    pub fn run(mut self, operations: u64) {
        for _ in 0..operations {
            let kind = self.kinds[self.rng.below(self.kinds.len() as u64) as usize];
            self.once(kind);
        }
        self.let_go();
        self.stop_reading();
    }

    fn world(&self) -> std::sync::MutexGuard<'a, World> {
        self.outside.world()
    }

    fn once(&mut self, kind: Kind) {
        if kind.is_outside() || kind == Kind::Refused {
            self.outside.once(self.number, kind, &mut self.rng);
            return;
        }
        // What waits for records before it must not hold one of them.
        let waits = [Kind::Append, Kind::Force, Kind::ForceNow, Kind::TruncateAll, Kind::Idle, Kind::Reserve];
        if waits.contains(&kind) {
            self.let_go();
        }
        if matches!(kind, Kind::Fill | Kind::Complete | Kind::GiveUp) && self.held.is_none() {
            self.call(Kind::Reserve);
        }
        if matches!(kind, Kind::Next | Kind::Position) && self.reading.is_none() {
            let from = self.rng.below(2) == 0;
            self.call(if from { Kind::IterFrom } else { Kind::Iter });
        }
        self.call(kind);
    }

    fn call(&mut self, kind: Kind) {
        self.world().begins(self.number, kind);
        switch_point();
        match kind {
            Kind::Append | Kind::TooLong => self.appends(kind),
            Kind::Reserve | Kind::Fill | Kind::Complete | Kind::GiveUp => self.reserves(kind),
            Kind::Force | Kind::ForceNow | Kind::Post | Kind::Forced | Kind::Window => self.forces(kind),
            Kind::Iter | Kind::IterFrom | Kind::Next | Kind::Position => self.reads(kind),
            Kind::Discard | Kind::TruncateTo | Kind::TruncateAll | Kind::Reclaim | Kind::Grow => self.discards(kind),
            _ => self.looks(kind),
        }
        switch_point();
        self.world().ends(self.number, kind);
        if let Some(reading) = &self.reading {
            self.world().holds(self.number, reading.kind);
        }
        if self.held.is_some() {
            self.world().holds(self.number, Kind::Reserve);
        }
    }

    fn let_go(&mut self) {
        if self.held.is_some() {
            let gives_up = self.rng.below(4) == 0;
            self.call(if gives_up { Kind::GiveUp } else { Kind::Complete });
        }
    }

    fn stop_reading(&mut self) {
        if let Some(reading) = self.reading.take() {
            self.world().ends(self.number, reading.kind);
        }
    }

    fn len(&mut self) -> usize {
        let most = self.log.payload_max();
        let len = match self.rng.below(8) {
            0 => most - self.rng.below(30),
            1..3 => self.rng.below(most / 2),
            _ => self.rng.below(60),
        };
        len as usize
    }

    // ---- write ------------------------------------------------------------------------------------------------

    fn appends(&mut self, kind: Kind) {
        if kind == Kind::TooLong {
            let most = self.log.payload_max();
            let refused = self.log.append(&vec![0; most as usize + 1]);
            assert!(matches!(refused, Err(Error::TooLong { max, .. }) if max == most), "{refused:?}");
            assert!(matches!(self.log.reserve(most as usize + 1), Err(Error::TooLong { .. })));
            return;
        }
        let len = self.len();
        let (number, payload) = self.world().model.begin(len, State::Doubt);
        let appended = self.log.append(&payload);
        let mut world = self.world();
        match appended {
            Ok(lsn) => {
                world.model.is_at(number, lsn.get());
                world.model.set(number, State::There);
                if self.outside.frequency() == 1 {
                    world.model.is_durable(lsn.get());
                }
            }
            Err(Error::Full { .. }) => world.model.set(number, State::Never),
            Err(error) => panic!("{error}"),
        }
    }

    fn reserves(&mut self, kind: Kind) {
        if kind == Kind::Reserve {
            let len = self.len();
            let (number, payload) = self.world().model.begin(len, State::Open);
            match self.log.reserve(payload.len()) {
                Ok(record) => {
                    self.world().model.is_at(number, record.lsn().get());
                    self.held = Some(Held { record, number, payload, filled: 0 });
                }
                Err(Error::Full { .. }) => self.world().model.set(number, State::Never),
                Err(error) => panic!("{error}"),
            }
            return;
        }
        let Some(mut held) = self.held.take() else { return }; // the log was full
        let to = if kind == Kind::Fill { held.payload.len().min(held.filled + 50) } else { held.payload.len() };
        held.record.copy(held.filled, &held.payload[held.filled..to]);
        held.filled = to;
        match kind {
            Kind::Fill => {
                assert_eq!(held.record[..to], held.payload[..to]);
                self.held = Some(held);
                return;
            }
            Kind::Complete => {
                self.world().model.set(held.number, State::Doubt);
                let lsn = held.record.complete().unwrap();
                let mut world = self.world();
                world.model.is_at(held.number, lsn.get());
                world.model.set(held.number, State::There);
            }
            _ => {
                self.world().model.set(held.number, State::Never);
                drop(held.record);
            }
        }
        self.world().ends(self.number, Kind::Reserve);
    }

    fn forces(&mut self, kind: Kind) {
        let log = self.log;
        match kind {
            Kind::Post => log.post().unwrap(),
            Kind::Forced => {
                let before = self.world().model.durable;
                let forced = log.forced().get();
                assert!(forced >= before, "durable through {forced}, and {before} was");
                self.world().model.is_durable(forced);
            }
            Kind::Window => {
                let window = log.vulnerability_window();
                assert!(window.bound == 0 || window.now <= window.bound, "{window:?}");
            }
            _ => {
                let own = self.rng.below(2) == 0;
                let force = |lsn| match kind {
                    Kind::Force => log.force(lsn),
                    // There are no other machines.
                    _ if own => log.force_own(lsn).map(|is_here| assert!(is_here)),
                    _ => log.force_now(lsn),
                };
                let beyond = force(Lsn::new(log.stats().next.get() + 5000));
                assert!(matches!(beyond, Err(Error::Limit { .. })), "{beyond:?}");
                let draw = self.rng.word();
                let Some(lsn) = self.world().model.some(draw) else { return };
                force(Lsn::new(lsn)).unwrap();
                if kind == Kind::ForceNow || self.outside.frequency() == 1 {
                    self.world().model.is_durable(lsn);
                }
            }
        }
    }

    // ---- read -------------------------------------------------------------------------------------------------

    fn reads(&mut self, kind: Kind) {
        match kind {
            Kind::Iter | Kind::IterFrom => {
                self.stop_reading();
                let wanted = if kind == Kind::Iter { 0 } else { self.rng.below(self.log.stats().next.get() + 2) };
                let least = self.world().model.needed().max(wanted);
                let iter = if kind == Kind::Iter { self.log.iter() } else { self.log.iter_from(Lsn::new(wanted)) };
                let from = self.world().model.surely_needed().max(wanted);
                self.reading = Some(Reading { iter, kind, least, from });
            }
            _ => {
                let Some(reading) = &mut self.reading else { return };
                if kind == Kind::Position {
                    let position = reading.iter.position();
                    switch_point();
                    assert_eq!(reading.iter.position(), position);
                    return;
                }
                for _ in 0..=self.rng.below(4) {
                    let durable = self.outside.world().model.durable;
                    let found = reading.iter.next().unwrap();
                    let mut world = self.outside.world();
                    let Some(record) = found else {
                        world.model.nothing_between(reading.from, durable + 1, "an iterator");
                        assert!(reading.iter.position().get() > durable, "it ends before {durable}");
                        return;
                    };
                    let lsn = record.lsn.get();
                    assert!(lsn >= reading.least, "record {lsn} is read from {}", reading.least);
                    world.model.nothing_between(reading.from, lsn, "an iterator");
                    world.model.reads(lsn, record.payload);
                    (reading.least, reading.from) = (lsn + 1, lsn + 1);
                    drop(world);
                    switch_point();
                }
            }
        }
    }

    // ---- space ------------------------------------------------------------------------------------------------

    fn discards(&mut self, kind: Kind) {
        let log = self.log;
        match kind {
            Kind::Reclaim => {
                let before = self.world().model.needed();
                log.reclaim().unwrap();
                let model = &mut self.world().model;
                model.head = model.head.max(before);
            }
            Kind::Grow if log.stats().capacity > 32 << 10 => {}
            Kind::Grow => match log.grow(1 + self.rng.below(2000)) {
                Ok(capacity) => assert!(log.stats().capacity >= capacity),
                Err(Error::GrownTooOften { .. }) => {}
                Err(error) => panic!("{error}"),
            },
            Kind::TruncateAll => {
                let first = log.stats().next.get();
                self.world().model.discards_all();
                let discarded = log.truncate_all();
                let second = log.stats().next.get();
                let mut world = self.world();
                discarded.unwrap();
                world.model.discarded_all(first, second);
                world.model.is_durable(first - 1);
            }
            _ => {
                let forced = log.forced().get();
                let discard = |lsn| if kind == Kind::Discard { log.discard(lsn) } else { log.truncate_to(lsn) };
                let beyond = discard(Lsn::new(forced + 5000));
                assert!(matches!(beyond, Err(Error::NotForced { .. })), "{beyond:?}");
                let to = match kind {
                    Kind::Discard if forced > 0 => (self.world().model.needed() + self.rng.below(4)).clamp(1, forced),
                    Kind::TruncateTo => forced.saturating_sub(self.rng.below(6)),
                    _ => return,
                };
                let from = if kind == Kind::Discard { to } else { 1 };
                self.world().model.discards(from, to);
                discard(Lsn::new(to)).unwrap();
                self.world().model.discarded(from, to);
            }
        }
    }

    // ---- the rest ---------------------------------------------------------------------------------------------

    fn looks(&mut self, kind: Kind) {
        let log = self.log;
        match kind {
            Kind::Idle => assert!(matches!(log.idle(), Ok(()) | Err(Error::Full { .. }))),
            Kind::Leads => {
                log.lead_for(std::time::Duration::ZERO);
                log.fence(); // it has no replicas that another could lead
                log.check_leading().unwrap();
            }
            Kind::Remove => assert!(matches!(log.remove(1), Err(Error::NotReplicated { .. }))),
            Kind::Look => {
                let (needed, last) = {
                    let world = self.world();
                    (world.model.needed(), world.model.last_there())
                };
                let stats = log.stats();
                assert!(stats.forced < stats.next && stats.next.get() > last, "{stats:?}, {last} is there");
                assert!(stats.head.get() >= needed && stats.live_bytes <= stats.capacity, "{stats:?}");
                assert!(stats.head.get() <= self.world().model.surely_needed(), "{stats:?}");
                assert!(log.replicas().is_empty() && log.members() == (Vec::new(), 0));
                assert_eq!(log.id(), self.outside.id());
                assert!(log.pool().path() == self.outside.path());
            }
            kind => unreachable!("{kind:?}"),
        }
    }
}
