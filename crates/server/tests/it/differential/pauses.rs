//! `CLIENT PAUSE`: what it answers, and what it holds back.

use std::io::ErrorKind;

use super::*;

/// What is asked while nothing is held back for longer than a moment.
const SAID: &str = "\
CLIENT PAUSE; CLIENT PAUSE x; CLIENT PAUSE -1; CLIENT PAUSE 1 x; CLIENT PAUSE 1 WRITE x; CLIENT PAUSE 1.5; CLIENT PAUSE x WRITE; CLIENT PAUSE -1 ALL; CLIENT PAUSE 1 write; PING
CLIENT PAUSE 1 All; PING; CLIENT UNPAUSE; CLIENT UNPAUSE; CLIENT UNPAUSE x; CLIENT PAUSE 0; CLIENT PAUSE 0 WRITE; SET a 1; CLIENT pause 100 WRITE; CLIENT UNPAUSE; SET a 2; GET a";

/// More than the usual commands, some of them between `MULTI` and `EXEC`.
const MORE: &str = "\
EVAL return(1) 0; EVAL_RO return(redis.call('get','t0')) 0; EVALSHA x 0; EVALSHA_RO x 0; FCALL f 0; FCALL_RO f 0; SCRIPT EXISTS x; SCRIPT FLUSH; FUNCTION LIST; FUNCTION FLUSH; PUBLISH a b; SPUBLISH a b
MULTI & GET %t & EXEC; MULTI & SET %t %v & GET %t & EXEC; MULTI & SET %t & EXEC; MULTI & PUBLISH a b & EXEC; MULTI & EVAL return(1) 0 & EXEC; MULTI & SET %t %v & DISCARD; WATCH %t & SET %t %v & MULTI & GET %t & EXEC
WATCH %t; UNWATCH; FLUSHALL; FLUSHDB; SWAPDB 0 1; SWAPDB 1 0; SELECT 0; PFADD p a; PFCOUNT p; PFMERGE p p; OBJECT ENCODING %t; MEMORY USAGE none; CONFIG SET timeout 0; CONFIG GET timeout; ACL WHOAMI; DBSIZE
XADD x * a b; XREAD STREAMS x 0; XGROUP CREATE x g 0; XREADGROUP GROUP g me STREAMS x 0; GEOADD w 1 2 a; GEORADIUS w 1 2 3 km; GEORADIUS w 1 2 3 km STORE l9; GEORADIUS_RO w 1 2 3 km; SORT %l; SORT_RO %l
SORT %l STORE l9; BITFIELD %t GET u8 0; BITFIELD_RO %t GET u8 0; GETEX %t; GETDEL %t; TOUCH %t; EXPIRE %t 1000; WAIT 0 1; RESET; ECHO a; CLIENT ID; COMMAND COUNT; INFO x; MOVE %t 1; COPY %t t9";

#[test]
fn pauses_are_answered_as_redis_does() {
    with_both(|both| {
        for line in SAID.split([';', '\n']).map(str::trim) {
            let [theirs, ours] = both.each_mut().map(|client| client.ask(line));
            assert_eq!(ours, theirs, "{line}");
        }
    });
}

/// Whether an answer has come.
fn has_answer(client: &mut Client) -> bool {
    client.0.get_ref().set_nonblocking(true).unwrap();
    let nothing = matches!(client.0.fill_buf(), Err(error) if error.kind() == ErrorKind::WouldBlock);
    client.0.get_ref().set_nonblocking(false).unwrap();
    !nothing
}

/// Whether the command is held back by a pause of what writes, and its answer. The server says of each client whether it is.
fn held(admin: &mut Client, client: &mut Client, id: &str, command: &[Vec<u8>]) -> (bool, Value) {
    let ok = Value::Line('+', "OK".to_owned());
    assert_eq!(admin.ask("CLIENT PAUSE 3600000 WRITE"), ok);
    client.send(command);
    let mut is_held = false;
    crate::support::until("it is answered, or held back", || {
        let Value::Bulk(line) = admin.ask(&format!("CLIENT LIST ID {id}")) else { panic!("no list") };
        let line = String::from_utf8_lossy(&line).into_owned();
        let flags = line.split(' ').find_map(|word| word.strip_prefix("flags=")).unwrap_or_default();
        is_held = flags.contains('b');
        is_held || has_answer(client)
    });
    assert_eq!(admin.ask("CLIENT UNPAUSE"), ok);
    (is_held, client.receive())
}

#[test]
fn what_a_pause_holds_back_is_what_redis_holds_back() {
    let commands = [COMMANDS, super::streams::COMMANDS, MORE, MORE, MORE].join("\n");
    with_sockets(Store::Kv, settings(2), |sockets| {
        let mut both = sockets.map(|at| {
            let [admin, mut client] = [0; 2].map(|_| Client::new(at, 2));
            let Value::Line(':', id) = client.ask("CLIENT ID") else { panic!("no id") };
            (admin, client, id)
        });
        let mut maker = Maker::of(FILLING, &commands, |p| !(p.contains("BLOCK") || p.contains("LEX")), 8, 3);
        for round in 0..rounds() * 10 {
            let command = maker.command();
            let [theirs, ours] = both.each_mut().map(|(admin, client, id)| held(admin, client, id, &command));
            let what = format!("{round}: {}", shown(&command));
            assert_eq!(ours.0, theirs.0, "{what}: held back by one of them, {:?}, {:?}", ours.1, theirs.1);
            // What they answer is compared elsewhere.
            let fails = |reply: &Value| matches!(reply, Value::Line('-', _));
            assert_eq!(fails(&ours.1), fails(&theirs.1), "{what}: {:?}, {:?}", ours.1, theirs.1);
            if command[0].eq_ignore_ascii_case(b"spop") && command.len() > 1 {
                let del = vec![b"DEL".to_vec(), command[1].clone()];
                for (_, client, _) in &mut both {
                    client.send(&del);
                    client.receive();
                }
            }
        }
    });
}
