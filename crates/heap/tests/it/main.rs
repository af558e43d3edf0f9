//! The heap from outside.

mod barriers;
mod basics;
mod conformance;
mod kill;
