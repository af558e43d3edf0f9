//! What peers may say: a short run of what `make fuzz FUZZ_TARGET=replicas` does for long. `CAIRN_SEED` is the first input, `CAIRN_INPUTS` how many.

use crash::{Module, Rng};
use log::testing;
use pmem::Pool;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn pool() -> Pool {
    pmem::Options::new().size(16 << 10).create_on(Module::new(64 << 10)).unwrap()
}

/// Decisions; mostly small ones, as they name what peers do say.
fn script(seed: u64) -> Vec<u8> {
    let mut random = Rng::seeded(seed);
    let len = 1 + random.below(200);
    (0..len).map(|_| if random.chance(2, 3) { random.below(12) } else { random.below(256) } as u8).collect()
}

fn each(inputs: u64, what: impl Fn(&[u8])) {
    let first = number("CAIRN_SEED").unwrap_or(1);
    for seed in first..first + number("CAIRN_INPUTS").unwrap_or(inputs) {
        let script = script(seed);
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| what(&script)));
        assert!(done.is_ok(), "again: CAIRN_SEED={seed} CAIRN_INPUTS=1");
    }
}

#[test]
fn a_replica_hears_anything() {
    each(4_000, |script| testing::replica(&pool(), script));
}

#[test]
fn a_candidate_hears_anything() {
    each(4_000, |script| testing::candidate([&pool(), &pool()], script));
}

#[test]
fn a_leader_hears_anything() {
    each(1_000, |script| testing::leading(&pool(), script));
}
