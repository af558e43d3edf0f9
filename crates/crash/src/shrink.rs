//! Delta debugging (Zeller and Hildebrandt 2002): the fewest operations that still fail.

/// A subsequence of `items` that still `fails`, from which no single item can be taken; `items` itself when none does.
pub(crate) fn fewest<T: Clone>(mut items: Vec<T>, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut parts = 2;
    while items.len() > 1 {
        let size = items.len().div_ceil(parts);
        let smaller = (0..items.len()).step_by(size).find_map(|from| {
            let mut rest = items.clone();
            rest.drain(from..(from + size).min(items.len()));
            fails(&rest).then_some(rest)
        });
        match smaller {
            Some(rest) => {
                items = rest;
                parts = parts.saturating_sub(1).max(2);
            }
            None if size == 1 => break,
            None => parts = (parts * 2).min(items.len()),
        }
    }
    if items.len() == 1 && fails(&[]) {
        items.clear();
    }
    items
}

#[cfg(test)]
mod tests {
    use super::fewest;

    #[test]
    fn finds_the_two_items_that_matter() {
        let both = |items: &[u32]| items.contains(&17) && items.contains(&59);
        assert_eq!(fewest((0..100).collect(), both), [17, 59]);
    }

    #[test]
    fn may_need_none_or_all() {
        assert_eq!(fewest(vec![1, 2, 3], |_| true), [0u8; 0]);
        assert_eq!(fewest(vec![1, 2, 3], |items| items.len() == 3), [1, 2, 3]);
    }
}
