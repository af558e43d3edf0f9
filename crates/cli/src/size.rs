//! Numbers as people write them.

/// Bytes: `4096`, `64K`, `64M`, `64MiB`, `4G`, `1T`; powers of 1024.
pub fn parse(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        "kb" | "mb" | "gb" | "tb" => return Err(format!("{unit} is ambiguous; write {0} or {0}iB", &unit[..1])),
        _ => return Err(format!("{unit:?} is no unit; expected K, M, G or T")),
    };
    scale(number, 1 << shift)
}

/// A count: `5000`, `200k`, `1M`, `2G`; powers of 1000.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let factor = match unit {
        "" => 1,
        "k" | "K" => 1_000,
        "m" | "M" => 1_000_000,
        "g" | "G" => 1_000_000_000,
        _ => return Err(format!("{unit:?} is no unit; expected k, M or G")),
    };
    let count = scale(number, factor)?;
    if count == 0 { Err("expected at least 1".into()) } else { Ok(count) }
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    (&text[..digits], text[digits..].trim())
}

fn scale(number: &str, factor: u64) -> Result<u64, String> {
    let number: u64 =
        number.replace('_', "").parse().map_err(|_| "expected a whole number and a unit, such as 64M".to_owned())?;
    number.checked_mul(factor).ok_or_else(|| "is too large".into())
}

/// Bytes for people: `64.0 MiB`.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (bytes.max(1).ilog2() / 10).min(4) as usize;
    if unit == 0 {
        format!("{bytes} B")
    } else {
        format!("{:.1} {}", bytes as f64 / 1024_f64.powi(unit as i32), UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64K", 64 << 10),
            ("64m", 64 << 20),
            ("4GiB", 4 << 30),
            ("1 T", 1 << 40),
            ("1_000b", 1000),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "-1", "1.5G", "64MB", "64X", "99999999999T", "64Mi", "é"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn counts() {
        assert_eq!(parse_count("200k"), Ok(200_000));
        assert_eq!(parse_count("1M"), Ok(1_000_000));
        assert!(parse_count("0").is_err());
        assert!(parse_count("1KiB").is_err());
    }

    #[test]
    fn bytes_for_people() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(64 << 20), "64.0 MiB");
        assert_eq!(human(3 << 39), "1.5 TiB");
        assert_eq!(human(u64::MAX), "16777216.0 TiB");
    }
}
