//! What C names: the handles, and the structs and enums of the calls.

pub(crate) mod array;
pub(crate) mod kv;
pub(crate) mod log;
pub(crate) mod replicas;
pub(crate) mod tx;
