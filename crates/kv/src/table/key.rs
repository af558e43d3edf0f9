//! Keys as bytes that sort as the keys do.

use super::name::short;
use crate::error::DecodeError;

/// A type whose values are keys of a [`Table`](super::Table): their bytes are ordered as they are.
///
/// | type | bytes |
/// |---|---|
/// | `u8` to `u128` | most significant first |
/// | `i8` to `i128` | the same, with the sign flipped |
/// | `bool` | 0 or 1 |
/// | `str`, `String`, `[u8]`, `Vec<u8>` | as they are; if something follows in a tuple: 0 as 0 255, and 0 0 at the end |
/// | `[u8; N]` | as they are |
/// | `Option<T>` | 0 for `None`; 1 and the value |
/// | tuples of 2 to 4 | one after the other |
/// | `&T` | as `T` |
///
/// A type of your own: encode its parts one after the other, most significant first, as a tuple of them would be.
///
/// ```
/// use kv::{KeyCode, DecodeError};
/// #[derive(PartialEq, Eq, PartialOrd, Ord)]
/// struct Version { major: u16, minor: u16 }
///
/// impl KeyCode for Version {
///     type Owned = Self;
///     fn encode(&self, out: &mut Vec<u8>) {
///         (self.major, self.minor).encode(out);
///     }
///     fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
///         let (major, minor) = <(u16, u16)>::decode(bytes)?;
///         Ok(Self { major, minor })
///     }
/// }
/// # let encoded = |version: Version| { let mut out = Vec::new(); version.encode(&mut out); out };
/// assert!(encoded(Version { major: 1, minor: 300 }) < encoded(Version { major: 2, minor: 0 }));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the key of a table",
    label = "not `KeyCode`",
    note = "keys are integers, bool, text, bytes, options and tuples of these; usize and floats are none",
    note = "for a type of your own, write `impl kv::KeyCode`"
)]
pub trait KeyCode {
    /// What reading gives: `String` for `str`.
    type Owned;

    /// Appends the key's bytes. No key's bytes may be the beginning of another's.
    fn encode(&self, out: &mut Vec<u8>);

    /// The same, if nothing follows: then they may be.
    fn encode_last(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }

    /// Reads a key, and moves on behind it.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    fn decode(bytes: &mut &[u8]) -> Result<Self::Owned, DecodeError>;

    /// Reads what [`encode_last`](Self::encode_last) wrote.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    fn decode_last(bytes: &mut &[u8]) -> Result<Self::Owned, DecodeError> {
        Self::decode(bytes)
    }

    /// What a store calls the type: tables of types with other names are [another's](crate::Error::TypeMismatch). The type's name, without modules, unless told otherwise; types with the same
    /// encoding may share one.
    fn type_name() -> String {
        short::<Self>()
    }
}

/// A type with the same bytes as `K`: `K` itself, and for text and bytes their slices, so that nothing is copied to ask for them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not stand for `{K}` in the key of a table",
    note = "it is of the key's own type, or `&str` for `String`, or `&[u8]` for `Vec<u8>`"
)]
pub trait KeyOf<K: ?Sized>: KeyCode {}

impl<K: KeyCode + ?Sized> KeyOf<K> for K {}
impl KeyOf<String> for &str {}
impl KeyOf<Vec<u8>> for &[u8] {}

fn array<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], DecodeError> {
    let (array, rest) = bytes.split_first_chunk().ok_or("the key is too short")?;
    *bytes = rest;
    Ok(*array)
}

macro_rules! integers {
    ($($unsigned:ty, $signed:ty;)*) => {$(
        impl KeyCode for $unsigned {
            type Owned = Self;
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }
            fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
                Ok(Self::from_be_bytes(array(bytes)?))
            }
        }

        impl KeyCode for $signed {
            type Owned = Self;
            fn encode(&self, out: &mut Vec<u8>) {
                (self.cast_unsigned() ^ Self::MIN.cast_unsigned()).encode(out);
            }
            fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
                Ok((<$unsigned>::decode(bytes)? ^ Self::MIN.cast_unsigned()).cast_signed())
            }
        }
    )*};
}

integers! {
    u8, i8;
    u16, i16;
    u32, i32;
    u64, i64;
    u128, i128;
}

impl KeyCode for bool {
    type Owned = Self;
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        match array(bytes)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err("a bool is neither 0 nor 1".into()),
        }
    }
}

impl<const N: usize> KeyCode for [u8; N] {
    type Owned = Self;
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        array(bytes)
    }
}

impl KeyCode for [u8] {
    type Owned = Vec<u8>;
    fn type_name() -> String {
        "bytes".to_owned()
    }
    fn encode(&self, out: &mut Vec<u8>) {
        for part in self.split_inclusive(|byte| *byte == 0) {
            out.extend_from_slice(part);
            if part.ends_with(&[0]) {
                out.push(255);
            }
        }
        out.extend_from_slice(&[0, 0]);
    }
    fn encode_last(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn decode(bytes: &mut &[u8]) -> Result<Vec<u8>, DecodeError> {
        let mut owned = Vec::new();
        loop {
            let zero = bytes.iter().position(|byte| *byte == 0).ok_or("text or bytes without an end")?;
            owned.extend_from_slice(&bytes[..zero]);
            *bytes = &bytes[zero + 1..];
            match array(bytes)? {
                [0] => return Ok(owned),
                [255] => owned.push(0),
                _ => return Err("a zero byte is followed by what never follows it".into()),
            }
        }
    }
    fn decode_last(bytes: &mut &[u8]) -> Result<Vec<u8>, DecodeError> {
        Ok(std::mem::take(bytes).to_vec())
    }
}

impl KeyCode for str {
    type Owned = String;
    fn type_name() -> String {
        "text".to_owned()
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_bytes().encode(out);
    }
    fn encode_last(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
    fn decode(bytes: &mut &[u8]) -> Result<String, DecodeError> {
        text(<[u8]>::decode(bytes)?)
    }
    fn decode_last(bytes: &mut &[u8]) -> Result<String, DecodeError> {
        text(<[u8]>::decode_last(bytes)?)
    }
}

fn text(bytes: Vec<u8>) -> Result<String, DecodeError> {
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".into())
}

/// As another type.
macro_rules! same_as {
    ($($this:ty: $other:ty $(, for $t:ident)?;)*) => {$(
        impl$(<$t: KeyCode + ?Sized>)? KeyCode for $this {
            type Owned = <$other as KeyCode>::Owned;
            fn type_name() -> String {
                <$other>::type_name()
            }
            fn encode(&self, out: &mut Vec<u8>) {
                <$other>::encode(self, out);
            }
            fn encode_last(&self, out: &mut Vec<u8>) {
                <$other>::encode_last(self, out);
            }
            fn decode(bytes: &mut &[u8]) -> Result<Self::Owned, DecodeError> {
                <$other>::decode(bytes)
            }
            fn decode_last(bytes: &mut &[u8]) -> Result<Self::Owned, DecodeError> {
                <$other>::decode_last(bytes)
            }
        }
    )*};
}

same_as! {
    String: str;
    Vec<u8>: [u8];
    &T: T, for T;
}

impl<T: KeyCode> KeyCode for Option<T> {
    type Owned = Option<T::Owned>;
    fn type_name() -> String {
        format!("Option<{}>", T::type_name())
    }
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        if let Some(value) = self {
            value.encode(out);
        }
    }
    fn encode_last(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        if let Some(value) = self {
            value.encode_last(out);
        }
    }
    fn decode(bytes: &mut &[u8]) -> Result<Self::Owned, DecodeError> {
        bool::decode(bytes)?.then(|| T::decode(bytes)).transpose()
    }
    fn decode_last(bytes: &mut &[u8]) -> Result<Self::Owned, DecodeError> {
        bool::decode(bytes)?.then(|| T::decode_last(bytes)).transpose()
    }
}

macro_rules! tuples {
    ($(($($t:ident . $n:tt,)* | $last:ident . $m:tt);)*) => {$(
        impl<$($t: KeyCode,)* $last: KeyCode> KeyCode for ($($t,)* $last,) {
            type Owned = ($($t::Owned,)* $last::Owned,);
            fn type_name() -> String {
                format!("({})", [$($t::type_name(),)* $last::type_name()].join(", "))
            }
            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$n.encode(out);)*
                self.$m.encode(out);
            }
            fn encode_last(&self, out: &mut Vec<u8>) {
                $(self.$n.encode(out);)*
                self.$m.encode_last(out);
            }
            fn decode(bytes: &mut &[u8]) -> Result<Self::Owned, DecodeError> {
                Ok(($($t::decode(bytes)?,)* $last::decode(bytes)?,))
            }
            fn decode_last(bytes: &mut &[u8]) -> Result<Self::Owned, DecodeError> {
                Ok(($($t::decode(bytes)?,)* $last::decode_last(bytes)?,))
            }
        }
    )*};
}

tuples! {
    (A.0, | B.1);
    (A.0, B.1, | C.2);
    (A.0, B.1, C.2, | D.3);
}
