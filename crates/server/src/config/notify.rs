//! Which keyspace notifications are told.

/// Classes of events, and where they are told.
pub(crate) mod class {
    pub(crate) const KEYSPACE: u32 = 1 << 0;
    pub(crate) const KEYEVENT: u32 = 1 << 1;
    pub(crate) const GENERIC: u32 = 1 << 2;
    pub(crate) const STRING: u32 = 1 << 3;
    pub(crate) const LIST: u32 = 1 << 4;
    pub(crate) const SET: u32 = 1 << 5;
    pub(crate) const HASH: u32 = 1 << 6;
    pub(crate) const SORTED: u32 = 1 << 7;
    pub(crate) const EXPIRED: u32 = 1 << 8;
    pub(crate) const EVICTED: u32 = 1 << 9;
    pub(crate) const STREAM: u32 = 1 << 10;
    pub(crate) const MISSED: u32 = 1 << 11;
    pub(super) const MODULE: u32 = 1 << 12;
    pub(crate) const NEW: u32 = 1 << 13;

    /// `A`.
    pub(super) const ALL: u32 = GENERIC | STRING | LIST | SET | HASH | SORTED | EXPIRED | EVICTED | STREAM | MODULE;
    /// In the order in which they are told.
    pub(super) const LETTERS: [(u8, u32); 11] = [
        (b'g', GENERIC),
        (b'$', STRING),
        (b'l', LIST),
        (b's', SET),
        (b'h', HASH),
        (b'z', SORTED),
        (b'x', EXPIRED),
        (b'e', EVICTED),
        (b't', STREAM),
        (b'd', MODULE),
        (b'n', NEW),
    ];
    pub(super) const OTHERS: [(u8, u32); 3] = [(b'K', KEYSPACE), (b'E', KEYEVENT), (b'm', MISSED)];
}

/// Which events are told, as `notify-keyspace-events` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notify(pub(crate) u32);

impl Notify {
    /// Reads letters of classes, as `KEA`.
    ///
    /// # Errors
    /// What is wrong with a letter that there is not.
    pub fn parse(letters: &[u8]) -> Result<Self, &'static str> {
        let mut classes = 0;
        for letter in letters {
            let mut known = class::LETTERS.iter().chain(&class::OTHERS);
            classes |= match known.find(|(known, _)| known == letter) {
                Some((_, class)) => *class,
                None if *letter == b'A' => class::ALL,
                None => return Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'."),
            };
        }
        Ok(Self(classes))
    }
}

impl std::fmt::Display for Notify {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use std::fmt::Write as _;
        let mut write = |letters: &[(u8, u32)]| {
            letters
                .iter()
                .filter(|(_, class)| self.0 & class != 0)
                .try_for_each(|(letter, _)| f.write_char(char::from(*letter)))
        };
        if self.0 & class::ALL == class::ALL {
            write(&[(b'A', !0)])?
        } else {
            write(&class::LETTERS)?
        }
        write(&class::OTHERS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_read_and_told_as_redis_does() {
        for (letters, told) in [
            ("", ""),
            ("KEA", "AKE"),
            ("g$lshzxetdKE", "AKE"),
            ("AKEmn", "AKEm"),
            ("KEn", "nKE"),
            ("Km", "Km"),
            ("nmEK", "nKEm"),
            ("gd", "gd"),
        ] {
            assert_eq!(Notify::parse(letters.as_bytes()).unwrap().to_string(), told, "{letters}");
        }
        assert!(Notify::parse(b"Kq").is_err());
    }
}
