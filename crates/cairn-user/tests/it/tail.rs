//! Two threads, as two processes would be: one writes events, the other sums them up as they become durable, and says how far it is.

use std::error::Error;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use cairn::log::Lsn;
use cairn::{Log, LogOptions};

fn sum_up(path: &Path, events: u64, told: mpsc::Sender<Lsn>) -> cairn::log::Result<u64> {
    let mut sum = 0;
    for record in Log::follow(path)?.until_idle(Duration::from_secs(60)).take(events as usize) {
        let (lsn, bytes) = record?;
        sum += bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
        let _ = told.send(lsn);
    }
    Ok(sum)
}

#[test]
fn sums_follow_a_log_that_is_cleaned_up() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("events.log");
    let log = Log::create(&path, &LogOptions::new().bytes(1 << 20))?;
    let (told, hear) = mpsc::channel::<Lsn>();
    let events = 200_u64;
    let sum = std::thread::scope(|threads| -> Result<u64, Box<dyn Error>> {
        let reader = threads.spawn(|| sum_up(&path, events, told));
        for event in 0..events {
            log.append(&[event as u8; 3])?;
            // What was summed up is not needed any more.
            if let Some(lsn) = hear.try_iter().last() {
                log.truncate_to(lsn)?;
            }
        }
        Ok(reader.join().map_err(|_| "the reader panicked")??)
    })?;
    assert_eq!(sum, 3 * (0..events).sum::<u64>());
    Ok(())
}

/// A follower of what is closed ends by itself.
#[test]
fn a_closed_log_is_read_to_its_end() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("events.log");
    let options = LogOptions::new().bytes(1 << 20);
    let log = Log::create(&path, &options)?;
    log.append(b"one")?;
    log.append(b"two")?;
    log.close()?;
    let records: Result<Vec<_>, _> = Log::follow(&path)?.until_idle(Duration::ZERO).collect();
    assert_eq!(records?.len(), 2);
    assert_eq!(Log::open_read_only(&path, &options)?.recovery().records, 2);
    Ok(())
}
