//! The suite on the reference engine.

mod reference;
