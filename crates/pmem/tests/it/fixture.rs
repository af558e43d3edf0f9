//! Files as a build leaves them, kept as text for the builds to come: `earlier-*.txt` beside the tests of several crates, which take them out again by `left`.

use std::path::{Path, PathBuf};

use crate::left::left;

/// In `dir`, files that an earlier build left: what is in `tests/it/earlier-NAME.txt`, for each name. If `CAIRN_MAKE_FIXTURES` names a folder, `make` makes the files, at the paths it
/// is given, and their texts are written into that folder first.
pub fn earlier<const N: usize>(dir: &Path, names: [&str; N], make: impl FnOnce(&[PathBuf; N])) -> [PathBuf; N] {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let new = std::env::var_os("CAIRN_MAKE_FIXTURES").map(PathBuf::from);
    let file_of = |name: &str| new.as_ref().unwrap_or(&beside).join(format!("earlier-{name}.txt"));
    if let Some(new) = &new {
        std::fs::create_dir_all(new).unwrap();
        let made = names.map(|name| dir.join(format!("made-{name}")));
        make(&made);
        for (name, made) in names.iter().zip(&made) {
            std::fs::write(file_of(name), text(&std::fs::read(made).unwrap())).unwrap();
        }
    }
    names.map(|name| {
        let dir = dir.join(name);
        std::fs::create_dir(&dir).unwrap();
        left(&dir, &std::fs::read_to_string(file_of(name)).unwrap())
    })
}

/// What `left` reads.
fn text(bytes: &[u8]) -> String {
    let mut text = format!("size {}\n", bytes.len());
    let mut before: &[u8] = &[];
    for (line, at) in bytes.chunks(64).zip((0..).step_by(64)) {
        if line.iter().any(|byte| *byte != 0) {
            let used = line.len() - line.iter().rev().take_while(|byte| **byte == 0).count();
            let hex = || line[..used].iter().map(|byte| format!("{byte:02x}")).collect();
            let told: String = if line == before { "again".into() } else { hex() };
            text += &format!("{at} {told}\n");
        }
        before = line;
    }
    text
}
