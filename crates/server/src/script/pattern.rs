//! Lua's patterns, as its version 5.1 compares them, with bounds: its own matcher can take years, and any depth of the stack, for a short pattern, and cannot be interrupted.

/// Captures of a pattern.
const CAPTURES: usize = 32;
/// Pieces of a pattern that are open at one time.
const DEPTH: usize = 200;
/// Comparisons between two looks at the clock.
const STEPS: usize = 1 << 14;

/// Why a pattern is not compared to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// What Lua says of such a pattern.
    Malformed(String),
    /// The script is to end.
    End,
}

impl From<&str> for Stopped {
    fn from(text: &str) -> Self {
        Self::Malformed(text.to_owned())
    }
}

type Found<T> = Result<T, Stopped>;

/// What a capture holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capture {
    /// These bytes of the text.
    Text(usize, usize),
    /// A place, counted from 1.
    Position(usize),
}

#[derive(Clone, Copy)]
enum Open {
    Unclosed(usize),
    Closed(Capture),
}

/// Compares one text with one pattern.
pub(super) struct Matcher<'m> {
    text: &'m [u8],
    pattern: &'m [u8],
    captures: Vec<Open>,
    depth: usize,
    steps: usize,
    /// Whether the script may go on.
    goes_on: &'m dyn Fn() -> bool,
}

impl<'m> Matcher<'m> {
    pub(super) fn new(text: &'m [u8], pattern: &'m [u8], goes_on: &'m dyn Fn() -> bool) -> Self {
        Self { text, pattern, captures: Vec::new(), depth: 0, steps: 0, goes_on }
    }

    /// Where a match that begins at `at` ends. The pattern begins at `from`.
    pub(super) fn at(&mut self, at: usize, from: usize) -> Found<Option<usize>> {
        self.captures.clear();
        self.depth = 0;
        self.go(at, from)
    }

    /// The first match from `at` on, of the pattern without the `^` it may begin with.
    pub(super) fn find(&mut self, at: usize, anchored: bool) -> Found<Option<(usize, usize)>> {
        for start in at..=self.text.len() {
            if let Some(end) = self.at(start, usize::from(anchored))? {
                return Ok(Some((start, end)));
            }
            if anchored {
                break;
            }
        }
        Ok(None)
    }

    /// What the pattern has captured; the match, if there is nothing to capture.
    pub(super) fn captured(&self, start: usize, end: usize, whole: bool) -> Found<Vec<Capture>> {
        let count = self.captures.len().max(usize::from(whole));
        (0..count).map(|number| self.capture(number, start, end)).collect()
    }

    /// One of these: nobody asks for the others, so they may be open.
    pub(super) fn capture(&self, number: usize, start: usize, end: usize) -> Found<Capture> {
        match self.captures.get(number) {
            Some(Open::Closed(capture)) => Ok(*capture),
            Some(Open::Unclosed(_)) => Err("unfinished capture".into()),
            None if number == 0 => Ok(Capture::Text(start, end)),
            None => Err("invalid capture index".into()),
        }
    }

    fn step(&mut self) -> Found<()> {
        self.steps(1)
    }

    /// So many at once: a set is as long as it is written.
    fn steps(&mut self, count: usize) -> Found<()> {
        self.steps = self.steps.saturating_add(count);
        if self.steps < STEPS {
            return Ok(());
        }
        self.steps = 0;
        if (self.goes_on)() { Ok(()) } else { Err(Stopped::End) }
    }

    fn go(&mut self, s: usize, p: usize) -> Found<Option<usize>> {
        if self.depth == DEPTH {
            return Err("pattern too complex".into());
        }
        self.depth += 1;
        let found = self.compare(s, p);
        self.depth -= 1;
        found
    }

    fn compare(&mut self, mut s: usize, mut p: usize) -> Found<Option<usize>> {
        loop {
            self.step()?;
            let Some(byte) = self.pattern.get(p).copied() else { return Ok(Some(s)) };
            match byte {
                b'(' if self.pattern.get(p + 1) == Some(&b')') => {
                    return self.open(s, p + 2, Open::Closed(Capture::Position(s + 1)));
                }
                b'(' => return self.open(s, p + 1, Open::Unclosed(s)),
                b')' => return self.close(s, p + 1),
                b'%' => match self.pattern.get(p + 1) {
                    Some(b'b') => match self.balance(s, p + 2)? {
                        Some(end) => {
                            (s, p) = (end, p + 4);
                            continue;
                        }
                        None => return Ok(None),
                    },
                    Some(b'f') => {
                        p += 2;
                        if self.pattern.get(p) != Some(&b'[') {
                            return Err("missing '[' after '%f' in pattern".into());
                        }
                        let end = self.class_end(p)?;
                        self.steps(3 * (end - p))?;
                        let before = s.checked_sub(1).and_then(|at| self.text.get(at)).copied().unwrap_or(0);
                        let here = self.text.get(s).copied().unwrap_or(0);
                        if self.in_set(before, p, end - 1) || !self.in_set(here, p, end - 1) {
                            return Ok(None);
                        }
                        p = end;
                        continue;
                    }
                    Some(digit) if digit.is_ascii_digit() => match self.back(s, *digit)? {
                        Some(end) => {
                            (s, p) = (end, p + 2);
                            continue;
                        }
                        None => return Ok(None),
                    },
                    _ => {}
                },
                b'$' if p + 1 == self.pattern.len() => return Ok((s == self.text.len()).then_some(s)),
                _ => {}
            }
            let end = self.class_end(p)?;
            self.steps(2 * (end - p))?;
            let fits = self.fits(s, p, end);
            match self.pattern.get(end) {
                Some(b'?') => {
                    if fits && let Some(found) = self.go(s + 1, end + 1)? {
                        return Ok(Some(found));
                    }
                    p = end + 1;
                }
                Some(b'*') => return self.most(s, p, end),
                Some(b'+') => return if fits { self.most(s + 1, p, end) } else { Ok(None) },
                Some(b'-') => return self.least(s, p, end),
                _ if fits => (s, p) = (s + 1, end),
                _ => return Ok(None),
            }
        }
    }

    fn fits(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(byte) = self.text.get(s).copied() else { return false };
        match self.pattern[p] {
            b'.' => true,
            b'%' => in_class(byte, self.pattern[p + 1]),
            b'[' => self.in_set(byte, p, end - 1),
            other => other == byte,
        }
    }

    /// As many as there are, and then fewer.
    fn most(&mut self, s: usize, p: usize, end: usize) -> Found<Option<usize>> {
        let mut count = 0;
        while self.fits(s + count, p, end) {
            self.steps(end - p)?;
            count += 1;
        }
        loop {
            if let Some(found) = self.go(s + count, end + 1)? {
                return Ok(Some(found));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    /// As few as will do.
    fn least(&mut self, mut s: usize, p: usize, end: usize) -> Found<Option<usize>> {
        loop {
            if let Some(found) = self.go(s, end + 1)? {
                return Ok(Some(found));
            }
            self.steps(end - p)?;
            if !self.fits(s, p, end) {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn open(&mut self, s: usize, p: usize, capture: Open) -> Found<Option<usize>> {
        if self.captures.len() == CAPTURES {
            return Err("too many captures".into());
        }
        let level = self.captures.len();
        self.captures.push(capture);
        let found = self.go(s, p)?;
        if found.is_none() {
            self.captures.truncate(level);
        }
        Ok(found)
    }

    fn close(&mut self, s: usize, p: usize) -> Found<Option<usize>> {
        let open = self.captures.iter().rposition(|one| matches!(one, Open::Unclosed(_)));
        let open = open.ok_or("invalid pattern capture")?;
        let before = self.captures[open];
        if let Open::Unclosed(from) = before {
            self.captures[open] = Open::Closed(Capture::Text(from, s));
        }
        let found = self.go(s, p)?;
        if found.is_none()
            && let Some(one) = self.captures.get_mut(open)
        {
            *one = before;
        }
        Ok(found)
    }

    fn balance(&mut self, s: usize, p: usize) -> Found<Option<usize>> {
        let (Some(open), Some(close)) = (self.pattern.get(p).copied(), self.pattern.get(p + 1).copied()) else {
            return Err("unbalanced pattern".into());
        };
        if self.text.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut level = 1;
        for at in s + 1..self.text.len() {
            self.step()?;
            let byte = self.text[at];
            if byte == close {
                level -= 1;
                if level == 0 {
                    return Ok(Some(at + 1));
                }
            } else if byte == open {
                level += 1;
            }
        }
        Ok(None)
    }

    fn back(&mut self, s: usize, digit: u8) -> Found<Option<usize>> {
        let at = (digit as usize).checked_sub(b'1' as usize);
        let capture = at.and_then(|at| self.captures.get(at));
        let Some(Open::Closed(capture)) = capture else { return Err("invalid capture index".into()) };
        let Capture::Text(from, to) = *capture else { return Ok(None) };
        self.steps((to - from) / 16)?;
        let same = self.text[s..].starts_with(&self.text[from..to]);
        Ok(same.then_some(s + to - from))
    }

    /// Behind the class that begins at `p`.
    fn class_end(&self, p: usize) -> Found<usize> {
        let pattern = self.pattern;
        match pattern[p] {
            b'%' if p + 1 == pattern.len() => Err("malformed pattern (ends with '%')".into()),
            b'%' => Ok(p + 2),
            b'[' => {
                let mut at = p + 1 + usize::from(pattern.get(p + 1) == Some(&b'^'));
                // The first is never the end.
                loop {
                    match pattern.get(at) {
                        None => return Err("malformed pattern (missing ']')".into()),
                        Some(b'%') if at + 1 < pattern.len() => at += 2,
                        Some(b'%') => return Err("malformed pattern (missing ']')".into()),
                        Some(_) => at += 1,
                    }
                    if pattern.get(at) == Some(&b']') {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// Whether the set from `p` to its `]` has it.
    fn in_set(&self, byte: u8, p: usize, close: usize) -> bool {
        let pattern = self.pattern;
        let not = pattern.get(p + 1) == Some(&b'^');
        let mut at = p + 1 + usize::from(not);
        while at < close {
            let fits = match pattern[at] {
                b'%' => {
                    at += 1;
                    in_class(byte, pattern[at])
                }
                from if pattern[at + 1] == b'-' && at + 2 < close => {
                    at += 2;
                    (from..=pattern[at]).contains(&byte)
                }
                other => other == byte,
            };
            if fits {
                return !not;
            }
            at += 1;
        }
        not
    }
}

fn in_class(byte: u8, class: u8) -> bool {
    let fits = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 11,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    fits != class.is_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &[u8], pattern: &[u8]) -> Found<Option<(usize, usize)>> {
        Matcher::new(text, pattern, &|| true).find(0, pattern.first() == Some(&b'^'))
    }

    #[test]
    fn patterns_end_however_hostile() {
        let text = vec![b'a'; 100_000];
        let deep = b"a?".repeat(50_000);
        assert_eq!(find(&text, &deep), Err("pattern too complex".into()));
        let slow = [b"a-".repeat(30), b"b".to_vec()].concat();
        assert_eq!(Matcher::new(&text, &slow, &|| false).find(0, false), Err(Stopped::End));
        let slow = [b"(a*)".repeat(20), b"b".to_vec()].concat();
        assert_eq!(Matcher::new(&text, &slow, &|| false).find(0, false), Err(Stopped::End));
    }

    #[test]
    fn malformed_patterns_are_told() {
        for pattern in [
            "%", "[", "[a", "[]", "[%", "[a%", "(", ")", "(()", "%b", "%bx", "%f", "%fa", "%f[", "%1", "(%1)", "[a-",
            "[^", "[^]",
        ] {
            let outcome = find(b"abc", pattern.as_bytes()).map(|_| ());
            let unfinished = matches!(pattern, "(" | "(()");
            assert_eq!(outcome.is_err(), !unfinished, "{pattern}: {outcome:?}");
        }
        let mut open = Matcher::new(b"abc", b"(", &|| true);
        assert_eq!(open.find(0, false), Ok(Some((0, 0))));
        assert!(open.captured(0, 0, true).is_err());
    }

    #[test]
    fn what_fits_is_found() {
        for (text, pattern, found) in [
            ("hello world", "o w", Some((4, 7))),
            ("hello", "l+", Some((2, 4))),
            ("hello", "^l", None),
            ("f(a(b)c)d", "%b()", Some((1, 8))),
            ("THE (quick) fox", "%f[%a]%a+%f[%A]", Some((0, 3))),
            ("abab", "(ab)%1", Some((0, 4))),
            ("a]b", "[]]", Some((1, 2))),
            ("a-b", "[a%-]+", Some((0, 2))),
            ("x = 12", "%d+$", Some((4, 6))),
            ("", "", Some((0, 0))),
            ("abc", "[^a-b]", Some((2, 3))),
        ] {
            assert_eq!(find(text.as_bytes(), pattern.as_bytes()), Ok(found), "{text} {pattern}");
        }
    }
}
