//! Databases by their numbers: what moves between them, and what exchanges them.

use super::*;

const DATABASES: &str = "\
SELECT 0|1|2|3|16|-1|x|3000000000; SELECT 0|1|2; SWAPDB 0|1|2|3 0|1|2|3; SWAPDB 0|1|2|16|-1|x|3000000000 0|1|2|15|16|x|; SWAPDB 0; DBSIZE; FLUSHDB
MOVE %k 0|1|2|3|16|x; MOVE %t 0|1|2; COPY %k %k DB 0|1|2|16|x [REPLACE]; COPY %t %t DB 0|1|2 [REPLACE]; RENAME %l %l; TYPE %k; KEYS *; EXPIRETIME %t
EVAL return{redis.call('SWAPDB','0','1'),redis.call('GET',KEYS[1])} 1 %t; EVAL redis.call('SELECT','1')return{redis.call('SWAPDB','1','2'),redis.call('GET',KEYS[1])} 1 %t
EVAL return{redis.pcall('SWAPDB','0',ARGV[1]).err} 0 x|16|-1; GET %t; LRANGE %l 0 -1; SMEMBERS %s; ZRANGE %z 0 -1 WITHSCORES; HGETALL %h; DEL %k; EXPIREAT %t 99999999999";

#[test]
fn databases_are_those_of_redis() {
    for (store, seed) in [(Store::Kv, 1), (Store::Tree, 4)] {
        run_with(store, seed, rounds().min(20), DATABASES, FILLING);
    }
}

/// Transactions with swaps in them, and between what is watched and `EXEC`: numbers of databases take the place of `#`.
const TRANSACTIONS: &[&str] = &[
    "MULTI|SET a #|SWAPDB # #|GET a|SELECT #|GET a|DBSIZE|EXEC|GET a",
    "MULTI|SWAPDB # x|SWAPDB # 16|DBSIZE|EXEC",
    "MULTI|SWAPDB #|DBSIZE|EXEC",
    "MULTI|SWAPDB # #|SET a #|DISCARD|GET a",
    "WATCH a|SWAPDB # #|MULTI|GET a|DBSIZE|EXEC",
    "WATCH a b|SELECT #|SWAPDB # #|MULTI|GET a|EXEC",
    "SET b #|WATCH b|SWAPDB # #|SWAPDB # #|DBSIZE|UNWATCH",
    "SET b #|WATCH b|SWAPDB # #|SWAPDB # #|MULTI|GET b|EXEC",
    "WATCH a|SWAPDB # #|GET a|SWAPDB # #|MULTI|GET a|EXEC",
    "WATCH a b|SWAPDB 0 1|GET b|SWAPDB 1 0|MULTI|GET a|EXEC",
    "SELECT #|SET a #|SELECT #|DEL a|DBSIZE",
    "MOVE a #|COPY b a DB #|COPY a b DB # REPLACE",
    "SWAPDB # #|SWAPDB # #|SELECT #|FLUSHDB|SELECT #|DBSIZE",
];

#[test]
fn swaps_in_transactions_are_those_of_redis() {
    with_both(|both| {
        let mut random = Random(11);
        for round in 0..600 {
            let lines = TRANSACTIONS[random.below(TRANSACTIONS.len() as u64) as usize];
            let numbered: String = lines
                .chars()
                .map(|letter| if letter == '#' { (b'0' + random.below(4) as u8) as char } else { letter })
                .collect();
            for line in numbered.split('|') {
                let [theirs, ours] = both.each_mut().map(|client| client.ask(line));
                assert_eq!(ours, theirs, "round {round}: {numbered}: {line}");
            }
        }
    });
}
