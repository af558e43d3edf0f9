//! `ACL LOG` and `ACL DRYRUN`, and what is said about pauses that are none.

use super::*;

/// Of each entry what does not depend on the moment.
fn entries(reply: Value) -> Value {
    let Value::Many(kind, entries) = reply else { return reply };
    let of = |entry: Value| match entry {
        Value::Many(kind, mut parts) if parts.len() == 14 => {
            assert_eq!(parts[10], Value::Bulk(b"age-seconds".to_vec()));
            let Value::Bulk(client) = &parts[13] else { panic!("{parts:?}") };
            assert!(String::from_utf8_lossy(client).starts_with("id="), "{parts:?}");
            (parts[11], parts[13]) = (Value::Any, Value::Any);
            Value::Many(kind, parts)
        }
        other => panic!("{other:?}"),
    };
    Value::Many(kind, entries.into_iter().map(of).collect())
}

/// What another client asks is in front of `> `.
const REFUSED: &str = "\
ACL LOG; ACL LOG x; ACL LOG -1; ACL LOG reset; ACL LOG 0; ACL SETUSER u on >p +@all -get -acl ~a* resetchannels &news*
> AUTH u bad; ACL LOG; > auth nobody bad; > AUTH u p; > GET a; > GET a; > SET b 1; > SET b 1; > MSET a 1 b 2 c 3; > PUBLISH c x; > PUBLISH newspaper x; > SUBSCRIBE news* d
ACL LOG; ACL LOG 2; ACL LOG 100; > MULTI; > SET zz 1; > GET a; > DISCARD; > SET a; > NOSUCH; > SET b 1; ACL LOG 3
> EVAL return(redis.pcall('get','a')) 0; > EVAL return(redis.pcall('set','q',1)) 0; > EVAL return(redis.pcall('publish','q',1)) 0; ACL LOG 3
> HELLO 3 AUTH u wrong; ACL LOG 1; > ACL WHOAMI; ACL LOG 1; ACL LOG RESET; ACL LOG
CONFIG GET acllog-max-len; CONFIG SET acllog-max-len 2; > GET 1; > SET b 1; > PUBLISH c x; ACL LOG; CONFIG SET acllog-max-len x";

const TRIED: &str = "\
ACL SETUSER v on nopass +@all -get ~a* %R~r* resetchannels &c*; ACL DRYRUN v get a; ACL DRYRUN v GET; ACL DRYRUN v set b 1; ACL DRYRUN v nosuch; ACL DRYRUN no get a
ACL DRYRUN v publish d x; ACL DRYRUN v publish cc x; ACL DRYRUN v set a 1; ACL DRYRUN v client list; ACL DRYRUN v client nosuch; ACL DRYRUN v config get; ACL DRYRUN v; ACL DRYRUN
ACL DRYRUN v config; ACL DRYRUN v acl whoami; ACL DRYRUN default get x; ACL DRYRUN v mget a b c; ACL DRYRUN v mget a r; ACL DRYRUN v set r 1
ACL DRYRUN v subscribe c d; ACL DRYRUN v psubscribe c*; ACL DRYRUN v psubscribe c; ACL DRYRUN v auth x; ACL DRYRUN v eval x 1 b; ACL DRYRUN v xread streams b 0; ACL DRYRUN nobody
CLIENT PAUSE; CLIENT PAUSE x; CLIENT PAUSE -1; CLIENT PAUSE 1 x; CLIENT PAUSE 99999999999999999999; CLIENT UNPAUSE x; CLIENT UNPAUSE; CLIENT PAUSE 1 WRITE; CLIENT PAUSE 1; CLIENT UNPAUSE
CLIENT PAUSE 100000 write; GET a; PING; EXISTS a; CLIENT UNPAUSE; SET a 1";

#[test]
fn what_users_are_refused_is_told_as_redis_does() {
    for store in Store::ALL {
        let dir = tempfile::tempdir().unwrap();
        let _redis = Redis::start(dir.path()).expect("redis-server is not installed; run `make setup`");
        let socket = dir.path().join("ours.sock");
        let config = Config { redis: Vec::new(), unix: Some(socket.clone()), threads: 1, ..Config::default() };
        let server = Server::start(config, store.open(dir.path().join("store"), pmem::Options::new())).unwrap();
        for version in [2, 3] {
            let sockets = [dir.path().join("redis.sock"), socket.clone()];
            let mut clients = sockets.each_ref().map(|at| (Client::new(at, version), Client::new(at, version)));
            let lines = [REFUSED, TRIED].join("\n");
            for line in lines.split([';', '\n']).map(str::trim) {
                let [theirs, ours] = clients.each_mut().map(|(asks, other)| {
                    let reply = match line.strip_prefix("> ") {
                        Some(line) => other.ask(line),
                        None => asks.ask(line),
                    };
                    if line.starts_with("ACL LOG") { entries(reply) } else { reply }
                });
                assert_eq!(ours, theirs, "{store:?}, version {version}: {line}");
            }
            for (asks, _) in &mut clients {
                for line in ["ACL DELUSER u v", "ACL LOG RESET", "CONFIG SET acllog-max-len 128", "DEL a"] {
                    asks.ask(line);
                }
            }
        }
        server.stop();
        server.join().unwrap();
    }
}
