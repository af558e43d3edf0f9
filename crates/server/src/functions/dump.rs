//! What `FUNCTION DUMP` answers, and `FUNCTION RESTORE` takes: libraries as in Redis' own files, with the end of a payload.

use super::ALL_MAX;
use crate::rdb::{self, Input};

/// What stands before a library.
const LIBRARY: u8 = 0xf5;

/// The codes of libraries, as one text. It is not compressed.
pub(crate) fn write<'c>(codes: impl Iterator<Item = &'c [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for code in codes {
        bytes.push(LIBRARY);
        rdb::put_string(&mut bytes, code);
    }
    rdb::close(&mut bytes, rdb::VERSION);
    bytes
}

/// The codes of the libraries in it.
pub(crate) fn read(bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut input = Input::new(rdb::opened(bytes).ok_or(rdb::WRONG)?.0).with_strings_to(ALL_MAX);
    let (mut codes, mut all) = (Vec::new(), 0);
    while !input.is_at_end() {
        if input.byte().ok() != Some(LIBRARY) {
            return Err("ERR given type is not a function".to_owned());
        }
        let code = input.string().map_err(|_| "ERR failed loading the given functions payload")?;
        all += code.len();
        if all > ALL_MAX {
            return Err(format!("ERR the libraries have more than {ALL_MAX} bytes"));
        }
        codes.push(code);
    }
    Ok(codes)
}
