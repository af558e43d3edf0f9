//! Messages as bytes, in pieces that the fabric takes. Connections lose nothing and keep the order, so a piece says only whether it is the last one.

use fabric::MESSAGE_MAX;

use crate::Message;

/// Bytes of a message in one piece.
const PIECE: usize = MESSAGE_MAX - 1;

/// The pieces of a message.
pub(super) fn pieces(message: &Message) -> postcard::Result<Vec<Vec<u8>>> {
    let bytes = postcard::to_allocvec(message)?;
    let count = bytes.chunks(PIECE).count();
    let piece = |(at, piece): (usize, &[u8])| [&[u8::from(at + 1 == count)], piece].concat();
    Ok(bytes.chunks(PIECE).enumerate().map(piece).collect())
}

/// What has come of a message.
#[derive(Debug)]
pub(super) struct Incoming {
    bytes: Vec<u8>,
    max: usize,
}

/// A peer that says what no member does: the connection is of no use.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Nonsense;

impl Incoming {
    /// Of messages of at most so many bytes.
    pub(super) fn new(max: usize) -> Self {
        Self { bytes: Vec::new(), max }
    }

    /// A piece has come; the message, if it was the last one.
    pub(super) fn take(&mut self, piece: &[u8]) -> Result<Option<Message>, Nonsense> {
        let (&last, bytes) = piece.split_first().ok_or(Nonsense)?;
        if last > 1 || self.bytes.len() + bytes.len() > self.max {
            return Err(Nonsense);
        }
        self.bytes.extend_from_slice(bytes);
        if last == 0 {
            return Ok(None);
        }
        let whole = std::mem::take(&mut self.bytes);
        postcard::from_bytes(&whole).map(Some).map_err(|_| Nonsense)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Body, ReplicaId, ViewId};

    fn message(len: usize) -> Message {
        let id = |machine| ReplicaId { machine, incarnation: 3 };
        let body = Body::Part { through: 7, part: 0, last: true, image: vec![9; len] };
        Message { view: ViewId(5), from: id(1), to: id(2), body }
    }

    #[test]
    fn messages_of_all_lengths_arrive() {
        let mut incoming = Incoming::new(1 << 20);
        for len in [0, 1, PIECE - 20, PIECE, 2 * PIECE, 300_000] {
            let pieces = pieces(&message(len)).unwrap();
            let (last, before) = pieces.split_last().unwrap();
            assert!(before.iter().all(|piece| incoming.take(piece) == Ok(None)));
            assert_eq!(incoming.take(last), Ok(Some(message(len))));
        }
    }

    #[test]
    fn what_no_member_says_is_refused() {
        assert_eq!(Incoming::new(10).take(&[]), Err(Nonsense));
        assert_eq!(Incoming::new(10).take(&[2, 0]), Err(Nonsense));
        assert_eq!(Incoming::new(10).take(&[1; 12]), Err(Nonsense));
        assert_eq!(Incoming::new(10).take(&[1, 255, 255]), Err(Nonsense));
        let whole = pieces(&message(100)).unwrap().concat();
        for len in 2..whole.len() {
            assert!(Incoming::new(1000).take(&whole[..len]).is_err(), "{len}");
        }
    }
}
