//! What can be asked of objects under transactions: by which engine, and how large.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use demo::Kind;

use crate::size;

/// Sizes of an engine; what is not told is as the engine has it by default.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct Sizes {
    /// Transactions at one time, at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=16384), requires = "engine")]
    pub slots: Option<u16>,
    /// Bytes of the log of each of them, a multiple of 64
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "engine")]
    pub log_bytes: Option<u64>,
    /// Of mvcc: bytes for copies of what logged calls have changed, a multiple of 64
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "engine")]
    pub copy_bytes: Option<u64>,
    /// Of inplace: bytes that share a mark, a power of two
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "engine")]
    pub zone_bytes: Option<u64>,
    /// Of inplace-partial: room for copies, as a share of the objects' (over 0, at most 1)
    #[arg(long, value_name = "SHARE", requires = "engine")]
    pub alpha: Option<f64>,
}

impl Sizes {
    /// How a heap is made.
    pub fn heap(&self, policy: heap::Policy) -> heap::Options {
        let mut options = heap::Options::new().policy(policy).coordinator(false);
        if let Some(slots) = self.slots {
            options = options.slots(slots.into());
        }
        if let Some(bytes) = self.log_bytes {
            options = options.log_bytes(bytes);
        }
        if let Some(bytes) = self.zone_bytes {
            options = options.zone_bytes(bytes);
        }
        if let Some(alpha) = self.alpha {
            options = options.alpha(alpha);
        }
        options
    }

    /// How a store with several versions of each object is made.
    pub fn versions(&self) -> mvcc::Options {
        let mut options = mvcc::Options::new().background(false);
        if let Some(slots) = self.slots {
            options = options.slots(slots.into());
        }
        if let Some(bytes) = self.log_bytes {
            options = options.log_bytes(bytes);
        }
        if let Some(bytes) = self.copy_bytes {
            options = options.copy_bytes(bytes);
        }
        options
    }

    /// The first option that would be without effect, and the region that is there with another size: what an engine keeps in a pool is made once.
    pub fn without_effect(&self, engine: Kind, has: impl Fn(&str) -> bool) -> Option<(&'static str, &'static str)> {
        let is_mvcc = engine == Kind::Mvcc;
        let logs = if is_mvcc { "mvcc.logs" } else { "heap.logs" };
        let checks = [
            ("--slots", self.slots.is_some(), logs),
            ("--log-bytes", self.log_bytes.is_some(), logs),
            ("--copy-bytes", self.copy_bytes.is_some(), "mvcc.copies"),
            ("--zone-bytes", self.zone_bytes.is_some(), "heap.state"),
            ("--alpha", self.alpha.is_some(), "heap.copies.state"),
        ];
        checks.into_iter().find(|(_, given, region)| *given && has(region)).map(|(option, _, region)| (option, region))
    }

    /// The first option that the engine does not have.
    pub fn foreign(&self, engine: Kind) -> Option<&'static str> {
        let is = |wanted| engine == wanted;
        let checks = [
            ("--copy-bytes", self.copy_bytes.is_some() && !is(Kind::Mvcc)),
            ("--zone-bytes", self.zone_bytes.is_some() && !is(Kind::Heap(heap::Policy::InPlace))),
            ("--alpha", self.alpha.is_some() && !is(Kind::Heap(heap::Policy::InPlacePartial))),
        ];
        checks.into_iter().find_map(|(option, foreign)| foreign.then_some(option))
    }
}

/// Have another engine take the objects of a pool over
///
/// From a heap with any policy to several versions of each object (mvcc), and back, or from policy to policy: in the same file, with all objects, their pointers and the root. Nothing is copied, but to
/// the backup of a heap that has one. Killed at any moment it leaves one engine with all objects, the old one or the new one. What the old engine kept beside them, its logs and backup, stays in the
/// file, of no meaning, for the way back.
///
/// Where the two copies of a heap with the policy inplace differ, the right one goes over. Sizes are chosen when an engine, heap or mvcc, has the objects of a pool for the first time; later ones are refused.
///
/// A pool that was not closed is recovered first. One with logged calls of procedures (mvcc) is opened and closed by its program before. A pool with other things in it besides the objects is left to its
/// program: `Heap::hand_over`, `Mvcc::take_over`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  the engine has the objects, or had them before
  1  damaged: the pool does not open, or nothing tells which of two copies is right: nothing was changed
  2  wrong usage, or the pool cannot be opened, or there is no room: the old engine has the objects, as before

Examples:
  cairn backup shop.cairn before.cairn && cairn convert shop.cairn --engine mvcc
  cairn convert shop.cairn --engine inplace
  cairn convert shop.cairn --engine mvcc --slots 16 --log-bytes 1M")]
pub struct Convert {
    /// The pool
    pub path: PathBuf,
    /// The engine that is to have the objects: a heap with the policy inplace, inplace-partial, eaw, undo or none; or mvcc
    #[arg(long, value_name = "ENGINE")]
    pub engine: Kind,
    #[command(flatten)]
    pub sizes: Sizes,
}
