//! What `cairn crash` may do to a medium.

use clap::ValueEnum;
use crash::{FaultKind, Model};

/// Bytes of a sector where none are named.
const SECTOR: u32 = 512;

pub(super) const MODEL_HELP: &str = "\
How memory tears: words, each of 8 bytes on its own; lines, x86, the stores to one line in their order; file, an ordinary file, where flushes do nothing and a drain is a \
sync, in sectors of 512 bytes, or of so many: file:4096";

pub(super) const FAULTS_HELP: &str = "\
The device fails, too, one fault at a time, at every crash point, drain or length that the budget reaches; recovery must then show everything that was acknowledged, or give a \
clear error, never anything else. Scenarios whose structures promise nothing of a kind of fault are left out, see --list.
  flip    a bit is wrong that recovery reads
  poison  a line cannot be read
  stuck   a line shows what it held before its last write, which never happened
  page    a page of 4 KiB shows what it held at an earlier barrier
  sync    a drain of the program fails, each in turn
  full    the disk is full, at the file's first length and at larger ones";

/// A way in which the device fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// A bit is wrong.
    Flip,
    /// A line cannot be read.
    Poison,
    /// The last write of a line never happened.
    Stuck,
    /// No write of a page since some barrier happened.
    Page,
    /// A sync fails.
    Sync,
    /// The disk is full.
    Full,
}

impl Fault {
    /// The fault of the medium; none for those of the device as a whole.
    pub fn of_medium(self) -> Option<FaultKind> {
        match self {
            Self::Flip => Some(FaultKind::Flip),
            Self::Poison => Some(FaultKind::Poison),
            Self::Stuck => Some(FaultKind::Stuck),
            Self::Page => Some(FaultKind::Page),
            Self::Sync | Self::Full => None,
        }
    }
}

pub(super) fn model(text: &str) -> Result<Model, String> {
    let (name, sector) = text.split_once(':').map_or((text, None), |(name, sector)| (name, Some(sector)));
    match (name, sector) {
        ("words", None) => Ok(Model::Words),
        ("lines", None) => Ok(Model::Lines),
        ("file", None) => Ok(Model::File { sector: SECTOR }),
        ("file", Some("512")) => Ok(Model::File { sector: 512 }),
        ("file", Some("4096")) => Ok(Model::File { sector: 4096 }),
        _ => Err("choose from: words, lines, file, file:512, file:4096".into()),
    }
}
