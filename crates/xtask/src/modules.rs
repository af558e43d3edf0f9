//! The modules of a crate as its sources declare them, and what each takes from the others.
//!
//! [`Modules::read`] follows `mod` from the crate's root. An arrow goes from the file that names an item to the file that defines it:
//! re-exports are followed, since `crate::Error` is `error.rs` wherever the root passes it on. Tests are left out. Calls of methods are not
//! seen, since that takes types; the import of the type is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;
use syn::{Attribute, Item, UseTree, Visibility};

/// Index of a module; the root is 0.
pub type Module = usize;

/// One file, or the root.
#[derive(Debug, Default)]
struct Node {
    /// The path without `crate::`, such as `index::leaf`; empty for the root.
    path: String,
    file: PathBuf,
    parent: Module,
    children: BTreeMap<String, Module>,
    /// Names that `use` brings in: the path they stand for, from this module.
    names: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    defined: BTreeSet<String>,
    /// Paths that the module's code takes, as written.
    taken: BTreeSet<Vec<String>>,
}

/// The modules of one crate.
#[derive(Debug)]
pub struct Modules {
    nodes: Vec<Node>,
}

impl Modules {
    /// Reads the crate with this root, such as `src/lib.rs`.
    ///
    /// # Errors
    /// A file cannot be read, or is no Rust.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut modules = Self { nodes: vec![Node { file: root.to_owned(), ..Node::default() }] };
        let folder = root.parent().unwrap_or(Path::new(".")).to_owned();
        modules.add(0, &folder)?;
        Ok(modules)
    }

    /// How many there are, with the root.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is only the root.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() < 2
    }

    /// The file of a module.
    pub fn file(&self, module: Module) -> &Path {
        &self.nodes[module].file
    }

    /// The path of a module within the crate.
    pub fn path(&self, module: Module) -> &str {
        if module == 0 { "crate" } else { &self.nodes[module].path }
    }

    /// The modules from the root's child down to `module`: its rooms, outermost first.
    pub fn line(&self, module: Module) -> Vec<Module> {
        let mut line = Vec::new();
        let mut at = module;
        while at != 0 {
            line.push(at);
            at = self.nodes[at].parent;
        }
        line.reverse();
        line
    }

    /// Every arrow, with the names that make it.
    pub fn arrows(&self) -> BTreeMap<(Module, Module), BTreeSet<String>> {
        let mut arrows: BTreeMap<(Module, Module), BTreeSet<String>> = BTreeMap::new();
        let mut add = |from: Module, to: Module, name: String| {
            if from != to {
                arrows.entry((from, to)).or_default().insert(name);
            }
        };
        for (from, node) in self.nodes.iter().enumerate() {
            for path in &node.taken {
                if let Some(to) = self.resolve(from, path, 0) {
                    add(from, to, path.last().cloned().unwrap_or_default());
                }
            }
        }
        arrows
    }

    /// The module that defines what `path` names, seen from `from`.
    fn resolve(&self, from: Module, path: &[String], depth: usize) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let (mut at, mut rest) = match first.as_str() {
            "crate" | "$crate" => (0, rest),
            "self" => (from, rest),
            "super" => (self.nodes[from].parent, rest),
            name => {
                if let Some(&child) = self.nodes[from].children.get(name) {
                    (child, rest)
                } else if let Some(target) = self.nodes[from].names.get(name).filter(|_| depth < 16) {
                    let target: Vec<String> = target.iter().chain(rest).cloned().collect();
                    // A name may stand for an extern crate's module of the same name.
                    return if target == path { None } else { self.resolve(from, &target, depth + 1) };
                } else {
                    return None;
                }
            }
        };
        while let Some((name, after)) = rest.split_first() {
            let node = &self.nodes[at];
            if name == "super" {
                at = node.parent;
            } else if let Some(&child) = node.children.get(name) {
                at = child;
            } else if node.defined.contains(name) || depth >= 16 {
                return Some(at);
            } else if let Some(target) = node.names.get(name) {
                let target: Vec<String> = target.iter().chain(after).cloned().collect();
                return self.resolve(at, &target, depth + 1);
            } else {
                let through = node.globs.iter().find_map(|glob| {
                    let module = self.resolve(at, glob, depth + 1)?;
                    (self.nodes[module].defined.contains(name) || self.nodes[module].names.contains_key(name))
                        .then_some(module)
                });
                match through {
                    Some(module) => {
                        return self.resolve(module, &[vec!["self".into()], rest.to_vec()].concat(), depth + 1);
                    }
                    None => return Some(at),
                }
            }
            rest = after;
        }
        Some(at)
    }

    /// Reads the file of `module`, and its children's in `folder`.
    fn add(&mut self, module: Module, folder: &Path) -> io::Result<()> {
        let file = self.nodes[module].file.clone();
        let named = |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", file.display()));
        let text = fs::read_to_string(&file).map_err(|error| named(&error))?;
        let parsed = syn::parse_file(&text).map_err(|error| named(&error))?;
        let mut reader = Reader { node: &mut self.nodes[module], children: Vec::new() };
        reader.items(&parsed.items);
        for (name, path) in reader.children {
            let candidates = match path {
                Some(path) => vec![file.parent().unwrap_or(Path::new(".")).join(path)],
                None => vec![folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs")],
            };
            let Some(found) = candidates.iter().find(|path| path.exists()) else {
                return Err(named(&format!("module {name} has no file")));
            };
            let parent = &self.nodes[module];
            let path = if module == 0 { name.clone() } else { format!("{}::{name}", parent.path) };
            // Two files for one name, of which a feature picks: the name stands for the first.
            let child = self.nodes.len();
            self.nodes[module].children.entry(name.clone()).or_insert(child);
            self.nodes.push(Node { path, file: found.clone(), parent: module, ..Node::default() });
            self.add(child, &folder.join(&name))?;
        }
        Ok(())
    }
}

/// Reads one file into its node.
struct Reader<'a> {
    node: &'a mut Node,
    /// `mod name;` with the `path` attribute.
    children: Vec<(String, Option<String>)>,
}

impl Reader<'_> {
    fn items(&mut self, items: &[Item]) {
        for item in items {
            self.visit_item(item);
        }
    }

    fn use_tree(&mut self, tree: &UseTree, before: &[String], passed_on: bool) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.use_tree(&path.tree, &with(&path.ident), passed_on),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.use_tree(tree, before, passed_on)),
            UseTree::Glob(_) => {
                self.node.globs.push(before.to_vec());
                if !passed_on {
                    self.node.taken.insert(before.to_vec());
                }
            }
            UseTree::Name(name) if name.ident == "self" => {
                self.import(before.last().cloned().unwrap_or_default(), before.to_vec(), passed_on);
            }
            UseTree::Name(name) => self.import(name.ident.to_string(), with(&name.ident), passed_on),
            UseTree::Rename(rename) => self.import(rename.rename.to_string(), with(&rename.ident), passed_on),
        }
    }

    /// An import is an arrow; what is only passed on is none, unless the module's own code takes it.
    fn import(&mut self, name: String, path: Vec<String>, passed_on: bool) {
        if !passed_on {
            self.node.taken.insert(path.clone());
        }
        self.node.names.insert(name, path);
    }

    /// Paths in the input of a macro, which is not parsed.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.take(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.take(std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.take(path);
    }

    fn take(&mut self, path: Vec<String>) {
        if !path.is_empty() {
            self.node.taken.insert(path);
        }
    }
}

/// `#[cfg(test)]`, or `#[cfg(all(test, ..))]`.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return attribute.path().is_ident("test") };
        let tokens = list.tokens.to_string().replace(' ', "");
        attribute.path().is_ident("cfg") && (tokens == "test" || tokens.starts_with("all(test"))
    })
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
        let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value else { return None };
        attribute.path().is_ident("path").then(|| text.value())
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_test(attributes(item)) {
            return;
        }
        let defined = match item {
            Item::Const(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Fn(item) => Some(&item.sig.ident),
            Item::Macro(item) => item.ident.as_ref(),
            Item::Static(item) => Some(&item.ident),
            Item::Struct(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            Item::Type(item) => Some(&item.ident),
            Item::Union(item) => Some(&item.ident),
            _ => None,
        };
        if let Some(name) = defined {
            self.node.defined.insert(name.to_string());
        }
        match item {
            Item::Mod(module) => match &module.content {
                Some((_, items)) => self.items(items),
                None => self.children.push((module.ident.to_string(), path_attribute(&module.attrs))),
            },
            _ => syn::visit::visit_item(self, item),
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.use_tree(&item.tree, &[], !matches!(item.vis, Visibility::Inherited));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            syn::visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.take(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }
}
