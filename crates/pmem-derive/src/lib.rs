//! `#[derive(Persist)]` for the crate `pmem`, which re-exports it next to the trait and documents both.
//!
//! The derive writes down what can be seen in the source (a struct, `repr(C)` or `repr(transparent)`, every field `Persist`); the
//! absence of padding is asserted by the constant it emits, where sizes are known, so that it holds for every
//! instance of a generic struct.

#![forbid(unsafe_code)]

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Fields, LitStr, Path, Result, parse_macro_input, parse_quote};

/// Implements `pmem::Persist` for a struct; see the documentation of the trait.
///
/// The struct must be `#[repr(C)]` or `#[repr(transparent)]`, `Copy`, and without padding. Type parameters get the
/// bound `Persist`. The crate is found as `::pmem`; `#[persist(crate = path)]` says where else it is. Names of the struct
/// and its fields are part of the layout; `#[persist(name = "old")]` at either keeps the name that pools have it by.
#[proc_macro_derive(Persist, attributes(persist))]
pub fn derive_persist(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derived(input, parse_quote!(::pmem))
}

/// The same for users of the facade, which has the crate as `::cairn::pmem`.
#[proc_macro_derive(PersistOfCairn, attributes(persist))]
pub fn derive_persist_of_cairn(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derived(input, parse_quote!(::cairn::pmem))
}

fn derived(input: proc_macro::TokenStream, pmem: Path) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input, pmem).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(input: &DeriveInput, pmem: Path) -> Result<TokenStream> {
    let fields = struct_fields(input)?;
    require_fixed_repr(input)?;

    let Attributes { path, name: label } = Attributes::of(&input.attrs)?;
    let pmem = path.unwrap_or(pmem);
    let name = &input.ident;
    let label = label.unwrap_or_else(|| name.to_string());
    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(#pmem::Persist));
    }
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();

    let layouts = fields.iter().enumerate().map(|(index, field)| {
        let Attributes { path, name } = Attributes::of(&field.attrs)?;
        if let Some(path) = path {
            return Err(Error::new_spanned(path, "`crate = path` belongs at the struct"));
        }
        let own = || field.ident.as_ref().map_or_else(|| index.to_string(), ToString::to_string);
        let label = name.unwrap_or_else(own);
        let ty = &field.ty;
        // The span of the type makes "bool is not Persist" point at the field.
        Ok(quote_spanned!(ty.span()=> (#label, <#ty as #pmem::Persist>::LAYOUT)))
    });
    let layouts = layouts.collect::<Result<Vec<_>>>()?;

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

/// What `#[persist(..)]` says at a struct or a field.
#[derive(Default)]
struct Attributes {
    /// Where the crate `pmem` is.
    path: Option<Path>,
    /// The name in the layout.
    name: Option<String>,
}

impl Attributes {
    fn of(attributes: &[Attribute]) -> Result<Self> {
        let mut said = Self::default();
        for attribute in attributes.iter().filter(|a| a.path().is_ident("persist")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("crate") {
                    said.path = Some(meta.value()?.call(Path::parse_mod_style)?);
                } else if meta.path.is_ident("name") {
                    said.name = Some(meta.value()?.parse::<LitStr>()?.value());
                } else {
                    return Err(meta.error("expected `crate = path` or `name = \"of earlier pools\"`"));
                }
                Ok(())
            })?;
        }
        Ok(said)
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
    fn pmem_is_where_the_attribute_says() {
        let path = |input: DeriveInput| expand(&input, parse_quote!(::pmem)).map(|tokens| tokens.to_string());
        let input = parse_quote!(
            #[repr(C)]
            struct S {
                a: u64,
            }
        );
        assert!(path(input).unwrap().contains(":: pmem :: Persist for S"));
        let input = parse_quote!(
            #[repr(C)]
            #[persist(crate = ::durable::pmem)]
            struct S {
                a: u64,
            }
        );
        let text = path(input).unwrap();
        assert!(text.contains(":: durable :: pmem :: Persist for S") && !text.contains("{ :: pmem"), "{text}");
        let input = parse_quote!(
            #[repr(C)]
            #[persist(crates = durable)]
            struct S {
                a: u64,
            }
        );
        assert!(path(input).unwrap_err().to_string().contains("crate = path"));
    }
}
