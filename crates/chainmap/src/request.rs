//! What can be asked.

use server::request::{Arguments, number};

/// Bytes of a key.
pub(crate) const KEY_MAX: usize = 1 << 10;
/// Bytes of a value.
pub(crate) const VALUE_MAX: usize = 64 << 10;
/// Keys of one request.
pub(crate) const KEYS_MAX: usize = 128;

/// What changes something: it may be numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'r> {
    Set { key: &'r [u8], value: &'r [u8] },
    Delete { key: &'r [u8] },
    Add { key: &'r [u8], by: i64 },
    Transfer { from: &'r [u8], to: &'r [u8], amount: i64 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request<'r> {
    Get {
        key: &'r [u8],
    },
    /// All as they are at one moment.
    GetAll {
        keys: Vec<&'r [u8]>,
    },
    Change(Change<'r>),
    /// The change with this number of a client: carried out once.
    Once {
        client: u64,
        number: u64,
        change: Change<'r>,
    },
    /// A client comes no more.
    Forget {
        client: u64,
    },
    Info,
    Ping,
    /// What client libraries say to greet.
    Greeting,
    /// As a reply to `COMMAND`: there is no table.
    Commands,
    Auth {
        password: &'r [u8],
    },
    Quit,
}

/// Why it is no request; the text is the reply.
pub(crate) type Wrong = String;

pub(crate) const HELP: &str = "GET key | MGET key ... | SET key value | DEL key | INCRBY key n | TRANSFER from to amount | ONCE client number SET|DEL|INCRBY|TRANSFER ... | FORGET client | INFO | PING | AUTH password | QUIT";

impl<'r> Request<'r> {
    /// It changes nothing: the tail can answer it.
    pub(crate) fn only_reads(&self) -> bool {
        matches!(self, Self::Get { .. } | Self::GetAll { .. })
    }

    pub(crate) fn parse(words: Arguments<'r>) -> Result<Self, Wrong> {
        let name = words.get(0).to_ascii_uppercase();
        let count = |wanted: usize| {
            let wrong = || format!("ERR wrong number of arguments for '{}'; say one of: {HELP}", shown(words.get(0)));
            if words.len() == wanted + 1 { Ok(()) } else { Err(wrong()) }
        };
        match &name[..] {
            b"GET" => count(1).and_then(|()| Ok(Self::Get { key: key(words.get(1))? })),
            b"MGET" if (2..=KEYS_MAX + 1).contains(&words.len()) => {
                Ok(Self::GetAll { keys: words.from(1).map(key).collect::<Result<_, _>>()? })
            }
            b"MGET" => Err(format!("ERR MGET takes 1 to {KEYS_MAX} keys")),
            b"ONCE" if words.len() >= 4 => {
                let (client, number) = (id("client", words.get(1))?, id("number", words.get(2))?);
                Ok(Self::Once { client, number, change: Change::parse(words.behind(3))? })
            }
            b"ONCE" => Err("ERR say ONCE client number SET|DEL|INCRBY|TRANSFER ..., with a number that rises with each new request of the client".into()),
            b"FORGET" => count(1).and_then(|()| Ok(Self::Forget { client: id("client", words.get(1))? })),
            b"INFO" => Ok(Self::Info),
            b"PING" => Ok(Self::Ping),
            b"CLIENT" => Ok(Self::Greeting),
            b"SELECT" if words.get(1) == b"0" => Ok(Self::Greeting),
            b"COMMAND" => Ok(Self::Commands),
            b"AUTH" => count(1).map(|()| Self::Auth { password: words.get(1) }),
            b"QUIT" => Ok(Self::Quit),
            _ => Change::parse(words).map(Self::Change),
        }
    }
}

impl<'r> Change<'r> {
    fn parse(words: Arguments<'r>) -> Result<Self, Wrong> {
        let name = words.get(0).to_ascii_uppercase();
        match (&name[..], words.len()) {
            (b"SET", 3) if words.get(2).len() <= VALUE_MAX => {
                Ok(Self::Set { key: key(words.get(1))?, value: words.get(2) })
            }
            (b"SET", 3) => Err(format!("ERR a value of {} bytes; it may have {VALUE_MAX}", words.get(2).len())),
            (b"DEL", 2) => Ok(Self::Delete { key: key(words.get(1))? }),
            (b"INCRBY", 3) => Ok(Self::Add { key: key(words.get(1))?, by: integer(words.get(2))? }),
            (b"TRANSFER", 4) => match integer(words.get(3))? {
                amount if amount < 0 => Err("ERR the amount is negative; exchange the two keys".into()),
                amount => Ok(Self::Transfer { from: key(words.get(1))?, to: key(words.get(2))?, amount }),
            },
            (b"SET" | b"DEL" | b"INCRBY" | b"TRANSFER", _) => {
                Err(format!("ERR wrong number of arguments for '{}'; say one of: {HELP}", shown(words.get(0))))
            }
            _ => Err(format!("ERR unknown command '{}'; say one of: {HELP}", shown(words.get(0)))),
        }
    }
}

fn key(word: &[u8]) -> Result<&[u8], Wrong> {
    match word.len() {
        0 => Err("ERR an empty key; it has a byte at least".into()),
        1..=KEY_MAX => Ok(word),
        len => Err(format!("ERR a key of {len} bytes; it may have {KEY_MAX}")),
    }
}

/// As Redis says it.
pub(crate) fn integer(word: &[u8]) -> Result<i64, Wrong> {
    number(word).ok_or_else(|| "ERR value is not an integer or out of range".into())
}

fn id(what: &str, word: &[u8]) -> Result<u64, Wrong> {
    let found = number(word).and_then(|number| u64::try_from(number).ok()).filter(|id| *id > 0);
    found.ok_or_else(|| format!("ERR '{}' is no {what}: one is a number from 1 to {}", shown(word), i64::MAX))
}

/// What a stranger has sent, so that it fits into an error.
fn shown(word: &[u8]) -> String {
    word.iter().take(64).flat_map(|byte| byte.escape_ascii()).map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use server::request::{Batch, Limits, Parser};

    use super::*;

    fn parse(line: &str) -> Result<String, Wrong> {
        let limits = Limits { arguments: 200, argument: 1 << 20, request: 2 << 20 };
        let (mut batch, buffer) = (Batch::default(), format!("{line}\r\n").into_bytes());
        assert_eq!(Parser::default().advance(&buffer, &limits, &mut batch), Ok(true), "{line}");
        Request::parse(batch.arguments(0, &buffer)).map(|request| format!("{request:?}"))
    }

    #[test]
    fn what_is_asked_is_understood() {
        let cases = [
            ("get a", "Get { key: [97] }"),
            ("SET a b", "Change(Set { key: [97], value: [98] })"),
            ("incrby a -5", "Change(Add { key: [97], by: -5 })"),
            (
                "once 7 1 transfer a b 3",
                "Once { client: 7, number: 1, change: Transfer { from: [97], to: [98], amount: 3 } }",
            ),
            ("mget a b", "GetAll { keys: [[97], [98]] }"),
        ];
        for (line, request) in cases {
            assert_eq!(parse(line).as_deref(), Ok(request), "{line}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let long = format!("get {}", "k".repeat(KEY_MAX + 1));
        let value = format!("set k {}", "v".repeat(VALUE_MAX - 100));
        assert!(parse(&value).is_err() || parse(&value).is_ok_and(|said| said.contains("Set")));
        let cases = [
            ("frob", "unknown command 'frob'"),
            ("get", "wrong number of arguments"),
            ("get a b", "wrong number of arguments"),
            ("get ''", "an empty key"),
            (&long, "a key of 1025 bytes"),
            ("incrby a 1.5", "not an integer"),
            ("incrby a 9223372036854775808", "not an integer"),
            ("transfer a b -1", "the amount is negative"),
            ("once 0 1 del a", "'0' is no client"),
            ("once 1 x del a", "'x' is no number"),
            ("once 1 1 get a", "unknown command 'get'"),
            ("once 1 1", "say ONCE client number"),
            ("mget", "1 to 128 keys"),
            ("select 1", "unknown command 'select'"),
        ];
        for (line, words) in cases {
            let said = parse(line).expect_err(line);
            assert!(said.starts_with("ERR ") && said.contains(words), "{line}: {said}");
        }
    }
}
