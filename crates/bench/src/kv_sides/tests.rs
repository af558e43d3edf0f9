use super::*;

const ROOM: KvRoom = KvRoom { pairs: 100, key_bytes: 24, value_bytes: 64, sessions: 2 };

fn all() -> impl Iterator<Item = StoreKind> {
    StoreKind::OURS.into_iter().chain(StoreKind::peers())
}

#[test]
fn names_are_distinct_and_parse() {
    for who in all() {
        assert_eq!(who.name().parse(), Ok(who));
    }
    assert!("sled".parse::<StoreKind>().unwrap_err().contains("rocksdb"));
}

#[test]
fn transactions_of_several_steps() {
    for who in all().filter(|who| !who.levels().is_empty()) {
        let dir = tempfile::tempdir().unwrap();
        let Ok(side) = who.open(dir.path(), ROOM).unwrap() else { continue };
        let session = &mut *side.session().unwrap();
        let step = |key: &'static [u8], put: Option<&'static [u8]>| Step { key, put };
        for isolation in who.levels() {
            let steps = [step(b"a", Some(b"1")), step(b"b", Some(b"2")), step(b"a", None), step(b"c", None)];
            let mut out = [0; 8];
            assert_eq!(
                session.transaction(isolation, &steps, &mut out).unwrap(),
                Found { pairs: 1, aborts: 0 },
                "{who}"
            );
            assert_eq!(session.transaction(isolation, &steps[2..], &mut out).unwrap().pairs, 1, "{who}");
            assert_eq!((session.get(b"b", &mut out).unwrap().pairs, out[0]), (1, b'2'), "{who}");
        }
    }
}
