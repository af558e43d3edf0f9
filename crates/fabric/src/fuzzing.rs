//! What `make fuzz` calls: any bytes from a peer, cut anywhere, must be the same events or the same error, and never a panic.

use std::sync::Arc;

use crate::auth::{Handshake, Role};
use crate::intake::{Inbound, Intake};
use crate::reads::Reads;
use crate::target::Target;
use crate::wire::{HEADER, seal};
use crate::{Access, Event, Memory, Reason, Rights, Window};

/// A window as large as offsets in small inputs.
const LEN: usize = 300;

/// A stream of frames, received in pieces of `piece` bytes. With `sealed` every header gets the checksum it needs to be looked at.
///
/// # Panics
/// The pieces are something else than the whole.
pub fn frames(bytes: &[u8], piece: usize, sealed: bool) {
    let bytes = if sealed { with_checksums(bytes) } else { bytes.to_vec() };
    let whole = received(&bytes, usize::MAX);
    assert_eq!(whole, received(&bytes, piece.max(1)), "in pieces of {piece} bytes");
}

/// What a stranger says instead of a greeting.
///
/// # Panics
/// It is let in.
pub fn greeting(bytes: &[u8]) {
    for role in [Role::Client, Role::Server] {
        let mut out = Vec::new();
        let mut handshake = Handshake::new(role, b"sixteen or more!", [7; 32], b"", &mut out);
        let taken = handshake.take(bytes, &mut out);
        assert!(!handshake.is_done() || taken.is_err(), "it is let in");
    }
}

fn with_checksums(mut bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(20) {
        let mut header = [0; HEADER];
        header[..20].copy_from_slice(head);
        // Few inputs would get these right by chance.
        header[1..4].fill(0);
        header[0] %= 8;
        seal(&mut header);
        all.extend(header);
        let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let payload = if header[0] == 3 { 0 } else { len.min(rest.len()) };
        all.extend(&rest[..payload]);
        bytes = &rest[payload..];
    }
    all.extend(bytes);
    all
}

#[derive(Debug, PartialEq)]
struct Outcome {
    events: Vec<Event>,
    asked: Vec<(u64, u32, u32)>,
    window: Vec<u8>,
    end: Option<Reason>,
    inside: bool,
}

fn received(bytes: &[u8], piece: usize) -> Outcome {
    let window = Arc::new(Memory::new(LEN));
    let mut end = End {
        target: Target { window: Some(window.clone()), access: Access::new(Rights::Write) },
        reads: Reads::default(),
        asked: Vec::new(),
    };
    // Answers to these are welcome.
    for tag in 0..4 {
        end.reads.ask(tag * 20, tag);
    }
    let mut intake = Intake::default();
    let mut events = Vec::new();
    let mut over = None;
    'stream: for mut piece in bytes.chunks(piece.min(bytes.len().max(1))) {
        while !piece.is_empty() {
            match intake.next(piece, &mut end) {
                Ok((taken, event)) => {
                    assert!(event.is_some() || taken == piece.len(), "bytes are left without an event");
                    events.extend(event);
                    piece = &piece[taken..];
                }
                Err(reason) => {
                    over = Some(reason);
                    break 'stream;
                }
            }
        }
    }
    let mut contents = vec![0; LEN];
    assert!(window.read(0, &mut contents).is_ok());
    Outcome { events, asked: end.asked, window: contents, inside: over.is_none() && intake.is_inside(), end: over }
}

struct End {
    target: Target,
    reads: Reads,
    asked: Vec<(u64, u32, u32)>,
}

impl Inbound for End {
    fn may_write(&mut self, offset: u64, len: u32) -> Result<(), Reason> {
        self.target.allows(Rights::Write, offset, len.into())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Reason> {
        self.target.write(offset, bytes)
    }

    fn asked(&mut self, offset: u64, len: u32, tag: u32) -> Result<(), Reason> {
        self.target.allows(Rights::Read, offset, len.into())?;
        self.asked.push((offset, len, tag));
        Ok(())
    }

    fn answered(&mut self, tag: u32, at: u64, bytes: &[u8]) -> Result<Option<Event>, Reason> {
        self.reads.answered(tag, at, bytes)
    }
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

    use super::*;

    /// A stream of frames, most of them such as peers send.
    fn stream(random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..random.next_u32() % 12 {
            let [kind, len, offset, word, odd] = [(); 5].map(|()| random.next_u32());
            let kind = (kind % 8) as u8;
            let mut head = [0; 20];
            head[0] = kind;
            head[4..8].copy_from_slice(&(len % 80).to_le_bytes());
            head[8..12].copy_from_slice(&(if kind < 4 { offset % 300 } else { 0 }).to_le_bytes());
            head[16..20].copy_from_slice(&(if [2, 3, 4].contains(&kind) { word % 4 } else { 0 }).to_le_bytes());
            if odd % 16 == 0 {
                head[(odd >> 4) as usize % 20] ^= 1 << (odd >> 16 & 7);
            }
            bytes.extend(head);
            let payload = if kind == 3 { 0 } else { len % 80 };
            bytes.extend((0..payload).map(|at| at as u8));
        }
        bytes
    }

    #[test]
    fn pieces_are_the_whole() {
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..5000 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let bytes = stream(&mut random);
            frames(&bytes, random.next_u32() as usize % 40, true);
            frames(&bytes, random.next_u32() as usize % 40, false);
            greeting(&bytes);
            let outcome = received(&with_checksums(&bytes), 7);
            let name = |text: String| text.split(['(', ' ']).next().map(str::to_owned);
            kinds.extend(outcome.events.iter().map(|event| name(format!("{event:?}"))));
            kinds.insert(name(format!("{:?}", outcome.end)));
            kinds.extend(outcome.end.iter().map(|reason| name(format!("{reason:?}"))));
        }
        // Not only errors.
        for kind in ["Written", "Message", "Read", "Peer", "PeerViolated", "Malformed", "None"] {
            assert!(kinds.contains(&Some(kind.to_owned())), "no {kind} in {kinds:?}");
        }
    }
}
