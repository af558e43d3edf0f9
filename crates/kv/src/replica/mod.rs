//! The same store on other machines: the leader, its followers, and the steward that looks after them.

pub(crate) mod follower;
pub(crate) mod leader;
pub(crate) mod steward;
