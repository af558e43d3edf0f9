//! Which part of a write arrives when it is cut off.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng as _;

use crate::Window;

/// Puts a part of `bytes` into the window: whole words of 8 bytes or lines of 64, any of them, or a beginning.
pub(super) fn tear(random: &mut Xoshiro256PlusPlus, window: &dyn Window, offset: u64, bytes: &[u8]) {
    let unit = if random.next_u64() & 1 == 0 { 8 } else { 64 };
    let beginning = random.next_u64() & 3 == 0;
    // Of 256: sparse, dense, or in between.
    let share = random.next_u64() % 257;
    let mut at = 0;
    while at < bytes.len() {
        // Units are the window's, not the write's.
        let start = offset + at as u64;
        let end = bytes.len().min(at + (unit - start % unit) as usize);
        let arrives = random.next_u64() % 256 < share;
        if beginning && !arrives {
            break;
        }
        // A window that fails here fails the next write too, which is told.
        if arrives && window.write(start, &bytes[at..end]).is_err() {
            break;
        }
        at = end;
    }
}
