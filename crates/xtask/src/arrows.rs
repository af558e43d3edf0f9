//! Which crate may depend on which inside the workspace: arrows point down only.

use crate::Problem;
use crate::metadata::{Metadata, Package, short};

/// One crate and the crates of the workspace it may link, from the ground up.
///
/// Each arrow is one that a manifest has: see [`unused`].
const LAYERS: &[(&str, &[&str])] = &[
    // Memory.
    ("pmem-derive", &[]),
    ("pmem", &["pmem-derive"]),
    // What engines share; the network.
    ("tx", &["pmem"]),
    ("fabric", &["pmem"]),
    // Object engines and the log.
    ("log", &["pmem", "fabric"]),
    ("heap", &["pmem", "tx"]),
    // ARIES keeps its changes in the log.
    ("eaw", &["pmem", "log"]),
    ("mvcc", &["pmem", "tx"]),
    // Key level.
    ("structures", &["pmem", "tx", "heap", "mvcc"]),
    ("kv", &["pmem", "tx", "log"]),
    // Several machines.
    ("membership", &[]),
    ("chain", &["pmem", "tx", "fabric", "structures", "membership"]),
    ("server", &["pmem", "tx", "log", "heap", "structures", "kv"]),
    // A map on a chain, which the command serves.
    ("chainmap", &["pmem", "tx", "structures", "chain", "server"]),
    // For programs in other languages.
    ("capi", &["pmem", "log", "kv", "eaw"]),
    // Tools: nothing above this line links them.
    ("crash", &["pmem"]),
    ("conformance", &["pmem", "tx"]),
    ("structures-testing", &["pmem", "tx", "structures"]),
    ("testnet", &[]),
    ("fabric-conformance", &["fabric"]),
    (
        "scenarios",
        &["pmem", "tx", "log", "heap", "eaw", "mvcc", "structures", "structures-testing", "kv", "chain", "crash"],
    ),
    // Our log inside of another store, by its C interface; its test serves a copy.
    ("peers", &["log", "capi"]),
    ("bench", &["pmem", "tx", "log", "heap", "eaw", "mvcc", "structures", "kv", "peers"]),
    ("demo", &["pmem", "tx", "heap", "mvcc", "structures", "bench"]),
    ("xtask", &[]),
    // The library in one dependency.
    ("cairn", &["pmem", "tx", "log", "heap", "eaw", "mvcc", "structures", "kv"]),
    // The command.
    (
        "cli",
        &[
            "pmem",
            "tx",
            "log",
            "heap",
            "eaw",
            "mvcc",
            "structures",
            "kv",
            "membership",
            "chain",
            "server",
            "chainmap",
            "crash",
            "scenarios",
            "bench",
            "demo",
        ],
    ),
    // Tests what a program with the facade alone can do.
    ("user", &["cairn"]),
];

/// What tests of any crate but those of [`BELOW_TESTS`] may link beside what the crate itself does: the explorer; the suite of engines, with
/// the player of schedules; networks of processes; what every backend of `fabric` must do; models of structures.
const IN_TESTS: &[&str] = &["crash", "conformance", "testnet", "fabric-conformance", "structures-testing"];

/// Crates whose tests get nothing extra: `crash` itself, what it is built from by macro, and tools without media.
const BELOW_TESTS: &[&str] = &["pmem-derive", "crash", "xtask"];

/// Every dependency between members is an arrow of the table.
#[must_use]
pub fn check(metadata: &Metadata) -> Vec<Problem> {
    let names: Vec<&str> = metadata.members().map(Package::short).collect();
    metadata.members().flat_map(|package| check_package(package, &names)).collect()
}

/// Crates and arrows of the table that the workspace does not have.
#[must_use]
pub fn unused(metadata: &Metadata) -> Vec<Problem> {
    let next = "take it out of LAYERS in crates/xtask/src/arrows.rs";
    let mut problems = Vec::new();
    for (name, below) in LAYERS {
        let Some(package) = metadata.members().find(|package| package.short() == *name) else {
            problems.push(Problem::new(*name, "is in the layers, and no crate", next));
            continue;
        };
        let has = |target: &&&str| package.dependencies.iter().any(|dependency| short(&dependency.name) == **target);
        for target in below.iter().filter(|target| !has(target)) {
            problems.push(Problem::new(*name, format!("may depend on {target}, and does not"), next));
        }
    }
    problems
}

fn check_package(package: &Package, members: &[&str]) -> Vec<Problem> {
    let name = package.short();
    let Some((_, below)) = LAYERS.iter().find(|(layer, _)| *layer == name) else {
        return vec![Problem::new(
            name,
            "has no place in the layers",
            "give it one in LAYERS of crates/xtask/src/arrows.rs, and in the picture of ARCHITECTURE.md",
        )];
    };
    let inside = package.dependencies.iter().filter(|d| d.path.is_some() && members.contains(&short(&d.name)));
    inside
        .filter(|dependency| {
            let target = short(&dependency.name);
            let extra = dependency.kind.as_deref() == Some("dev")
                && IN_TESTS.contains(&target)
                && !BELOW_TESTS.contains(&name);
            // A crate may name itself for its own tests, with other features.
            !(below.contains(&target) || extra || target == name)
        })
        .map(|dependency| {
            let kind = dependency.kind.as_deref().unwrap_or("normal");
            Problem::new(
                name,
                format!("{kind} dependency on {}: the arrow points up or sideways", dependency.name),
                "move what is shared further down, or invert it behind a trait; the layers are in crates/xtask/src/arrows.rs",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::testing::{member, workspace};

    fn violations(packages: Vec<Package>) -> Vec<String> {
        check(&workspace(packages)).into_iter().map(|problem| format!("{} {}", problem.at, problem.what)).collect()
    }

    #[test]
    fn arrows_down_pass() {
        let packages = vec![
            member("pmem-derive", &[]),
            member("pmem", &["pmem-derive", "dev:crash", "dev:pmem"]),
            member("crash", &["pmem"]),
            member("bench", &["pmem"]),
            member("heap", &["pmem", "dev:crash", "dev:conformance"]),
            member("conformance", &["pmem"]),
            member("testnet", &[]),
            member("cairn", &["pmem", "heap"]),
            member("cli", &["pmem", "crash", "bench", "heap", "dev:testnet"]),
        ];
        assert_eq!(violations(packages), Vec::<String>::new());
    }

    #[test]
    fn arrows_up_and_sideways_are_caught() {
        for (from, to) in [
            ("pmem", "crash"),
            ("pmem", "scenarios"),
            ("pmem", "bench"),
            ("pmem", "dev:bench"),
            ("pmem-derive", "pmem"),
            ("pmem-derive", "dev:crash"),
            ("heap", "crash"),
            ("heap", "conformance"),
            ("heap", "mvcc"),
            ("kv", "structures"),
            ("bench", "crash"),
            ("crash", "bench"),
            ("pmem", "build:bench"),
            ("server", "cairn"),
            ("heap", "peers"),
            ("cairn", "bench"),
            ("cairn", "server"),
            ("cli", "peers"),
            ("membership", "pmem"),
            ("log", "membership"),
            ("log", "dev:tx"),
            ("cli", "testnet"),
        ] {
            let target = to.split_once(':').map_or(to, |(_, name)| name);
            let found = violations(vec![member(from, &[to]), member(target, &[])]);
            assert_eq!(found.len(), 1, "{from} -> {to}: {found:?}");
            assert!(found[0].starts_with(from), "{found:?}");
        }
    }

    #[test]
    fn a_crate_without_a_place_is_caught() {
        assert_eq!(violations(vec![member("stray", &[])]), ["stray has no place in the layers"]);
    }

    #[test]
    fn an_arrow_that_is_not_used_is_caught() {
        let found = unused(&workspace(vec![member("pmem-derive", &[]), member("pmem", &[])]));
        let pmem = found.iter().find(|problem| problem.at == "pmem").unwrap();
        assert_eq!(pmem.what, "may depend on pmem-derive, and does not");
        assert!(found.iter().any(|problem| problem.at == "heap" && problem.what.ends_with("no crate")));
        assert!(found.iter().all(|problem| problem.at != "pmem-derive"));
    }

    #[test]
    fn a_foreign_package_of_the_same_name_is_no_arrow() {
        let mut package = member("kv", &["structures"]);
        package.dependencies[0].path = None;
        assert_eq!(violations(vec![package, member("structures", &[])]), Vec::<String>::new());
    }

    /// What is no product, and no product links.
    const TOOLS: [&str; 9] = [
        "crash",
        "conformance",
        "structures-testing",
        "testnet",
        "fabric-conformance",
        "scenarios",
        "peers",
        "bench",
        "demo",
    ];

    /// A table that points up by itself would prove nothing.
    #[test]
    fn the_table_points_down() {
        for (index, (name, below)) in LAYERS.iter().enumerate() {
            for target in *below {
                let place = LAYERS.iter().position(|(layer, _)| layer == target);
                assert!(place.is_some_and(|place| place < index), "{name} -> {target}");
                let product = !TOOLS.contains(name) && !["xtask", "cli"].contains(name);
                assert!(!(product && TOOLS.contains(target)), "{name} -> {target}");
            }
        }
    }
}
