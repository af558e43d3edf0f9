//! The explorer itself: it must find a planted bug of each class, pass the correct program beside it, and count right.

mod brute_force;
mod bugs;
mod counts;
mod example;
mod files;
mod guided;
mod kill;
mod known;
mod mutation;
mod threads;
mod tiny;
