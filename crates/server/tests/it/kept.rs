//! `CONFIG REWRITE`: what was changed holds after the next start, and nothing else does.

use server::{Config, Server};

use crate::support::{Client, Reply, Store, usual};

fn with(store: Store, path: &std::path::Path, config: Config, run: &dyn Fn(&mut Client)) {
    let server = Server::start(config, store.open(path, pmem::Options::new())).unwrap();
    run(&mut Client::to(server.redis()[0]));
    server.stop();
    server.join().unwrap();
}

fn value(client: &mut Client, name: &str) -> String {
    match client.ask(&["CONFIG", "GET", name]) {
        Reply::Array(pair) => match &pair[..] {
            [_, Reply::Bulk(value)] => String::from_utf8(value.clone()).unwrap(),
            other => panic!("{name}: {other:?}"),
        },
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn what_was_changed_is_kept_when_it_is_asked_for() {
    for store in Store::ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let changes = [
            ("timeout", "77", "0"),
            ("maxmemory-policy", "allkeys-lru", "noeviction"),
            ("notify-keyspace-events", "AK", ""),
            ("slowlog-max-len", "9", "128"),
            ("slowlog-log-slower-than", "-1", "10000"),
            ("lua-time-limit", "1234", "5000"),
            ("client-output-buffer-limit", "pubsub 1024 512 3", "normal 0 0 0 slave 0 0 0 pubsub 33554432 8388608 60"),
            ("maxclients", "50", "10000"),
        ];
        let set = |client: &mut Client| {
            for (name, value, _) in changes {
                assert_eq!(client.ask(&["CONFIG", "SET", name, value]), Reply::ok(), "{name}");
            }
        };
        let usual_values = |client: &mut Client| {
            changes.iter().for_each(|(name, _, usual)| assert_eq!(value(client, name), *usual));
        };
        let kept_values = |client: &mut Client| {
            for (name, kept, _) in changes {
                let kept = if name.starts_with("client-") {
                    format!("normal 0 0 0 slave 0 0 0 {kept}")
                } else {
                    kept.to_owned()
                };
                assert_eq!(value(client, name), kept);
            }
        };
        with(store, &path, usual(), &set);
        with(store, &path, usual(), &|client| {
            usual_values(client);
            set(client);
            assert_eq!(client.ask(&["CONFIG", "REWRITE"]), Reply::ok());
            // Behind that: not kept.
            client.ask(&["CONFIG", "SET", "timeout", "78"]);
        });
        // FLUSHALL has nothing to do with it.
        with(store, &path, usual(), &|client| {
            kept_values(client);
            assert_eq!(client.say("FLUSHALL"), Reply::ok());
        });
        with(store, &path, Config { ignore_kept: true, ..usual() }, &usual_values);
        with(store, &path, usual(), &|client| {
            kept_values(client);
            // What was kept stays so beside what is kept now, and a password refuses all of it.
            client.ask(&["CONFIG", "SET", "maxmemory-samples", "7"]);
            assert_eq!(client.ask(&["CONFIG", "REWRITE"]), Reply::ok());
            client.ask(&["CONFIG", "SET", "requirepass", "secret", "maxmemory-samples", "8"]);
            let refused = client.ask(&["CONFIG", "REWRITE"]);
            assert!(refused.error().contains("next: ACL SETUSER default"), "{refused:?}");
        });
        with(store, &path, usual(), &|client| {
            kept_values(client);
            assert_eq!(value(client, "maxmemory-samples"), "7");
        });
        // What another version kept is told of, and does not keep the server from starting.
        let engine = store.open(&path, pmem::Options::new());
        engine.write(&mut |tx| tx.put(b"\xf3config/maxmemory-samples", b"none", None)).unwrap();
        engine.close().unwrap();
        with(store, &path, usual(), &|client| {
            kept_values(client);
            assert_eq!(value(client, "maxmemory-samples"), "5");
        });
    }
}
