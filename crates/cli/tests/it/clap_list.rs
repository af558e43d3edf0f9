//! Every command there is, by the help's own account: what tests of all commands hold their tables against.

use std::collections::BTreeSet;

use super::{cairn, temp};

/// Commands without further ones below them, such as `kv put`.
pub fn commands() -> BTreeSet<String> {
    let (dir, mut found) = (temp(), BTreeSet::new());
    let mut todo = vec![String::new()];
    while let Some(above) = todo.pop() {
        let help = cairn(dir.path(), &format!("{above} --help"));
        assert_eq!(help.code, 0, "{help:?}");
        let below: Vec<String> = help
            .out
            .lines()
            .skip_while(|line| *line != "Commands:")
            .skip(1)
            .take_while(|line| !line.is_empty())
            .filter_map(|line| line.strip_prefix("  ")?.split_once(' ').map(|(name, _)| name))
            .filter(|name| !name.is_empty() && *name != "help")
            .map(|name| format!("{above} {name}").trim().to_owned())
            .collect();
        if below.is_empty() {
            found.insert(above);
        } else {
            todo.extend(below);
        }
    }
    assert!(found.len() > 40, "{found:?}");
    found
}

/// A table of all commands names each of them.
#[track_caller]
pub fn assert_all_are_in<'a>(table: impl Iterator<Item = &'a str>) {
    let table: BTreeSet<String> = table.map(str::to_owned).collect();
    let all = commands();
    let missing: Vec<_> = all.difference(&table).collect();
    assert!(missing.is_empty(), "commands that this test does not run: {missing:?}");
    let gone: Vec<_> = table.difference(&all).collect();
    assert!(gone.is_empty(), "no commands: {gone:?}");
}
