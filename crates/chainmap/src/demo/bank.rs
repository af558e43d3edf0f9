//! Transfers follow from client and number: what all accounts must have follows from how many of each client were acknowledged.

pub(super) const ACCOUNTS: u64 = 12;
/// What each begins with: no account runs out.
pub(super) const BEGINNING: i64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) amount: i64,
}

pub(super) fn transfer(client: u64, number: u64) -> Transfer {
    // Any mixture does that is the same each time.
    let mixed =
        (client << 32 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let from = mixed % ACCOUNTS;
    let to = (from + 1 + (mixed >> 20) % (ACCOUNTS - 1)) % ACCOUNTS;
    Transfer { from, to, amount: ((mixed >> 40) % 9 + 1) as i64 }
}

pub(super) fn account(at: u64) -> String {
    format!("account:{at}")
}

/// What accounts have when so many requests of each client are done, clients counted from 1.
pub(super) fn after(done: &[u64]) -> Vec<i64> {
    let mut all = vec![BEGINNING; ACCOUNTS as usize];
    for (client, done) in (1..).zip(done) {
        for number in 1..=*done {
            let Transfer { from, to, amount } = transfer(client, number);
            all[from as usize] -= amount;
            all[to as usize] += amount;
        }
    }
    all
}

/// What a machine has and must not have.
pub(super) fn differences(machine: usize, expected: &[i64], found: &[i64]) -> Vec<String> {
    let mut all: Vec<String> = expected
        .iter()
        .zip(found)
        .enumerate()
        .filter(|(_, (expected, found))| expected != found)
        .map(|(at, (expected, found))| {
            format!(
                "LOST: machine {machine}, {}: expected {expected} by what was acknowledged, found {found}",
                account(at as u64)
            )
        })
        .collect();
    let (should, has): (i64, i64) = (expected.iter().sum(), found.iter().sum());
    if should != has {
        all.push(format!("LOST: machine {machine} has {has} in all accounts, and {should} were there"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_only_moves() {
        let all = after(&[1000, 0, 37]);
        assert_eq!(all.iter().sum::<i64>(), BEGINNING * ACCOUNTS as i64);
        assert_ne!(all, after(&[1000, 0, 36]), "each transfer shows");
        assert!((1..500).all(|number| {
            let Transfer { from, to, amount } = transfer(3, number);
            from != to && from < ACCOUNTS && to < ACCOUNTS && (1..10).contains(&amount)
        }));
    }

    #[test]
    fn what_is_lost_is_told() {
        let expected = after(&[5]);
        assert!(differences(2, &expected, &expected).is_empty());
        let found = after(&[4]);
        let told = differences(2, &expected, &found);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("LOST: machine 2, account:"), "{told:?}");
    }
}
