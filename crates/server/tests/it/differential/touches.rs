//! Which keys a command touches: the same ones as in Redis, for clients that track and for clients that watch.

use super::*;

/// What a command has touched: the keys that a client is told of which has read all of them, none if it is to forget everything; and whether what another one watches has changed.
#[derive(Debug, PartialEq, Eq)]
struct Touched {
    told: Option<BTreeSet<Vec<u8>>>,
    watched: bool,
}

/// Clients of a server.
struct Clients {
    asks: Client,
    tracks: Client,
    watches: Client,
}

impl Clients {
    fn to(socket: &Path) -> Self {
        let [asks, mut tracks, watches] = [2, 3, 2].map(|version| Client::new(socket, version));
        assert_eq!(tracks.ask("CLIENT TRACKING ON"), Value::Line('+', "OK".to_owned()));
        Self { asks, tracks, watches }
    }

    /// Of these keys.
    fn touched(&mut self, names: &str, command: &[Vec<u8>]) -> (Value, Touched) {
        // What came since it was asked last is about what is between two of these.
        super::tracking::answer(&mut self.tracks, &request(&format!("EXISTS {names}")), &mut Vec::new());
        self.watches.ask(&format!("WATCH {names}"));
        self.asks.send(command);
        let reply = self.asks.receive();
        let mut told = Some(BTreeSet::new());
        for push in super::tracking::pushed(&mut self.tracks) {
            let Value::Many('>', parts) = push else { panic!("{push:?}") };
            match &parts[1] {
                Value::Many('*', keys) => {
                    let keys = keys.iter().map(|key| match key {
                        Value::Bulk(key) => key.clone(),
                        other => panic!("{other:?}"),
                    });
                    told.iter_mut().for_each(|told| told.extend(keys.clone()));
                }
                Value::Line('_', _) => told = None,
                other => panic!("{other:?}"),
            }
        }
        self.watches.ask("MULTI");
        let watched = matches!(self.watches.ask("EXEC"), Value::Line('*', _));
        (reply, Touched { told, watched })
    }
}

/// Where it is known (docs/server.md) that Redis touches a key and this server does not, or the other way round: `LTRIM` that takes nothing out, and `XSETID`.
fn is_known(command: &[Vec<u8>], theirs: &Touched, ours: &Touched) -> bool {
    let one = Some(BTreeSet::from([command.get(1).cloned().unwrap_or_default()]));
    let none = Touched { told: Some(BTreeSet::new()), watched: false };
    match &command[0].to_ascii_lowercase()[..] {
        b"ltrim" => *ours == none && theirs.told == one,
        b"xsetid" => *theirs == none && ours.told == one,
        _ => false,
    }
}

#[test]
fn a_command_touches_what_it_touches_in_redis() {
    let sketches = super::places::SKETCHES.replace("%p", "%t");
    let commands =
        [COMMANDS, super::streams::COMMANDS, super::places::PLACES, &sketches, super::events::MORE].join("\n");
    let filling = [FILLING, super::streams::FILLING, "GEOADD %w {%j %b %f}"].join("|");
    let names: Vec<String> = "hlsztqynw".chars().flat_map(|kind| (0..3).map(move |n| format!("{kind}{n}"))).collect();
    let names = names.join(" ");
    for (store, seed) in [(Store::Kv, 1), (Store::Slow, 2), (Store::Tree, 5), (Store::Kv, 4)] {
        with_sockets(store, settings(seed), |sockets| {
            let mut both = sockets.map(Clients::to);
            // What fails to change bits makes their string longer: Redis tells nobody. What Redis waits for takes it a tenth of a second.
            let known =
                |p: &str| !(p.contains("FAIL") || p.contains("LEX") && p.contains("%z %x") || p.contains("0.001"));
            let mut maker = Maker::of(&filling, &commands, known, 8, seed);
            for round in 0..rounds() * 20 {
                let command = maker.command();
                let what = format!("{store:?}, seed {seed}, {round}: {}", shown(&command));
                let [theirs, ours] = both.each_mut().map(|clients| clients.touched(&names, &command));
                assert_eq!(normal(&command, ours.0), normal(&command, theirs.0), "{what}");
                let same = ours.1 == theirs.1 || is_known(&command, &theirs.1, &ours.1);
                assert!(same, "{what}\nRedis: {:?}\nours:  {:?}", theirs.1, ours.1);
                // They have taken out different ones.
                if command[0].eq_ignore_ascii_case(b"spop") && command.len() > 1 {
                    let del = vec![b"DEL".to_vec(), command[1].clone()];
                    for clients in &mut both {
                        clients.asks.send(&del);
                        clients.asks.receive();
                    }
                }
            }
        });
    }
}
