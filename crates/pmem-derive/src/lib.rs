//! `#[derive(Persist)]` for the crate `pmem`, which re-exports it next to the trait and documents both.
//!
//! The derive writes down what can be seen in the source (a struct, `repr(C)` or `repr(transparent)`, every field `Persist`); the
//! absence of padding is asserted by the constant it emits, where sizes are known, so that it holds for every
//! instance of a generic struct.

#![forbid(unsafe_code)]

use proc_macro_crate::{Error as LookupError, FoundCrate, crate_name};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, Result, parse_macro_input, parse_quote};

/// Implements `pmem::Persist` for a struct; see the documentation of the trait.
///
/// The struct must be `#[repr(C)]` or `#[repr(transparent)]`, `Copy`, and without padding. Type parameters get the
/// bound `Persist`.
#[proc_macro_derive(Persist)]
pub fn derive_persist(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let fields = struct_fields(input)?;
    require_fixed_repr(input)?;

    let pmem = pmem_path(crate_name)?;
    let name = &input.ident;
    let label = name.to_string();
    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(#pmem::Persist));
    }
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();

    let layouts = fields.iter().enumerate().map(|(index, field)| {
        let label = field.ident.as_ref().map_or_else(|| index.to_string(), ToString::to_string);
        let ty = &field.ty;
        // The span of the type makes "bool is not Persist" point at the field.
        quote_spanned!(ty.span()=> (#label, <#ty as #pmem::Persist>::LAYOUT))
    });

    // A struct without parameters is checked here; others where they are used.
    let checked_now = input.generics.params.is_empty().then(|| {
        quote! {
            const _: #pmem::Layout = <#name as #pmem::Persist>::LAYOUT;
        }
    });

    Ok(quote! {
        // SAFETY: a struct of fixed representation whose fields are all `Persist` (`LAYOUT` names each as such); `of_struct`
        // refuses padding, and `Copy`, `Send`, `Sync` and `'static` are supertraits.
        #[automatically_derived]
        unsafe impl #impl_generics #pmem::Persist for #name #type_generics #where_clause {
            const LAYOUT: #pmem::Layout = #pmem::Layout::of_struct::<Self>(#label, &[#(#layouts),*]);
        }
        #checked_now
    })
}

/// Where the deriving package has the crate `pmem`: its own dependency under whatever name, or inside the facade `cairn`.
fn pmem_path(find: impl Fn(&str) -> std::result::Result<FoundCrate, LookupError>) -> Result<TokenStream> {
    let root = |found, own: &str| match found {
        FoundCrate::Itself => Ident::new(own, Span::call_site()), // in tests and examples; the library calls itself by its name too
        FoundCrate::Name(name) => Ident::new(&name, Span::call_site()),
    };
    if let Ok(found) = find("pmem") {
        let pmem = root(found, "pmem");
        return Ok(quote!(::#pmem));
    }
    match find("cairn") {
        Ok(found) => {
            let cairn = root(found, "cairn");
            Ok(quote!(::#cairn::pmem))
        }
        Err(_) => Err(Error::new(
            Span::call_site(),
            "Persist can be derived in packages that depend on `cairn` or on `pmem`: add one to Cargo.toml",
        )),
    }
}

fn struct_fields(input: &DeriveInput) -> Result<&Fields> {
    match &input.data {
        Data::Struct(data) => Ok(&data.fields),
        Data::Enum(_) => Err(Error::new_spanned(
            &input.ident,
            "Persist cannot be derived for an enum: not every bit pattern is one of its values; \
             store an integer and convert it with a checked `TryFrom`",
        )),
        Data::Union(_) => Err(Error::new_spanned(
            &input.ident,
            "Persist cannot be derived for a union: its padding differs from field to field; store bytes and convert them",
        )),
    }
}

fn require_fixed_repr(input: &DeriveInput) -> Result<()> {
    let mut fixed = false;
    for attribute in input.attrs.iter().filter(|a| a.path().is_ident("repr")) {
        attribute.parse_nested_meta(|meta| {
            fixed |= meta.path.is_ident("C") || meta.path.is_ident("transparent");
            // The argument of `align(N)` or `packed(N)`: the compiler judges it, `of_struct` what it does to the size.
            if meta.input.peek(syn::token::Paren) {
                let argument;
                syn::parenthesized!(argument in meta.input);
                argument.parse::<TokenStream>()?;
            }
            Ok(())
        })?;
    }
    if fixed {
        return Ok(());
    }
    Err(Error::new_spanned(
        input.ident.to_token_stream(),
        "Persist needs a fixed layout: add #[repr(C)] or #[repr(transparent)]",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pmem_is_found_under_any_name() {
        let path = |dependencies: &[(&str, FoundCrate)]| {
            let find = |name: &str| {
                let found = dependencies.iter().find(|(package, _)| *package == name).map(|(_, found)| found.clone());
                found.ok_or(LookupError::CrateNotFound { crate_name: name.into(), path: "Cargo.toml".into() })
            };
            pmem_path(find).map(|tokens| tokens.to_string().replace(' ', "")).map_err(|e| e.to_string())
        };
        let named = |name: &str| FoundCrate::Name(name.into());
        assert_eq!(path(&[("pmem", named("pmem"))]).as_deref(), Ok("::pmem"));
        assert_eq!(path(&[("pmem", named("memory")), ("cairn", named("cairn"))]).as_deref(), Ok("::memory"));
        assert_eq!(path(&[("pmem", FoundCrate::Itself)]).as_deref(), Ok("::pmem"));
        assert_eq!(path(&[("cairn", named("durable"))]).as_deref(), Ok("::durable::pmem"));
        assert_eq!(path(&[("cairn", FoundCrate::Itself)]).as_deref(), Ok("::cairn::pmem"));
        assert!(path(&[]).unwrap_err().contains("add one to Cargo.toml"));
    }
}
