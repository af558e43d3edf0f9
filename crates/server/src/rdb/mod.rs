//! Redis' format of data (RDB): what `DUMP` answers and `RESTORE` takes, what `FUNCTION DUMP` does, and Redis' files.
//!
//! | module | what it does |
//! |---|---|
//! | `bytes` | lengths, strings, LZF, the checksum |
//! | `packed` | several elements in one string: listpacks, ziplists, sets of integers |
//! | `stream` | streams with their groups |
//! | `value` | any value, as Redis up to version 8 writes it |
//! | `skip` | where a value ends |
//! | `file` | values with their keys, in a file |
//!
//! Whatever the bytes are, reading them ends with a value or an [`Error`]. A string takes as much memory as it has bytes; a collection [`ROOM`], and 32 bytes for each one that
//! is read of it: a few bytes can say, compressed, that they are many millions of elements.

mod bytes;
mod file;
mod packed;
mod skip;
mod stream;
mod value;

pub(crate) use bytes::put_string;
pub use bytes::{Error, Input, Result, checksum};
pub use file::{Entry, FileReader, FileWriter};
pub use stream::{Consumer, Group, Id, Pending, Stream};
pub use value::Value;

/// The version of the format that is written: Redis 7.0's.
pub const VERSION: u16 = 10;
/// Bytes of memory that a collection may take beside 32 times its own bytes.
pub const ROOM: u64 = 256 << 20;
/// The latest version that is read: Redis 8's.
pub const VERSION_MAX: u16 = 12;

/// What is said of a payload that is not [opened].
pub(crate) const WRONG: &str = "ERR DUMP payload version or checksum are wrong";

/// What `DUMP` answers: the value, the version (2 bytes) and a checksum of both (8), little-endian.
pub fn payload(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.write(&mut bytes);
    close(&mut bytes, VERSION);
    bytes
}

/// Ends a payload whose version is given.
pub fn close(bytes: &mut Vec<u8>, version: u16) {
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&checksum(0, bytes).to_le_bytes());
}

/// What stands in a payload, without its end, and its version; none if that is a later one than [`VERSION_MAX`], or the checksum another one.
pub fn opened(payload: &[u8]) -> Option<(&[u8], u16)> {
    let (checked, sum) = payload.split_last_chunk::<8>()?;
    let (body, version) = checked.split_last_chunk::<2>()?;
    let version = u16::from_le_bytes(*version);
    (version <= VERSION_MAX && u64::from_le_bytes(*sum) == checksum(0, checked)).then_some((body, version))
}

/// The codes of the libraries that a payload of `FUNCTION DUMP` has, [opened].
///
/// # Errors
/// It is not whole, or has something else.
pub fn libraries(body: &[u8]) -> Result<Vec<Vec<u8>>> {
    let (mut input, mut codes) = (Input::new(body), Vec::new());
    while !input.is_at_end() {
        if input.byte()? != file::FUNCTION {
            return Err(Error::Unsupported("functions of a test version".to_owned()));
        }
        codes.push(input.string()?);
    }
    Ok(codes)
}

#[cfg(test)]
mod tests;
