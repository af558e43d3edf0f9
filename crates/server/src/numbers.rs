//! Numbers as clients write them.

use crate::outcome::{NOT_FLOAT, NOT_INT, Outcome};
use crate::request::number;

pub(crate) fn int(text: &[u8]) -> Outcome<i64> {
    number(text).ok_or_else(|| NOT_INT.into())
}

/// A number with a point, an exponent, or `inf`; or a hexadecimal one, `0x1.8p3`.
pub(crate) fn float(text: &[u8]) -> Outcome<f64> {
    let text = std::str::from_utf8(text).ok().filter(|text| !text.starts_with(char::is_whitespace));
    let number = text.and_then(|text| text.parse().ok().or_else(|| hexadecimal(text)));
    number.filter(|number: &f64| !number.is_nan()).ok_or_else(|| NOT_FLOAT.into())
}

/// A finite hexadecimal number as `strtod` reads it. Digits beyond the sixteenth significant one are dropped.
fn hexadecimal(text: &str) -> Option<f64> {
    let (sign, rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (if text.starts_with('-') { -1.0 } else { 1.0 }, rest),
        None => (1.0, text),
    };
    let rest = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X"))?;
    let (digits, power) = match rest.split_once(['p', 'P']) {
        Some((digits, power)) => (digits, power.parse::<i32>().ok()?),
        None => (rest, 0),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && part.is_empty() || digits.len() > 1000 {
        return None;
    }
    let (mut number, mut shift) = (0_u64, 0_i32);
    for (at, digit) in whole.bytes().chain(part.bytes()).enumerate() {
        let digit = char::from(digit).to_digit(16)?;
        let fits = number >> 60 == 0;
        if fits {
            number = number << 4 | u64::from(digit);
        }
        // Four powers of two less for each place behind the point that counts, four more for each in front of it that does not.
        shift += 4 * (i32::from(!fits) - i32::from(at >= whole.len()));
    }
    let (mut value, mut left) = (sign * number as f64, shift + power.clamp(-9000, 9000));
    // In steps: a power by itself may be no number where the product is one.
    while left != 0 && value != 0.0 {
        let step = left.clamp(-1000, 1000);
        value *= 2_f64.powi(step);
        left -= step;
    }
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_numbers_are_read_as_c_reads_them() {
        for (text, number) in [
            ("0x10", 16.0),
            ("-0x2", -2.0),
            ("+0X1.8p3", 12.0),
            ("0x.8", 0.5),
            ("0x1p-2", 0.25),
            ("0xffffffffffffffff", 18446744073709551615.0),
            ("0x10000000000000000", 18446744073709551616.0),
            ("0x0.00000000000000000001p80", 1.0),
            ("0x1p-1074", 5e-324),
            ("0x0p5000", 0.0),
        ] {
            assert_eq!(float(text.as_bytes()).ok(), Some(number), "{text}");
        }
        for text in ["0x", "0x.", "0x1p", "0xg", "0x1p99999", " 0x1", "0x1 ", "0x-1", "--0x1"] {
            assert!(float(text.as_bytes()).is_err(), "{text}");
        }
    }
}
