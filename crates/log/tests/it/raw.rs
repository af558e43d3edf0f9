//! All the unsafe code of these tests.

/// Runs `in_child` in a child process made by fork, so many seconds at most; 0 if it returned, else how it ended.
pub fn fork(seconds: u32, in_child: impl FnOnce()) -> i32 {
    // SAFETY: the child uses what it has a copy of, and ends; the allocator and the standard library's locks outlast a fork.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: has the system end the child, should it wait for what never comes.
        unsafe { libc::alarm(seconds) };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(in_child));
        // SAFETY: ends the child without what the parent wants done at its own end.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status
}
