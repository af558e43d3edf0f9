//! Patterns as Redis has them: `*`, `?`, `[a-c]`, `[^a]`, and a backslash before what is meant as it is.

/// Whether all of `text` is what `pattern` says. Takes time by the product of their lengths at most.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // The last `*`, and where the text behind it is tried.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
            continue;
        }
        if let Some(len) = one(&pattern[p..], text[t]) {
            p += len;
            t += 1;
            continue;
        }
        let Some((at, tried)) = star else { return false };
        star = Some((at, tried + 1));
        (p, t) = (at + 1, tried + 1);
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// How often a byte of a text is looked at, at most, with the bytes of the pattern that are passed: of what stands behind a `*` each byte may be compared with each place.
pub(crate) fn cost(pattern: &[u8]) -> usize {
    let behind = pattern.iter().position(|byte| *byte == b'*').map_or(&[][..], |star| &pattern[star + 1..]);
    if pattern.iter().any(|byte| matches!(byte, b'[' | b'\\')) {
        return 1 + behind.len(); // a `*` there may be meant as it is
    }
    1 + behind.split(|byte| *byte == b'*').map(<[u8]>::len).max().unwrap_or(0)
}

/// Bytes of the pattern that stand for one byte, if it is this one.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', ..] => class(pattern, byte),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [first, ..] => (*first == byte).then_some(1),
    }
}

fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let negated = pattern.get(1) == Some(&b'^');
    let mut at = 1 + usize::from(negated);
    let mut within = false;
    loop {
        match pattern.get(at..).unwrap_or_default() {
            // One that is not closed ends with the pattern.
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                within |= *escaped == byte;
                at += 2;
            }
            [low, b'-', high, ..] => {
                within |= (*low.min(high)..=*low.max(high)).contains(&byte);
                at += 3;
            }
            [only, ..] => {
                within |= *only == byte;
                at += 1;
            }
        }
    }
    (within != negated).then_some(at)
}

/// What each text that matches begins with.
pub(crate) fn literal(pattern: &[u8]) -> &[u8] {
    let end = pattern.iter().position(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'));
    &pattern[..end.unwrap_or(pattern.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_redis_says() {
        for (pattern, yes, no) in [
            ("*", &["", "abc"][..], &[][..]),
            ("a*c", &["ac", "abc", "abcc"], &["ab", "acb", ""]),
            ("a?c", &["abc"], &["ac", "abbc"]),
            ("[a-c]x", &["ax", "cx"], &["dx", "x", "-x"]),
            ("[^a]x", &["bx"], &["ax", "x"]),
            ("[c-a]", &["b"], &["d"]),
            (r"\*", &["*"], &["a", r"\*"]),
            (r"[\]]", &["]"], &["a"]),
            ("[a", &["a"], &["b"]),
            ("a**b*", &["ab", "axbx"], &["a", "ba"]),
            ("user:*:name", &["user:1:name"], &["user:1:nam"]),
        ] {
            assert!(yes.iter().all(|text| matches(pattern.as_bytes(), text.as_bytes())), "{pattern}");
            assert!(no.iter().all(|text| !matches(pattern.as_bytes(), text.as_bytes())), "{pattern}");
        }
        assert_eq!(literal(b"user:*"), b"user:");
        for (pattern, expected) in
            [("user:*", 1), ("abc", 1), ("*", 1), ("a*bc*def?*g", 5), ("*[*]b", 5), (r"*a\*b", 5)]
        {
            assert_eq!(cost(pattern.as_bytes()), expected, "{pattern}");
        }
        assert!(!matches(&b"a*".repeat(1000), &[b'a'; 999]) && matches(&b"a*".repeat(999), &[b'a'; 1000]));
    }
}
