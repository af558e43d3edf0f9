//! Names of types.

/// The type's name without the modules that it and its parameters are in: where a type moves to is no matter of the store's.
pub(super) fn short<T: ?Sized>() -> String {
    let (mut short, mut word) = (String::new(), 0);
    let mut letters = std::any::type_name::<T>().chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == ':' && letters.next_if_eq(&':').is_some() {
            short.truncate(word);
            continue;
        }
        short.push(letter);
        if !letter.is_alphanumeric() && letter != '_' {
            word = short.len();
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn names_have_no_modules() {
        assert_eq!(short::<Option<std::collections::BTreeMap<String, [u8; 4]>>>(), "Option<BTreeMap<String, [u8; 4]>>");
        assert_eq!(short::<u64>(), "u64");
    }
}
