//! The worker process.

use heap::Heap;
use mvcc::Mvcc;
use structures::{BTree, HashMap};

use crate::config::{Job, Task};
use crate::input::Input;
use crate::kept::Kept;
use crate::kind::Kind;
use crate::message::{Message, Mouth};
use crate::store::Keep;
use crate::value::Values;
use crate::{Error, Result};

/// Does what the parent wrote into `job`, and says on standard output how it goes.
///
/// # Errors
/// Whatever went wrong; the parent has been told.
pub fn work(job: &str) -> Result<()> {
    let mouth = Mouth::new().map_err(Error::io("open", "standard output".as_ref()))?;
    let done = start(job, &mouth);
    if let Err(error) = &done {
        // A parent that is gone needs no answer.
        let _ = mouth.say_once(&Message::Failed(error.to_string()));
    }
    done
}

fn start(job: &str, mouth: &Mouth) -> Result<()> {
    let job: Job = serde_json::from_str(job).map_err(|e| Error::Option(format!("no job for a worker: {e}")))?;
    let input = Input::of_job(&job)?;
    match (job.kind()?, input.scans()) {
        (Kind::Heap(_), true) => run::<Heap, BTree>(&job, &input, mouth),
        (Kind::Heap(_), false) => run::<Heap, HashMap>(&job, &input, mouth),
        (Kind::Mvcc, true) => run::<Mvcc, BTree>(&job, &input, mouth),
        (Kind::Mvcc, false) => run::<Mvcc, HashMap>(&job, &input, mouth),
    }
}

fn run<E: Kept, M: Keep>(job: &Job, input: &Input, mouth: &Mouth) -> Result<()> {
    let values = Values::new(input.longest_value());
    match job.task {
        Task::Measure => crate::measured::measure::<E, M>(job, input, &values, mouth),
        Task::Report => crate::reported::report::<E, M>(job, input, &values, mouth),
    }
}
