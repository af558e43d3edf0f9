//! Where a value ends, without a look into it: so what cannot be used does not hide what stands behind it.

use std::io::Read;

use super::bytes::{Error, Input, Result};

/// Passes by the value whose first byte is `form`.
pub(super) fn value<R: Read>(form: u8, input: &mut Input<R>) -> Result<()> {
    match form {
        0 | 9..=13 | 16 | 17 | 20 | 23 => input.skip_string(),
        1 | 2 | 14 => each(input, Input::skip_string),
        3 => each(input, |input| {
            input.skip_string()?;
            let length = input.byte()?;
            if length < 253 { input.skip(length.into()) } else { Ok(()) }
        }),
        4 => each(input, |input| strings(input, 2)),
        5 => each(input, |input| {
            input.skip_string()?;
            input.skip(8)
        }),
        7 => {
            input.length()?; // of which module
            module(input)
        }
        15 => stream(input, 1),
        18 => each(input, |input| {
            input.length()?;
            input.skip_string()
        }),
        19 => stream(input, 2),
        21 => stream(input, 3),
        // Hashes whose fields expire: first the earliest moment, but in the test version.
        22 => each(input, expiring),
        24 => {
            input.skip(8)?;
            each(input, expiring)
        }
        25 => {
            input.skip(8)?;
            input.skip_string()
        }
        6 => Err(Error::Unsupported("values of modules of Redis 3".to_owned())),
        other => Err(Error::Unsupported(format!("values of form {other}"))),
    }
}

fn each<R: Read>(input: &mut Input<R>, mut skip: impl FnMut(&mut Input<R>) -> Result<()>) -> Result<()> {
    (0..input.length()?).try_for_each(|_| skip(input))
}

fn lengths<R: Read>(input: &mut Input<R>, count: usize) -> Result<()> {
    (0..count).try_for_each(|_| input.length().map(drop))
}

fn strings<R: Read>(input: &mut Input<R>, count: usize) -> Result<()> {
    (0..count).try_for_each(|_| input.skip_string())
}

/// When it expires, its name, its value.
fn expiring<R: Read>(input: &mut Input<R>) -> Result<()> {
    input.length()?;
    strings(input, 2)
}

fn stream<R: Read>(input: &mut Input<R>, form: u8) -> Result<()> {
    each(input, |input| strings(input, 2))?;
    // How many entries and the last one; the first one, the last that was deleted, and how many there have been.
    lengths(input, if form >= 2 { 8 } else { 3 })?;
    each(input, |input| {
        input.skip_string()?;
        lengths(input, if form >= 2 { 3 } else { 2 })?;
        each(input, |input| {
            input.skip(16 + 8)?;
            input.length().map(drop)
        })?;
        each(input, |input| {
            input.skip_string()?;
            input.skip(if form >= 3 { 16 } else { 8 })?;
            each(input, |input| input.skip(16))
        })
    })
}

/// What a module has written: parts, each with its kind before it.
pub(super) fn module<R: Read>(input: &mut Input<R>) -> Result<()> {
    loop {
        match input.length()? {
            0 => return Ok(()),
            1 | 2 => drop(input.length()?),
            3 => input.skip(4)?,
            4 => input.skip(8)?,
            5 => input.skip_string()?,
            _ => return Err(Error::Bad("data of a module that are not whole")),
        }
    }
}
