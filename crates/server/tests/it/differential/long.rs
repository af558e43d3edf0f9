//! Long strings, which lie in chunks of 64 KiB when they have more than 256: lengths and places near the borders, and all commands on strings.

use super::*;

const CHUNK: u64 = 64 << 10;
const MOST: u64 = 6 * CHUNK;

/// Makes commands on a few keys.
struct Large(Random);

impl Large {
    fn one(&mut self, of: &str) -> Vec<u8> {
        self.0.one(of).as_bytes().to_vec()
    }

    fn key(&mut self) -> Vec<u8> {
        self.one("a|a|b|b|c|none")
    }

    /// A number near a border, or any.
    fn near(&mut self) -> u64 {
        let border = match self.0.below(6) {
            0 | 1 => 4 * CHUNK,
            2..=4 => CHUNK * self.0.below(MOST / CHUNK + 1),
            _ => self.0.below(MOST),
        };
        (border + self.0.below(5)).saturating_sub(2)
    }

    /// The same, counted from the end now and then.
    fn place(&mut self) -> Vec<u8> {
        let sign = self.0.one("||-");
        format!("{sign}{}", self.near()).into_bytes()
    }

    fn bit(&mut self) -> Vec<u8> {
        (8 * self.near() + self.0.below(8)).to_string().into_bytes()
    }

    /// Bytes of which long runs are alike.
    fn bytes(&mut self, len: u64) -> Vec<u8> {
        let (start, step, run) = (self.0.below(256), [0, 1, 7][self.0.below(3) as usize], 1 << self.0.below(14));
        let first = [0, 0xff, start][self.0.below(3) as usize];
        (0..len).map(|at| (first + step * (at / run)) as u8).collect()
    }

    fn value(&mut self) -> Vec<u8> {
        let len = if self.0.below(6) == 0 { self.0.below(50) } else { self.near() };
        self.bytes(len)
    }

    /// What is put into a string: of some bytes, of a chunk, or of more.
    fn part(&mut self) -> Vec<u8> {
        let len = match self.0.below(4) {
            0 => self.0.below(3 * CHUNK),
            1 => (CHUNK + self.0.below(5)).saturating_sub(2),
            _ => self.0.below(20),
        };
        self.bytes(len)
    }

    fn command(&mut self) -> Vec<Vec<u8>> {
        let word = |text: &str| text.as_bytes().to_vec();
        let of = |text: &str| request(text);
        let key = self.key();
        match self.0.below(34) {
            0 | 1 => vec![word("SET"), key, self.value()],
            2 => [vec![word("SET"), key, self.value()], of(self.0.one("NX|XX|GET|KEEPTTL|EX 1000"))].concat(),
            3 => vec![word("GETSET"), key, self.value()],
            4..=7 => vec![word("APPEND"), key, self.part()],
            8..=11 => vec![word("SETRANGE"), key, self.near().to_string().into_bytes(), self.part()],
            12 => vec![word("SETBIT"), key, self.bit(), self.one("0|1")],
            13 => vec![word("GETBIT"), key, self.bit()],
            14 | 15 => vec![self.one("GETRANGE|SUBSTR"), key, self.place(), self.place()],
            16 => [vec![word("BITCOUNT"), key, self.place(), self.place()], of(self.0.one("BYTE|BIT"))].concat(),
            17 => vec![word("BITCOUNT"), key],
            18 => vec![word("BITPOS"), key, self.one("0|1"), self.place()],
            19 => [vec![word("BITPOS"), key, self.one("0|1"), self.place(), self.place()], of(self.0.one("BYTE|BIT"))]
                .concat(),
            20 => vec![word("BITPOS"), key, self.one("0|1")],
            21 => vec![word("BITOP"), self.one("AND|OR|XOR"), key, self.key(), self.key()],
            22 => vec![word("BITOP"), word("NOT"), key, self.key()],
            23 | 24 => {
                let mut all = vec![word("BITFIELD"), key];
                for _ in 0..1 + self.0.below(4) {
                    let (kind, at) = (self.one("u8|i5|u63|i64|u1|i17"), self.bit());
                    match self.0.below(3) {
                        0 => all.extend([word("GET"), kind, at]),
                        1 => all.extend([word("SET"), kind, at, self.one("0|1|-1|77|123456789")]),
                        _ => {
                            all.extend([word("OVERFLOW"), self.one("WRAP|SAT|FAIL"), word("INCRBY"), kind, at]);
                            all.push(self.one("0|1|-1|99|-123456789"));
                        }
                    }
                }
                all
            }
            25 => vec![self.one("GET|STRLEN|TYPE|TTL|EXISTS|PERSIST|INCR|INCRBYFLOAT|GETDEL|DEL|UNLINK"), key],
            26 => vec![word("MGET"), key, self.key(), self.key()],
            27 => vec![self.one("MSET|MSETNX"), key, self.value(), self.key(), self.part()],
            28 => vec![word("COPY"), key, self.key(), word("REPLACE")],
            29 => vec![self.one("RENAME|RENAMENX"), key, self.key()],
            30 => [vec![word("GETEX"), key], of(self.0.one("PERSIST|EXAT 99999999999"))].concat(),
            31 => vec![self.one("LPUSH|SETNX|GETSET"), key, self.part()],
            32 => vec![word("LCS"), word("none"), key, word("LEN")],
            _ => {
                let script = "local a = redis.call('APPEND', KEYS[1], ARGV[1]) local r = redis.call('SETRANGE', KEYS[2], ARGV[2], ARGV[1]) return {a, r, redis.call('GET', KEYS[2])}";
                vec![
                    word("EVAL"),
                    word(script),
                    word("2"),
                    key,
                    self.key(),
                    self.part(),
                    self.near().to_string().into_bytes(),
                ]
            }
        }
    }
}

/// Values without what fills pages.
fn brief(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) if bytes.len() > 100 => format!("{} bytes", bytes.len()),
        Value::Many(_, values) => format!("[{}]", values.iter().map(brief).collect::<Vec<_>>().join(", ")),
        other => format!("{other:?}"),
    }
}

fn brief_words(command: &[Vec<u8>]) -> String {
    command.iter().map(|word| brief(&Value::Bulk(word.clone())) + " ").collect()
}

/// The first place where two differ.
fn differ(theirs: &Value, ours: &Value) -> String {
    match (theirs, ours) {
        (Value::Bulk(one), Value::Bulk(other)) => {
            format!("at {:?} of {}, {}", one.iter().zip(other).position(|(a, b)| a != b), one.len(), other.len())
        }
        (Value::Many(_, one), Value::Many(_, other)) if one.len() == other.len() => {
            let both = one.iter().zip(other).enumerate().find(|(_, (one, other))| one != other);
            both.map_or_else(String::new, |(at, (one, other))| format!("{at}: {}", differ(one, other)))
        }
        _ => format!("{} and {}", brief(theirs), brief(ours)),
    }
}

fn same(both: &mut [Client; 2], command: &[Vec<u8>], what: &str) {
    let [theirs, ours] = both.each_mut().map(|client| {
        client.send(command);
        client.receive()
    });
    let [theirs, ours] = [theirs, ours].map(|value| normal(command, value));
    assert!(theirs == ours, "{what}: {}: {}", brief_words(command), differ(&theirs, &ours));
}

fn run(store: Store, seed: u64, steps: u64, settings: Settings) {
    with_sockets(store, settings, |sockets| {
        let mut both = sockets.map(|at| Client::new(at, 2));
        let mut large = Large(Random(seed));
        for step in 0..steps {
            let what = format!("{store:?}, seed {seed}, step {step}");
            match large.0.below(12) {
                // As one transaction.
                0 => {
                    same(&mut both, &request("MULTI"), &what);
                    let all: Vec<_> = (0..3).map(|_| large.command()).collect();
                    all.iter().for_each(|command| same(&mut both, command, &what));
                    let all = all.iter().map(|command| brief_words(command)).collect::<Vec<_>>().join("; ");
                    same(&mut both, &request("EXEC"), &format!("{what}: {all}"));
                }
                // What one has goes to the other one.
                1 => {
                    let (from, to) = (large.key(), large.key());
                    let dumped = both.each_mut().map(|client| {
                        client.send(&[b"DUMP".to_vec(), from.clone()]);
                        client.receive()
                    });
                    if let [Value::Bulk(theirs), Value::Bulk(ours)] = dumped {
                        for (client, payload) in both.iter_mut().zip([ours, theirs]) {
                            client.send(&[
                                b"RESTORE".to_vec(),
                                to.clone(),
                                b"0".to_vec(),
                                payload,
                                b"REPLACE".to_vec(),
                            ]);
                            assert_eq!(client.receive(), Value::Line('+', "OK".to_owned()), "{what}");
                        }
                    }
                }
                _ => same(&mut both, &large.command(), &what),
            }
            if step % 8 == 7 {
                for key in ["a", "b", "c"] {
                    same(&mut both, &request(&format!("GET {key}")), &what);
                }
            }
        }
    });
}

#[test]
fn long_strings_are_those_of_redis() {
    let steps = 5 * rounds();
    run(Store::Kv, 1, steps, Settings::default());
    run(Store::Tree, 2, steps / 2, Settings::default());
    run(Store::Slow, 3, steps / 2, Settings::default());
    // Of other sizes: borders of some are no borders of others.
    let chunks = Chunks { whole: 100_000, chunk: 32 << 10 };
    run(Store::Kv, 4, steps / 2, Settings { chunks, ..Settings::default() });
}
