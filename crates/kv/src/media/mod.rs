//! What is on media: how its bytes look, and how they are read and proven. Nothing here knows the store.
//!
//! | room | |
//! |---|---|
//! | `key`, `header`, `record`, `word` | a version: its key, what stands before it, itself, and what the index keeps of it |
//! | `checksum` | what proves it, bound to its place |
//! | `mark`, `uses`, `watermark` | logs: places in them, their segments, how far they were durable |
//! | `checkpoint`, `cell`, `node` | the checkpoint, twice, and the index it leads to |
//! | `regions`, `origin` | where all of this is in the pool; of which log the store is made |

pub(crate) mod cell;
pub(crate) mod checkpoint;
pub(crate) mod checksum;
pub(crate) mod header;
pub(crate) mod key;
pub(crate) mod mark;
pub(crate) mod node;
pub(crate) mod origin;
pub(crate) mod record;
pub(crate) mod regions;
pub(crate) mod uses;
pub(crate) mod watermark;
pub(crate) mod word;
