//! How many states a minute: a pool of 256 KiB, opened and recovered for each image.
//!
//! `cargo run --release -p crash --example speed`

use std::sync::Arc;

use crash::{Config, Violation, explore};
use pmem::Options;

const POOL_BYTES: u64 = 256 * 1024;
const WORDS: u64 = 14;

fn main() {
    for depth in [1, 2] {
        let report = explore(Config::seeded(1).depth(depth).budget(400_000).point_budget(20_000))
            .capacity(POOL_BYTES)
            .setup(|sim| {
                let pool = Options::new().size(POOL_BYTES / 2).create_on(Arc::clone(sim) as _)?;
                drop(pool.add_region("words", 4096)?);
                Ok(pool.close()?)
            })
            .workload(|sim, ack| {
                let pool = Options::new().open_on(Arc::clone(sim) as _)?;
                let mut area = pool.region("words")?.into_area()?;
                for round in 1..=16u64 {
                    let ticket = ack.begin(round);
                    for word in 0..WORDS {
                        area.put(word * 8, &round)?;
                    }
                    area.persist(0, WORDS * 8)?;
                    ack.commit(ticket);
                }
                Ok(())
            })
            .check(|sim, history| {
                let read = || {
                    let pool = Options::new().open_on(Arc::clone(sim) as _)?;
                    let area = pool.region("words")?.into_area()?;
                    (0..WORDS).map(|word| area.get::<u64>(word * 8).copied()).collect::<pmem::Result<Vec<u64>>>()
                };
                let words = read().map_err(Violation::detected)?;
                let sure = history.acknowledged.last().copied().unwrap_or(0);
                match words.iter().find(|&&word| word != sure && word != sure + 1) {
                    Some(word) => Err(Violation::new(format!("{word} where {sure} was acknowledged"))),
                    None => Ok(words),
                }
            })
            .run();
        println!("depth {depth}\n{report}\n");
    }
}
