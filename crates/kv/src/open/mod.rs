//! A store is made, opened, recovered.

mod create;
mod load;
mod prefix;
mod reading;
mod recovery;
mod salvage;
mod ways;
