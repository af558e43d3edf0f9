//! Explores every built-in scenario.

mod mutation;

use crash::{Config, Model};
use scenarios::Named;

fn config(seed: u64) -> Config {
    Config::seeded(seed).budget(60_000).point_budget(1_500)
}

fn clean(named: &Named, config: &Config) {
    let report = named.run(config);
    println!("{} {:?} seed {}: {report}", named.name, config.model, config.seed);
    assert!(report.violation().is_none(), "{}: {report}", named.name);
}

macro_rules! scenarios {
    ($($test:ident: $name:literal;)*) => {$(
        mod $test {
            use super::*;

            fn named() -> &'static Named {
                scenarios::ALL.iter().find(|n| n.name == $name).expect("built in")
            }

            #[test]
            fn words() {
                for seed in 1..4 {
                    clean(named(), &config(seed));
                }
            }

            #[test]
            fn lines() {
                clean(named(), &config(4).model(Model::Lines));
            }

            #[test]
            fn file() {
                clean(named(), &config(5).model(Model::File { sector: 512 }));
            }
        }
    )*};
}

scenarios! {
    two_slot: "two-slot";
    sealed: "sealed";
    ring: "ring";
    header: "header";
    resize: "resize";
    objects: "objects";
    objects_2: "objects-2";
}
