//! How long a process was on a processor, in its own code and in the kernel's.

use std::collections::BTreeMap;
use std::time::Duration;

/// Nanoseconds of each of its threads so far, as the scheduler counts them: finer than the clock ticks of `/proc/PID/stat`. None where the kernel does not tell.
fn of_threads(process: u32) -> Option<BTreeMap<String, u64>> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let mut threads = BTreeMap::new();
    for task in tasks.flatten() {
        // One that ends in between has no such file.
        let Ok(text) = std::fs::read_to_string(task.path().join("schedstat")) else { continue };
        let nanos = text.split_whitespace().next()?.parse().ok()?;
        threads.insert(task.file_name().to_string_lossy().into_owned(), nanos);
    }
    (!threads.is_empty()).then_some(threads)
}

/// What `work` costs a process that is asked: of the threads that are there at its end.
pub(super) fn of<T, E>(process: u32, work: impl FnOnce() -> Result<T, E>) -> Result<(T, Option<Duration>), E> {
    let before = of_threads(process);
    let done = work()?;
    let spent = before.zip(of_threads(process)).map(|(before, after)| {
        let since = |(thread, nanos): (&String, &u64)| nanos.saturating_sub(before.get(thread).copied().unwrap_or(0));
        Duration::from_nanos(after.iter().map(since).sum())
    });
    Ok((done, spent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_a_process_is_counted_and_its_sleep_is_not() {
        let spin = || -> Result<u64, ()> { Ok((0..4_000_000_u64).fold(0, |sum, at| std::hint::black_box(sum ^ at))) };
        let (_, spent) = of(std::process::id(), spin).unwrap();
        // Kernels that count nothing have no such files, and show zeros where counting is off.
        let Some(spent) = spent else { return };
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let ((), slept) = of(child.id(), || spin().map(drop)).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(spent > Duration::ZERO && slept.unwrap() < Duration::from_secs(5), "{spent:?} {slept:?}");
        assert_eq!(of(child.id(), || spin().map(drop)).unwrap(), ((), None), "it is gone");
    }
}
