//! What replicas of a replicated log and their leaders say to each other, from any bytes: nobody panics, goes on for ever, or writes where the log is not, and a replica keeps what it
//! acknowledged.

#![no_main]

use crash::Module;
use libfuzzer_sys::fuzz_target;
use log::testing;
use pmem::{Options, Pool};

fn pool() -> Pool {
    Options::new().size(16 << 10).create_on(Module::new(64 << 10)).expect("an empty pool")
}

fuzz_target!(|input: &[u8]| {
    let Some((&who, bytes)) = input.split_first() else { return };
    match who % 3 {
        0 => testing::replica(&pool(), bytes),
        1 => testing::candidate([&pool(), &pool()], bytes),
        _ => testing::leading(&pool(), bytes),
    }
});
