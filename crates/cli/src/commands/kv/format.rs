//! Keys, values and pairs as text.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::args::Format;

/// A pair, as it is loaded.
#[derive(Debug, PartialEq, Eq)]
pub struct Pair {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// In milliseconds of Unix time.
    pub expires: Option<u64>,
}

/// A pair in JSON; field names are a contract.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PairJson {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_hex: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
}

// ---- print ------------------------------------------------------------------------------------------------------------

/// One pair, or one key, and the end of the line.
pub fn pair(
    out: &mut impl Write,
    format: Format,
    key: &[u8],
    value: Option<&[u8]>,
    expires: Option<u64>,
) -> io::Result<()> {
    if format == Format::Json {
        let (key, key_hex) = json(key);
        let (value, value_hex) = value.map_or((None, None), json);
        serde_json::to_writer(&mut *out, &PairJson { key, key_hex, value, value_hex, expires })?;
        return out.write_all(b"\n");
    }
    self::value(out, key, format)?;
    if let Some(value) = value {
        out.write_all(b"\t")?;
        self::value(out, value, format)?;
    }
    if let Some(at) = expires {
        write!(out, "\t{at}")?;
    }
    out.write_all(b"\n")
}

/// A value by itself.
pub fn value(out: &mut impl Write, bytes: &[u8], format: Format) -> io::Result<()> {
    match format {
        Format::Plain => escape(out, bytes),
        Format::Hex => out.write_all(hex(bytes).as_bytes()),
        Format::Json => match json(bytes) {
            (Some(text), _) => Ok(serde_json::to_writer(out, &text)?),
            (None, hex) => Ok(serde_json::to_writer(out, &serde_json::json!({ "value_hex": hex }))?),
        },
    }
}

/// Text as it is; control characters, backslashes and what is not UTF-8 behind backslashes.
fn escape(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    for chunk in bytes.utf8_chunks() {
        let text = chunk.valid();
        let mut done = 0;
        for (at, letter) in text.char_indices().filter(|(_, letter)| letter.is_control() || *letter == '\\') {
            out.write_all(&text.as_bytes()[done..at])?;
            done = at + letter.len_utf8();
            match letter {
                '\\' => out.write_all(b"\\\\")?,
                '\t' => out.write_all(b"\\t")?,
                '\n' => out.write_all(b"\\n")?,
                '\r' => out.write_all(b"\\r")?,
                _ => text.as_bytes()[at..done].iter().try_for_each(|byte| write!(out, "\\x{byte:02x}"))?,
            }
        }
        out.write_all(&text.as_bytes()[done..])?;
        chunk.invalid().iter().try_for_each(|byte| write!(out, "\\x{byte:02x}"))?;
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| DIGITS[usize::from(nibble & 15)] as char;
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// As text, or else as hexadecimal digits.
fn json(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(hex(bytes))),
    }
}

// ---- read -------------------------------------------------------------------------------------------------------------

/// A key or value by itself.
pub fn word(text: &[u8], format: Format) -> Result<Vec<u8>, String> {
    match format {
        Format::Plain => unescape(text),
        Format::Hex => unhex(text),
        Format::Json => Ok(text.to_vec()),
    }
}

/// A line without its end; `None` if it is empty.
pub fn line(text: &[u8], format: Format) -> Result<Option<Pair>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    if format == Format::Json {
        return from_json(text).map(Some);
    }
    let mut columns = text.split(|byte| *byte == b'\t');
    let (Some(key), Some(value)) = (columns.next(), columns.next()) else {
        return Err("there is no tab between key and value".into());
    };
    let expires = columns.next().map(|column| {
        let number = std::str::from_utf8(column).ok().and_then(|text| text.parse().ok());
        number.ok_or("the third column is no time in milliseconds")
    });
    if columns.next().is_some() {
        return Err("there are more than three columns; a tab in a value is written \\t".into());
    }
    Ok(Some(Pair { key: word(key, format)?, value: word(value, format)?, expires: expires.transpose()? }))
}

fn from_json(text: &[u8]) -> Result<Pair, String> {
    let pair: PairJson = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let either = |text: Option<String>, hex: Option<String>, what: &str| match (text, hex) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(hex)) => unhex(hex.as_bytes()),
        _ => Err(format!("expected one of \"{what}\" and \"{what}_hex\"")),
    };
    let key = either(pair.key, pair.key_hex, "key")?;
    Ok(Pair { key, value: either(pair.value, pair.value_hex, "value")?, expires: pair.expires })
}

fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        bytes.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        bytes.push(escaped(&mut rest)?);
    }
    bytes.extend_from_slice(rest);
    Ok(bytes)
}

/// What stands behind a backslash.
pub fn escaped(rest: &mut &[u8]) -> Result<u8, String> {
    let (letter, behind) = rest.split_first().ok_or("a backslash is the last character; write \\\\ for one")?;
    *rest = behind;
    Ok(match letter {
        b't' => b'\t',
        b'n' => b'\n',
        b'r' => b'\r',
        b'\\' | b'"' | b' ' => *letter,
        b'x' => {
            let (digits, behind) = rest.split_at_checked(2).ok_or("expected two hexadecimal digits behind \\x")?;
            *rest = behind;
            unhex(digits)?[0]
        }
        _ => return Err(format!("\\{} means nothing; write \\\\ for a backslash", letter.escape_ascii())),
    })
}

fn unhex(text: &[u8]) -> Result<Vec<u8>, String> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    text.chunks(2).map(byte).collect::<Option<_>>().ok_or_else(|| "expected pairs of hexadecimal digits".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Format; 3] = [Format::Plain, Format::Hex, Format::Json];

    fn printed(format: Format, key: &[u8], value: &[u8], expires: Option<u64>) -> String {
        let mut out = Vec::new();
        pair(&mut out, format, key, Some(value), expires).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_is_printed_is_read() {
        let odd: Vec<u8> = (0..=255).collect();
        let nasty = "tab\tend\r\nback\\slash \\x00 ÿ \u{85}\u{10ffff}\0".as_bytes();
        for format in ALL {
            for (key, value) in [(&b"apples"[..], &b"17"[..]), (b"", b""), (&odd, nasty), (nasty, &odd)] {
                for expires in [None, Some(0), Some(u64::MAX)] {
                    let text = printed(format, key, value, expires);
                    assert_eq!(text.matches('\n').count(), 1, "{text:?}");
                    let found = line(text.trim_end_matches('\n').as_bytes(), format).unwrap().unwrap();
                    let right = Pair { key: key.to_vec(), value: value.to_vec(), expires };
                    assert_eq!(found, right, "{format:?} {text:?}");
                }
            }
        }
    }

    #[test]
    fn it_looks_so() {
        assert_eq!(
            printed(Format::Plain, b"a\tb", "ÿ\\\n\x01\u{85}".as_bytes(), None),
            "a\\tb\tÿ\\\\\\n\\x01\\xc2\\x85\n"
        );
        assert_eq!(printed(Format::Plain, b"\xff", b"", Some(5)), "\\xff\t\t5\n");
        assert_eq!(printed(Format::Hex, b"a\0", b"\xff", None), "6100\tff\n");
        assert_eq!(
            printed(Format::Json, b"a", b"\xff", Some(5)),
            "{\"key\":\"a\",\"value_hex\":\"ff\",\"expires\":5}\n"
        );
    }

    #[test]
    fn what_is_wrong_is_told() {
        for format in ALL {
            assert_eq!(line(b"", format), Ok(None));
        }
        for (format, text, why) in [
            (Format::Plain, &b"apples 17"[..], "no tab"),
            (Format::Plain, b"a\tb\tc", "third column"),
            (Format::Plain, b"a\tb\t1\t2", "more than three"),
            (Format::Plain, b"a\\\tb", "backslash"),
            (Format::Plain, b"a\\x1\tb", "two hexadecimal"),
            (Format::Plain, b"a\\xgg\tb", "hexadecimal"),
            (Format::Plain, b"a\\q\tb", "\\q means nothing"),
            (Format::Hex, b"616\t62", "pairs"),
            (Format::Hex, b"6z\t62", "pairs"),
            (Format::Json, b"{", "EOF"),
            (Format::Json, b"{\"key\":\"a\"}", "one of \"value\" and \"value_hex\""),
            (Format::Json, b"{\"key\":\"a\",\"key_hex\":\"61\",\"value\":\"\"}", "one of \"key\""),
            (Format::Json, b"{\"key\":\"a\",\"value\":\"b\",\"ttl\":1}", "unknown field"),
        ] {
            let error = line(text, format).unwrap_err();
            assert!(error.contains(why), "{}: {error}", text.escape_ascii());
        }
    }
}
