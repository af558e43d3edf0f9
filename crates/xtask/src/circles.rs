//! Modules that need each other: a circle, in which no file can be read, or changed, without the others.
//!
//! The rooms of one folder are compared with each other: a file is a room, and so is a folder with all that it holds. A folder's own file, and the root,
//! know their rooms and are known by them: that is no circle.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use crate::Problem;
use crate::metadata::Metadata;
use crate::modules::{Module, Modules};

/// One circle: rooms that reach each other.
#[derive(Debug)]
pub struct Circle {
    /// The paths of the rooms.
    pub rooms: Vec<String>,
    /// `file -> file: names`, each arrow between two of them.
    pub arrows: Vec<String>,
}

/// No crate has a circle.
///
/// # Errors
/// A source file cannot be read.
pub fn check(metadata: &Metadata) -> io::Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for package in metadata.members() {
        let name = package.short();
        for root in package.roots() {
            for circle in of(&Modules::read(root)?) {
                problems.push(Problem::new(
                    name,
                    format!("modules that need each other: {}", circle.rooms.join(", ")),
                    format!("see the arrows with `cargo xtask circles {name}`, and turn one around"),
                ));
            }
        }
    }
    Ok(problems)
}

/// Prints every circle of the crates named, of all if none is.
///
/// # Errors
/// A source file cannot be read.
pub fn print(metadata: &Metadata, names: &[&str]) -> io::Result<()> {
    for package in metadata.members() {
        if !names.is_empty() && !names.contains(&package.short()) {
            continue;
        }
        for root in package.roots() {
            let modules = Modules::read(root)?;
            let circles = of(&modules);
            let rooms: usize = circles.iter().map(|circle| circle.rooms.len()).sum();
            println!("{}: {} files, {} circles, {rooms} rooms in them", package.short(), modules.len(), circles.len());
            if names.is_empty() {
                continue;
            }
            for circle in circles {
                println!("\ncircle of {}: {}", circle.rooms.len(), circle.rooms.join(", "));
                for arrow in circle.arrows {
                    println!("  {arrow}");
                }
            }
        }
    }
    Ok(())
}

/// Every circle of a crate.
pub fn of(modules: &Modules) -> Vec<Circle> {
    let arrows = modules.arrows();

    // For each folder: the arrows between its rooms. A folder's own file is no room in it: it is the folder.
    let mut folders: BTreeMap<Module, BTreeMap<Module, BTreeSet<Module>>> = BTreeMap::new();
    for &(from, to) in arrows.keys() {
        let (folder, a, b) = apart(modules, from, to);
        if a != folder && b != folder {
            folders.entry(folder).or_default().entry(a).or_default().insert(b);
        }
    }

    let mut circles = Vec::new();
    for (folder, graph) in &folders {
        for rooms in strongly_connected(graph) {
            let between = arrows.iter().filter(|((from, to), _)| {
                let (at, a, b) = apart(modules, *from, *to);
                at == *folder && rooms.contains(&a) && rooms.contains(&b)
            });
            circles.push(Circle {
                rooms: rooms.iter().map(|room| modules.path(*room).to_owned()).collect(),
                arrows: between
                    .map(|((from, to), names)| {
                        let names: Vec<&str> = names.iter().map(String::as_str).collect();
                        format!("{} -> {}: {}", modules.path(*from), modules.path(*to), names.join(", "))
                    })
                    .collect(),
            });
        }
    }
    circles
}

/// The innermost folder that holds both, and the two rooms of it that they are in.
fn apart(modules: &Modules, from: Module, to: Module) -> (Module, Module, Module) {
    let (a, b) = (modules.line(from), modules.line(to));
    let common = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let folder = if common == 0 { 0 } else { a[common - 1] };
    (folder, *a.get(common).unwrap_or(&folder), *b.get(common).unwrap_or(&folder))
}

/// Sets of more than one node that reach each other.
fn strongly_connected(graph: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<BTreeSet<Module>> {
    let reached = |from: Module| {
        let mut seen = BTreeSet::new();
        let mut left = vec![from];
        while let Some(at) = left.pop() {
            for &next in graph.get(&at).into_iter().flatten() {
                if seen.insert(next) {
                    left.push(next);
                }
            }
        }
        seen
    };
    let reach: BTreeMap<Module, BTreeSet<Module>> = graph.keys().map(|&node| (node, reached(node))).collect();
    let mut done = BTreeSet::new();
    let mut sets = Vec::new();
    for (&node, seen) in &reach {
        if !seen.contains(&node) || done.contains(&node) {
            continue;
        }
        let set: BTreeSet<Module> =
            seen.iter().copied().filter(|other| reach.get(other).is_some_and(|back| back.contains(&node))).collect();
        done.extend(set.iter().copied());
        sets.push(set);
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The circles of a crate with these files.
    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let modules = Modules::read(&folder.path().join("lib.rs")).unwrap();
        of(&modules).into_iter().map(|circle| circle.rooms).collect()
    }

    #[test]
    fn arrows_one_way_are_no_circle() {
        assert!(
            circles(&[
                ("lib.rs", "mod a; mod b; pub use a::A;"),
                ("a.rs", "use crate::b::B; pub struct A(B);"),
                ("b.rs", "pub struct B; #[cfg(test)] mod tests { use crate::a::A; }"),
            ])
            .is_empty()
        );
    }

    #[test]
    fn two_that_need_each_other_are_one() {
        let a = ("a.rs", "use crate::b::B; pub struct A(B);");
        let root = "mod a; mod b; pub use a::A;";
        for back in
            ["use crate::a::A;", "fn f(_: crate::a::A) {}", "use crate::A;", "use super::A;", "m! { x(crate::a::A) }"]
        {
            let b = format!("{back} pub struct B;");
            assert_eq!(circles(&[("lib.rs", root), a, ("b.rs", &b)]), [["a", "b"]], "{back}");
        }
    }

    #[test]
    fn folders_are_rooms() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod x; mod y; pub use x::X;"),
            ("a/x.rs", "pub struct X;"),
            ("a/y.rs", "use crate::b::B;"),
            ("b.rs", "use crate::a::X; pub struct B;"),
        ];
        assert_eq!(circles(&files), [["a", "b"]], "through two files of the folder");
    }

    #[test]
    fn a_folder_and_its_own_file_are_one() {
        let files = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod x; pub struct A(x::X);"),
            ("a/x.rs", "pub struct X; fn f(_: super::A) {}"),
        ];
        assert!(circles(&files).is_empty());
    }

    #[test]
    fn names_passed_on_lead_to_who_defines_them() {
        let files = [
            ("lib.rs", "mod a; mod b; mod prelude;"),
            ("prelude.rs", "pub use crate::a::*; pub use crate::b::B as Other;"),
            ("a.rs", "use crate::prelude::Other; pub struct A;"),
            ("b.rs", "use crate::prelude::A; pub struct B;"),
        ];
        assert_eq!(circles(&files), [["a", "b"]]);
    }
}
