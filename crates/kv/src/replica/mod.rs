//! The same store on other machines: who leads, who follows, and who looks after them.

pub(crate) mod follower;
pub(crate) mod leader;
pub(crate) mod steward;
