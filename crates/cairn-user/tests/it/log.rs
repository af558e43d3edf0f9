//! A log, and a reader that follows it.

use std::error::Error;
use std::time::Duration;

use cairn::log::Follower;
use cairn::{Log, LogOptions};

#[test]
fn a_follower_sees_what_is_durable() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("orders.log");
    let options = LogOptions::new().bytes(1 << 20);
    let log = Log::open_or_create(&path, &options)?;
    let mut follower = Follower::open(&path)?; // most often in another process
    for order in ["17 apples", "3 pears"] {
        log.append(order.as_bytes())?; // durable when it returns
    }
    let mut seen = Vec::new();
    while seen.len() < 2 {
        if let Some((lsn, record)) = follower.wait(Duration::from_secs(1))? {
            seen.push((lsn.get(), String::from_utf8(record)?));
        }
    }
    assert_eq!(seen, [(1, "17 apples".to_owned()), (2, "3 pears".to_owned())]);
    drop(log); // closes it

    let log = Log::open_or_create(&path, &options)?;
    let found = log.recovery();
    assert!(found.was_closed);
    assert_eq!((found.records, found.next.get()), (2, log.append(b"1 plum")?.get()));
    assert!(Log::create(&path, &options).is_err(), "there is one");
    assert!(Log::open(dir.path().join("none"), &options).is_err());
    Ok(())
}
