//! Many keys at once: loaded, copied, checked, followed.

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod feed;
pub(crate) mod load;
