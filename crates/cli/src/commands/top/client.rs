//! Asks a server for `INFO`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::look::Info;

/// How long a server may take for anything.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of a reply: that of a server with all its commands in use has a few thousand.
const REPLY_MAX: usize = 1 << 20;
/// Not the keys, which a server counts one by one to tell how many there are.
const SECTIONS: [&str; 6] = ["server", "clients", "memory", "persistence", "stats", "commandstats"];

/// Why there is no answer.
#[derive(Debug)]
pub enum Refused {
    /// Nothing is there, or what is there is no such server.
    Away(String),
    /// It wants to know who asks, or refuses that user.
    Stranger(String),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Away(match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer in time".to_owned(),
            io::ErrorKind::UnexpectedEof => "the connection was ended".to_owned(),
            _ => error.to_string(),
        })
    }
}

/// A server, connected or not.
pub struct Client {
    pub address: String,
    user: Option<String>,
    password: Option<String>,
    stream: Option<BufReader<TcpStream>>,
}

impl Client {
    pub fn new(address: String, user: Option<String>, password: Option<String>) -> Self {
        Self { address, user, password, stream: None }
    }

    /// What it says now. Connects if it is not connected.
    pub fn info(&mut self) -> Result<Info, Refused> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        let text = call(&mut stream, &[&["INFO"][..], &SECTIONS].concat())?;
        // After an error it would be unclear where a reply begins.
        self.stream = Some(stream);
        Ok(Info::parse(&text))
    }

    fn connect(&self) -> Result<BufReader<TcpStream>, Refused> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "no such address");
        for address in self.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, TIMEOUT) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(TIMEOUT))?;
                    stream.set_write_timeout(Some(TIMEOUT))?;
                    let mut stream = BufReader::new(stream);
                    if let Some(password) = &self.password {
                        let words = ["AUTH"].into_iter().chain(self.user.as_deref()).chain([password.as_str()]);
                        call(&mut stream, &words.collect::<Vec<_>>())?;
                    }
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }
}

/// A command, and its reply, which is a text.
fn call(stream: &mut (impl BufRead + Wire), words: &[&str]) -> Result<String, Refused> {
    let mut request = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| request += &format!("${}\r\n{word}\r\n", word.len()));
    stream.send(request.as_bytes())?;
    let mut line = String::new();
    if stream.take(4096).read_line(&mut line)? == 0 {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    let Some(line) = line.strip_suffix("\r\n") else { return Err(nonsense()) };
    match line.split_at_checked(1) {
        Some(("+", text)) => Ok(text.to_owned()),
        Some(("-", text)) if ["NOAUTH", "WRONGPASS", "NOPERM"].iter().any(|kind| text.starts_with(kind)) => {
            Err(Refused::Stranger(text.to_owned()))
        }
        Some(("-", text)) => Err(Refused::Away(text.to_owned())),
        Some(("$", length)) => {
            let length = length.parse().ok().filter(|length| *length <= REPLY_MAX).ok_or_else(nonsense)?;
            let mut bytes = vec![0; length + 2];
            stream.read_exact(&mut bytes)?;
            bytes.truncate(length);
            String::from_utf8(bytes).map_err(|_| nonsense())
        }
        _ => Err(nonsense()),
    }
}

/// What requests are written to.
trait Wire {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;
}

impl Wire for BufReader<TcpStream> {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.get_mut().write_all(bytes)
    }
}

fn nonsense() -> Refused {
    Refused::Away("what answers does not speak Redis' protocol".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Wire for &[u8] {
        fn send(&mut self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn replies() {
        let reply = |mut text: &[u8]| call(&mut text, &["INFO"]);
        assert_eq!(reply(b"$5\r\na:1\r\n\r\n").unwrap(), "a:1\r\n");
        assert_eq!(reply(b"+OK\r\n").unwrap(), "OK");
        assert!(matches!(reply(b"-NOAUTH Authentication required.\r\n"), Err(Refused::Stranger(_))));
        let bad: [&[u8]; 9] = [
            b"",
            b"\r\n",
            b"-ERR no\r\n",
            b"HTTP/1.1 400 Bad Request\r\n",
            b"$9",
            b"$5\r\nab",
            b"$-1\r\n",
            b"$99999999999\r\n",
            &[0xff; 5000],
        ];
        for text in bad {
            assert!(matches!(reply(text), Err(Refused::Away(_))), "{text:?}");
        }
    }
}
