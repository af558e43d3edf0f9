//! A file of Redis' (`dump.rdb`): values with their keys, databases and expiries, and a checksum over all of it.

use std::io::{self, Read, Write};

use super::bytes::{Error, Input, Result, checksum, put_length, put_string};
use super::{VERSION, VERSION_MAX, skip};

const MAGIC: &[u8] = b"REDIS";
pub(super) const FUNCTION: u8 = 0xf5;
const MODULE: u8 = 0xf7;
const IDLE: u8 = 0xf8;
const FREQUENCY: u8 = 0xf9;
const NOTE: u8 = 0xfa;
const SIZES: u8 = 0xfb;
const EXPIRES_MS: u8 = 0xfc;
const EXPIRES: u8 = 0xfd;
const DATABASE: u8 = 0xfe;
const END: u8 = 0xff;

/// What stands in a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A key.
    Key {
        /// The number of its database.
        db: u64,
        /// Its name.
        key: Vec<u8>,
        /// When it expires, in milliseconds of Unix time.
        expires: Option<u64>,
        /// For how many seconds it was not used, if that was written.
        idle: Option<u64>,
        /// How often it is used, if that was written.
        frequency: Option<u8>,
        /// Its value as it stands in the file, its form first: [`Value::of`](super::Value::of) reads it. It is not looked into here.
        body: Vec<u8>,
    },
    /// The code of a library of functions.
    Function(Vec<u8>),
    /// Something that is there, and cannot be told.
    Unsupported(String),
}

/// Reads a file from its beginning to its end.
#[derive(Debug)]
pub struct FileReader<R> {
    input: Input<R>,
    version: u16,
    db: u64,
    at_end: bool,
}

impl<R: Read> FileReader<R> {
    /// Of a file that begins there.
    ///
    /// # Errors
    /// It is no file of Redis', or of a version that is not known.
    pub fn new(from: R) -> Result<Self> {
        let mut input = Input::new(from);
        let head = input.array::<9>()?;
        let version = std::str::from_utf8(&head[5..]).ok().and_then(|text| text.parse().ok());
        match version {
            Some(version) if head.starts_with(MAGIC) && (1..=VERSION_MAX).contains(&version) => {
                Ok(Self { input, version, db: 0, at_end: false })
            }
            Some(version) if head.starts_with(MAGIC) => Err(Error::Unsupported(format!("files of version {version}"))),
            _ if head.starts_with(b"*") => Err(Error::Log),
            _ => Err(Error::Bad("a file of Redis begins with REDIS and its version")),
        }
    }

    /// The version of the file.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// What comes next; none at the end, whose checksum is the file's.
    ///
    /// # Errors
    /// The file is not whole, or has something that is not known here.
    pub fn next_entry(&mut self) -> Result<Option<Entry>> {
        let (mut expires, mut idle, mut frequency) = (None, None, None);
        while !self.at_end {
            match self.input.byte()? {
                FUNCTION => return Ok(Some(Entry::Function(self.input.string()?))),
                0xf6 => return Err(Error::Unsupported("functions of a test version".into())),
                MODULE => {
                    let name = module_name(self.input.length()?);
                    self.input.length()?;
                    self.input.length()?;
                    skip::module(&mut self.input)?;
                    return Ok(Some(Entry::Unsupported(format!("data of the module {name}"))));
                }
                IDLE => idle = Some(self.input.length()?),
                FREQUENCY => frequency = Some(self.input.byte()?),
                NOTE => drop((self.input.string()?, self.input.string()?)),
                0xf4 => drop((self.input.length()?, self.input.length()?, self.input.length()?)), // sizes of a slot
                SIZES => drop((self.input.length()?, self.input.length()?)),
                EXPIRES_MS => expires = Some(u64::from_le_bytes(self.input.array()?)),
                EXPIRES => expires = Some(1000 * u64::from(u32::from_le_bytes(self.input.array()?))),
                DATABASE => self.db = self.input.length()?,
                END => self.end()?,
                form => {
                    let key = self.input.string()?;
                    self.input.keep(form);
                    skip::value(form, &mut self.input)?;
                    let db = self.db;
                    return Ok(Some(match self.input.kept() {
                        Some(body) => Entry::Key { db, key, expires, idle, frequency, body },
                        None => Entry::Unsupported(format!("a value of more than 4 GiB, of {}", key.escape_ascii())),
                    }));
                }
            }
        }
        Ok(None)
    }

    /// The checksum; 0 if the file was written without one.
    fn end(&mut self) -> Result<()> {
        self.at_end = true;
        if self.version >= 5 {
            let sum = self.input.crc();
            let written = u64::from_le_bytes(self.input.array()?);
            if written != 0 && written != sum {
                return Err(Error::Bad("its checksum is another one"));
            }
        }
        match self.input.byte() {
            Err(Error::Ends) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(Error::Tail),
        }
    }
}

/// The name that a module's number has in it: nine letters, six bits each.
fn module_name(number: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..9).map(|at| LETTERS[(number >> (58 - 6 * at) & 63) as usize] as char).collect()
}

/// Writes a file.
#[derive(Debug)]
pub struct FileWriter<W> {
    to: W,
    crc: u64,
    db: Option<u64>,
}

impl<W: Write> FileWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new(to: W) -> io::Result<Self> {
        let mut this = Self { to, crc: 0, db: None };
        let mut head = format!("REDIS{VERSION:04}").into_bytes();
        head.push(NOTE);
        put_string(&mut head, b"redis-bits");
        put_string(&mut head, b"64");
        this.put(&head)?;
        Ok(this)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc = checksum(self.crc, bytes);
        self.to.write_all(bytes)
    }

    /// A library of functions. They stand before all keys.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn function(&mut self, code: &[u8]) -> io::Result<()> {
        let mut bytes = vec![FUNCTION];
        put_string(&mut bytes, code);
        self.put(&bytes)
    }

    /// A key. `body` is its value, form first: a payload's without its end. Those of a database stand together.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn key(&mut self, db: u64, key: &[u8], expires: Option<u64>, body: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::new();
        if self.db != Some(db) {
            self.db = Some(db);
            bytes.push(DATABASE);
            put_length(&mut bytes, db);
        }
        if let Some(expires) = expires {
            bytes.push(EXPIRES_MS);
            bytes.extend_from_slice(&expires.to_le_bytes());
        }
        bytes.extend_from_slice(&body[..body.len().min(1)]);
        put_string(&mut bytes, key);
        self.put(&bytes)?;
        self.put(body.get(1..).unwrap_or_default())
    }

    /// Ends the file, and gives back where it was written.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn end(mut self) -> io::Result<W> {
        self.put(&[END])?;
        let sum = self.crc;
        self.to.write_all(&sum.to_le_bytes())?;
        self.to.flush()?;
        Ok(self.to)
    }
}
