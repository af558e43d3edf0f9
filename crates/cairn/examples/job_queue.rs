//! A queue of jobs that outlives its process: what was pushed is popped once, by whichever run comes to it.
//!
//! `cargo run -p cairn --example job_queue [FILE]`; run it twice, the second begins where the first ended.

use std::error::Error;
use std::path::PathBuf;

use cairn::heap::{Heap, Options};
use cairn::pmem::{PPtr, Persist};
use cairn::tx::{self, Engine, Isolation::Serializable, Transaction, Typed};

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Job {
    next: PPtr<Job>,
    text: PPtr<u8>,
    text_len: u64,
}

/// The root object.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Queue {
    first: PPtr<Job>,
    last: PPtr<Job>,
    pushed: u64,
}

fn push(heap: &Heap, text: impl Fn(u64) -> String) -> tx::Result<()> {
    heap.transact(Serializable, |tx| {
        let root = tx.root::<Queue>()?;
        let queue = *tx.read(root)?;
        let text = text(queue.pushed + 1);
        // What is allocated here exists if the transaction commits; a crash before leaves no trace of it.
        let job = Job { next: PPtr::NULL, text: tx.alloc_slice(text.as_bytes())?, text_len: text.len() as u64 };
        let job = tx.alloc(&job)?;
        if queue.last.is_null() {
            tx.write(root)?.first = job;
        } else {
            tx.write(queue.last)?.next = job;
        }
        let root = tx.write(root)?;
        (root.last, root.pushed) = (job, queue.pushed + 1);
        Ok(())
    })
}

fn pop(heap: &Heap) -> tx::Result<Option<String>> {
    heap.transact(Serializable, |tx| {
        let root = tx.root::<Queue>()?;
        let first = tx.read(root)?.first;
        if first.is_null() {
            return Ok(None);
        }
        let job = *tx.read(first)?;
        let text = String::from_utf8_lossy(tx.bytes(job.text, job.text_len)?).into_owned();
        let queue = tx.write(root)?;
        queue.first = job.next;
        if job.next.is_null() {
            queue.last = PPtr::NULL;
        }
        tx.free(job.text)?;
        tx.free(first)?;
        Ok(Some(text))
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map_or(std::env::temp_dir().join("queue.cairn"), PathBuf::from);
    let options = Options::new().bytes(1 << 20);
    let heap = if path.exists() {
        Heap::open(&path, &options)?
    } else {
        let heap = Heap::create(&path, &options)?;
        heap.transact(Serializable, |tx| -> tx::Result<()> {
            let queue = tx.alloc(&Queue { first: PPtr::NULL, last: PPtr::NULL, pushed: 0 })?;
            tx.set_root(queue)
        })?;
        heap
    };
    for _ in 0..3 {
        push(&heap, |number| format!("job {number}"))?;
    }
    println!("pushed three");
    for _ in 0..2 {
        println!("popped {}", pop(&heap)?.unwrap_or("nothing".into()));
    }
    println!("the rest waits in {}", path.display());
    Ok(heap.close()?)
}
