//! What the driver of a simulation holds.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::ends::{Halves, connection};
use super::faults::Faults;
use super::state::{End, Link, Node, State};
use crate::target::Target;
use crate::{Access, Connection, Error, Result, Rights, Window};

/// A network and its time. Clones are the same one.
#[derive(Clone)]
pub struct Network(Arc<Mutex<State>>);

impl Network {
    /// The same seed and the same calls are the same history.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self(Arc::new(Mutex::new(State::new(seed, faults))))
    }

    /// One more node.
    #[must_use]
    pub fn node(&self) -> Node {
        let mut state = self.0.lock();
        state.up.push(true);
        Node(state.up.len() - 1)
    }

    /// A connection, at once: the end of `a` and the end of `b`. `window_b` is what `a` writes into. Neither has rights until
    /// [`Access::set`](crate::Access::set).
    ///
    /// # Errors
    /// A node is down, or one cannot reach the other.
    pub fn connect(
        &self,
        a: Node,
        b: Node,
        window_b: Option<Arc<dyn Window>>,
        window_a: Option<Arc<dyn Window>>,
    ) -> Result<(Connection, Connection)> {
        let mut state = self.0.lock();
        let down = [a, b].into_iter().find(|node| !state.up[node.0]);
        let cut = state.cut.contains(&(a, b)) || state.cut.contains(&(b, a));
        if down.is_some() || cut {
            let what = if cut { "the network is cut".into() } else { "it is down".into() };
            return Err(Error::Unreachable { peer: name(down.unwrap_or(b)), what });
        }
        let link = state.links.len();
        let end = |node, window| End {
            node,
            target: Target { window, access: Access::new(Rights::None) },
            closed: None,
            silent: false,
            gathered: Vec::new(),
            gathered_bytes: 0,
            incoming: [].into(),
            scheduled: false,
            stalled: None,
            inbox: [].into(),
            told: false,
            reads: 0,
        };
        state.links.push(Link { ends: [end(a, window_a), end(b, window_b)] });
        let accesses = state.links[link].ends.each_ref().map(|end| end.target.access.clone());
        drop(state);
        let [at_a, at_b] = accesses;
        let make = |side, peer, access| {
            connection(
                Halves { state: self.0.clone(), link, side, peer: format!("{} (link {link})", name(peer)) },
                access,
            )
        };
        Ok((make(0, b, at_a), make(1, a, at_b)))
    }

    /// Lets the next thing happen that an end can notice, and says at which node: poll its receivers, and look at its windows. `None`: nothing is
    /// under way, but for what waits for a partition to heal.
    pub fn step(&self) -> Option<Node> {
        self.step_until(Duration::MAX)
    }

    /// The same, unless it is due after `limit`: then, and when nothing is under way, the time is `limit`.
    pub fn step_until(&self, limit: Duration) -> Option<Node> {
        let mut state = self.0.lock();
        while state.next_due().is_some_and(|at| at <= limit) {
            let node = state.take_due().and_then(|due| state.happen(due));
            if node.is_some() {
                return node;
            }
        }
        if limit != Duration::MAX {
            state.now = state.now.max(limit);
        }
        None
    }

    /// The time, from zero.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.0.lock().now
    }

    /// Nothing gets from `from` to `to` until it heals: it waits on the way, and the connection is given up after a while. Nothing gets acknowledged the
    /// other way either, so both ends give up.
    pub fn cut_one_way(&self, from: Node, to: Node) {
        self.0.lock().cut.insert((from, to));
    }

    /// Nothing gets through either way.
    pub fn cut(&self, a: Node, b: Node) {
        self.cut_one_way(a, b);
        self.cut_one_way(b, a);
    }

    /// What was cut between them lets through again, also what waited.
    pub fn heal(&self, a: Node, b: Node) {
        let mut state = self.0.lock();
        state.cut.remove(&(a, b));
        state.cut.remove(&(b, a));
        state.resume();
    }

    /// All lets through again.
    pub fn heal_all(&self) {
        let mut state = self.0.lock();
        state.cut.clear();
        state.resume();
    }

    /// Every connection between the two is lost. One end knows at once, the other a little later.
    pub fn reset(&self, a: Node, b: Node) {
        let mut state = self.0.lock();
        for link in 0..state.links.len() {
            let nodes = state.links[link].ends.each_ref().map(|end| end.node);
            if nodes == [a, b] || nodes == [b, a] {
                state.reset_link(link);
            }
        }
    }

    /// The node stops. Its connections are gone; what is on the way to it is lost; of what it has sent a beginning still arrives, by chance all or nothing.
    /// Halves of its ends return errors alone: drop them. Its windows stay as they are, and no connection of the time before reaches them.
    pub fn crash(&self, node: Node) {
        self.0.lock().crash(node);
    }

    /// A node that crashed may connect again.
    pub fn restart(&self, node: Node) {
        self.0.lock().up[node.0] = true;
    }

    /// Frames on their way, in all connections.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.0.lock().links.iter().flat_map(|link| &link.ends).map(|end| end.incoming.len()).sum()
    }
}

impl State {
    /// What waited for a partition to heal is on the way again, if it has.
    fn resume(&mut self) {
        for link in 0..self.links.len() {
            for side in [0, 1] {
                if self.end(link, side).stalled.is_some() && !self.is_cut(link, side) {
                    let at = self.now + self.delay();
                    let end = self.end(link, side);
                    end.stalled = None;
                    if let Some((first, _)) = end.incoming.front_mut() {
                        *first = at;
                    }
                    self.schedule_first(link, side);
                }
            }
        }
    }
}

fn name(node: Node) -> String {
    format!("node {}", node.0)
}
