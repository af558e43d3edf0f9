//! Places on earth, and sketches of sets: the same replies, the same order of what is found, and the same bytes.

use super::*;

pub const PLACES: &str = "\
GEOADD %w {%j %b %f}; GEOADD %w [NX|XX] [CH] {%j %b %f}; GEOADD %w %j %b; GEOPOS %w {%f}; GEODIST %w %f %f [m|km|FT|mi|x]; GEOHASH %w {%f}; GEOPOS %w; GEOHASH %w
ZRANGE %w 0 -1 WITHSCORES; ZREM %w %f; DEL %w; TYPE %w; ZADD %w 3479099956230698 %f
GEORADIUS %w %j %b %r m|km|ft|mi|x [WITHDIST] [WITHHASH] [WITHCOORD] [COUNT %c] [ASC|DESC]; GEORADIUS_RO %w %j %b %r km [WITHDIST] [COUNT 3 ANY] [STORE %w]
GEORADIUSBYMEMBER %w %f %r km [WITHDIST] [WITHCOORD] [COUNT %c] [ASC|DESC]; GEORADIUSBYMEMBER_RO %w %f %r km [WITHHASH] [DESC]
GEORADIUS %w %j %b %r km [WITHDIST] STORE|STOREDIST %w [COUNT %c] [DESC]; GEORADIUSBYMEMBER %w %f %r km STORE|STOREDIST %w [COUNT 2 ANY] [STORE %w]
GEOSEARCH %w FROMLONLAT %j %b BYRADIUS %r m|km|ft|mi [WITHDIST] [WITHHASH] [WITHCOORD] [COUNT %c] [ASC|DESC]; GEOSEARCH %w FROMMEMBER %f BYBOX %r %r km|mi|x [WITHDIST] [ASC|DESC]
GEOSEARCH %w BYBOX %r %r km FROMLONLAT %j %b [COUNT 2|3 ANY] [ASC] [WITHCOORD]; GEOSEARCH %w FROMLONLAT %j %b FROMMEMBER %f BYRADIUS %r km; GEOSEARCH %w BYRADIUS %r km [ANY] ASC DESC
GEOSEARCH %w FROMLONLAT %j %b [ANY] [WITHDIST] [WITHHASH] [STOREDIST] ASC; GEOSEARCH %w FROMMEMBER %f BYRADIUS %r km [BYBOX 1 1 m] [STORE %w]
GEOSEARCHSTORE %w %w FROMLONLAT %j %b BYRADIUS %r km [STOREDIST] [COUNT %c] [WITHDIST] [DESC]; GEOSEARCHSTORE %w %w FROMMEMBER %f BYBOX %r %r km [STOREDIST] [COUNT 3 ANY]
GEORADIUS %k %j %b 100 km; GEOADD %k 1 2 a; GEODIST %k a b; GEOSEARCH %k FROMMEMBER a BYRADIUS 1 km; ZADD %z {%d %f}; HSET %h {%f %v}; SET %t %v";

pub const SKETCHES: &str = "\
PFADD %p {%f}; PFADD %p {%f}; PFADD %p {%o}; PFADD %p; PFCOUNT %p; PFCOUNT {%p}; PFMERGE %p {%p}; PFMERGE %p; GET %p; STRLEN %p; DEL %p
PFADD %k {%f}; PFCOUNT %k; PFMERGE %p %k; PFMERGE %k %p; EXPIRETIME %p; EXPIREAT %p 99999999999; SETRANGE %p 16|20 x; COPY %p %p REPLACE; SET %t HYLL; PFCOUNT %t; LPUSH %l %v";

#[test]
fn places_are_those_of_redis() {
    for seed in [1, 2, 3] {
        run_with(Store::Kv, seed, rounds(), PLACES, "GEOADD %w {%j %b %f}|GEOADD %w {%j %b %f %j %b %f}");
    }
    run_with(Store::Tree, 4, rounds(), PLACES, "GEOADD %w {%j %b %f}");
}

#[test]
fn sketches_are_those_of_redis_byte_by_byte() {
    let known = SKETCHES.replace("%p", "%t");
    for (store, seed) in [(Store::Kv, 1), (Store::Kv, 3), (Store::Tree, 2)] {
        run_with(store, seed, rounds(), &known, "PFADD %t {%f}|PFADD %t {%v}|PFADD %t {%j %b %r %j}");
    }
}

/// From sparse to dense, with all that is between.
#[test]
fn a_sketch_grows_as_redis_has_it() {
    with_both(|both| {
        for n in 0..2500 {
            let lines = [
                format!("PFADD a a{n}"),
                "GET a".to_owned(),
                format!("PFADD b b{n} c{n} d{n}"),
                "PFCOUNT b".to_owned(),
                "GET b".to_owned(),
                "PFMERGE c a b".to_owned(),
                "GET c".to_owned(),
            ];
            let every = if n % 50 == 0 { 7 } else { 3 };
            for line in &lines[..every] {
                let [theirs, ours] = both.each_mut().map(|client| client.ask(line));
                assert!(theirs == ours, "{n}: {line}");
            }
        }
    });
}
