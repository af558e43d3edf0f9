//! Streams: what is sent, and what need not be the same in the answers.

use super::{Maker, Value, rounds, run_with};
use crate::support::Store;

pub const COMMANDS: &str = "\
XADD %q %a {%f %v}; XADD %q %a {%f %v}; XADD %q [NOMKSTREAM] %a {%f %v}; XADD %q MAXLEN [~|=] %c [LIMIT %c] %a {%f %v}
XADD %q MINID [~|=] %e [LIMIT %c] [NOMKSTREAM] %a {%f %v}; XADD %q MAXLEN 5 MINID %e %a %f %v; XADD %q [LIMIT 0|1] %a %f %v
XLEN %q; XRANGE %q %p %p [COUNT %c]; XRANGE %q - +; XREVRANGE %q %p %p [COUNT %c]; XREVRANGE %q + - COUNT 2; XDEL %q {%e}
XTRIM %q MAXLEN [~|=] %c [LIMIT %c]; XTRIM %q MINID [~|=] %e [LIMIT %c]; XTRIM %q LIMIT 1; XTRIM %q MAXLEN|MINID ~ 0|9999999 [LIMIT 0|1|1000]
XSETID %q %e [ENTRIESADDED %c] [MAXDELETEDID %e]; XSETID %q 9000-0
XREAD [COUNT %c] [BLOCK 1|x|-1|1.5] STREAMS %q %e|0|$|>; XREAD [COUNT %c] STREAMS %q %q %e|0 %e|0; XREAD STREAMS %q %q 0; XREAD COUNT 2
XREADGROUP GROUP %g %u [COUNT %c] [NOACK] STREAMS %q >; XREADGROUP GROUP %g %u [COUNT %c] STREAMS %q >
XREADGROUP GROUP %g %u [COUNT %c] [BLOCK 1|x|-1] [NOACK] STREAMS %q >|%e|0|$; XREADGROUP GROUP %g %u COUNT %c STREAMS %q %q >|0 >|%e
XREADGROUP NOACK COUNT 1 STREAMS %q > x; XREADGROUP COUNT 1 BLOCK 1 STREAMS %q >; XREAD GROUP %g %u STREAMS %q 0; XREAD NOACK STREAMS %q 0
XGROUP CREATE %q %g %e|$|0|0 [MKSTREAM] [ENTRIESREAD %c]; XGROUP CREATE %q %g 0|$ MKSTREAM; XGROUP SETID %q %g %e|$|0 [ENTRIESREAD %c]
XGROUP DESTROY %q %g; XGROUP CREATECONSUMER %q %g %u; XGROUP DELCONSUMER %q %g %u; XGROUP HELP|FOO|create|destroy; XGROUP CREATE %q %g 0 FOO
XGROUP SETID %q %g 0 ENTRIESREAD; XACK %q %g {%e}; XACK %q %g {%e}; XPENDING %q %g; XPENDING %q %g [IDLE 0|60000000|x|-1] %p %p %c [%u]
XPENDING %q %g - + 10 [%u]; XPENDING %q %g - +; XPENDING %q %g IDLE 1 - +
XCLAIM %q %g %u 0|0|60000000|x|-1 {%e} [IDLE 99999999|x|-5] [TIME 1000|x|-1] [RETRYCOUNT 0|3|x|-1] [FORCE] [JUSTID] [LASTID %e] [FOO]
XCLAIM %q %g %u 0 {%e} [TIME 1000] [FORCE]; XAUTOCLAIM %q %g %u 0|60000000|x|-1 %p [COUNT %c] [JUSTID] [FOO]; XAUTOCLAIM %q %g %u 0 0 COUNT 1|2
XREADGROUP GROUP %g %u STREAMS %q > & XTRIM %Q MAXLEN 1|2 & XAUTOCLAIM %Q %G %U 0 - [JUSTID] & XPENDING %Q %G & XINFO CONSUMERS %Q %G
XREADGROUP GROUP %g %u STREAMS %q > & XDEL %Q {%e} & XCLAIM %Q %G %U 0 {%e} [JUSTID] & XPENDING %Q %G & XINFO CONSUMERS %Q %G
XINFO STREAM|GROUPS|stream %q; XINFO STREAM %q FULL [COUNT %c]; XINFO CONSUMERS %q %g; XINFO HELP|STREAM|FOO; XINFO STREAM %q FULL COUNT|x; XINFO STREAM %q x
COPY %q %q [REPLACE]; RENAME %q %q; TYPE %q; DEL %q; EXPIREAT %q 99999999999";

pub const FILLING: &str =
    "XADD %q %a {%f %v}|XADD %q %a {%f %v}|XGROUP CREATE %q %g 0 MKSTREAM|XREADGROUP GROUP %g %u COUNT 2 STREAMS %q >";

/// Where a range begins or ends, and ids that are none, or none that there is.
const ENDS: &str = "-|+|-|+|(1|(0-1|(+|(|(-|(0-0|(18446744073709551615-18446744073709551615";
const ODD: &str =
    "0-0|0|5|-|+||x|1-1-1|-1|1-x|18446744073709551616|00003-01| 4-1|+4-0|99999999-18446744073709551615|12345";

impl Maker<'_> {
    /// An argument of a command about streams. Ids go up, so that most entries are taken, and those that are named are mostly young.
    pub fn of_stream(&mut self, kind: char) -> String {
        match kind {
            'a' => {
                self.added += 1;
                match self.random.below(12) {
                    0 => format!("{}-*", self.added / 3 + 1),
                    1 => self.argument('e'),
                    _ => format!("{}-{}", self.added / 3 + 1, self.added % 3),
                }
            }
            'e' => match self.random.below(12) {
                0 => self.random.one(ODD).to_owned(),
                1 => (self.added / 3 + 1).to_string(),
                _ => {
                    let at = (self.added + 1).saturating_sub(self.random.below(12));
                    format!("{}-{}", at / 3 + 1, at % 3)
                }
            },
            'p' => match self.random.below(4) {
                0 => format!("({}", self.argument('e')),
                1 => self.argument('e'),
                _ => self.random.one(ENDS).to_owned(),
            },
            'g' => self.random.one("g0|g0|g1|g1|g%s\r\n|").to_owned(),
            _ => self.random.one("alice|alice|bob|bob|carol|").to_owned(),
        }
    }
}

/// What streams say without times, and without what only Redis' trees have; `of` is the name that stands before it.
pub fn without_times(value: Value, of: &str) -> Value {
    let Value::Many(kind, mut values) = value else {
        let masked = ["idle", "seen-time", "radix-tree-keys", "radix-tree-nodes"].contains(&of);
        return if masked { Value::Any } else { value };
    };
    // An id, perhaps whose it is, when it was sent, and how often.
    if let [Value::Bulk(_), .., time, Value::Line(':', _)] = &mut values[..]
        && matches!(time, Value::Line(':', _))
    {
        *time = Value::Any;
        return Value::Many(kind, values);
    }
    let mut before = String::new();
    let masked = values.into_iter().map(|value| {
        let now =
            if let Value::Bulk(name) = &value { String::from_utf8_lossy(name).into_owned() } else { String::new() };
        without_times(value, &std::mem::replace(&mut before, now))
    });
    Value::Many(kind, masked.collect())
}

fn seeds(store: Store, among: std::ops::Range<u64>) {
    let asked = std::env::var("CAIRN_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in asked.map_or(among, |seed| seed..seed + 1) {
        run_with(store, seed, rounds(), COMMANDS, FILLING);
    }
}

/// Streams alone, so that they grow old.
#[test]
fn replies_about_streams_are_those_of_redis() {
    seeds(Store::Kv, 0..3);
}

#[test]
fn replies_about_streams_of_a_tree_are_those_of_redis() {
    seeds(Store::Tree, 3..5);
}
