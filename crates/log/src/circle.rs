//! Segments in a circle that grows by splicing.
//!
//! Logical segments are numbered from the log's beginning; each stands in one physical segment, used again lap after lap. When the log grows, the new
//! physical segments come next, before the oldest: what stands already does not move, and every physical segment keeps its position in the order.

/// From logical segment `from` on there are `total` physical ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    pub(crate) from: u64,
    pub(crate) total: u64,
}

/// The mapping. Never empty; `from` and `total` rise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Circle(Vec<Growth>);

impl Circle {
    pub(crate) fn new(segments: u64) -> Self {
        Self(vec![Growth { from: 0, total: segments }])
    }

    pub(crate) fn from_growths(growths: Vec<Growth>) -> Self {
        Self(growths)
    }

    pub(crate) fn growths(&self) -> &[Growth] {
        &self.0
    }

    /// Physical segments.
    pub(crate) fn segments(&self) -> u64 {
        self.0[self.0.len() - 1].total
    }

    /// From logical segment `from` on, which is not used yet, there are `total`.
    pub(crate) fn grow(&mut self, from: u64, total: u64) {
        match self.0.last_mut() {
            // Grown twice at the same position: one splice of both.
            Some(last) if last.from == from => last.total = total,
            _ => self.0.push(Growth { from, total }),
        }
    }

    /// Which rule counts for a logical segment.
    fn rule(&self, segment: u64) -> usize {
        self.0.partition_point(|g| g.from <= segment) - 1
    }

    /// The physical segment of a logical one.
    pub(crate) fn physical(&self, segment: u64) -> u64 {
        let (mut rule, mut segment) = (self.rule(segment), segment);
        loop {
            let Growth { from, total } = self.0[rule];
            if rule == 0 {
                return segment % total;
            }
            let before = self.0[rule - 1].total;
            let added = total - before;
            let k = (segment - from) % total;
            if k < added {
                return before + k;
            }
            // Behind the new ones the old ones, from where the rule before this one stood.
            (rule, segment) = (rule - 1, from + (k - added));
        }
    }

    /// The logical segment that last used the physical segment of this one, if any did.
    pub(crate) fn previous(&self, segment: u64) -> Option<u64> {
        let (mut rule, mut segment) = (self.rule(segment), segment);
        loop {
            let Growth { from, total } = self.0[rule];
            let k = segment - from;
            if k >= total {
                return Some(segment - total);
            }
            if rule == 0 {
                return None;
            }
            let added = total - self.0[rule - 1].total;
            if k < added {
                return None;
            }
            (rule, segment) = (rule - 1, from + (k - added));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks on, growing now and then, and compares with a map of which segment used which physical one last.
    fn walk(mut circle: Circle, grow_at: &[(u64, u64)], upto: u64) {
        let mut last: Vec<Option<u64>> = vec![None; 64];
        for segment in 0..upto {
            for &(_, by) in grow_at.iter().filter(|g| g.0 == segment) {
                circle.grow(segment, circle.segments() + by);
            }
            let index = circle.physical(segment);
            assert!(index < circle.segments(), "{circle:?} {segment}");
            assert_eq!(circle.previous(segment), last[index as usize], "{circle:?} {segment}");
            last[index as usize] = Some(segment);
            // Nothing that any other physical segment was used for last is older than the one just taken over.
            let lap = last.iter().flatten().count() as u64;
            assert!(circle.previous(segment).is_none_or(|p| last.iter().flatten().all(|&l| l > p)), "oldest first");
            assert!(lap <= circle.segments());
        }
    }

    #[test]
    fn segments_are_used_in_turn_however_the_circle_grows() {
        for first in 2..6 {
            walk(Circle::new(first), &[], 40);
            for a in 0..12 {
                walk(Circle::new(first), &[(a, 3)], 60);
                for b in a..a + 9 {
                    walk(Circle::new(first), &[(a, 1), (b, 2), (b + 1, 4), (b + 2, 1)], 80);
                }
            }
        }
    }

    /// What is live when the circle grows stays where it is.
    #[test]
    fn growth_moves_nothing() {
        let mut circle = Circle::new(4);
        let before: Vec<u64> = (3..7).map(|s| circle.physical(s)).collect();
        circle.grow(7, 9);
        assert_eq!((3..7).map(|s| circle.physical(s)).collect::<Vec<_>>(), before);
        assert_eq!((7..12).map(|s| circle.physical(s)).collect::<Vec<_>>(), [4, 5, 6, 7, 8]);
        assert_eq!(circle.previous(12), Some(3));
    }
}
