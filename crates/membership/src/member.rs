//! The processes that take part, and the leader; as values of etcd, too.

use serde::{Deserialize, Serialize};

use crate::arguments::{argument, text};
use crate::etcd::Entry;
use crate::{Error, Result};

/// A process that keeps a copy of the log, may lead it, or both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Member {
    /// Which process: no two have one name at a time.
    pub name: String,
    /// Where the others reach it; opaque here.
    pub address: String,
    /// Where clients reach what it serves, if it serves any; opaque here. An earlier version passes over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serves: Option<String>,
    /// What keeps it from doing its part, for people to read; none if nothing does. An earlier version passes over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Longest text of what keeps a member from doing its part, in bytes.
const TROUBLE_MAX: usize = 500;

impl Member {
    /// ```
    /// let member = membership::Member::new("b", "10.0.0.2:7000");
    /// assert_eq!(member.address, "10.0.0.2:7000");
    /// ```
    pub fn new(name: impl Into<String>, address: impl Into<String>) -> Self {
        Self { name: name.into(), address: address.into(), serves: None, trouble: None }
    }

    /// The same, with where clients reach it.
    ///
    /// ```
    /// let member = membership::Member::new("b", "10.0.0.2:7000").serving("10.0.0.2:6379");
    /// assert_eq!(member.serves.as_deref(), Some("10.0.0.2:6379"));
    /// ```
    #[must_use]
    pub fn serving(self, address: impl Into<String>) -> Self {
        Self { serves: Some(address.into()), ..self }
    }

    /// The same, with what keeps it from doing its part: as one line, cut if it is long.
    ///
    /// ```
    /// let member = membership::Member::new("b", "10.0.0.2:7000").in_trouble(Some("full: no space\nleft"));
    /// assert_eq!(member.trouble.as_deref(), Some("full: no space left"));
    /// ```
    #[must_use]
    pub fn in_trouble(self, trouble: Option<&str>) -> Self {
        let line = |text: &str| {
            let mut text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            text.truncate(text.floor_char_boundary(TROUBLE_MAX));
            text
        };
        Self { trouble: trouble.map(line), ..self }
    }

    pub(crate) fn check(&self) -> Result<()> {
        text("the name of a member", &self.name, false)?;
        text("the address of a member", &self.address, true)?;
        self.serves.as_ref().map_or(Ok(()), |serves| text("the clients' address of a member", serves, true))
    }
}

/// The member that leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Name and address.
    pub member: Member,
    /// Its fencing number.
    pub term: u64,
}

pub(crate) fn value_of(member: &Member) -> Result<Vec<u8>> {
    // Two strings have a representation; the error is for the type's sake.
    serde_json::to_vec(member).map_err(|error| argument("a member", error.to_string(), "text"))
}

pub(crate) fn leader_in(entries: &[Entry]) -> Result<Option<Leader>> {
    let leader = |entry: &Entry| Ok(Leader { member: parse(entry)?, term: entry.created });
    entries.first().map(leader).transpose()
}

pub(crate) fn parse(entry: &Entry) -> Result<Member> {
    let member = serde_json::from_slice::<Member>(&entry.value).map_err(|error| error.to_string());
    let checked = member.and_then(|member| member.check().map(|()| member).map_err(|error| error.to_string()));
    checked.map_err(|why| Error::ForeignValue { key: String::from_utf8_lossy(&entry.key).into_owned(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(value: &str) -> Entry {
        Entry { key: b"/p/copies/a".to_vec(), value: value.as_bytes().to_vec(), created: 1, modified: 1, lease: 2 }
    }

    #[test]
    fn a_value_is_read_back() {
        let member = Member::new("a", "h:1");
        let value = String::from_utf8(value_of(&member).unwrap()).unwrap();
        assert_eq!(value, r#"{"name":"a","address":"h:1"}"#);
        assert_eq!(parse(&entry(&value)).unwrap(), member);
        let member = member.serving("h:2");
        let value = String::from_utf8(value_of(&member).unwrap()).unwrap();
        assert_eq!(value, r#"{"name":"a","address":"h:1","serves":"h:2"}"#);
        assert_eq!(parse(&entry(&value)).unwrap(), member);
        let member = member.in_trouble(Some("full"));
        let value = String::from_utf8(value_of(&member).unwrap()).unwrap();
        assert_eq!(value, r#"{"name":"a","address":"h:1","serves":"h:2","trouble":"full"}"#);
        assert_eq!(parse(&entry(&value)).unwrap(), member);
        let long = member.in_trouble(Some(&"\u{e4}".repeat(400)));
        assert!(long.trouble.is_some_and(|text| text.len() <= TROUBLE_MAX));
    }

    #[test]
    fn a_newer_value_with_more_in_it_is_read() {
        assert_eq!(parse(&entry(r#"{"name":"a","address":"h:1","zone":"x"}"#)).unwrap(), Member::new("a", "h:1"));
    }

    #[test]
    fn foreign_values_are_refused() {
        for value in ["", "h:1", "{}", r#"{"name":"a/b","address":"h:1"}"#, r#"{"name":"","address":"h:1"}"#, "[[[["] {
            assert!(matches!(parse(&entry(value)), Err(Error::ForeignValue { .. })), "{value}");
        }
    }
}
