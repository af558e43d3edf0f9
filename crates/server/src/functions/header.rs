//! The first line of a library: `#!lua name=...`.

use super::{BAD_NAME, is_name};
use crate::request::split_words;

/// The name of a library, and its code behind the first line, with the end of that: so lines are counted as they are written. Otherwise what is wrong, without `ERR`.
pub(crate) fn library_of(code: &[u8]) -> Result<(Vec<u8>, &[u8]), String> {
    if !code.starts_with(b"#!") {
        return Err("Missing library metadata".to_owned());
    }
    let invalid = || "Invalid library metadata".to_owned();
    let end = code.iter().position(|byte| *byte == b'\n').ok_or_else(invalid)?;
    let words = split_words(&code[..end]).ok_or_else(invalid)?;
    let mut words = words.iter().map(Vec::as_slice);
    let engine = words.next().and_then(|word| word.get(2..)).ok_or_else(invalid)?;
    let mut name = None;
    for word in words {
        match word.split_at_checked(5) {
            Some((key, value)) if key.eq_ignore_ascii_case(b"name=") => {
                if name.replace(value.to_vec()).is_some() {
                    return Err("Invalid metadata value, name argument was given multiple times".to_owned());
                }
            }
            _ => return Err(format!("Invalid metadata value given: {}", word.escape_ascii())),
        }
    }
    let name = name.ok_or("Library name was not given")?;
    if !is_name(&name) {
        return Err(BAD_NAME.to_owned());
    }
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(format!("Engine '{}' not found", engine.escape_ascii()));
    }
    Ok((name, &code[end..]))
}
