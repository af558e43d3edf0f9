//! A heap in the child of a fork, which has none of the parent's threads.

use std::process::{Child, Command};
use std::time::Duration;

use heap::{Heap, Policy};
use pmem::DomainChoice;
use tx::{Engine, Error, Isolation, Typed};

use crate::raw;
use crate::support::{bump, memory, quiet, with_objects};

/// What the child does with it.
type Use = fn(Heap);

/// Not a test of its own: what the test below starts, with no other test beside it.
#[test]
fn worker() {
    if std::env::var_os("CAIRN_FORK_WORKER").is_none() {
        return;
    }
    // Dropped while it unwinds, too: a panic then would abort.
    let unwind = |heap: Heap| {
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _heap = heap;
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(unwound.is_err());
    };
    let uses: [Use; 3] = [drop, |heap| assert!(heap.close().is_err()), unwind];
    for policy in Policy::ALL {
        for coordinator in [false, true] {
            for (n, in_child) in uses.into_iter().enumerate() {
                let dir = memory();
                let (heap, objects) =
                    with_objects(&dir, &quiet(policy, DomainChoice::Emulated).coordinator(coordinator), 10);
                bump(&heap, objects[0]);
                let mut heap = Some(heap);
                let status = raw::fork(|| {
                    let heap = heap.take().unwrap();
                    let refused = heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
                        tx.write(objects[1])?[0] += 1;
                        Ok(())
                    });
                    assert!(matches!(refused, Err(Error::Pool(pmem::Error::Forked))), "{refused:?}");
                    in_child(heap);
                });
                assert_eq!(status, 0, "{policy}, coordinator {coordinator}, use {n}");
                let heap = heap.unwrap();
                bump(&heap, objects[0]);
                assert_eq!(heap.begin(Isolation::Strict).unwrap().read(objects[0]).unwrap()[0], 2);
                heap.close().unwrap();
            }
        }
    }
}

/// True if it ends well, and soon.
fn ends(child: &mut Child) -> bool {
    for _ in 0..6000 {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    false
}

#[test]
fn the_child_of_a_fork_can_drop_and_close_a_heap() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "fork::worker", "--nocapture", "--test-threads", "1"])
        .env("CAIRN_FORK_WORKER", "1")
        .spawn()
        .unwrap();
    assert!(ends(&mut child));
}
