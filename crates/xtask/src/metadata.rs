//! The part of `cargo metadata` that the rules read.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// The platforms whose dependencies are checked.
const PLATFORMS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// The workspace and everything it is built from.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    /// Members and dependencies.
    pub packages: Vec<Package>,
    /// Ids of the members.
    pub workspace_members: BTreeSet<String>,
    /// Where the root manifest is.
    pub workspace_root: PathBuf,
}

/// One package.
#[derive(Debug, Deserialize)]
pub struct Package {
    /// Unique among packages.
    pub id: String,
    /// The name in its manifest.
    pub name: String,
    /// The version in its manifest.
    pub version: String,
    /// An SPDX expression.
    pub license: Option<String>,
    /// What the manifest asks for.
    pub dependencies: Vec<Dependency>,
    /// Libraries, binaries, tests and so on.
    pub targets: Vec<Target>,
}

impl Package {
    /// What the workspace calls it: packages that are published have `cairn-` before that.
    #[must_use]
    pub fn short(&self) -> &str {
        short(&self.name)
    }

    /// The root file of each library and binary.
    pub fn roots(&self) -> impl Iterator<Item = &Path> {
        let linked = |kind: &String| ["lib", "rlib", "cdylib", "staticlib", "proc-macro", "bin"].contains(&&**kind);
        let roots = self.targets.iter().filter(move |target| target.kind.iter().any(linked));
        roots.map(|target| target.src_path.as_path())
    }
}

/// The name of a package in the workspace.
#[must_use]
pub fn short(name: &str) -> &str {
    name.strip_prefix("cairn-").unwrap_or(name)
}

/// One line under `[dependencies]` or its siblings.
#[derive(Debug, Deserialize)]
pub struct Dependency {
    /// The package's name.
    pub name: String,
    /// Absent for a normal one, else `dev` or `build`.
    pub kind: Option<String>,
    /// The folder of a dependency inside the workspace.
    pub path: Option<PathBuf>,
}

/// One thing that cargo builds.
#[derive(Debug, Deserialize)]
pub struct Target {
    /// `lib`, `bin`, `proc-macro`, `test` …
    pub kind: Vec<String>,
    /// The root source file.
    pub src_path: PathBuf,
}

impl Metadata {
    /// Asks cargo, from the current directory; changes nothing.
    ///
    /// # Errors
    /// Cargo cannot be run, refuses, or answers in a form unknown here.
    pub fn load() -> io::Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["metadata", "--format-version", "1", "--locked"]);
        for platform in PLATFORMS {
            command.args(["--filter-platform", platform]);
        }
        let output = command.output()?;
        if !output.status.success() {
            return Err(io::Error::other(format!(
                "cargo metadata: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            )));
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// The packages of the workspace itself.
    pub fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::{Dependency, Metadata, Package};

    /// A member of a made-up workspace; dependencies as `name` or `dev:name`.
    pub fn member(name: &str, dependencies: &[&str]) -> Package {
        let dependencies = dependencies
            .iter()
            .map(|text| {
                let (kind, name) = text.split_once(':').map_or((None, *text), |(kind, name)| (Some(kind), name));
                Dependency { name: name.into(), kind: kind.map(Into::into), path: Some(name.into()) }
            })
            .collect();
        Package {
            id: name.into(),
            name: name.into(),
            version: "0.1.0".into(),
            license: Some("MIT".into()),
            dependencies,
            targets: vec![],
        }
    }

    pub fn workspace(packages: Vec<Package>) -> Metadata {
        let workspace_members = packages.iter().map(|package| package.id.clone()).collect();
        Metadata { packages, workspace_members, workspace_root: ".".into() }
    }

    #[test]
    fn loads_this_workspace() {
        let metadata = Metadata::load().unwrap();
        assert!(metadata.members().any(|package| package.name == "xtask"));
        assert!(metadata.packages.len() > metadata.workspace_members.len());
    }
}
