//! `LATENCY`, where its answers do not depend on how fast a machine is.

use super::*;

const ASKED: &str = "\
LATENCY LATEST; LATENCY HISTORY x; LATENCY HISTORY; LATENCY GRAPH x; LATENCY GRAPH; LATENCY RESET; LATENCY RESET a b; LATENCY DOCTOR; LATENCY HELP; LATENCY HELP x; LATENCY nosuch; LATENCY
LATENCY HISTOGRAM nosuch; LATENCY LATEST x; CONFIG GET latency-tracking; CONFIG GET latency-monitor-threshold; CONFIG SET latency-tracking x; CONFIG SET latency-monitor-threshold -1
CONFIG SET latency-monitor-threshold 1000000; LATENCY DOCTOR; LATENCY LATEST; CONFIG SET latency-monitor-threshold 0; CONFIG SET latency-tracking no; GET a; LATENCY HISTOGRAM get
CONFIG SET latency-tracking yes; LATENCY HISTOGRAM get; MULTI; LATENCY LATEST; LATENCY HISTORY; EXEC";

#[test]
fn latency_is_told_as_redis_does() {
    with_both(|both| {
        for line in ASKED.split([';', '\n']).map(str::trim) {
            let [theirs, ours] = both.each_mut().map(|client| client.ask(line));
            assert_eq!(ours, theirs, "{line}");
        }
        let asked = ["config", "config|get", "CONFIG|GET", "config|nosuch", "set|get", "|", "config|get config get"];
        for asked in asked {
            let [theirs, ours] = both.each_mut().map(|client| {
                client.ask("CONFIG GET save");
                client.ask("GET a");
                let Value::Many(_, all) = client.ask(&format!("LATENCY HISTOGRAM {asked}")) else { panic!("no map") };
                let mut names: Vec<Value> = all.into_iter().step_by(2).collect();
                names.sort();
                names
            });
            assert_eq!(ours, theirs, "{asked}");
        }
        let [theirs, ours] = both.each_mut().map(|client| {
            (0..7).for_each(|_| drop(client.ask("GET a")));
            let Value::Many(_, all) = client.ask("LATENCY HISTOGRAM get set get") else { panic!("no map") };
            let Value::Many(_, get) = &all[1] else { panic!("{all:?}") };
            let Value::Many(_, classes) = &get[3] else { panic!("{all:?}") };
            // Classes are any, and the last of them has all.
            (all[0].clone(), get[..3].to_vec(), classes.last().cloned(), all.len())
        });
        assert_eq!(ours, theirs);
    });
}

#[test]
fn what_takes_long_is_kept_and_drawn() {
    with_both(|both| {
        for client in both {
            client.ask("CONFIG SET latency-monitor-threshold 1");
            // As long as it takes on this machine.
            let mut turns = 100_000;
            while client.ask("LATENCY LATEST") == Value::Many('*', Vec::new()) {
                client.ask(&format!("EVAL for\u{b}i=1,{turns}\u{b}do\u{b}end 0"));
                turns *= 2;
            }
            // From here on nothing does, whatever else the machine has to do.
            client.ask("CONFIG SET latency-monitor-threshold 1000000");
            let Value::Many(_, all) = client.ask("LATENCY LATEST") else { panic!("no events") };
            let command = all.iter().find_map(|one| match one {
                Value::Many(_, parts) if parts[0] == Value::Bulk(b"command".to_vec()) => Some(parts.clone()),
                _ => None,
            });
            let command = command.unwrap_or_else(|| panic!("{all:?}"));
            let Value::Many(_, history) = client.ask("LATENCY HISTORY command") else { panic!("no history") };
            assert_eq!(history.last(), Some(&Value::Many('*', command[1..3].to_vec())));
            for ask in ["LATENCY GRAPH command", "LATENCY DOCTOR"] {
                let Value::Bulk(text) = client.ask(ask) else { panic!("{ask}: no text") };
                let text = String::from_utf8(text).unwrap();
                assert!(text.contains("command") && text.lines().count() > 5, "{ask}: {text}");
            }
            assert_eq!(client.ask("LATENCY RESET command"), Value::Line(':', "1".to_owned()));
        }
    });
}
