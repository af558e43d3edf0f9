//! Sums of numbers with a point, as text. Redis adds them in eighty bits and writes seventeen places, so that 0.1 and 0.2 are 0.3; here they are added as
//! the decimals they are.

use super::{NOT_FLOAT, Outcome, float};

/// Places behind the point.
const PLACES: i32 = 17;
const ONE: i128 = 10_i128.pow(PLACES as u32);
/// Digits of a number in all: a sum of two still fits.
const DIGITS: i32 = 37;

/// The sum of the number a value has and what is to be added; `not_float` if the value has none.
pub(super) fn sum(value: &[u8], by: &[u8], not_float: &str) -> Outcome<String> {
    let sum = float(by)? + float(value).map_err(|_| not_float)?;
    if !sum.is_finite() {
        return Err("ERR increment would produce NaN or Infinity".into());
    }
    let exact = exact(value).zip(exact(by)).map(|(a, b)| text(a + b));
    Ok(exact.unwrap_or_else(|| sum.to_string()))
}

/// The number in units of the last place; none if it has more places, or is too large.
fn exact(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (negative, digits) = match digits.strip_prefix(['-', '+']) {
        Some(rest) => (digits.starts_with('-'), rest),
        None => (false, digits),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let part = part.trim_end_matches('0');
    let whole = whole.trim_start_matches('0');
    let exponent: i32 = exponent.parse().ok().filter(|exponent: &i32| (-99..100).contains(exponent))?;
    if whole.len() + part.len() > DIGITS as usize {
        return None;
    }
    let all = [whole, part].concat();
    if all.is_empty() {
        return Some(0);
    }
    // Places that the digits are to be shifted by.
    let shift = PLACES + exponent - part.len() as i32;
    if shift < 0 || all.len() as i32 + shift > DIGITS {
        return None;
    }
    let number = all.parse::<i128>().ok()? * 10_i128.pow(shift as u32);
    Some(if negative { -number } else { number })
}

fn text(number: i128) -> String {
    let sign = if number < 0 { "-" } else { "" };
    let (whole, part) = (number.abs() / ONE, number.abs() % ONE);
    if part == 0 {
        return format!("{sign}{whole}");
    }
    let part = format!("{part:017}");
    format!("{sign}{whole}.{}", part.trim_end_matches('0'))
}

/// A finite number, or an infinite one that says so: what is too large for a double is none.
pub(super) fn score(text: &[u8]) -> Outcome<f64> {
    let number = float(text)?;
    let says_so = text.iter().any(|byte| byte.eq_ignore_ascii_case(&b'i'));
    if number.is_infinite() && !says_so { Err(NOT_FLOAT.into()) } else { Ok(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_added_as_they_are_written() {
        for (a, b, expected) in [
            ("0.1", "0.2", "0.3"),
            ("3.0", "1.2", "4.2"),
            ("5.0e3", "2.0e2", "5200"),
            ("10.50", "0.1", "10.6"),
            ("-1", "0.5", "-0.5"),
            ("1", "-1", "0"),
            ("+.5", "5.", "5.5"),
            ("1e-17", "0", "0.00000000000000001"),
            ("9223372036854775807", "1", "9223372036854775808"),
            ("1e50", "1", "100000000000000000000000000000000000000000000000000"),
        ] {
            assert_eq!(sum(a.as_bytes(), b.as_bytes(), NOT_FLOAT).unwrap(), expected, "{a} {b}");
        }
        for (a, b) in [("a", "1"), ("1", ""), ("1", "inf"), ("1e308", "1.7e308"), ("1", "nan"), ("1 ", "1"), ("", "1")]
        {
            assert!(sum(a.as_bytes(), b.as_bytes(), NOT_FLOAT).is_err(), "{a} {b}");
        }
        assert!(score(b"1e400").is_err() && score(b"-inf").is_ok() && score(b"+Infinity").is_ok());
    }
}
