//! What earlier builds left, as their processes were killed: files in a folder `format_1` or of that name, unpacked by the tests of several crates.

use std::path::{Path, PathBuf};

/// Makes the file: of the text, `size` and lines of 64 bytes that are not zero, in hexadecimal, without the zeros at their end, and where they are; or `again`, as those before.
pub fn left(dir: &Path, text: &str) -> PathBuf {
    let mut lines = text.lines();
    let size = lines.next().and_then(|line| line.strip_prefix("size ")).unwrap();
    let mut bytes = vec![0; size.parse().unwrap()];
    for line in lines {
        let (at, text) = line.split_once(' ').unwrap();
        let at: usize = at.parse().unwrap();
        if text == "again" {
            bytes.copy_within(at - 64..at, at);
            continue;
        }
        for (to, hex) in bytes[at..].iter_mut().zip(text.as_bytes().chunks(2)) {
            *to = u8::from_str_radix(std::str::from_utf8(hex).unwrap(), 16).unwrap();
        }
    }
    let path = dir.join("left");
    std::fs::write(&path, bytes).unwrap();
    path
}
