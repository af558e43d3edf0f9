//! Numbers as C writes and reads them.

/// `%.{digits}g`.
pub(super) fn general(number: f64, digits: usize) -> String {
    if number.is_nan() {
        return if number.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let digits = digits.max(1);
    let text = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.unsigned_abs());
    }
    trimmed(&format!("{number:.*}", (digits as i32 - 1 - exponent) as usize))
}

/// As C takes a double to a long.
pub(super) fn whole(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}

/// The number that a text begins with, as `strtod` finds it, and how many bytes it has.
pub(super) fn prefix(text: &[u8]) -> Option<(f64, usize)> {
    let sign_len = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let sign = if text.first() == Some(&b'-') { -1.0 } else { 1.0 };
    let rest = text.get(sign_len..)?;
    let word = |word: &str| rest.len() >= word.len() && rest[..word.len()].eq_ignore_ascii_case(word.as_bytes());
    for (name, value) in [("infinity", f64::INFINITY), ("inf", f64::INFINITY), ("nan", f64::NAN)] {
        if word(name) {
            return Some((sign * value, sign_len + name.len()));
        }
    }
    if let [b'0', b'x' | b'X', ..] = rest {
        let digit = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b'.';
        let len = rest[2..].iter().take_while(|byte| digit(byte)).count();
        let mut end = 2 + len;
        if len > 0 && matches!(rest.get(end), Some(b'p' | b'P')) {
            let signed = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
            let power = rest[end + 1 + signed..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            end += if power > 0 { 1 + signed + power } else { 0 };
        }
        let value = crate::numbers::float(&rest[..end]).ok();
        // Of what has no digits the zero counts.
        return Some(value.map_or((sign * 0.0, sign_len + 1), |value| (sign * value, sign_len + end)));
    }
    let digits =
        |from: usize| rest.get(from..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(0);
    let mut end = whole;
    let mut part = 0;
    if rest.get(end) == Some(&b'.') {
        part = digits(end + 1);
        end += 1 + part;
    }
    if whole + part == 0 {
        return None;
    }
    if matches!(rest.get(end), Some(b'e' | b'E')) {
        let signed = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
        let power = digits(end + 1 + signed);
        end += if power > 0 { 1 + signed + power } else { 0 };
    }
    let value: f64 = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    Some((sign * value, sign_len + end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_and_read_as_in_c() {
        for (number, digits, text) in [
            (0.1, 17, "0.10000000000000001"),
            (1e15, 17, "1000000000000000"),
            (1e17, 17, "1e+17"),
            (123456.0, 14, "123456"),
            (1e-5, 14, "1e-05"),
            (0.0001, 14, "0.0001"),
            (-2.5, 14, "-2.5"),
            (1e100, 14, "1e+100"),
            (99999999999999.9, 14, "1e+14"),
            (0.0, 14, "0"),
            (f64::INFINITY, 14, "inf"),
        ] {
            assert_eq!(general(number, digits), text);
        }
        for (text, found) in [
            ("12,", Some((12.0, 2))),
            ("-1.5e3x", Some((-1500.0, 6))),
            ("1e", Some((1.0, 1))),
            ("1.", Some((1.0, 2))),
            (".5", Some((0.5, 2))),
            (".", None),
            ("-", None),
            ("0x10]", Some((16.0, 4))),
            ("0x", Some((0.0, 1))),
            ("-inf", Some((f64::NEG_INFINITY, 4))),
            ("", None),
        ] {
            assert_eq!(prefix(text.as_bytes()), found, "{text}");
        }
    }
}
