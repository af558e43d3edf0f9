use super::*;

fn temp() -> tempfile::TempDir {
    tempfile::tempdir_in(crate::contest::memory()).unwrap()
}

const ROOM: u64 = 1 << 20;

fn everybody() -> Vec<Appender> {
    let policies = [Policy::Sync, Policy::Frequency(4), Policy::Group(4)].map(Appender::Log);
    [Appender::Bare].into_iter().chain(policies).chain(Appender::OTHERS).collect()
}

/// More goes through than there is room for; two threads at once.
#[test]
fn everybody_takes_records_and_gives_room_back() {
    let dir = temp();
    for who in everybody() {
        let Ok(log) = who.make(dir.path(), ROOM, 2).unwrap() else {
            assert!(who == Appender::Pmemlog && !cfg!(feature = "peers"));
            continue;
        };
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for thread in 0..2 {
                    let mut writer = log.writer(thread).unwrap();
                    scope.spawn(move || (0..350).for_each(|_| writer.append(&[thread as u8; 1000]).unwrap()));
                }
            });
            log.clean().unwrap();
        }
    }
}

#[test]
fn a_full_log_is_an_error() {
    let dir = temp();
    for who in everybody().into_iter().filter(|who| *who != Appender::Bare) {
        let Ok(log) = who.make(dir.path(), ROOM, 1).unwrap() else { continue };
        let mut writer = log.writer(0).unwrap();
        let fitting = (0..100).find(|_| writer.append(&[0; 60_000]).is_err()).unwrap();
        assert!(fitting >= 16, "{who}: {fitting}");
    }
}

#[test]
fn flex_finds_its_records_and_notices_damage() {
    let dir = temp();
    let path = dir.path().join("flex");
    let log = Flex::create(&path, ROOM).unwrap();
    let mut writer = log.writer(0).unwrap();
    (0..10_u8).for_each(|number| writer.append(&[number; 100]).unwrap());
    drop(writer);
    log.append_in_parts(&[10; 7]).unwrap();
    drop(log);
    let mut found = Vec::new();
    Flex::recover(&path, |payload| found.push((payload[0], payload.len()))).unwrap();
    assert_eq!((found.len(), found[9], found[10]), (11, (9, 100), (10, 7)));

    let pool = pmem::Options::new().open(&path).unwrap();
    let mut area = pool.region("flex").unwrap().into_area().unwrap();
    area.bytes_mut(1000, 1).unwrap()[0] ^= 1;
    drop((area, pool));
    assert!(Flex::recover(&path, |_| ()).err().unwrap().to_string().contains("does not verify"));
}

#[test]
fn names_are_read_back() {
    for who in everybody() {
        assert_eq!(who.to_string().parse(), Ok(who));
    }
    for wrong in ["", "freq", "freq:0", "group:", "group:513", "sync:1", "pmemobj"] {
        assert!(wrong.parse::<Appender>().is_err(), "{wrong}");
        assert!(wrong.parse::<Policy>().is_err(), "{wrong}");
    }
}

#[test]
fn windows() {
    let windows = [Policy::Sync, Policy::Frequency(8), Policy::Group(8)].map(|policy| policy.window(4));
    assert_eq!(windows, [0, 32, 8]);
}
