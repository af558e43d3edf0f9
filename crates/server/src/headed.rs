//! Keys and values as they are in the store: a byte, and what a client has sent behind it.

/// One byte, and others behind it: without an allocation where both together have fewer than `N`.
pub(crate) enum Headed<const N: usize> {
    Short([u8; N], usize),
    Long(Vec<u8>),
}

impl<const N: usize> Headed<N> {
    #[inline]
    pub(crate) fn new(head: u8, bytes: &[u8]) -> Self {
        if bytes.len() >= N {
            return Self::Long([&[head], bytes].concat());
        }
        let mut short = [0; N];
        short[0] = head;
        short[1..=bytes.len()].copy_from_slice(bytes);
        Self::Short(short, bytes.len() + 1)
    }
}

impl<const N: usize> std::ops::Deref for Headed<N> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Short(bytes, len) => &bytes[..*len],
            Self::Long(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_short_are_the_same_bytes() {
        for len in 0..20 {
            let bytes = vec![b'x'; len];
            let headed = Headed::<8>::new(7, &bytes);
            assert_eq!(&*headed, [&[7], &bytes[..]].concat(), "{len}");
            assert_eq!(matches!(headed, Headed::Long(_)), len >= 8, "{len}");
        }
    }
}
