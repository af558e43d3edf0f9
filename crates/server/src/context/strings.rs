//! How a command reads and changes strings, those that lie in chunks among them.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;

use super::{AT_ONCE, Context};
use crate::data::chunks::{Long, Text};
use crate::data::{Item, Kind, STRING, flags, note_form, string};
use crate::failpoints::Step;
use crate::headed::Headed;
use crate::outcome::{Outcome, WRONG_TYPE};

/// A value as it is in the store, as short as most are.
type Value = Headed<256>;

impl Context<'_> {
    /// The string at a key, wherever it lies.
    pub(crate) fn text(&self, key: &[u8]) -> Outcome<Option<Text<'_>>> {
        let value = self.tx.get(&self.key(key))?;
        self.looks.at(value.is_some());
        match value {
            None => Ok(None),
            Some(value) => Text::read(value)?.map(Some).ok_or_else(|| WRONG_TYPE.into()),
        }
    }

    /// The bytes of the string at a key.
    pub(crate) fn string(&self, key: &[u8]) -> Outcome<Option<Cow<'_, [u8]>>> {
        let text = self.text(key)?;
        self.reads(text.as_ref().map_or(0, Text::len))?;
        Ok(text.map(|text| text.bytes(&*self.tx)).transpose()?)
    }

    /// Sets a string, whatever the key has had.
    pub(crate) fn put_string(&mut self, key: &[u8], bytes: &[u8], expires: Option<u64>) -> Outcome {
        self.looks.write(bytes.len())?;
        self.writes(bytes.len())?;
        let key = self.key(key);
        if bytes.len() > self.shared.chunks.whole {
            return self.put_long(&key, &Item { flags: 0, marks: 0, bytes }, expires);
        }
        let value = Value::new(STRING, bytes);
        self.overwrite(&key, |tx| tx.put(&key, &value, expires))
    }

    /// The same, with what memcached keeps with it.
    pub(crate) fn put_item(&mut self, key: &[u8], item: &Item<'_>, expires: Option<u64>) -> Outcome {
        self.writes(item.bytes.len())?;
        let key = self.key(key);
        if item.bytes.len() > self.shared.chunks.whole {
            return self.put_long(&key, item, expires);
        }
        self.overwrite(&key, |tx| tx.put(&key, &item.write(), expires))
    }

    /// Sets a string that was read before in this transaction: it keeps when it expires, and its flags.
    pub(crate) fn change_string(&mut self, key: &[u8], bytes: &[u8]) -> Outcome {
        self.looks.write(bytes.len())?;
        self.writes(bytes.len())?;
        let key = self.key(key);
        let expires = self.tx.expires(&key)?;
        let value = self.tx.get(&key)?;
        let long = value.map(Long::read).transpose()?.flatten();
        let flags = long.as_ref().map_or_else(|| value.map_or(0, flags), |long| long.flags);
        let item = Item { flags, marks: 0, bytes };
        if bytes.len() > self.shared.chunks.whole {
            return self.put_long(&key, &item, expires);
        }
        match long {
            None => Ok(self.tx.put(&key, &item.write(), expires)?),
            Some(_) => self.overwrite(&key, |tx| tx.put(&key, &item.write(), expires)),
        }
    }

    // ---- in chunks ----------------------------------------------------------------------------------------------

    /// Whether a string of so many bytes is one pair.
    pub(crate) fn is_whole(&self, len: usize) -> bool {
        len <= self.shared.chunks.whole
    }

    /// Sets all of a long string. `key` is as it is in the store.
    fn put_long(&mut self, key: &[u8], item: &Item<'_>, expires: Option<u64>) -> Outcome {
        let shift = self.shared.chunks.shift();
        // One that comes in the place of another one has its id, and overwrites its chunks. What contradicts itself goes as a whole.
        let before = self.tx.get(key)?.and_then(|value| Long::read(value).ok().flatten());
        let before = before.filter(|before| {
            before.shift() == shift
                && before.chunks() <= item.bytes.len().div_ceil(before.chunk_bytes()) + AT_ONCE as usize
        });
        let mut long = match &before {
            Some(before) => {
                let mut long = Long::new(before.head.id, shift);
                long.head = long.head.expiring(before.head.expires());
                long
            }
            None => self.new_long(shift)?,
        };
        (long.flags, long.marks) = (item.flags, item.marks);
        long.fill(item.bytes.len());
        for (number, chunk) in item.bytes.chunks(long.chunk_bytes()).enumerate() {
            self.tx.put(&long.key(number), chunk, None)?;
        }
        match before {
            Some(before) => {
                if !self.shared.failpoints.skips(Step::RestRemoved) {
                    self.remove_chunks(&before, long.chunks())?;
                }
                self.put_head(key, long, expires)
            }
            None => {
                let value = self.head_of(key, long, expires)?;
                self.overwrite(key, |tx| tx.put(key, &value, expires))
            }
        }
    }

    /// Writes bytes at a place into the string at a key, which was read before in this transaction. It is long then, and keeps when it expires, and its flags; what lies between its end and the place is zero. Returns its length.
    pub(crate) fn write_at(&mut self, key: &[u8], at: usize, bytes: &[u8]) -> Outcome<usize> {
        self.writes(bytes.len())?;
        let key = self.key(key);
        let expires = self.tx.expires(&key)?;
        let value = self.tx.get(&key)?;
        let mut long = match value.map(Long::read).transpose()?.flatten() {
            Some(long) => long,
            None => {
                let (before, flags) = (value.and_then(string).unwrap_or_default().to_vec(), value.map_or(0, flags));
                let mut long = self.new_long(self.shared.chunks.shift())?;
                long.flags = flags;
                self.write_chunks(&mut long, 0, &before)?;
                long
            }
        };
        long.marks = 0;
        self.write_chunks(&mut long, at, bytes)?;
        let len = long.len();
        self.put_head(&key, long, expires)?;
        Ok(len)
    }

    /// Writes the chunks that a range touches. The caller writes the head.
    fn write_chunks(&mut self, long: &mut Long, at: usize, bytes: &[u8]) -> Outcome {
        if bytes.is_empty() {
            return Ok(());
        }
        let (before, range) = (long.clone(), at..at + bytes.len());
        let touched = before.touched(&range);
        if range.end > before.len() {
            long.grow(range.end);
            // Each chunk is as long as the string says: the one that was the last becomes longer, if it is there.
            if let Some(last) = before.chunks().checked_sub(1)
                && !self.shared.failpoints.skips(Step::LastChunkWhole)
                && !touched.contains(&last)
                && let Some(chunk) = before.chunk(&*self.tx, last)?
                && chunk.len() < long.bytes_of(last)
            {
                let mut longer = chunk.to_vec();
                longer.resize(long.bytes_of(last), 0);
                self.put_chunk(long, last, &longer)?;
            }
        }
        for number in touched {
            let start = number * long.chunk_bytes();
            let all = start..start + long.bytes_of(number);
            let (from, to) = (range.start.max(all.start), range.end.min(all.end));
            let part = &bytes[from - at..to - at];
            if part.len() == all.len() {
                self.put_chunk(long, number, part)?;
                continue;
            }
            let mut chunk = before.chunk(&*self.tx, number)?.unwrap_or_default().to_vec();
            chunk.resize(all.len(), 0);
            chunk[from - start..to - start].copy_from_slice(part);
            self.put_chunk(long, number, &chunk)?;
        }
        Ok(())
    }

    fn put_chunk(&mut self, long: &mut Long, number: usize, bytes: &[u8]) -> Outcome {
        self.looks.write(bytes.len())?;
        self.tx.put(&long.key(number), bytes, None)?;
        long.add(number);
        Ok(())
    }

    /// Writes the head of a long string whose chunks have its id already.
    fn put_head(&mut self, key: &[u8], long: Long, expires: Option<u64>) -> Outcome {
        let value = self.head_of(key, long, expires)?;
        Ok(self.tx.put(key, &value, expires)?)
    }

    /// The head of a long string, as it is about to be put.
    fn head_of(&mut self, key: &[u8], mut long: Long, expires: Option<u64>) -> Outcome<Vec<u8>> {
        long.stamp = self.shared.ids.next()?;
        long.head = self.expiring(key, long.head, expires)?;
        Ok(long.write())
    }

    /// One with an id of its own, of which the store says from then on that it has some.
    fn new_long(&mut self, shift: u8) -> Outcome<Long> {
        let notes = !self.shared.failpoints.skips(Step::FormNoted);
        if notes && !self.shared.chunks_noted.load(Relaxed) && note_form(self.tx, self.shared.seed)? {
            self.shared.chunks_noted.store(true, Relaxed);
        }
        Ok(Long::new(self.new_head(Kind::String)?.id, shift))
    }

    /// The same string with another id. The caller writes the head.
    pub(super) fn copy_long(&mut self, long: &Long) -> Outcome<Long> {
        let mut copy = long.clone();
        if self.shared.failpoints.skips(Step::OwnChunks) {
            return Ok(copy);
        }
        copy.head.id = self.new_head(Kind::String)?.id;
        for number in long.there() {
            // Damage is not copied.
            let chunk = long.chunk(&*self.tx, number)?.unwrap_or_default().to_vec();
            self.looks.write(chunk.len())?;
            self.tx.put(&copy.key(number), &chunk, None)?;
        }
        Ok(copy)
    }

    /// Removes the chunks from a number on.
    pub(super) fn remove_chunks(&mut self, long: &Long, from: usize) -> Outcome {
        for number in long.there().filter(|number| *number >= from) {
            self.tx.delete(&long.key(number))?;
        }
        Ok(())
    }
}
