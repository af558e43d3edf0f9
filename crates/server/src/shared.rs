//! What all connections have in common.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex, RwLock};

use crate::acl_log::AclLog;
use crate::client::Client;
use crate::clock::{Watch, now};
use crate::config::{Chunks, Settings};
use crate::cursors::Cursors;
use crate::data::{Ids, any_collection};
use crate::databases::{self, DatabaseMap, Databases};
use crate::engine::{self, Engine, Tx};
use crate::events::{Events, Teller};
use crate::evictor::Evictor;
use crate::failpoints::{Failpoints, Step};
use crate::form::Catalogue;
use crate::group::Group;
use crate::latency::{Latency, event};
use crate::metrics::{Counted, Recorder, TIME_CLASSES, Totals};
use crate::monitors::Monitors;
use crate::pauses::Pauses;
use crate::pubsub::PubSub;
use crate::random::{Random, RandomSeed};
use crate::readers::Readers;
use crate::refusals::Refusals;
use crate::remove::{self, Closed, Gate, Hidden, Hiding, Inside, Site};
use crate::scripts::{End, Scripts};
use crate::slowlog::SlowLog;
use crate::topic::Of;
use crate::touching::Touched;
use crate::tracking::{Author, Trackers};
use crate::users::Users;
use crate::waiters::Waiters;
use crate::work::Elsewhere;

/// Milliseconds for which a store that was full is taken to be so.
const LATELY: u64 = 60_000;

/// What a server has, while it runs.
pub(crate) struct Shared {
    pub(crate) commands: &'static Catalogue,
    pub(crate) engine: Box<dyn Engine>,
    /// What `CONFIG SET` may change.
    settings: RwLock<Arc<Settings>>,
    /// Names of those that `CONFIG SET` has changed, now or before `CONFIG REWRITE` kept them.
    pub(crate) changed_settings: Mutex<BTreeSet<String>>,
    /// Raised with each change of the settings, so that threads see it without counting references to them.
    pub(crate) settings_number: AtomicU64,
    pub(crate) cursors: Cursors,
    pub(crate) ids: Ids,
    /// Of the places of fields and members.
    pub(crate) seed: u64,
    /// Which strings are kept in chunks; and whether the store says that it has some.
    pub(crate) chunks: Chunks,
    pub(crate) chunks_noted: AtomicBool,
    pub(crate) gate: Gate,
    pub(crate) databases: Databases,
    /// When a write found no room last, in milliseconds of Unix time; 0 if none has.
    full_at: AtomicU64,
    /// There may be collections: only then must be looked whether a key that is overwritten is one.
    pub(crate) collections: AtomicBool,
    pub(crate) users: Users,
    pub(crate) waiters: Waiters,
    pub(crate) readers: Readers,
    pub(crate) pubsub: Arc<PubSub>,
    /// The clients that are connected: for `CLIENT LIST` and its like, touched when one comes or goes.
    pub(crate) clients: Mutex<BTreeMap<u64, Weak<Client>>>,
    /// One for each thread that serves.
    pub(crate) recorders: Vec<Arc<Recorder>>,
    /// When it was started, in milliseconds of Unix time.
    pub(crate) started: u64,
    /// The ports and files it listens on, as people would write them.
    pub(crate) listens: Mutex<Vec<String>>,
    /// Keys of each database, for `INFO`.
    pub(crate) counted: Mutex<Counted>,
    /// ... and a count on another thread has ended.
    pub(crate) count_ended: Condvar,
    /// Itself, as it is shared.
    pub(crate) itself: Weak<Self>,
    /// Elements that the reaper has removed.
    pub(crate) reaped: AtomicU64,
    /// Since when there was no room to replace the [notes](crate::data::notes) of an older version.
    pub(crate) notes_wait: Mutex<Option<Watch>>,
    /// Connections refused because there were too many.
    pub(crate) refused: AtomicU64,
    pub(crate) slow: SlowLog,
    pub(crate) acl_log: AclLog,
    pub(crate) pauses: Pauses,
    pub(crate) latency: Latency,
    pub(crate) refusals: Refusals,
    pub(crate) monitors: Arc<Monitors>,
    pub(crate) tracking: Arc<Trackers>,
    /// The servers of which this is one.
    pub(crate) group: Option<Arc<Group>>,
    pub(crate) events: Events,
    pub(crate) evictor: Evictor,
    pub(crate) scripts: Scripts,
    pub(crate) elsewhere: Elsewhere,
    pub(crate) failpoints: Failpoints,
    pub(crate) stop: tokio::sync::watch::Sender<bool>,
    /// Forty hexadecimal digits, others at each start.
    pub(crate) run_id: String,
    pub(crate) random: Random,
    next_client: AtomicU64,
}

impl Shared {
    pub(crate) fn start(
        commands: &'static Catalogue,
        engine: Box<dyn Engine>,
        settings: Settings,
        users: Users,
        threads: usize,
        group: Option<Arc<Group>>,
        failpoints: Failpoints,
    ) -> engine::Result<Arc<Self>> {
        let random = RandomSeed::draw();
        let gate = Gate::default();
        let events = Events::default();
        events.set(settings.notify);
        let evictor = Evictor::new(random.1, &settings);
        // A server that follows answers nothing about data, and writes nothing.
        let (ids, collections, seed, map) = if group.as_ref().is_some_and(|group| group.follows()) {
            (Ids::none(), true, 0, DatabaseMap::default())
        } else {
            // First: a store that a newer server has written is refused, and left as it is.
            let map = databases::load(&*engine)?;
            let ids = Ids::draw(&*engine, failpoints)?;
            let collections = any_collection(&*engine)?;
            match remove::resume(&*engine)? {
                None => remove::keep_spare(&*engine),
                waiting => gate.hide(waiting),
            }
            let seed = crate::data::seed(&*engine, collections, RandomSeed::draw().0)?;
            (ids, collections, seed, map)
        };
        Ok(Arc::new_cyclic(|itself| Self {
            commands,
            engine,
            chunks: settings.chunks,
            chunks_noted: AtomicBool::new(false),
            settings: RwLock::new(Arc::new(settings)),
            changed_settings: Mutex::default(),
            settings_number: AtomicU64::new(1),
            cursors: Cursors::new(random.0),
            ids,
            seed,
            gate,
            databases: Databases::new(map),
            full_at: AtomicU64::new(0),
            collections: collections.into(),
            users,
            waiters: Waiters::default(),
            readers: Readers::default(),
            pubsub: Arc::default(),
            clients: Mutex::default(),
            recorders: (0..threads).map(|_| Arc::new(Recorder::new(commands.len(), commands.times()))).collect(),
            started: now(),
            listens: Mutex::default(),
            counted: Mutex::default(),
            count_ended: Condvar::default(),
            itself: itself.clone(),
            reaped: AtomicU64::new(0),
            notes_wait: Mutex::default(),
            refused: AtomicU64::new(0),
            slow: SlowLog::default(),
            acl_log: AclLog::default(),
            pauses: Pauses::default(),
            latency: Latency::default(),
            refusals: Refusals::default(),
            monitors: Arc::default(),
            tracking: Arc::default(),
            group,
            events,
            evictor,
            scripts: Scripts::default(),
            elsewhere: Elsewhere::default(),
            failpoints,
            stop: tokio::sync::watch::Sender::new(false),
            run_id: format!("{:016x}{:016x}{:08x}", random.0, random.1, random.0 as u32 ^ 0x5a5a_5a5a),
            random: Random::new(random.1),
            next_client: AtomicU64::new(1),
        }))
    }

    /// The settings of this moment.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings.read().clone()
    }

    pub(crate) fn change_settings(&self, changed: Settings) {
        self.events.set(changed.notify);
        self.evictor.set(&changed);
        *self.settings.write() = changed.into();
        self.settings_number.fetch_add(1, Relaxed);
    }

    /// Puts a message into the inboxes of all that subscribe; returns to how many subscriptions it went.
    pub(crate) fn publish(&self, to: Of, channel: &[u8], payload: &[u8]) -> usize {
        self.pubsub.publish(to, channel, payload, || self.settings().subscriber)
    }

    /// Ends clients that do not read what they are told.
    pub(crate) fn cut_off(&self, clients: Vec<Arc<Client>>) {
        clients.iter().for_each(|client| self.pubsub.cut_off(client));
    }

    /// A transaction is committed that has changed these keys.
    pub(crate) fn tell_touched(&self, touched: Touched, by: &Author<'_>) {
        // Behind the commit: see `tracking`.
        if !self.tracking.any() {
            return;
        }
        let limit = self.settings().subscriber;
        self.cut_off(match touched {
            Touched::Told => return,
            Touched::Keys(keys) if keys.is_empty() => return,
            Touched::Keys(keys) => self.tracking.changed(&keys, by, limit),
            Touched::Unknown if self.failpoints.skips(Step::UnknownTellsAll) => return,
            Touched::Unknown | Touched::All => self.tracking.all_changed(limit),
        });
    }

    /// Tells clients that monitor that a command was run.
    pub(crate) fn tell_monitors(&self, line: Vec<u8>) {
        self.cut_off(self.monitors.tell(line, self.settings().subscriber, now()));
    }

    /// Any number: for commands that take a random element, not for secrets.
    pub(crate) fn random(&self) -> u64 {
        self.random.next()
    }

    pub(crate) fn note_full(&self) {
        self.full_at.store(now(), Relaxed);
        // What they look at is not taken back until they end.
        self.scripts.end_long(End::Full);
    }

    /// Whether a write found no room a short time ago: a large one may not, either.
    pub(crate) fn was_full_lately(&self) -> bool {
        let at = self.full_at.load(Relaxed);
        at != 0 && now().saturating_sub(at) < LATELY
    }

    /// Why writes fail, if they do.
    pub(crate) fn takes_writes(&self) -> Result<(), String> {
        self.engine.healthy().map_err(|error| error.to_string())?;
        match self.was_full_lately() {
            true => Err(format!(
                "full: a write found no room within the last {} s; delete something, or make room on the disk",
                LATELY / 1000
            )),
            false => Ok(()),
        }
    }

    /// What a client is told that asks for data, of a server that does not lead.
    pub(crate) fn follows(&self) -> Option<&Group> {
        self.group.as_deref().filter(|group| group.follows())
    }

    pub(crate) fn client_id(&self) -> u64 {
        self.next_client.fetch_add(1, Relaxed)
    }

    /// Requests whose [times](Catalogue::time_of) have that number, by classes of how long they took.
    pub(crate) fn times(&self, number: usize) -> [u64; TIME_CLASSES] {
        let mut all = [0; TIME_CLASSES];
        for recorder in &self.recorders {
            let of = recorder.times.get(number).into_iter().flatten();
            all.iter_mut().zip(of).for_each(|(all, one)| *all += one.get());
        }
        all
    }

    /// A transaction that wrote is durable: so long it took, in nanoseconds.
    pub(crate) fn note_commit(&self, recorder: &Recorder, took: u64) {
        recorder.commits.add(took, 1);
        if self.engine.is_slow() {
            self.latency.note(event::SYNC, took);
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals::of(&self.recorders)
    }
}

// ---- the gate -----------------------------------------------------------------------------------------------------

impl Shared {
    /// Inside the gate, where nothing is seen in parts.
    pub(crate) fn enter(&self) -> Inside<'_> {
        self.gate.enter()
    }

    /// The same; none while it is closed.
    pub(crate) fn try_enter(&self) -> Option<Inside<'_>> {
        self.gate.try_enter()
    }

    /// Scripts that run long are ended: all others would wait for them.
    fn ask_to_leave(&self) {
        self.scripts.end_long(End::Steps);
    }

    /// The map of the databases may change until this is dropped. The caller is not inside the gate.
    pub(crate) fn close_for_databases(&self) -> Changing<'_> {
        let closed = self.gate.close(&|| self.ask_to_leave());
        self.databases.let_change(true);
        Changing { shared: self, closed }
    }

    /// [`remove::in_steps`]. The caller is not inside the gate.
    pub(crate) fn in_steps(
        &self,
        is_worth_it: bool,
        attempt: &mut dyn FnMut(&mut dyn Tx) -> engine::Result<()>,
    ) -> engine::Result<bool> {
        let site = Site { engine: &*self.engine, gate: &self.gate, ask: &|| self.ask_to_leave() };
        remove::in_steps(&site, is_worth_it, attempt)
    }

    /// [`remove::flush_in_steps`]. The caller is not inside the gate.
    pub(crate) fn flush_in_steps(&self, databases: &[u8]) -> engine::Result<()> {
        let site = Site { engine: &*self.engine, gate: &self.gate, ask: &|| self.ask_to_leave() };
        remove::flush_in_steps(&site, databases)
    }

    /// Looks at the store without the gate: not at what no client is to see, either.
    pub(crate) fn look(&self, run: engine::Run<'_>) -> engine::Result<()> {
        match self.gate.hidden() {
            None => self.engine.read(run),
            Some(hidden) => self.engine.read(&mut |tx| run(&mut Hiding::new(tx, &hidden))),
        }
    }

    /// The same, once; [`engine::Error::Conflict`] where it would have to wait for a transaction that may take long.
    pub(crate) fn try_look(&self, run: engine::Run<'_>) -> engine::Result<()> {
        match self.gate.hidden() {
            None => self.engine.try_read(run),
            Some(hidden) => self.engine.try_read(&mut |tx| run(&mut Hiding::new(tx, &hidden))),
        }
    }

    /// Goes on with a removal that waits for room. The caller's thread has no transaction inside the gate.
    pub(crate) fn end_unfinished(&self) -> engine::Result<()> {
        if self.gate.hidden().is_none() {
            return Ok(());
        }
        let closed = self.gate.close(&|| self.ask_to_leave());
        let Some(hidden) = closed.hidden() else { return Ok(()) };
        remove::finish_hidden(&*self.engine, &hidden)?;
        closed.hide(None);
        Ok(())
    }
}

/// No transaction of another client is inside the gate, and one that is run now may change the map of the databases.
pub(crate) struct Changing<'s> {
    shared: &'s Shared,
    closed: Closed<'s>,
}

impl Changing<'_> {
    /// What no transaction is to see.
    pub(crate) fn hidden(&self) -> Option<Arc<Hidden>> {
        self.closed.hidden()
    }

    /// The transaction that was run has ended.
    pub(crate) fn end(self, result: &engine::Result<()>) {
        let databases = &self.shared.databases;
        match result {
            Ok(()) => self.adopt(databases.next()),
            // Nothing is written any more. What is read goes by the map that is read.
            Err(engine::Error::InDoubt(_)) => {
                if let Ok(map) = databases::load(&*self.shared.engine) {
                    self.adopt(map);
                }
            }
            Err(_) => {}
        }
    }

    fn adopt(&self, map: DatabaseMap) {
        let before = self.shared.databases.now();
        if map == before {
            return;
        }
        self.shared.databases.adopt(map);
        // What was counted of each database.
        let mut counted = self.shared.counted.lock();
        let old = counted.keys.clone();
        for (number, keys) in (0..).zip(counted.keys.iter_mut()) {
            *keys = old.get(usize::from(before.number_of(map.of(number)))).copied().unwrap_or_default();
        }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.shared.databases.let_change(false);
    }
}

impl Teller for Shared {
    fn events(&self) -> &Events {
        &self.events
    }

    fn databases(&self) -> DatabaseMap {
        self.databases.now()
    }

    fn publish(&self, channel: &[u8], payload: &[u8]) {
        self.publish(Of::Channel, channel, payload);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::commands::COMMANDS;

    /// Of a server that is not started.
    pub(crate) fn shared(engine: Box<dyn Engine>) -> Arc<Shared> {
        let users = Users::load(&*engine, COMMANDS.forms(), None).unwrap();
        Shared::start(COMMANDS.forms(), engine, Settings::default(), users, 1, None, Failpoints::default()).unwrap()
    }
}
