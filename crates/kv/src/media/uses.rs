//! The table of segments: what each is used for.

use crate::media::checkpoint::WRITERS;

/// What a segment is used for: a word of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Nothing, or something that the checkpoint no longer needs.
    Free,
    /// The `sequence`th segment of a writer's log; no record in it is older than the pool's generation (its lower half) when it was taken.
    Log { writer: usize, sequence: u32, generation: u16 },
    /// Goes on where the one before it ends.
    More,
    /// Nodes of the index.
    Nodes,
}

impl Use {
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        let (writer, sequence) = ((word >> 2 & 0x3f) as usize, (word >> 32) as u32);
        let generation = (word >> 16) as u16;
        let used = match word & 3 {
            0 => Self::Free,
            1 => Self::Log { writer, sequence, generation },
            2 => Self::More,
            _ => Self::Nodes,
        };
        (used.to_word() == word).then_some(used)
    }

    pub(crate) fn to_word(self) -> u64 {
        let word = match self {
            Self::Free => return 0,
            Self::Log { writer, sequence, generation } => {
                1 | ((writer as u64) << 2) | (u64::from(generation) << 16) | (u64::from(sequence) << 32)
            }
            Self::More => 2,
            Self::Nodes => 3,
        };
        word | u64::from(code(word)) << 8
    }
}

/// Tells each single bit of a table's word that went bad, and of other damage all but one in 256.
fn code(word: u64) -> u8 {
    (0..).zip(word.to_le_bytes()).fold(0xa5, |code, (at, byte)| code ^ byte.rotate_left(at))
}

const _: () = assert!(WRITERS == 1 << 6);
