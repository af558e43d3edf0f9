//! Records on standard output.

use std::io::{self, BufWriter, StdoutLock, Write};

use ::log::Lsn;
use serde::Serialize;

use crate::args::Show;
use crate::failure::Failure;

/// A record; field names are a contract.
#[derive(Serialize)]
struct RecordJson<'a> {
    lsn: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
}

/// Where records are printed.
pub struct Printer {
    out: BufWriter<StdoutLock<'static>>,
    json: bool,
}

/// Why printing ends early.
pub enum Stop {
    /// The reader has seen enough.
    NobodyReads,
    Failed(Failure),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::NobodyReads,
            _ => Self::Failed(Failure::output(&error)),
        }
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Printer {
    pub fn new(show: &Show) -> Self {
        Self { out: BufWriter::new(io::stdout().lock()), json: show.json }
    }

    pub fn record(&mut self, lsn: Lsn, payload: &[u8]) -> Result<(), Stop> {
        if self.json {
            let text = std::str::from_utf8(payload).ok();
            let hex = text.is_none().then(|| payload.iter().map(|byte| format!("{byte:02x}")).collect());
            let record = RecordJson { lsn: lsn.get(), text, hex };
            serde_json::to_writer(&mut self.out, &record).map_err(io::Error::from)?;
        } else {
            self.out.write_all(payload)?;
        }
        Ok(self.out.write_all(b"\n")?)
    }

    pub fn flush(&mut self) -> Result<(), Stop> {
        Ok(self.out.flush()?)
    }
}
