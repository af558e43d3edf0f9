//! Replicas that were given up come back by themselves: a thread tries, now and then, to let each of them join again.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

use fabric::{Connection, Rights};
use parking_lot::Mutex;
use pmem::Background;

use crate::core::Core;
use crate::error::Result;
use crate::replicate::Link;

/// How often the thread looks which replicas were given up.
const TICK: Duration = Duration::from_millis(100);
/// Until a replica is tried again; twice as long each time, since one that falls behind at once costs all others a moment, up to this.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// A replica that the log was opened with, or that joined since.
struct Way {
    address: String,
    pause: Duration,
    tried: Option<Instant>,
}

impl Way {
    fn new(address: &str) -> Self {
        Self { address: address.to_owned(), pause: PAUSE_MIN, tried: None }
    }
}

/// The thread, until it is dropped, which waits for it.
pub(crate) struct Returning {
    ways: Arc<Mutex<Vec<Way>>>,
    over: Arc<AtomicBool>,
    /// Behind `over`, which ends what it waits for.
    _thread: Background,
}

impl Returning {
    /// For the replicas at these addresses.
    pub(crate) fn start(core: &Arc<Core>, addresses: &[String], trust: &fabric::Options) -> Self {
        let ways: Arc<Mutex<Vec<Way>>> =
            Arc::new(Mutex::new(addresses.iter().map(|address| Way::new(address)).collect()));
        let (over, pool) = (Arc::new(AtomicBool::new(false)), core.image.pool.clone());
        let here = (Arc::clone(core), Arc::clone(&ways), Arc::clone(&over), trust.clone());
        let thread = Background::start(&pool, TICK, move || {
            let (core, ways, over, trust) = &here;
            look(core, ways, trust, over);
            ControlFlow::Continue(())
        });
        Self { ways, over, _thread: thread }
    }

    /// One more replica; one that is known is tried again soon.
    pub(crate) fn knows(&self, address: &str) {
        let mut ways = self.ways.lock();
        match ways.iter_mut().find(|way| way.address == address) {
            Some(way) => *way = Way::new(address),
            None => ways.push(Way::new(address)),
        }
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        self.over.store(true, Release);
    }
}

/// Tries one replica that was given up, if its time has come.
#[expect(clippy::disallowed_methods, reason = "pauses are in real time")]
fn look(core: &Core, ways: &Mutex<Vec<Way>>, trust: &fabric::Options, over: &AtomicBool) {
    let Some(leading) = &core.leading else { return };
    if leading.check().is_err() || leading.has_all() {
        return;
    }
    let Some(live) = leading.live_names() else { return };
    let now = Instant::now();
    let due = {
        let mut ways = ways.lock();
        let mut due = None;
        for way in ways.iter_mut() {
            let waited = way.tried.map_or(PAUSE_MAX, |tried| now.duration_since(tried));
            if live.contains(&way.address) {
                if waited >= PAUSE_MAX {
                    way.pause = PAUSE_MIN;
                }
            } else if waited >= way.pause && due.is_none() {
                way.pause = (way.pause * 2).min(PAUSE_MAX);
                way.tried = Some(now);
                due = Some(way.address.clone());
            }
        }
        due
    };
    let Some(address) = due else { return };
    match back(core, &address, trust, &|| over.load(Acquire)) {
        Ok(()) => tracing::info!(address, "a replica of the log is back"),
        Err(error) => tracing::info!(address, %error, "a replica of the log does not come back yet"),
    }
}

/// Lets the replica at this address join again, if it is one that the log has.
fn back(core: &Core, address: &str, trust: &fabric::Options, is_over: &dyn Fn() -> bool) -> Result<()> {
    let Some(leading) = &core.leading else { return Ok(()) };
    let limit = leading.timeout.min(trust.greeting_timeout);
    let trust =
        fabric::Options { greeting_timeout: limit, send_timeout: trust.send_timeout.min(limit), ..trust.clone() };
    let Connection { sender, receiver, access, .. } = fabric::connect(address, &trust, None)?;
    access.set(Rights::Write); // to nothing: it acknowledges by immediates
    let link = Link::new(0, address.to_owned(), sender);
    let (peer, receiver) = core.join(link, receiver, None, &mut || core.listen(), limit, is_over)?;
    leading.hears(peer, receiver);
    Ok(())
}
