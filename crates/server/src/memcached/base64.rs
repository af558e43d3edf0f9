//! Base64 with padding, of RFC 4648, for keys with bytes that a line must not have.

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(super) fn encode(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for some in bytes.chunks(3) {
        let number = some.iter().enumerate().fold(0, |number, (at, byte)| number | u32::from(*byte) << (16 - 8 * at));
        for at in 0..4 {
            let letter = LETTERS[(number >> (18 - 6 * at)) as usize & 63];
            text.push(if at <= some.len() { letter } else { b'=' });
        }
    }
    text
}

/// None if it is not what [`encode`] writes of some bytes.
pub(super) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let without = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    for some in without.chunks(4) {
        let mut number = 0;
        for (at, letter) in some.iter().enumerate() {
            let value = LETTERS.iter().position(|one| one == letter)? as u32;
            number |= value << (18 - 6 * at);
        }
        bytes.extend_from_slice(&number.to_be_bytes()[1..some.len()]);
    }
    (!bytes.is_empty() && encode(&bytes) == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn examples_of_the_rfc() {
        for (bytes, text) in [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(encode(bytes.as_bytes()), text.as_bytes());
        }
        for wrong in ["", "Zg", "Zg=", "Z===", "Zh==", "Zm9v=", "Zm9v====", "!!!!", "Zg==Zg=="] {
            assert_eq!(decode(wrong.as_bytes()), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bytes in prop::collection::vec(any::<u8>(), 1..100)) {
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }

        #[test]
        fn any_text_is_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..20)) {
            if let Some(bytes) = decode(&text) {
                prop_assert_eq!(encode(&bytes), text);
            }
        }
    }
}
