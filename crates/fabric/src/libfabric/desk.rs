//! What messages between the ends mean.

use crate::answers::Answers;
use crate::raw::libfabric::RemoteAddress;
use crate::reads::Reads;
use crate::target::Target;
use crate::wire::{HEADER, Header, Kind, malformed};
use crate::{Event, Reason, Rights};

/// What they change.
pub(super) struct Desk {
    pub(super) target: Target,
    pub(super) reads: Reads,
    pub(super) answers: Answers,
    /// What the peer lets this end's device do.
    pub(super) granted: Option<Grant>,
}

/// What a device needs to reach a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) rights: Rights,
    pub(super) at: RemoteAddress,
    pub(super) len: u64,
}

impl Grant {
    const LEN: usize = 25;

    pub(super) fn frame(self) -> Vec<u8> {
        let mut frame = Header::plain(Kind::Grant, Self::LEN as u32).encode().to_vec();
        frame.push(u8::from(self.rights == Rights::Write));
        for number in [self.at.address, self.at.key, self.len] {
            frame.extend(number.to_le_bytes());
        }
        frame
    }

    fn read(payload: &[u8]) -> Option<Self> {
        let (&[write @ (0 | 1)], numbers) = payload.split_first_chunk()? else { return None };
        let (numbers, []) = numbers.as_chunks::<8>() else { return None };
        let [address, key, len] = numbers else { return None };
        Some(Self {
            rights: if write == 1 { Rights::Write } else { Rights::Read },
            at: RemoteAddress { address: u64::from_le_bytes(*address), key: u64::from_le_bytes(*key) },
            len: u64::from_le_bytes(*len),
        })
    }

    /// Where that is, if it may be done.
    pub(super) fn covers(&self, wanted: Rights, offset: u64, len: u64) -> Option<RemoteAddress> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        let at = RemoteAddress { address: self.at.address.wrapping_add(offset), key: self.at.key };
        (inside && self.rights >= wanted).then_some(at)
    }
}

impl Desk {
    /// A message from the peer.
    pub(super) fn message(&mut self, bytes: &[u8]) -> Result<Option<Event>, Reason> {
        let Some((head, payload)) = bytes.split_first_chunk::<HEADER>() else {
            return Err(malformed("a message without a header"));
        };
        let header = Header::decode(head)?;
        let Header { kind, len, offset, word } = header;
        // A long write tells first what it will be: refused, it leaves nothing behind.
        let announced = matches!(kind, Kind::Write) && payload.is_empty();
        if payload.len() != header.payload() && !announced {
            return Err(malformed("a message of another length than it says"));
        }
        match kind {
            Kind::Write | Kind::WriteImm => {
                self.target.allows(Rights::Write, offset, len.into())?;
                if !payload.is_empty() {
                    self.target.write(offset, payload)?;
                }
                Ok((kind == Kind::WriteImm).then_some(Event::Written { imm: word }))
            }
            Kind::Read => {
                self.target.allows(Rights::Read, offset, len.into())?;
                self.answers.ask(offset, len, word).map(|()| None)
            }
            Kind::Answer => self.reads.answered(word, offset, payload),
            Kind::Message => Ok(Some(Event::Message(payload.to_vec()))),
            Kind::Bye => Err(Reason::Peer),
            Kind::Grant => {
                self.granted = Some(Grant::read(payload).ok_or_else(|| malformed("a grant of nothing"))?);
                Ok(None)
            }
            Kind::Refused => Err(malformed("a refusal that is not beside the endpoint")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_read_as_it_was_written() {
        let grant = Grant { rights: Rights::Read, at: RemoteAddress { address: 1 << 40, key: u64::MAX }, len: 4096 };
        assert_eq!(Grant::read(&grant.frame()[HEADER..]), Some(grant));
        assert_eq!(Grant::read(&grant.frame()[HEADER + 1..]), None);
        assert_eq!(Grant::read(&[9; 25]), None);
        assert_eq!(Grant::read(&[]), None);
        assert_eq!(grant.covers(Rights::Read, 4090, 6).map(|at| at.address), Some((1 << 40) + 4090));
        assert_eq!(grant.covers(Rights::Read, 4090, 7), None);
        assert_eq!(grant.covers(Rights::Read, u64::MAX, 1), None);
        assert_eq!(grant.covers(Rights::Write, 0, 1), None);
    }
}
