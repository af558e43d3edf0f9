//! What a test cannot do without unsafe code.

/// Runs `in_child` in a child process made by fork; 0 if it returned, else how it ended. Call it where no other thread is at work.
pub fn fork(in_child: impl FnOnce()) -> i32 {
    // SAFETY: no other thread holds a lock that the child could want, says the caller.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(in_child));
        // SAFETY: ends the child without what the parent wants done at its own end.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status
}
