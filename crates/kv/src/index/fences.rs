//! Sorted keys that a look-up chooses between: the inner nodes of the index.

use std::cmp::Ordering;

/// The first key that each of a row of children is for. The first one's own is not looked at: whatever is smaller is its, too.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    /// What all but the first begin with.
    prefix: Box<[u8]>,
    /// The eight bytes behind that, as a number: most look-ups need no more.
    heads: Box<[u64]>,
    /// Where each key ends.
    ends: Box<[u32]>,
    keys: Box<[u8]>,
}

impl Fences {
    pub(crate) fn new<'a>(fences: impl Iterator<Item = &'a [u8]>) -> Self {
        let (mut keys, mut ends) = (Vec::new(), Vec::new());
        for fence in fences {
            keys.extend_from_slice(fence);
            ends.push(keys.len() as u32);
        }
        let mut made = Self { prefix: Box::default(), heads: Box::default(), ends: ends.into(), keys: keys.into() };
        if made.len() > 1 {
            let (low, high) = (made.get(1), made.get(made.len() - 1));
            made.prefix = low[..common(low, high)].into();
        }
        made.heads = (0..made.len()).map(|i| if i == 0 { 0 } else { head(made.get(i), made.prefix.len()) }).collect();
        made
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes it takes.
    pub(super) fn memory(&self) -> usize {
        self.prefix.len() + self.keys.len() + self.len() * 12
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> &[u8] {
        let from = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.keys[from..self.ends[at] as usize]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> + Clone {
        (0..self.len()).map(|at| self.get(at))
    }

    /// The child for `key`.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> usize {
        let prefix = &*self.prefix;
        if key.len() < prefix.len() || key[..prefix.len()] != *prefix {
            return if key < prefix { 0 } else { self.len() - 1 };
        }
        let wanted = head(key, prefix.len());
        let after = self.heads.partition_point(|head| *head <= wanted);
        let last = after - 1; // the first head is 0
        if last == 0 || self.heads[last] != wanted {
            return last;
        }
        // Several may begin alike.
        let first = self.heads[..after].partition_point(|head| *head < wanted).max(1);
        let (mut low, mut high) = (first, after);
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.get(middle) <= key { low = middle + 1 } else { high = middle }
        }
        low - 1
    }

    /// The child with the last keys before `key`.
    pub(super) fn find_before(&self, key: &[u8]) -> usize {
        let at = self.find(key);
        if at > 0 && self.get(at).cmp(key) == Ordering::Equal { at - 1 } else { at }
    }
}

/// Bytes that both begin with.
pub(super) fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[inline]
fn head(key: &[u8], from: usize) -> u64 {
    let rest = &key[from.min(key.len())..];
    match rest.first_chunk::<8>() {
        Some(eight) => u64::from_be_bytes(*eight),
        None => {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn finds_the_last_fence_that_is_not_greater(
            prefix in proptest::collection::vec(97u8..99, 0..4),
            mut keys in proptest::collection::btree_set(proptest::collection::vec(0u8..3, 1..12), 1..40),
            wanted in proptest::collection::vec(0u8..3, 0..12),
            foreign in any::<bool>(),
        ) {
            keys.insert(vec![]);
            let with = |key: &Vec<u8>| [&prefix[..], key].concat();
            let fences: Vec<Vec<u8>> = keys.iter().enumerate().map(|(i, k)| if i == 0 { vec![] } else { with(k) }).collect();
            let found = Fences::new(fences.iter().map(Vec::as_slice));
            let wanted = if foreign { wanted } else { with(&wanted) };
            let right = fences.iter().rposition(|fence| *fence <= wanted).unwrap();
            prop_assert_eq!(found.find(&wanted), right);
            let before = fences.iter().rposition(|fence| *fence < wanted).unwrap_or(0);
            prop_assert_eq!(found.find_before(&wanted), before);
            prop_assert!(found.iter().eq(fences.iter().map(Vec::as_slice)));
        }
    }
}
