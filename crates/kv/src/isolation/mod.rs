//! Which transactions are active and what each sees, which one writes which key, and in which order commits are seen. Nothing here knows what is stored.

pub(crate) mod active;
pub(crate) mod locks;
pub(crate) mod order;
