//! Files, and how they are cut into stripes.
//!
//! Stripe `s` of a file is on member `s mod n`, there the `s / n`th.

use std::sync::Arc;

use pmem::Area;

use super::Array;
use super::layout::{FILE_MAX, PAGE, REGION_KIND, file_options};
use crate::error::{Error, Result};

/// Bytes of a file's name at most.
pub const FILE_NAME_MAX: usize = 20;
/// Files of an array at most: each takes an entry of a pool's directory for each member there.
pub(super) const FILES_MAX: usize = 1 << 15;

/// A file of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Of the array, so that none takes another's.
    array: u64,
    number: u32,
    len: u64,
    name: Arc<str>,
}

impl File {
    pub(super) fn new(array: u64, number: u32, len: u64, name: &str) -> Self {
        Self { array, number, len, name: name.into() }
    }

    /// Its bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if it has none: never.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// That it is of this array, and has this range.
    pub(super) fn check(&self, array: u64, offset: u64, len: u64) -> Result<()> {
        if self.array != array {
            return Err(Error::Foreign { what: "file" });
        }
        if offset > self.len || len > self.len - offset {
            let (name, end) = (self.name.to_string(), offset.saturating_add(len));
            return Err(Error::OutOfFile { name, offset, end, len: self.len });
        }
        Ok(())
    }
}

/// How files are cut.
#[derive(Clone, Copy)]
pub(super) struct Striping {
    pub(super) stripe: u64,
    pub(super) members: u64,
}

/// A run of a range that is in one stripe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) member: usize,
    /// In that member's stripes of the file.
    pub(super) local: u64,
    /// From the start of the range.
    pub(super) at: u64,
    pub(super) len: u64,
}

impl Striping {
    pub(super) fn cut(self, offset: u64, len: u64) -> impl Iterator<Item = Cut> {
        let mut at = 0;
        std::iter::from_fn(move || {
            if at == len {
                return None;
            }
            let position = offset + at;
            let (number, within) = (position / self.stripe, position % self.stripe);
            let run = (len - at).min(self.stripe - within);
            let member = (number % self.members) as usize;
            let cut = Cut { member, local: number / self.members * self.stripe + within, at, len: run };
            at += run;
            Some(cut)
        })
    }

    /// Where in the file a member's byte is.
    pub(super) fn file_offset(self, member: usize, local: u64) -> u64 {
        (local / self.stripe * self.members + member as u64) * self.stripe + local % self.stripe
    }

    /// A file's area in its region: it begins at a multiple of the stripe, if the region is large enough for that, so that a page that is aligned in the file is aligned in the pool.
    pub(super) fn place_in(self, region: Area, len: u64) -> Result<Area> {
        let skip = region.offset().next_multiple_of(self.stripe) - region.offset();
        let fits = region.len().checked_sub(self.share(len)).is_some_and(|slack| slack >= skip);
        Ok(if fits { region.split_at(skip)?.1 } else { region })
    }

    /// Bytes that a member has of a file: whole stripes, and one at least.
    pub(super) fn share(self, len: u64) -> u64 {
        (len.div_ceil(self.stripe).div_ceil(self.members).max(1) * self.stripe).next_multiple_of(PAGE)
    }
}

/// The area of a file, to be changed.
pub(super) fn file_mut(files: &mut [Option<Area>], number: u32) -> Result<&mut Area> {
    files.get_mut(number as usize).and_then(Option::as_mut).ok_or_else(|| no_file(number))
}

/// Of another array, which has more.
pub(super) fn no_file(number: u32) -> Error {
    Error::NoFile { name: format!("number {number}") }
}

/// The files of an array.
pub(super) struct Listed {
    pub(super) files: Vec<File>,
    /// Those that only some members have: another had no room, or a crash came between.
    pub(super) unfinished: Vec<File>,
}

impl Listed {
    fn next(&self) -> u32 {
        self.files.iter().chain(&self.unfinished).map(|file| file.number + 1).max().unwrap_or(0)
    }
}

impl Array {
    /// Makes a file of `len` zero bytes, on all members. It is there when this returns; if that is cut short it is not, and its name can be used for a file of the same
    /// length.
    ///
    /// # Errors
    /// [`Error::FileExists`], [`Error::BadName`], [`Error::Limit`]; [`pmem::Error::NoSpace`], [`pmem::Error::DirectoryFull`].
    pub fn create_file(&self, name: &str, len: u64) -> Result<File> {
        self.check_usable()?;
        if name.is_empty() || name.len() > FILE_NAME_MAX || name.contains(['/', ':', '\0']) {
            return Err(Error::BadName { name: name.to_owned(), max: FILE_NAME_MAX });
        }
        if !(1..=FILE_MAX).contains(&len) {
            return Err(Error::Limit { what: "bytes of a file", found: len, min: 1, max: FILE_MAX });
        }
        let mut listed = self.files.lock();
        let begun = listed.unfinished.iter().position(|file| &*file.name == name);
        if listed.files.iter().any(|file| &*file.name == name)
            || begun.is_some_and(|at| listed.unfinished[at].len != len)
        {
            return Err(Error::FileExists { name: name.to_owned() });
        }
        let number = begun.map_or_else(|| listed.next(), |at| listed.unfinished[at].number);
        if number as usize >= FILES_MAX {
            let (found, max) = (u64::from(number) + 1, FILES_MAX as u64);
            return Err(Error::Limit { what: "files of an array", found, min: 0, max });
        }
        let file = File::new(self.id, number, len, name);
        if begun.is_none() {
            listed.unfinished.push(file.clone());
        }
        for (member, of) in self.members.iter().enumerate() {
            let mut state = of.lock();
            let count = state.files.len().max(number as usize + 1);
            state.files.resize_with(count, || None);
            if state.files[number as usize].is_none() {
                let name = format!("{member}/{name}");
                let options = file_options(number, len);
                let slack = if self.whole_writes { self.striping.stripe.next_multiple_of(PAGE) } else { 0 };
                let bytes = self.striping.share(len) + slack;
                let region = of.pool.add_region_as(&name, bytes, REGION_KIND, options)?;
                state.files[number as usize] = Some(self.striping.place_in(region.into_area()?, len)?);
            }
        }
        listed.unfinished.retain(|other| *other != file);
        listed.files.push(file.clone());
        Ok(file)
    }

    /// The file of this name.
    ///
    /// # Errors
    /// [`Error::NoFile`].
    pub fn file(&self, name: &str) -> Result<File> {
        let listed = self.files.lock();
        let found = listed.files.iter().find(|file| &*file.name == name);
        found.cloned().ok_or_else(|| Error::NoFile { name: name.to_owned() })
    }

    /// The name of the file of this number.
    pub(super) fn name_of(&self, number: u32) -> String {
        let listed = self.files.lock();
        listed.files.iter().find(|file| file.number == number).map_or_else(String::new, |file| file.name.to_string())
    }

    /// All files, in the order in which they were made.
    pub fn files(&self) -> Vec<File> {
        self.files.lock().files.clone()
    }

    /// The file of this name and length; it is made if there is none.
    ///
    /// # Errors
    /// As [`create_file`](Self::create_file); [`Error::FileExists`] if it has another length.
    pub fn file_or_create(&self, name: &str, len: u64) -> Result<File> {
        match self.file(name) {
            Ok(file) if file.len == len => Ok(file),
            Ok(_) => Err(Error::FileExists { name: name.to_owned() }),
            Err(_) => self.create_file(name, len),
        }
    }
}
