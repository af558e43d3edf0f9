//! Frames and greetings of the transport, from any bytes: cut anywhere they must be the same events, or the same error.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [mode, piece, bytes @ ..] = input else { return };
    match mode % 3 {
        0 => fabric::fuzzing::greeting(bytes),
        mode => fabric::fuzzing::frames(bytes, usize::from(*piece), mode == 1),
    }
});
