//! What `SORT` is asked for.

use super::is;
use crate::numbers::int;
use crate::outcome::{Outcome, SYNTAX};
use crate::request::Arguments;

/// What is asked for. Patterns have a `*` where an element's bytes go.
pub(crate) struct Options<'a> {
    pub(crate) by: Option<&'a [u8]>,
    pub(crate) get: Vec<&'a [u8]>,
    pub(crate) limit: (i64, i64),
    pub(crate) reverse: bool,
    pub(crate) alpha: bool,
    pub(crate) store: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    pub(crate) fn parse(args: &Arguments<'a>, may_store: bool) -> Outcome<Self> {
        let mut options = Self { by: None, get: Vec::new(), limit: (0, -1), reverse: false, alpha: false, store: None };
        let mut at = 2;
        while at < args.len() {
            let rest = args.len() - at - 1;
            match args.get(at) {
                word if is(word, "ASC") => options.reverse = false,
                word if is(word, "DESC") => options.reverse = true,
                word if is(word, "ALPHA") => options.alpha = true,
                word if is(word, "LIMIT") && rest >= 2 => {
                    options.limit = (int(args.get(at + 1))?, int(args.get(at + 2))?);
                    at += 2;
                }
                word if is(word, "STORE") && rest >= 1 && may_store => {
                    options.store = Some(args.get(at + 1));
                    at += 1;
                }
                word if is(word, "BY") && rest >= 1 => {
                    options.by = Some(args.get(at + 1));
                    at += 1;
                }
                word if is(word, "GET") && rest >= 1 => {
                    options.get.push(args.get(at + 1));
                    at += 1;
                }
                _ => return Err(SYNTAX.into()),
            }
            at += 1;
        }
        Ok(options)
    }

    /// Elements come as they stand: none of them leads to a key.
    pub(crate) fn is_as_is(&self) -> bool {
        self.by.is_some_and(|pattern| !pattern.contains(&b'*'))
    }

    /// Elements `from..to` of so many.
    pub(crate) fn range(&self, count: usize) -> std::ops::Range<usize> {
        let (start, most) = self.limit;
        let start = usize::try_from(start.max(0)).unwrap_or(usize::MAX).min(count);
        let most = usize::try_from(most).unwrap_or(usize::MAX); // negative: all
        start..start.saturating_add(most).min(count)
    }
}

/// Whether keys are read that are not among the arguments.
pub(crate) fn reads_others(args: &Arguments<'_>) -> bool {
    Options::parse(args, true)
        .is_ok_and(|options| !options.get.is_empty() || options.by.is_some() && !options.is_as_is())
}
