//! What lies in the store is read as it was written, and payloads are Redis'.

use super::*;

const CODE: &[u8] = b"#!lua name=x\nredis.register_function(\"f\",function() return 1 end)";
const OTHER: &[u8] = b"#!lua name=z\n--aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\nredis.register_function(\"g\",function() return 1 end)";
/// What redis-server 7.0.15 answers for these two, and for none.
const DUMPED: &[u8] = b"\xf5@A#!lua name=x\nredis.register_function(\"f\",function() return 1 end)\xf5\xc3@E@\xa4\x0f#!lua name=z\n--a\xe0V\x00\x1c\nredis.register_function(\"g\",\xe0\x00\x0c\x0e) return 1 end)\n\x00\xeb}\x16\x8eKA\xdd)";
const NONE: &[u8] = b"\n\x00]\x9b\\@\x0f\x7f\xa2\xda";

#[test]
fn functions_are_read_as_they_were_written() {
    for description in [None, Some(Vec::new()), Some(b"what it does".to_vec())] {
        let one =
            Function { name: b"Add".to_vec(), library: b"sums".to_vec(), sha: [7; 20], flags: NO_WRITES, description };
        let written = one.write();
        assert_eq!(Function::read(&written), Some(one));
        assert_eq!(Function::read(&written[..36]), None, "cut");
        assert_eq!(Function::read(&[&[2], &written[1..]].concat()), None, "of another version");
    }
}

#[test]
fn names_are_letters_digits_and_underscores() {
    assert!(is_name(b"a_Z9") && !is_name(b"") && !is_name(b"a-b") && !is_name(b"\xc3\xa4") && !is_name(&[b'a'; 1025]));
    assert_eq!(function_key(b"ADD"), function_key(b"add"));
    assert_ne!(library_key(b"ADD"), library_key(b"add"));
}

#[test]
fn payloads_of_redis_are_read() {
    assert_eq!(dump::read(DUMPED), Ok(vec![CODE.to_vec(), OTHER.to_vec()]));
    assert_eq!(dump::read(NONE), Ok(Vec::new()));
    assert_eq!(dump::write(std::iter::empty()), NONE);
}

#[test]
fn payloads_are_read_as_they_were_written_and_no_others() {
    for len in [0, 63, 64, 16383, 16384, 70_000] {
        let code = vec![b'x'; len];
        let written = dump::write([CODE, &code].into_iter());
        assert_eq!(dump::read(&written), Ok(vec![CODE.to_vec(), code]), "{len}");
        for at in (0..written.len()).step_by(61) {
            let mut other = written.clone();
            other[at] ^= 1;
            assert!(dump::read(&other).is_err(), "{len}, byte {at}");
        }
    }
    (0..NONE.len()).for_each(|len| assert!(dump::read(&NONE[..len]).is_err()));
}

#[test]
fn first_lines_say_what_a_library_is() {
    let ok = |code: &'static [u8]| library_of(code).map(|(name, rest)| (name, rest.to_vec()));
    assert_eq!(ok(b"#!LUA  Name=\"a\" \nx"), Ok((b"a".to_vec(), b"\nx".to_vec())));
    for (code, error) in [
        (&b"return 1"[..], "Missing library metadata"),
        (b"#!lua name=a", "Invalid library metadata"),
        (b"#!lua name='a\n", "Invalid library metadata"),
        (b"#!lua\n", "Library name was not given"),
        (b"#!js name=a\n", "Engine 'js' not found"),
        (b"#!lua name=a flags=x\n", "Invalid metadata value given: flags=x"),
        (b"#!lua name=a name=b\n", "Invalid metadata value, name argument was given multiple times"),
        (b"#!lua name=\n", BAD_NAME),
    ] {
        assert_eq!(library_of(code), Err(error.to_owned()));
    }
}
