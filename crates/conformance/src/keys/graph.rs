//! Large graphs of few bytes, and whether they have cycles.

/// Why one moment comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A transaction begins before it commits.
    Own,
    /// Overwrites.
    WriteWrite,
    /// Reads what was written.
    WriteRead,
    /// Overwrites what was read.
    ReadWrite,
    /// Began after the end.
    RealTime,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Own, Self::WriteWrite, Self::WriteRead, Self::ReadWrite, Self::RealTime];

    pub(super) fn name(self) -> &'static str {
        ["", "ww", "wr", "rw", "before"][self as usize]
    }
}

/// Target in the low bits, kind in the high ones.
#[derive(Clone, Copy)]
struct Edge(u32);

const SHIFT: u32 = 29;

impl Edge {
    fn to(self) -> u32 {
        self.0 & ((1 << SHIFT) - 1)
    }

    fn kind(self) -> Kind {
        Kind::ALL[(self.0 >> SHIFT) as usize]
    }

    fn is_one_of(self, kinds: &[Kind]) -> bool {
        kinds.contains(&self.kind())
    }
}

pub(super) struct Graph {
    /// Of each node, its first edge; one more at the end.
    first: Vec<u32>,
    edges: Vec<Edge>,
}

/// Number of a node that is finished.
const DONE: u32 = u32::MAX;
/// Edges that are looked at to make a cycle that was found a short one.
const EFFORT: usize = 20_000_000;

impl Graph {
    /// `all` tells all edges, twice the same. Loops of one node say nothing and are left out.
    pub(super) fn new(nodes: usize, all: impl Fn(&mut dyn FnMut(u32, u32, Kind))) -> Self {
        assert!(nodes < 1 << SHIFT, "too many transactions for one history");
        let mut first = vec![0u32; nodes + 2];
        all(&mut |from, to, _| first[from as usize + 2] += u32::from(from != to));
        for node in 2..first.len() {
            first[node] += first[node - 1];
        }
        let mut edges = vec![Edge(0); first[nodes + 1] as usize];
        all(&mut |from, to, kind| {
            if from != to {
                let next = &mut first[from as usize + 1];
                edges[*next as usize] = Edge((kind as u32) << SHIFT | to);
                *next += 1;
            }
        });
        first.pop();
        Self { first, edges }
    }

    fn edges_of(&self, node: u32) -> std::ops::Range<u32> {
        self.first[node as usize]..self.first[node as usize + 1]
    }

    /// A short cycle of such edges: nodes, and the kind of the edge that leaves each.
    pub(super) fn cycle(&self, kinds: &[Kind]) -> Option<Vec<(u32, Kind)>> {
        let mut within = self.smallest_component(kinds)?;
        within.sort_unstable();
        self.shortest_cycle(&within, kinds)
    }

    /// The smallest set of nodes that all reach each other; none if no two do. (Tarjan 1972, with a stack of its own.)
    fn smallest_component(&self, kinds: &[Kind]) -> Option<Vec<u32>> {
        let nodes = self.first.len() - 1;
        let (mut number, mut low) = (vec![0u32; nodes], vec![0u32; nodes]);
        let (mut count, mut open, mut path) = (0, Vec::new(), Vec::new());
        let mut smallest: Option<Vec<u32>> = None;
        for root in 0..nodes as u32 {
            if number[root as usize] != 0 {
                continue;
            }
            let mut entered = Some(root);
            loop {
                if let Some(node) = entered.take() {
                    count += 1;
                    (number[node as usize], low[node as usize]) = (count, count);
                    open.push(node);
                    path.push((node, self.first[node as usize]));
                }
                let Some((node, next)) = path.last_mut() else { break };
                let at = *node as usize;
                if *next < self.first[at + 1] {
                    let edge = self.edges[*next as usize];
                    *next += 1;
                    let to = edge.to() as usize;
                    match number[to] {
                        _ if !edge.is_one_of(kinds) => {}
                        0 => entered = Some(edge.to()),
                        DONE => {}
                        found => low[at] = low[at].min(found),
                    }
                    continue;
                }
                path.pop();
                if let Some(&(parent, _)) = path.last() {
                    low[parent as usize] = low[parent as usize].min(low[at]);
                }
                if low[at] == number[at] {
                    let start = open.iter().rposition(|&node| node as usize == at).unwrap_or(0);
                    open[start..].iter().for_each(|&node| number[node as usize] = DONE);
                    let size = open.len() - start;
                    if size > 1 && smallest.as_ref().is_none_or(|best| size < best.len()) {
                        smallest = Some(open[start..].to_vec());
                    }
                    open.truncate(start);
                }
            }
        }
        smallest
    }

    /// The shortest cycle through some of these nodes, which are sorted and reach each other.
    fn shortest_cycle(&self, within: &[u32], kinds: &[Kind]) -> Option<Vec<(u32, Kind)>> {
        let mut best: Option<Vec<(u32, Kind)>> = None;
        let mut effort = 0;
        // By place in `within`: from where it was reached.
        let mut came: Vec<Option<(u32, Kind)>> = Vec::new();
        let stride = (within.len() / 500).max(1);
        for &start in within.iter().step_by(stride) {
            if effort > EFFORT {
                break;
            }
            came.clear();
            came.resize(within.len(), None);
            let mut queue = std::collections::VecDeque::from([start]);
            'search: while let Some(node) = queue.pop_front() {
                for edge in self.edges_of(node).map(|edge| self.edges[edge as usize]) {
                    effort += 1;
                    let Ok(place) = within.binary_search(&edge.to()) else { continue };
                    if !edge.is_one_of(kinds) || came[place].is_some() {
                        continue;
                    }
                    came[place] = Some((node, edge.kind()));
                    if edge.to() == start {
                        break 'search;
                    }
                    queue.push_back(edge.to());
                }
            }
            let cycle = walk_back(start, within, &came);
            if cycle.as_ref().is_some_and(|cycle| best.as_ref().is_none_or(|best| cycle.len() < best.len())) {
                best = cycle;
            }
        }
        best
    }
}

fn walk_back(start: u32, within: &[u32], came: &[Option<(u32, Kind)>]) -> Option<Vec<(u32, Kind)>> {
    let (mut cycle, mut node) = (Vec::new(), start);
    loop {
        let (from, kind) = came[within.binary_search(&node).ok()?]?;
        cycle.push((from, kind));
        if from == start {
            cycle.reverse();
            return Some(cycle);
        }
        node = from;
    }
}
