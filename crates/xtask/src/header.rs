//! The C header of crate `capi`, made from its sources: `cargo xtask header` writes it, `cargo xtask check` holds the committed one against it.
//!
//! What is exported there has C names and few kinds of types, so this is all that is needed: enums with numbers, `repr(C)` structs, opaque ones, aliases, and
//! `no_mangle` functions. Their documentation becomes comments. Anything else that is exported is an error, not left out.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use syn::{
    Attribute, Expr, Field, Fields, FnArg, Item, ItemFn, Lit, Meta, Pat, PointerMutability, ReturnType, Type,
    Visibility,
};

use crate::Problem;

/// The folder of the crate, from the root of the workspace.
const CRATE: &str = "crates/capi";
/// The header in it.
const HEADER: &str = "include/cairn.h";
/// Its sections, in the order of the header: the files of each. The last one's documentation is the title.
const SECTIONS: [&[&str]; 8] = [
    &["src/code.rs"],
    &["src/raw/about.rs"],
    &["src/options.rs"],
    &["src/types/log.rs", "src/raw/log.rs"],
    &["src/types/kv.rs", "src/raw/kv.rs"],
    &["src/types/tx.rs", "src/raw/tx.rs"],
    &["src/types/array.rs", "src/raw/array.rs"],
    &["src/types/replicas.rs", "src/raw/replicas.rs"],
];
/// Columns of a comment.
const COLUMNS: usize = 100;

const TOP: &str = "\
/*
 * Cairn: a log, a key-value store and an array of files whose every acknowledged byte is durable. Link
 * with -lcairn.
 *
 * Every function that can fail returns a cairn_status: CAIRN_OK, or what the caller can do something
 * about, with cairn_last_error() for people. Results come through pointers, which are left alone
 * unless the call succeeded. Handles are opaque, and none is ever followed: one that is null, was
 * closed, or is something else is an error. A file is open in one process; the child of a fork()
 * uses none of its parent's handles, and may open others.
 *
 * Made by `cargo xtask header` from crates/capi/src: change it there.
 */
#ifndef CAIRN_H
#define CAIRN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern \"C\" {
#endif
";

/// Names that functions had before, for programs that were written then.
const OLD_NAMES: [(&str, &str); 2] =
    [("cairn_log_cleanup", "cairn_log_discard"), ("cairn_log_cleanup_all", "cairn_log_truncate_all")];

const BOTTOM: &str = "
#ifdef __cplusplus
}
#endif

#endif
";

/// Writes the header.
///
/// # Errors
/// A file cannot be read or written; something exported has no form in C.
pub fn write(root: &Path) -> io::Result<()> {
    fs::write(root.join(CRATE).join(HEADER), made(root)?)
}

/// The committed header is what the sources make.
///
/// # Errors
/// As [`write()`], but for the header itself.
pub fn check(root: &Path) -> io::Result<Vec<Problem>> {
    if !root.join(CRATE).exists() {
        return Ok(vec![]);
    }
    let there = fs::read_to_string(root.join(CRATE).join(HEADER)).unwrap_or_default();
    if there == made(root)? {
        return Ok(vec![]);
    }
    Ok(vec![Problem::new(format!("{CRATE}/{HEADER}"), "is not what the sources say", "cargo xtask header")])
}

fn made(root: &Path) -> io::Result<String> {
    let mut header = TOP.to_owned();
    for section in SECTIONS {
        let (mut title, mut declarations) = (String::new(), String::new());
        for source in section {
            let text = fs::read_to_string(root.join(CRATE).join(source))?;
            let named = |why: String| io::Error::other(format!("{CRATE}/{source}: {why}"));
            let file = syn::parse_file(&text).map_err(|error| named(error.to_string()))?;
            title = self::title(&file);
            declarations += &self::declarations(&file).map_err(named)?;
        }
        header.push_str(&title);
        header.push_str(&declarations);
    }
    header.push_str("\n/* Deprecated: the names that functions had before. */\n");
    for (old, new) in OLD_NAMES {
        let _ = writeln!(header, "#define {old} {new}");
    }
    header.push_str(BOTTOM);
    Ok(header)
}

/// What a source file says that it is about.
fn title(file: &syn::File) -> String {
    let title = format!("\n/* ---- {}", docs(&file.attrs).join("\n"));
    comment("", &title[4..]).replacen("/*", "\n/*", 1)
}

/// What a source file exports.
fn declarations(file: &syn::File) -> Result<String, String> {
    let mut declarations = String::new();
    for item in &file.items {
        if let Some(declaration) = declared(item)? {
            let _ = write!(declarations, "\n{declaration}");
        }
    }
    Ok(declarations)
}

fn declared(item: &Item) -> Result<Option<String>, String> {
    let public = |vis: &Visibility| matches!(vis, Visibility::Public(_));
    match item {
        Item::Enum(item) if public(&item.vis) => {
            let mut text = comment("", &documented(&item.ident, &item.attrs)?);
            let _ = writeln!(text, "enum {} {{", item.ident);
            for variant in &item.variants {
                let number = match &variant.discriminant {
                    Some((_, Expr::Lit(lit))) => match &lit.lit {
                        Lit::Int(number) => number.to_string(),
                        _ => return Err(format!("{}: not a number", variant.ident)),
                    },
                    _ => return Err(format!("{}: has no number", variant.ident)),
                };
                text += &comment("\t", &documented(&variant.ident, &variant.attrs)?);
                let _ = writeln!(text, "\t{} = {number},", variant.ident);
            }
            Ok(Some(text + "};\n"))
        }
        Item::Struct(item) if public(&item.vis) => {
            let mut text = comment("", &documented(&item.ident, &item.attrs)?);
            let Fields::Named(fields) = &item.fields else { return Err(format!("{}: no fields", item.ident)) };
            let name = &item.ident;
            if !has(&item.attrs, "repr", "C") {
                return Err(format!("{name}: not repr(C)"));
            }
            if fields.named.iter().all(|field| !public(&field.vis)) {
                let _ = writeln!(text, "typedef struct {name} {name};");
                return Ok(Some(text));
            }
            let _ = writeln!(text, "typedef struct {name} {{");
            for field in &fields.named {
                text += &self::field(field)?;
            }
            let _ = writeln!(text, "}} {name};");
            Ok(Some(text))
        }
        Item::Type(item) if public(&item.vis) => {
            let name = item.ident.to_string();
            let text = comment("", &documented(&name, &item.attrs)?);
            Ok(Some(text + "typedef " + &typed(&item.ty, &name)? + ";\n"))
        }
        Item::Fn(item) if public(&item.vis) => function(item).map(Some),
        _ => Ok(None),
    }
}

fn field(field: &Field) -> Result<String, String> {
    let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
    if !matches!(field.vis, Visibility::Public(_)) {
        return Err(format!("{name}: not public, in a struct that is not opaque"));
    }
    Ok(comment("\t", &documented(&name, &field.attrs)?) + "\t" + &typed(&field.ty, &name)? + ";\n")
}

fn function(item: &ItemFn) -> Result<String, String> {
    let name = item.sig.ident.to_string();
    let c = item.sig.abi.as_ref().and_then(|abi| abi.name.as_ref()).is_some_and(|abi| abi.value() == "C");
    if !c || !has(&item.attrs, "unsafe", "no_mangle") {
        return Err(format!("{name}: public, and not extern \"C\" with its name kept"));
    }
    let mut arguments = Vec::new();
    for argument in &item.sig.inputs {
        let FnArg::Typed(argument) = argument else { return Err(format!("{name}: self")) };
        let Pat::Ident(pattern) = &*argument.pat else { return Err(format!("{name}: a pattern")) };
        arguments.push(typed(&argument.ty, &pattern.ident.to_string())?);
    }
    let arguments = if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
    let returns = match &item.sig.output {
        ReturnType::Default => "void ".to_owned() + &name,
        ReturnType::Type(_, ty) => typed(ty, &name)?,
    };
    Ok(comment("", &documented(&name, &item.attrs)?) + &wrapped(&format!("{returns}({arguments});")))
}

/// A declaration, its arguments on further lines if it is long.
fn wrapped(declaration: &str) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in declaration.split_inclusive(", ") {
        if column > 0 && column + word.trim_end().len() > COLUMNS {
            text.truncate(text.trim_end().len());
            text.push_str("\n\t");
            column = 8;
        }
        text.push_str(word);
        column += word.len();
    }
    text + "\n"
}

/// `name` declared with a type.
fn typed(ty: &Type, name: &str) -> Result<String, String> {
    match ty {
        Type::Ptr(pointer) => {
            let constant = matches!(pointer.mutability, PointerMutability::Const(_));
            // What a pointer leads to is constant: the word is before it, and of another pointer behind its star.
            match &*pointer.elem {
                Type::Ptr(_) if constant => typed(&pointer.elem, &format!("const *{name}")),
                _ if constant => Ok(format!("const {}", typed(&pointer.elem, &format!("*{name}"))?)),
                _ => typed(&pointer.elem, &format!("*{name}")),
            }
        }
        Type::Path(path) => {
            let last = path.path.segments.last().ok_or("a type without a name")?;
            if last.ident == "Option" {
                return callback(last, name);
            }
            let c = match last.ident.to_string().as_str() {
                "u8" => "uint8_t",
                "u32" => "uint32_t",
                "u64" => "uint64_t",
                "usize" => "size_t",
                "bool" => "bool",
                "c_int" => "int",
                "c_char" => "char",
                "c_void" => "void",
                "cairn_group" => "enum cairn_group",
                ours if ours.starts_with("cairn_") => return Ok(format!("{ours} {name}")),
                other => return Err(format!("{name}: the type {other} has no form in C")),
            };
            Ok(format!("{c} {name}"))
        }
        _ => Err(format!("{name}: this type has no form in C")),
    }
}

/// `Option<extern fn>` is a pointer to a function.
fn callback(option: &syn::PathSegment, name: &str) -> Result<String, String> {
    let syn::PathArguments::AngleBracketed(inner) = &option.arguments else { return Err(format!("{name}: of what?")) };
    let Some(syn::GenericArgument::Type(Type::FnPtr(function))) = inner.args.first() else {
        return Err(format!("{name}: an option of something else than a function"));
    };
    let mut arguments = Vec::new();
    for argument in &function.inputs {
        let name = argument.name.as_ref().map(|(name, _)| name.to_string()).unwrap_or_default();
        arguments.push(typed(&argument.ty, &name)?);
    }
    let name = format!("(*{name})");
    let returns = match &function.output {
        ReturnType::Default => "void ".to_owned() + &name,
        ReturnType::Type(_, ty) => typed(ty, &name)?,
    };
    Ok(format!("{returns}({})", arguments.join(", ")))
}

/// Whether there is an attribute `#[name(argument)]`, perhaps among others.
fn has(attributes: &[Attribute], name: &str, argument: &str) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident(name)
            && matches!(&attribute.meta, Meta::List(list) if list.tokens.to_string().split(',').any(|one| one.trim() == argument))
    })
}

fn documented(name: &impl ToString, attributes: &[Attribute]) -> Result<String, String> {
    let lines = docs(attributes);
    if lines.is_empty() { Err(format!("{}: has no documentation", name.to_string())) } else { Ok(lines.join("\n")) }
}

fn docs(attributes: &[Attribute]) -> Vec<String> {
    let text = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(lit) => match &lit.lit {
                Lit::Str(text) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    };
    attributes.iter().filter_map(text).collect()
}

/// Paragraphs as a comment, filled to the width.
fn comment(indent: &str, text: &str) -> String {
    let width = COLUMNS - 3 - indent.len() * 8;
    let mut lines: Vec<String> = Vec::new();
    for (number, paragraph) in text.split("\n\n").enumerate() {
        if number > 0 {
            lines.push(String::new());
        }
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.is_empty() && line.len() + 1 + word.len() > width {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    if let [line] = &lines[..]
        && line.len() + 3 <= width
    {
        return format!("{indent}/* {line} */\n");
    }
    let lines: String = lines.iter().map(|line| format!("{indent} * {line}").trim_end().to_owned() + "\n").collect();
    format!("{indent}/*\n{lines}{indent} */\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A section of one file.
    fn part(text: &str) -> Result<String, String> {
        let file = syn::parse_file(text).unwrap();
        Ok(title(&file) + &declarations(&file)?)
    }

    #[test]
    fn what_is_exported_is_declared() {
        let source = "
            //! Things.
            /// One.
            #[repr(C)] pub struct cairn_one { opaque: [u8; 0] }
            /// Two.
            #[repr(C)] pub struct cairn_two { /// Where.
                pub at: *const c_void, /// How long.
                pub len: usize }
            /// What.
            pub enum cairn_what { /// None.
                CAIRN_NONE = 0 }
            /// Called.
            pub type cairn_call = Option<unsafe extern \"C-unwind\" fn(one: *mut cairn_one) -> c_int>;
            /// Makes `one`.
            #[unsafe(no_mangle)]
            pub unsafe extern \"C\" fn cairn_make(path: *const c_char, one: *mut *mut cairn_one) -> cairn_status { 0 }
            fn of_our_own() {}
        ";
        let expected = "
/* ---- Things. */

/* One. */
typedef struct cairn_one cairn_one;

/* Two. */
typedef struct cairn_two {
\t/* Where. */
\tconst void *at;
\t/* How long. */
\tsize_t len;
} cairn_two;

/* What. */
enum cairn_what {
\t/* None. */
\tCAIRN_NONE = 0,
};

/* Called. */
typedef int (*cairn_call)(cairn_one *one);

/* Makes `one`. */
cairn_status cairn_make(const char *path, cairn_one **one);
";
        assert_eq!(part(source).unwrap(), expected);
    }

    #[test]
    fn what_has_no_form_in_c_is_not_left_out() {
        for (source, why) in [
            ("/// A.\n#[unsafe(no_mangle)] pub extern \"C\" fn cairn_a(x: String) {}", "no form in C"),
            ("#[unsafe(no_mangle)] pub extern \"C\" fn cairn_a(x: u64) {}", "no documentation"),
            ("/// A.\npub extern \"C\" fn cairn_a(x: u64) {}", "its name kept"),
            ("/// A.\n#[unsafe(no_mangle)] pub fn cairn_a(x: u64) {}", "extern"),
            ("/// A.\npub struct cairn_a { /// B.\npub b: u64 }", "repr(C)"),
            ("/// A.\n#[repr(C)] pub struct cairn_a { /// B.\npub b: u64, c: u64 }", "not public"),
            ("/// A.\npub enum cairn_a { /// B.\nB }", "no number"),
        ] {
            let error = part(&format!("//! T.\n{source}")).unwrap_err();
            assert!(error.contains(why), "{source}: {error}");
        }
    }

    #[test]
    fn long_lines_are_broken() {
        let long = "word ".repeat(60);
        assert!(comment("\t", &long).lines().all(|line| line.len() + 7 <= COLUMNS));
        let call = wrapped(&format!("void f({}int z);", "const char *a_long_name, ".repeat(9)));
        assert!(call.lines().count() > 1 && call.lines().all(|line| line.len() + 7 <= COLUMNS + 1), "{call}");
    }

    /// The committed header.
    #[test]
    fn the_header_is_what_the_sources_say() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert_eq!(check(&root).unwrap(), []);
    }

    #[test]
    fn another_header_is_caught() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(check(root.path()).unwrap(), [], "there is no such crate");
        for source in SECTIONS.iter().copied().flatten() {
            let path = root.path().join(CRATE).join(source);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "//! T.\n").unwrap();
        }
        fs::create_dir_all(root.path().join(CRATE).join("include")).unwrap();
        assert_eq!(check(root.path()).unwrap().len(), 1, "none was written");
        write(root.path()).unwrap();
        assert_eq!(check(root.path()).unwrap(), []);
        fs::write(root.path().join(CRATE).join(SECTIONS[0][0]), "//! Another.\n").unwrap();
        assert_eq!(check(root.path()).unwrap().len(), 1);
    }
}
