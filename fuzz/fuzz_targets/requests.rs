//! Requests of Redis' protocol, from any bytes: cut anywhere they must be the same requests, or the same error.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&piece, bytes)) = input.split_first() else { return };
    server::fuzzing::requests(bytes, usize::from(piece).max(1));
});
