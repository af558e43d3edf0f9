//! Which keys of a table.

use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use tx::Keys;

use super::{KeyCode, KeyOf};

/// A range of typed keys: `a..b`, `a..=b`, `..`, a pair of bounds; of `&str` and `&[u8]` where the keys are text and bytes.
pub trait KeyRange<K: ?Sized> {
    /// The bytes of these keys behind `prefix`.
    fn keys(self, prefix: &[u8]) -> Keys;
}

fn keys<K: KeyCode + ?Sized>(prefix: &[u8], from: Bound<&K>, to: Bound<&K>) -> Keys {
    let encode = |key: &K| {
        let mut bytes = prefix.to_vec();
        key.encode_last(&mut bytes);
        bytes
    };
    let all = Keys::prefix(prefix);
    let or = |bound: Bound<Vec<u8>>, end: Bound<Vec<u8>>| if bound == Bound::Unbounded { end } else { bound };
    Keys { from: or(from.map(encode), all.from), to: or(to.map(encode), all.to), reverse: false }
}

impl<K: KeyCode + ?Sized> KeyRange<K> for RangeFull {
    fn keys(self, prefix: &[u8]) -> Keys {
        Keys::prefix(prefix)
    }
}

impl<K: KeyCode + ?Sized> KeyRange<K> for (Bound<&K>, Bound<&K>) {
    fn keys(self, prefix: &[u8]) -> Keys {
        keys(prefix, self.0, self.1)
    }
}

macro_rules! ranges {
    ($($range:ident)*) => {$(
        impl<K: KeyCode> KeyRange<K> for $range<K> {
            fn keys(self, prefix: &[u8]) -> Keys {
                keys(prefix, self.start_bound(), self.end_bound())
            }
        }

        impl KeyRange<str> for $range<&str> {
            fn keys(self, prefix: &[u8]) -> Keys {
                keys(prefix, self.start_bound(), self.end_bound())
            }
        }

        impl KeyRange<[u8]> for $range<&[u8]> {
            fn keys(self, prefix: &[u8]) -> Keys {
                keys(prefix, self.start_bound(), self.end_bound())
            }
        }

        borrowed!($range: (&str, B) (String, B); (&str, B, C) (String, B, C); (&[u8], B) (Vec<u8>, B); (&[u8], B, C) (Vec<u8>, B, C););
    )*};
}

/// Ranges of tuples that begin with text or bytes, by their slices.
macro_rules! borrowed {
    ($range:ident: $(($first:ty $(, $more:ident)*) $key:ty;)*) => {$(
        impl<$($more: KeyCode),*> KeyRange<$key> for $range<($first, $($more),*)> {
            fn keys(self, prefix: &[u8]) -> Keys {
                keys(prefix, self.start_bound(), self.end_bound())
            }
        }
    )*};
}

ranges!(Range RangeFrom RangeInclusive RangeTo RangeToInclusive);

/// What keys of type `K` can begin with.
pub trait PrefixOf<K: ?Sized> {
    /// Appends the bytes that all these keys begin with.
    fn encode_prefix(&self, out: &mut Vec<u8>);
}

macro_rules! bytes {
    ($($prefix:ty: $($key:ty)*;)*) => {$($(
        impl PrefixOf<$key> for $prefix {
            fn encode_prefix(&self, out: &mut Vec<u8>) {
                self.encode_last(out);
            }
        }
    )*)*};
}

bytes! {
    str: str String;
    [u8]: [u8] Vec<u8>;
}

macro_rules! tuples {
    ($(($($t:ident $p:ident . $n:tt),*): $($more:ident)*;)*) => {$(
        impl<$($t: KeyCode, $p: KeyOf<$t>,)* $($more: KeyCode,)*> PrefixOf<($($t,)* $($more,)*)> for ($($p,)*) {
            fn encode_prefix(&self, out: &mut Vec<u8>) {
                $(self.$n.encode(out);)*
            }
        }
    )*};
}

tuples! {
    (A P.0): B;
    (A P.0): B C;
    (A P.0): B C D;
    (A P.0, B Q.1): C;
    (A P.0, B Q.1): C D;
    (A P.0, B Q.1, C R.2): D;
}
