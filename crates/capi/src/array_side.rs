//! What handles of arrays stand for.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use eaw::array::{Array, File};
use parking_lot::RwLock;

use crate::code::cairn_code::{CAIRN_BUSY, CAIRN_INVALID};
use crate::failure::{Failure, Result};
use crate::handles::{Kept, Slots, give, take};
use crate::types::array::cairn_array;

/// An open array. What was opened from it has it, too.
pub(crate) struct OpenArray {
    pub(crate) array: Array,
    /// Those that the program knows: its numbers are places here.
    files: RwLock<Vec<File>>,
    pub(crate) poisoned: AtomicBool,
}

impl OpenArray {
    /// A handle for an array that was just opened.
    pub(crate) fn give(array: Array) -> Result<*mut cairn_array> {
        give(Arc::new(Self { array, files: RwLock::default(), poisoned: AtomicBool::new(false) }))
    }

    /// The number by which the program knows the file.
    pub(crate) fn number_of(&self, file: File) -> u32 {
        let mut files = self.files.write();
        let at = files.iter().position(|known| *known == file).unwrap_or_else(|| {
            files.push(file);
            files.len() - 1
        });
        at as u32
    }

    pub(crate) fn file(&self, number: u32) -> Result<File> {
        let unknown = || {
            let message = format!("{number} is no file of this array: cairn_array_find_file tells a file's number");
            Failure::new(CAIRN_INVALID, message)
        };
        self.files.read().get(number as usize).cloned().ok_or_else(unknown)
    }

    /// Closes the array, and with it the handle, unless a transaction is open.
    pub(crate) fn close(handle: *const cairn_array) -> Result<()> {
        let open = take(handle, |open: &mut Arc<Self>| {
            let in_use = "a transaction of the array is open; commit or abort it first";
            Arc::get_mut(open).map(|_| ()).ok_or_else(|| Failure::new(CAIRN_BUSY, in_use))
        })?;
        match Arc::into_inner(open) {
            Some(open) if !open.poisoned.load(Relaxed) => Ok(open.array.close()?),
            Some(open) => {
                open.array.abandon(); // the next open recovers it
                Err(Failure::poisoned())
            }
            None => Err(Failure::poisoned()),
        }
    }
}

static ARRAYS: Slots<Arc<OpenArray>> = Slots::new();
impl Kept for Arc<OpenArray> {
    type C = cairn_array;
    const KIND: u64 = 8;
    const NAME: &'static str = "array";

    fn slots() -> &'static Slots<Self> {
        &ARRAYS
    }

    fn poisoned(&self) -> &AtomicBool {
        &self.poisoned
    }
}
