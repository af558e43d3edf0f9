//! Dependencies between transactions, and cycles of them.

use std::collections::VecDeque;
use std::fmt;

/// Why one transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    WriteWrite,
    WriteRead,
    ReadWrite,
    RealTime,
}

impl Kind {
    pub(super) fn is_dependency(self) -> bool {
        matches!(self, Self::WriteWrite | Self::WriteRead)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WriteWrite => "ww",
            Self::WriteRead => "wr",
            Self::ReadWrite => "rw",
            Self::RealTime => "before",
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) kind: Kind,
}

pub(super) struct Graph {
    /// By source.
    edges: Vec<Vec<Edge>>,
}

impl Graph {
    /// Loops of one transaction say nothing and are left out.
    pub(super) fn new(nodes: usize, edges: impl IntoIterator<Item = Edge>) -> Self {
        Self { edges: vec![Vec::new(); nodes] }.with(edges)
    }

    pub(super) fn with(mut self, edges: impl IntoIterator<Item = Edge>) -> Self {
        for edge in edges {
            if edge.from != edge.to {
                self.edges[edge.from].push(edge);
            }
        }
        self
    }

    /// A cycle of edges of these kinds.
    pub(super) fn cycle(&self, kinds: impl Fn(Kind) -> bool) -> Option<Vec<Edge>> {
        self.shortest_cycle(&kinds, |_, _| true)
    }

    /// A cycle of dependencies and one anti-dependency.
    pub(super) fn cycle_with_one_anti_dependency(&self) -> Option<Vec<Edge>> {
        let anti = self.edges.iter().flatten().filter(|edge| edge.kind == Kind::ReadWrite);
        anti.filter_map(|&first| {
            let mut rest = self.path(first.to, first.from, &Kind::is_dependency, |_, _| true, first.kind)?;
            rest.insert(0, first);
            Some(rest)
        })
        .min_by_key(Vec::len)
    }

    /// A cycle in which no two anti-dependencies follow each other.
    pub(super) fn cycle_without_adjacent_anti_dependencies(&self) -> Option<Vec<Edge>> {
        let apart = |a: Kind, b: Kind| a != Kind::ReadWrite || b != Kind::ReadWrite;
        self.shortest_cycle(&|kind| kind != Kind::RealTime, apart)
    }

    fn shortest_cycle(
        &self,
        kinds: &impl Fn(Kind) -> bool,
        may_follow: impl Fn(Kind, Kind) -> bool,
    ) -> Option<Vec<Edge>> {
        let mut shortest: Option<Vec<Edge>> = None;
        let cyclic = self.strongly_connected(kinds);
        for &first in self.edges.iter().flatten().filter(|edge| kinds(edge.kind)) {
            if cyclic[first.from] != cyclic[first.to] {
                continue;
            }
            if let Some(mut rest) = self.path(first.to, first.from, kinds, &may_follow, first.kind) {
                rest.insert(0, first);
                if shortest.as_ref().is_none_or(|best| rest.len() < best.len()) {
                    shortest = Some(rest);
                }
                if shortest.as_ref().is_some_and(|best| best.len() == 2) {
                    break;
                }
            }
        }
        shortest
    }

    /// The shortest walk, after an edge of kind `after`, which also follows its last edge.
    fn path(
        &self,
        from: usize,
        to: usize,
        kinds: &impl Fn(Kind) -> bool,
        may_follow: impl Fn(Kind, Kind) -> bool,
        after: Kind,
    ) -> Option<Vec<Edge>> {
        // Twice each node: come to by an anti-dependency, or otherwise.
        let state = |node: usize, kind: Kind| node * 2 + usize::from(kind == Kind::ReadWrite);
        let mut came: Vec<Option<(usize, Edge)>> = vec![None; self.edges.len() * 2];
        let start = state(from, after);
        let mut queue = VecDeque::from([(from, after)]);
        while let Some((node, kind)) = queue.pop_front() {
            for &edge in self.edges[node].iter().filter(|edge| kinds(edge.kind) && may_follow(kind, edge.kind)) {
                let next = state(edge.to, edge.kind);
                if next == start || came[next].is_some() {
                    continue;
                }
                came[next] = Some((state(node, kind), edge));
                if edge.to == to && may_follow(edge.kind, after) {
                    let mut walk = vec![edge];
                    let mut at = state(node, kind);
                    while let Some((before, edge)) = came[at] {
                        walk.push(edge);
                        at = before;
                    }
                    walk.reverse();
                    return Some(walk);
                }
                queue.push_back((edge.to, edge.kind));
            }
        }
        None
    }

    /// The component of each node: nodes on one cycle have the same (Tarjan 1972, without recursion).
    fn strongly_connected(&self, kinds: &impl Fn(Kind) -> bool) -> Vec<usize> {
        const NEW: usize = usize::MAX;
        let nodes = self.edges.len();
        let (mut order, mut low, mut component) = (vec![NEW; nodes], vec![NEW; nodes], vec![NEW; nodes]);
        let (mut seen, mut stack) = (0, Vec::new());
        for root in 0..nodes {
            let mut work = vec![(root, 0)];
            while let Some((node, next)) = work.pop() {
                if next == 0 {
                    if order[node] != NEW {
                        continue;
                    }
                    (order[node], low[node]) = (seen, seen);
                    seen += 1;
                    stack.push(node);
                } else {
                    let to = self.edges[node][next - 1].to;
                    if kinds(self.edges[node][next - 1].kind) && component[to] == NEW {
                        low[node] = low[node].min(low[to]);
                    }
                }
                match self.edges[node].get(next) {
                    Some(edge) => {
                        work.push((node, next + 1));
                        if kinds(edge.kind) && order[edge.to] == NEW {
                            work.push((edge.to, 0));
                        }
                    }
                    None if low[node] == order[node] => {
                        while let Some(member) = stack.pop() {
                            component[member] = node;
                            if member == node {
                                break;
                            }
                        }
                    }
                    None => {}
                }
            }
        }
        component
    }
}
