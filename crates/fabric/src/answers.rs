//! Reads of the peer that software answers, at the end that is asked.

use std::collections::VecDeque;

use crate::wire::{ANSWER_MAX, malformed};
use crate::{READS_MAX, Reason};

/// In the order they came.
#[derive(Default)]
pub(crate) struct Answers(VecDeque<Piece>);

/// A piece of an answer: `len` bytes from `offset` of the window, which are those from `at` of the read.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) len: u32,
    pub(crate) tag: u32,
    pub(crate) at: u32,
}

impl Answers {
    /// One more, if that is no more than a peer may ask for.
    pub(crate) fn ask(&mut self, offset: u64, len: u32, tag: u32) -> Result<(), Reason> {
        if self.0.len() >= READS_MAX {
            return Err(malformed("more reads than may wait for answers"));
        }
        self.0.push_back(Piece { offset, len, tag, at: 0 });
        Ok(())
    }

    /// What is to be answered next; it will not be given again.
    pub(crate) fn next(&mut self) -> Option<Piece> {
        let rest = self.0.front_mut()?;
        let piece = Piece { len: rest.len.min(ANSWER_MAX as u32), ..*rest };
        if piece.len == rest.len {
            self.0.pop_front();
        } else {
            rest.offset += u64::from(piece.len);
            rest.at += piece.len;
            rest.len -= piece.len;
        }
        Some(piece)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
