//! Reads that wait for their answers, at the end that asked.

use std::collections::VecDeque;

use crate::wire::malformed;
use crate::{Event, READS_MAX, Reason};

/// In the order they were asked, which is the order of the answers.
#[derive(Default)]
pub(crate) struct Reads(VecDeque<Waiting>);

struct Waiting {
    tag: u32,
    len: usize,
    bytes: Vec<u8>,
    /// A device answers, and names it so.
    device: Option<u32>,
    whole: bool,
}

impl Reads {
    /// Whether one more may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.0.len() < READS_MAX
    }

    /// One more, if it may wait, that the peer answers.
    pub(crate) fn ask(&mut self, len: u32, tag: u32) -> bool {
        let room = self.has_room();
        if room {
            self.0.push_back(Waiting { tag, len: len as usize, bytes: Vec::new(), device: None, whole: false });
        }
        room
    }

    /// A piece of the peer's answer; the event if the first read is whole with it.
    pub(crate) fn answered(&mut self, tag: u32, at: u64, bytes: &[u8]) -> Result<Option<Event>, Reason> {
        let first = self.0.iter_mut().find(|read| read.device.is_none() && !read.whole);
        let Some(first) = first else { return Err(malformed("an answer that nobody asked for")) };
        if first.tag != tag || first.bytes.len() as u64 != at || bytes.len() > first.len - first.bytes.len() {
            return Err(malformed("an answer that does not fit what was asked"));
        }
        if first.bytes.is_empty() {
            first.bytes.reserve_exact(first.len);
        }
        first.bytes.extend_from_slice(bytes);
        first.whole = first.bytes.len() == first.len;
        Ok(self.next())
    }

    /// The first, if it is whole.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let whole = self.0.pop_front_if(|first| first.whole)?;
        Some(Event::Read { tag: whole.tag, bytes: whole.bytes })
    }
}

#[cfg(feature = "libfabric")]
impl Reads {
    /// Whether the first is whole.
    pub(crate) fn has_next(&self) -> bool {
        self.0.front().is_some_and(|first| first.whole)
    }

    /// One more that a device answers. There is room.
    pub(crate) fn ask_device(&mut self, device: u32, tag: u32) {
        self.0.push_back(Waiting { tag, len: 0, bytes: Vec::new(), device: Some(device), whole: false });
    }

    /// The device's answer.
    pub(crate) fn device_answered(&mut self, device: u32, bytes: Vec<u8>) {
        if let Some(read) = self.0.iter_mut().find(|read| read.device == Some(device) && !read.whole) {
            read.bytes = bytes;
            read.whole = true;
        }
    }
}
