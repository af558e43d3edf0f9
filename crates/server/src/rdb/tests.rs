use super::*;

fn values() -> Vec<Value> {
    let s = |text: &str| text.as_bytes().to_vec();
    let id = |ms, seq| Id { ms, seq };
    let long = vec![b'x'; 70_000];
    let entries = (0..250_u64)
        .map(|n| {
            (
                id(1000 + n / 3, n % 3 + (1 << 40)),
                vec![s("field"), n.to_string().into_bytes(), long[..n as usize * 9].to_vec(), s("")],
            )
        })
        .collect();
    let pending = |ms, seq| Pending { id: id(ms, seq), delivered: 1_700_000_000_000, deliveries: 3 };
    let group = Group {
        name: s("group"),
        last: id(1003, 1 << 40),
        read: -1,
        consumers: vec![
            Consumer { name: s("a"), seen: 17, pending: vec![pending(1001, 1 << 40), pending(1002, 1 << 40)] },
            Consumer { name: s("b"), seen: u64::MAX, pending: vec![] },
            Consumer { name: s("c"), seen: 18, pending: vec![pending(1001, (1 << 40) + 1)] },
        ],
    };
    vec![
        Value::String(s("")),
        Value::String(s("12345")),
        Value::String(long.clone()),
        Value::List(vec![s("b"), s("a"), s("a"), long.clone()]),
        Value::Set((0..20_000).map(|n| format!("member:{n}").into_bytes()).collect()),
        Value::Sorted(vec![(s("a"), 1.5), (s("b"), f64::INFINITY), (s("c"), -0.0), (s("d"), f64::NEG_INFINITY)]),
        Value::Hash(vec![(s("a"), s("1")), (s(""), long)]),
        Value::Stream(Stream { entries, last: id(5000, 1), deleted: id(7, 7), added: 300, groups: vec![group] }),
        Value::Stream(Stream::default()),
    ]
}

fn read(bytes: &[u8]) -> Result<Value> {
    Value::of(bytes, ROOM)
}

#[test]
fn values_are_read_as_they_were_written() {
    for value in values() {
        let payload = payload(&value);
        assert_eq!(read(opened(&payload).unwrap().0).unwrap(), value);
        for at in [0, payload.len() / 2, payload.len() - 9, payload.len() - 1] {
            let mut other = payload.clone();
            other[at] ^= 1;
            assert!(opened(&other).is_none());
        }
    }
}

#[test]
fn whatever_the_bytes_are_they_are_a_value_or_an_error() {
    let mut bytes = Vec::new();
    for value in values() {
        bytes.clear();
        value.write(&mut bytes);
        // Cut anywhere, and each byte of the beginning another one.
        for len in (1..bytes.len().min(700)).chain([bytes.len() - 1]) {
            assert!(read(&bytes[..len]).is_err());
        }
        for at in 0..bytes.len().min(300) {
            for mask in [1, 0x40, 0x80, 0xff] {
                bytes[at] ^= mask;
                drop(read(&bytes));
                bytes[at] ^= mask;
            }
        }
    }
    for form in 0..=255 {
        for length in [
            &[0][..],
            &[0x3f],
            &[0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0x80, 0x20, 0, 0, 0],
            &[0xc3, 1, 0x80, 0x20, 0, 0, 0, 0],
        ] {
            assert!(read(&[&[form], length].concat()).is_err() || form == 0 && length == [0] || matches!(length, [0]));
        }
    }
}

/// A few bytes that say they are many.
#[test]
fn compressed_strings_of_one_value_have_a_bound() {
    let one = [&[0xc3, 0x40, 100, 0x80, 0x1f, 0xff, 0xff, 0xff][..], &[0; 100]].concat();
    let mut three = Input::new(&one[..]);
    assert!(three.string().unwrap_err().to_string().contains("not whole"));
    let bytes = one.repeat(3);
    let mut all = Input::new(&bytes[..]);
    let errors = [(); 3].map(|()| all.string().unwrap_err().to_string());
    assert!(errors[1].contains("not whole") && errors[2].contains("too long"), "{errors:?}");
}

/// What redis-server 7.0 and others have made, by hand of their forms.
#[test]
fn forms_of_other_versions_are_read() {
    let s = |text: &str| text.as_bytes().to_vec();
    let ziplist = |elements: &[u8], count: u8| {
        let len = 10 + elements.len() as u8 + 1;
        let body = [&[len, 0, 0, 0, 0, 0, 0, 0, count, 0][..], elements, &[0xff]].concat();
        [&[body.len() as u8][..], &body].concat()
    };
    // "ab", 3, -300, 100 as an eight-bit one, and 70000 in 24 bits.
    let mixed = [0, 2, b'a', b'b', 4, 0xf4, 2, 0xc0, 0xd4, 0xfe, 4, 0xfe, 100, 3, 0xf0, 0x70, 0x11, 1];
    let all = [s("ab"), s("3"), s("-300"), s("100"), s("70000")];
    assert_eq!(read(&[&[10][..], &ziplist(&mixed, 5)].concat()).unwrap(), Value::List(all.to_vec()));
    let two = ziplist(&mixed[..6], 2);
    assert_eq!(read(&[&[13][..], &two].concat()).unwrap(), Value::Hash(vec![(s("ab"), s("3"))]));
    assert_eq!(read(&[&[12][..], &two].concat()).unwrap(), Value::Sorted(vec![(s("ab"), 3.0)]));
    assert_eq!(read(&[&[14, 2][..], &two, &two].concat()).unwrap(), Value::List([&all[..2], &all[..2]].concat()));
    let ints = [11, 12, 2, 0, 0, 0, 2, 0, 0, 0, 0xff, 0xff, 7, 0];
    assert_eq!(read(&ints).unwrap(), Value::Set(vec![s("-1"), s("7")]));
    let text = [3, 3, 1, b'a', 3, b'1', b'.', b'5', 1, b'b', 254, 1, b'c', 255];
    let scores = vec![(s("a"), 1.5), (s("b"), f64::INFINITY), (s("c"), f64::NEG_INFINITY)];
    assert_eq!(read(&text).unwrap(), Value::Sorted(scores));
    assert_eq!(read(&[0, 0xc1, 0x39, 0x30]).unwrap(), Value::String(s("12345")));
    assert_eq!(read(&[0, 0xc3, 5, 8, 1, b'a', b'b', 0x80, 1]).unwrap(), Value::String(s("abababab")));
}

#[test]
fn listpacks_have_numbers_of_all_lengths() {
    let numbers = [
        0,
        127,
        128,
        -1,
        4095,
        -4096,
        4096,
        32767,
        -32768,
        32768,
        8_388_607,
        -8_388_608,
        8_388_608,
        i64::from(i32::MIN),
        1 << 31,
        i64::MIN,
        i64::MAX,
    ];
    let strings = [0, 63, 64, 100, 127, 4095, 4096, 16_380, 16_384, 2_097_160].map(|len| vec![b'x'; len]);
    let mut packed = packed::Listpack::new();
    numbers.iter().for_each(|number| packed.int(*number));
    strings.iter().for_each(|string| packed.string(string));
    let found = packed::listpack(&packed.finish(), &mut Input::new(&b""[..]).room).unwrap();
    let expected: Vec<Vec<u8>> = numbers.iter().map(|number| number.to_string().into_bytes()).chain(strings).collect();
    assert_eq!(found, expected);
}

#[test]
fn checksums_are_those_of_redis() {
    assert_eq!(checksum(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    assert_eq!(checksum(checksum(0, b"1234"), b"56789"), 0xe9c6_d914_c4b8_d9ca);
}

#[test]
fn files_are_read_as_they_were_written() {
    let mut file = FileWriter::new(Vec::new()).unwrap();
    file.function(b"#!lua name=x").unwrap();
    let mut expected = vec![Entry::Function(b"#!lua name=x".to_vec())];
    for (at, value) in values().into_iter().enumerate() {
        let (mut body, key) = (Vec::new(), format!("key:{at}").into_bytes());
        value.write(&mut body);
        let (db, expires) = (at as u64 / 3, (at % 2 == 0).then_some(1 << 40));
        file.key(db, &key, expires, &body).unwrap();
        expected.push(Entry::Key { db, key, expires, idle: None, frequency: None, body });
    }
    let bytes = file.end().unwrap();
    let all = |bytes: &[u8]| -> Result<Vec<Entry>> {
        let (mut reader, mut all) = (FileReader::new(bytes)?, Vec::new());
        while let Some(entry) = reader.next_entry()? {
            all.push(entry);
        }
        Ok(all)
    };
    assert_eq!(all(&bytes).unwrap(), expected);
    for len in (0..200).chain([bytes.len() - 1]) {
        assert!(all(&bytes[..len]).is_err(), "{len}");
    }
    let mut other = bytes.clone();
    *other.last_mut().unwrap() ^= 1;
    assert!(all(&other).unwrap_err().to_string().contains("checksum"));
    assert!(all(&[b"REDIS0099", &bytes[9..]].concat()).unwrap_err().to_string().contains("version 99"));
    assert!(all(b"not a file of Redis").is_err());
    assert!(all(b"*2\r\n$6\r\nSELECT\r\n").unwrap_err().to_string().contains("append-only"));
    assert!(all(&[&bytes[..], b"*2\r\n"].concat()).unwrap_err().to_string().contains("behind its end"));
}

/// A value that is not read does not hide what stands behind it.
#[test]
fn all_forms_have_an_end() {
    let string = [2, b'a', b'b'];
    let bodies: Vec<Vec<u8>> = vec![
        [&[0][..], &string].concat(),
        vec![0, 0xc1, 0x39, 0x30],
        [&[0, 0xc3, 5, 8, 1][..], b"ab", &[0x80, 1]].concat(),
        [&[1, 2][..], &string, &string].concat(),
        [&[3, 2][..], &string, &[1, b'5'], &string, &[254]].concat(),
        [&[4, 1][..], &string, &string].concat(),
        [&[5, 1][..], &string, &[0; 8]].concat(),
        // A module's: its number, a number of each kind, a string, the end.
        [&[7, 0x81, 0, 0, 0, 0, 0, 0, 0, 9, 1, 7, 2, 7, 3, 0, 0, 0, 0, 4][..], &[0; 8], &[5], &string, &[0]].concat(),
        [&[9][..], &string].concat(),
        [&[18, 2, 1][..], &string, &[2], &string].concat(),
        [&[22, 1, 7][..], &string, &string].concat(),
        [&[23][..], &string].concat(),
        [&[24][..], &[0; 8], &[1, 7], &string, &string].concat(),
        [&[25][..], &[0; 8], &string].concat(),
    ];
    let written = values().into_iter().map(|value| {
        let mut body = Vec::new();
        value.write(&mut body);
        body
    });
    // Streams of other versions: without what came later, and with what came then.
    let stream = |form: u8| {
        let more: &[u8] = if form > 15 { &[0, 0, 0, 0, 5] } else { &[] };
        let read: &[u8] = if form > 15 { &[7] } else { &[] };
        let active: &[u8] = if form > 19 { &[1; 8] } else { &[] };
        let pending = [&[1][..], &[0; 16], &[2; 8], &[3]].concat();
        let consumer = [&[1][..], &string, &[2; 8], active, &[1], &[0; 16]].concat();
        [&[form, 0, 0, 9, 0][..], more, &[1], &string, &[8, 0], read, &pending, &consumer].concat()
    };
    let bodies: Vec<_> = bodies.into_iter().chain(written).chain([15, 19, 21].map(stream)).collect();
    let mut file = FileWriter::new(Vec::new()).unwrap();
    bodies.iter().for_each(|body| file.key(0, b"key", None, body).unwrap());
    let bytes = file.end().unwrap();
    let mut reader = FileReader::new(&bytes[..]).unwrap();
    for expected in &bodies {
        let found = reader.next_entry().unwrap().unwrap();
        assert!(matches!(&found, Entry::Key { body, .. } if body == expected), "form {}: {found:?}", expected[0]);
    }
    assert_eq!(reader.next_entry().unwrap(), None);
    for body in &bodies {
        for len in 1..body.len().min(300) {
            let mut file = FileWriter::new(Vec::new()).unwrap();
            file.key(0, b"key", None, &body[..len]).unwrap();
            let mut bytes = file.end().unwrap();
            bytes.truncate(bytes.len() - 9);
            let mut reader = FileReader::new(&bytes[..]).unwrap();
            assert!(reader.next_entry().is_err(), "form {}, {len} bytes", body[0]);
        }
    }
}

/// Numbers of a byte each, some millions of them, compressed into some ten thousand bytes: 56 bytes of memory for every two.
#[test]
fn compressed_elements_take_no_more_memory_than_is_allowed() {
    // A listpack: its header as it is, an element of two bytes, that again and again, and the end.
    let list = |runs: usize| {
        let len = 6 + 2 + 264 * runs + 1;
        let mut packed = vec![7];
        packed.extend_from_slice(&(len as u32).to_le_bytes());
        packed.extend_from_slice(&[0xff, 0xff, 5, 1]);
        (0..runs).for_each(|_| packed.extend_from_slice(&[0xe0, 255, 1]));
        packed.extend_from_slice(&[0, 0xff]);
        let mut body = vec![18, 1, 2, 0xc3];
        bytes::put_length(&mut body, packed.len() as u64);
        bytes::put_length(&mut body, len as u64);
        [body, packed].concat()
    };
    let Value::List(elements) = read(&list(1000)).unwrap() else { panic!("not a list") };
    assert_eq!((elements.len(), &elements[77][..]), (132_001, &b"5"[..]));
    let body = list(40_000);
    assert!(body.len() < 200_000);
    let error = read(&body).unwrap_err().to_string();
    assert!(error.contains("several commands"), "{error}");
    // Names of fields that a stream's node says once, and every entry has.
    let mut node = packed::Listpack::new();
    [200_000, 0, 1].into_iter().for_each(|number| node.int(number));
    node.string(&vec![b'f'; 100_000]);
    node.int(0);
    for _ in 0..200_000 {
        [2, 0, 0, 1, 5].into_iter().for_each(|number| node.int(number));
    }
    let mut stream = vec![19, 1, 16];
    stream.extend_from_slice(&[0; 16]);
    bytes::put_string(&mut stream, &node.finish());
    assert!(read(&stream).unwrap_err().to_string().contains("several commands"));
}
