//! Scripts that want more than they may have: each is ended with an error, and others never notice.

use pmem::DomainChoice;

use super::DOMAINS;
use crate::support::{Client, Reply, Running, request, until};

fn eval(client: &mut Client, script: &str) -> Reply {
    client.ask(&["EVAL", script, "0"])
}

/// Ends only because the time is over: another connection of the same thread is served meanwhile.
const ENDLESS: &[&str] = &[
    "while true do end",
    "while true do pcall(function() while true do end end) end",
    "while true do xpcall(function() while true do end end, function() while true do end end) end",
    "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
    "local co = coroutine.wrap(function() while true do coroutine.yield() end end) while true do co() end",
    "while true do redis.pcall('ping') end",
    "while true do redis.pcall() end",
    "return string.find(string.rep('a', 100000), string.rep('a-', 30) .. 'b')",
    "return string.find(string.rep('a', 100000), string.rep('(a*)', 20) .. 'b')",
    "return string.gsub(string.rep('a', 100000), string.rep('a*', 20) .. 'b', '')",
    "return ('x'):rep(20000):match('.-.-.-.-b')",
    "local t = {} for i = 1, 1000 do t[i] = i end while true do table.sort(t, function(a, b) return a > b end) end",
    "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) while true do pcall(function() return t[1] end) end",
    "while true do collectgarbage() end",
    "load(function() return ' ' end)",
    "while true do local s = ('x'):rep(10000000):upper() end",
    "for i = 1, 1e18 do end",
    "while true do cjson.encode({1, 2, 3}) end",
    "local l = {} for i = 1, 40 do l = {l, l} end return l",
    "local l = {} for i = 1, 40 do l = {map = {l, [l] = l}} end return l",
    "local l = {} for i = 1, 40 do l = {l, l} end return cjson.encode(l)",
    "local l = {} for i = 1, 15 do l = {l, l, l, l, l, l, l, l} end return cmsgpack.pack(l)",
    "return string.find(string.rep('b', 100000), '[' .. string.rep('a', 1000000) .. ']')",
    "return string.find(string.rep('b', 100000), '[' .. string.rep('a', 1000000) .. ']*c')",
    "return string.find(string.rep('a', 2000000), string.rep('a', 1000000) .. 'b', 1, true)",
    "local s = string.rep('x', 10000000) local t, a, b = {}, s .. 'a', s .. 'b' for i = 1, 2000 do t[i] = i % 2 == 0 and a or b end table.sort(t)",
    "while true do redis.sha1hex(string.rep('x', 1000000)) end",
    "for a in string.gfind(string.rep('a', 100000), string.rep('a-', 30) .. 'b') do end",
];

#[test]
fn what_does_not_end_is_ended_and_holds_nobody_back() {
    for domain in DOMAINS {
        let running = Running::with(domain, |config| server::Config { threads: 1, ..config }, |options| options);
        let (mut client, mut other) = (running.client(), running.client());
        assert_eq!(client.say("CONFIG SET lua-time-limit 40"), Reply::ok());
        for script in ENDLESS {
            client.send(&request(&["EVAL", &format!("redis.call('set', 'k', 'v') {script}"), "0"]));
            assert_eq!(other.say("PING"), Reply::Simple("PONG".to_owned()));
            let said = client.reply();
            assert!(said.error().contains("lua-time-limit"), "{script}: {said:?}");
            assert_eq!(client.say("GET k"), Reply::Null, "{script}");
        }
    }
}

#[test]
fn what_is_too_large_is_an_error() {
    let running = Running::start(DomainChoice::Emulated);
    let mut client = running.client();
    for (script, has) in [
        ("return string.rep('x', 1e10)", "not enough memory"),
        ("return string.rep('x', 2147483647)", "not enough memory"),
        ("local s = 'x' while true do s = s .. s end", "not enough memory"),
        ("local t = {} while true do t[#t + 1] = string.rep('x', 100000) .. #t end", "not enough memory"),
        ("local s = string.rep('x', 1e6) return string.gsub(s, '.', s)", "not enough memory"),
        ("local t = {} for i = 1, 200 do t[i] = string.rep('x', 1e6) end return table.concat(t)", "not enough memory"),
        ("local s = string.rep('x', 3e7) return cjson.encode({s, s, s, s})", "not enough memory"),
        ("local function f() return f() + 1 end return f()", "stack overflow"),
        ("local function f() return pcall(f) end return f()", ""),
        ("local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x", "loop in gettable"),
        ("local t = {} t[1] = t return t", "reached lua stack limit"),
        ("return string.find(string.rep('a', 1e5), string.rep('a?', 1e5))", "pattern too complex"),
        ("return unpack({}, 1, 1e8)", "too many results to unpack"),
        ("return {unpack({}, 1, 7000)}", ""),
        ("return redis.call('mget', unpack({}, 1, 7000))", "must be strings or integers"),
        ("local t = {} for i = 1, 7000 do t[i] = 'k' end return #redis.call('mget', unpack(t))", ""),
        ("return cjson.decode(string.rep('[', 1e6))", "too many nested"),
        ("return cmsgpack.unpack(string.rep('\\145', 1e6))", ""),
        ("return cmsgpack.unpack('\\221\\255\\255\\255\\255')", "Missing bytes"),
        ("return cmsgpack.unpack('\\219\\255\\255\\255\\255')", "Missing bytes"),
        ("return {cmsgpack.unpack(string.rep('\\1', 1e6))}", "too many results"),
        ("return struct.unpack(string.rep('b', 1e5), string.rep('x', 1e5))", "too many results"),
        ("return struct.unpack('I2147483647', 'x')", "larger than limit"),
        ("return struct.size(string.rep('c2147483647', 100))", "overflow"),
        ("return loadstring(string.rep('(', 1e5))", ""),
        ("return loadstring('return ' .. string.rep('{', 1e5))", ""),
        ("return #loadstring('return \"' .. string.rep('x', 1e6) .. '\"')()", ""),
        ("return string.format('%99999999d', 1)", "invalid"),
        ("return string.rep('x', 3e7):rep(2)", "not enough memory"),
        ("return bit.tohex(1, -2147483648)", ""),
        ("return string.find('x', '[' .. string.rep('%', 10001))", ""),
        ("return math.random(1, 1e308)", ""),
        ("return math.random(-1/0, 1/0)", ""),
        ("return {struct.unpack('c0', 'x', 1)}", "c0"),
        ("return struct.unpack('bc0', '\\255x')", "too short"),
        ("return struct.pack('!1024i32', 1)", ""),
        ("return cjson.encode(string.rep('\\1', 1e7))", ""),
        ("for a in string.gfind(string.rep('a', 3e5), string.rep('a?', 3e5)) do end", "pattern too complex"),
        ("return unpack({}, -2147483648, 2147483647)", "too many results to unpack"),
        ("return unpack({}, 0, 2147483647)", "too many results to unpack"),
        ("return unpack({}, 1e300, -1e300)", ""),
        ("table.insert({}, -2147483648, 1)", "position out of bounds"),
        ("table.insert({}, 2147483648, 1)", "position out of bounds"),
        ("table.insert({}, '-2147483648', 1)", "position out of bounds"),
        ("table.remove({}, -2147483648) return table.concat({}, 'x', 2147483647, -2147483648)", ""),
        ("return table.concat({}, 'x', -2147483648, 2147483647)", "invalid value"),
        ("return (select(-2147483648, 1))", "out of range"),
        ("return {string.sub('x', -2147483648, 2147483647), string.byte('x', -2147483648, 2147483647)}", ""),
    ] {
        let said = eval(&mut client, script);
        match &said {
            Reply::Error(text) => assert!(text.contains(has), "{script}: {text}"),
            _ => assert!(has.is_empty(), "{script}: no error"),
        }
        assert_eq!(eval(&mut client, "return 7"), Reply::Int(7), "behind {script}");
    }
}

/// A command whose answer there is no room for has written nothing, and neither has its script.
#[test]
fn what_cannot_be_answered_is_not_written() {
    let running = Running::start(DomainChoice::Emulated);
    let mut client = running.client();
    client.say("CONFIG SET lua-time-limit 60000");
    let large = "x".repeat(1 << 20);
    client.say("XGROUP CREATE s g 0 MKSTREAM");
    client.say("XGROUP CREATE s h 0");
    for id in 1..=70 {
        client.ask(&["XADD", "s", &format!("{id}"), "f", &large]);
        // Equal ones would be one in Lua.
        client.ask(&["RPUSH", "l", &format!("{id} {large}")]);
    }
    let ids: Vec<String> = (1..=70).map(|id| format!("'{id}'")).collect();
    let claim = format!("redis.pcall('xclaim', 's', 'h', 'a', 0, {}, 'FORCE')", ids.join(", "));
    for line in [
        "redis.pcall('xreadgroup', 'group', 'g', 'a', 'streams', 's', '>')",
        "redis.pcall('lpop', 'l', 70)",
        // There is room for the answer, but not in Lua.
        "local held = string.rep('x', 5e7) redis.pcall('lpop', 'l', 30) return #held",
        &claim,
    ] {
        let said = eval(&mut client, &format!("redis.call('set', 'before', 1) {line}"));
        assert!(matches!(&said, Reply::Error(text) if text.contains("memory for the answer")), "{line}: {said:?}");
        assert_eq!(client.say("EXISTS before"), Reply::Int(0), "{line}");
    }
    for group in ["g", "h"] {
        assert_eq!(client.say(&format!("XPENDING s {group} - + 10")), Reply::Array(Vec::new()));
    }
    assert_eq!(client.say("LLEN l"), Reply::Int(70));
    // What only reads is refused, and the script goes on.
    let goes_on = "redis.pcall('lrange', 'l', 0, -1) return redis.call('incr', 'n')";
    assert_eq!(eval(&mut client, goes_on), Reply::Int(1));
    // Outside of scripts, and in a transaction that ends with it.
    client.say("MULTI");
    client.say("SET before 1");
    eval(&mut client, "return redis.pcall('lpop', 'l', 70)");
    assert!(matches!(client.say("EXEC"), Reply::Error(_)));
    assert_eq!((client.say("EXISTS before"), client.say("LLEN l")), (Reply::Int(0), Reply::Int(70)));
}

/// Each of these has 10 MB in Lua, and hundreds of times as much outside.
#[test]
fn what_is_too_large_outside_of_lua_is_an_error() {
    let running = Running::start(DomainChoice::Emulated);
    let mut client = running.client();
    for (script, has) in [
        ("return redis.call('echo', unpack(t))", "not enough memory for the arguments"),
        ("return redis.call('mset', unpack(t))", "not enough memory for the arguments"),
        ("return redis.acl_check_cmd('mset', unpack(t))", "not enough memory for the arguments"),
        ("redis.log(redis.LOG_DEBUG, unpack(t))", ""),
        ("return struct.pack(string.rep('s', 400), unpack(t))", "not enough memory"),
        ("return struct.pack(string.rep('c9000000', 400), unpack(t))", "not enough memory"),
        ("return cmsgpack.pack(unpack(t))", "not enough memory"),
        ("return cmsgpack.pack(t)", "not enough memory"),
        ("return cjson.encode(t)", "not enough memory"),
        ("for i = 1, 400 do redis.call('publish', 'news', s) end", "more than 256 MiB"),
        ("for i = 1, 400 do redis.call('set', i, s) end", "more than 256 MiB"),
        ("for i = 1, 400 do redis.call('rpush', 'list', s) end", "more than 256 MiB"),
        ("redis.call('rpush', 'list', s) for i = 1, 400 do redis.call('copy', 'list', i) end", "more than 256 MiB"),
        ("return t", "more than 256 MiB"),
        ("for i = 1, 400 do t[i] = {ok = s} end return t", "more than 256 MiB"),
        ("for i = 1, 400 do t[i] = {err = s} end return t", "more than 256 MiB"),
        ("redis.setresp(3) for i = 1, 400 do t[i] = {big_number = s} end return t", "more than 256 MiB"),
        (
            "redis.setresp(3) for i = 1, 400 do t[i] = {verbatim_string = {format = 'txt', string = s}} end return t",
            "more than 256 MiB",
        ),
        (
            "redis.call('set', 'k', s) for i = 1, 400 do t[i] = 'k' end return #redis.call('mget', unpack(t))",
            "not enough memory",
        ),
        ("error(s)", "script: "),
        ("error({err = s})", "xxx"),
    ] {
        let begin = "local s, t = string.rep('x', 1e7), {} for i = 1, 400 do t[i] = s end ";
        client.say("CONFIG SET lua-time-limit 60000");
        match &eval(&mut client, &format!("{begin}{script}")) {
            Reply::Error(text) => {
                assert!(text.contains(has), "{script}: {:?}", text.get(..200));
                assert!(text.len() < 100_000, "{script}: {}", text.len());
            }
            other => assert!(has.is_empty(), "{script}: {other:?}"),
        }
    }
    // All scripts of a transaction have it together; the next transaction has its own.
    let half = "local s = string.rep('x', 1e7) for i = 1, 15 do redis.call('publish', 'news', s) end return 1";
    for _ in 0..3 {
        assert_eq!(eval(&mut client, half), Reply::Int(1));
    }
    client.say("MULTI");
    (0..2).for_each(|_| drop(eval(&mut client, half)));
    let Reply::Array(said) = client.say("EXEC") else { panic!("no array") };
    assert_eq!(said[0], Reply::Int(1));
    assert!(said[1].error().contains("more than 256 MiB"), "{said:?}");
    let long = format!("--{}", "x".repeat(64 << 20));
    assert!(client.ask(&["SCRIPT", "LOAD", &long]).error().contains("bytes at most"));
}

/// Texts of one length that Lua's hash takes for the same.
fn alike(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|n| {
        // Of 64 bytes every third is looked at, the last among them.
        let digits: Vec<String> =
            format!("{n:042}").as_bytes().chunks(2).map(|two| String::from_utf8_lossy(two).into_owned()).collect();
        format!("x{}", digits.iter().map(|two| format!("{two}x")).collect::<String>())
    })
}

/// The time is over before the script has begun, or in what is one call of it.
#[test]
fn texts_that_are_alike_to_lua_hold_nobody_back() {
    let running =
        Running::with(DomainChoice::Emulated, |config| server::Config { threads: 1, ..config }, |options| options);
    let (mut client, mut other) = (running.client(), running.client());
    client.say("CONFIG SET lua-time-limit 40");
    let words: Vec<String> = alike(40_000).collect();
    assert!(words.iter().all(|word| word.len() == 64), "or it is another hash");
    let json = format!("{{{}}}", words.iter().map(|word| format!("\"{word}\":1")).collect::<Vec<_>>().join(","));
    let each = ["EVAL", "return 1", "0"].into_iter().chain(words.iter().map(String::as_str)).collect::<Vec<_>>();
    for words in [each, vec!["EVAL", "return #cjson.decode(ARGV[1])", "0", &json]] {
        client.send(&request(&words));
        assert_eq!(other.say("PING"), Reply::Simple("PONG".to_owned()));
        let said = client.reply();
        assert!(said.error().contains("lua-time-limit"), "{said:?}");
    }
}

/// Nothing that a script does is there for the next.
#[test]
fn scripts_leave_nothing_behind() {
    let running =
        Running::with(DomainChoice::Emulated, |config| server::Config { threads: 1, ..config }, |options| options);
    let mut client = running.client();
    for (script, look) in [
        ("leak = 1", "return type(rawget(_G, 'leak'))"),
        ("rawset(_G, 'leak', 1)", "return type(rawget(_G, 'leak'))"),
        (
            "for _, t in ipairs({string, table, math, redis, bit, cjson, cmsgpack, struct, coroutine, _G}) do pcall(rawset, t, 'leak', 1) pcall(function() t.leak = 1 end) pcall(table.insert, t, 1) pcall(setmetatable, t, {__index = {leak = 1}}) end",
            "return type(string.leak or table.leak or math.leak or redis.leak or bit.leak or cjson.leak or cmsgpack.leak or struct.leak or coroutine.leak or rawget(_G, 'leak') or string[1])",
        ),
        (
            "for k, v in pairs(_G) do if type(v) == 'table' and getmetatable(v) then pcall(rawset, getmetatable(v), '__index', function() return 'leak' end) end end",
            "return type(redis.leak)",
        ),
        (
            "local s = pairs(string) local n, t = pairs(string) t.leak = 1 t.upper = nil",
            "return type(string.leak or string.upper ~= nil and nil)",
        ),
        ("getmetatable('').__index.leak = 1", "return type(('').leak)"),
        ("rawset(getmetatable(''), '__index', {leak = 1})", "return type(('').leak)"),
        ("pcall(rawset, getmetatable('').__index, 'leak', 1)", "return type(('').leak)"),
        ("KEYS.leak = 1 ARGV.leak = 1", "return type(KEYS.leak or ARGV.leak)"),
        (
            "math.randomseed(42)",
            "math.randomseed(1) local a = math.random() math.randomseed(1) return type(a ~= math.random() and 1 or nil)",
        ),
        (
            "cjson.encode_sparse_array(true) cjson.encode_max_depth(1)",
            "return type(cjson.encode_max_depth() ~= 1000 and 1 or nil)",
        ),
        ("redis.setresp(3)", "return type(redis.call('get', 'none') ~= false and 1 or nil)"),
        ("collectgarbage('stop') collectgarbage('setpause', 1000000)", "return type(nil)"),
        ("redis.call = nil", "return type(redis.call('ping').ok ~= 'PONG' and 1 or nil)"),
        ("redis.call('select', 5)", "redis.call('set', 'here', 1) return type(nil)"),
        ("local c = cjson.new() c.leak = 1", "return type(cjson.leak or cjson.new().leak)"),
        ("string.gsub = nil pcall(function() string.gsub = nil end)", "return type(string.gsub == nil and 1 or nil)"),
        ("pcall(setmetatable, '', {__index = {leak = 1}})", "return type(('').leak)"),
        ("coroutine.wrap(function() leaked = 1 end)()", "return type(rawget(_G, 'leaked'))"),
        ("loadstring('leak = 1')()", "return type(rawget(_G, 'leak'))"),
        (
            "load(function() return nil end)() xpcall(function() leak = 1 end, function() leak = 1 end)",
            "return type(rawget(_G, 'leak'))",
        ),
    ] {
        drop(eval(&mut client, script));
        assert_eq!(eval(&mut client, look), Reply::text("nil"), "{script}");
    }
    assert_eq!(client.say("EXISTS here"), Reply::Int(1), "the connection's own database");
    // What the interpreter is made of cannot be had.
    for script in [
        "return type(rawget(getmetatable(redis) or {}, '__index'))",
        "return type(rawget(getmetatable(_G) or {}, '__index'))",
        "return type(getmetatable(string))",
        "return type(rawget(getmetatable(''), 'upper'))",
        "for k in pairs(_G) do if k == 'debug' or k == 'os' or k == 'io' or k == 'require' or k == 'newproxy' or k == 'setfenv' or k == 'getfenv' or k == 'print' then return k end end return 'nil'",
        "return type(loadstring(string.dump(function() return 1 end)))",
        "return type(loadstring('\\27Lua'))",
        "return type(load(function() return nil end, '\\27') == nil and 1 or nil)",
    ] {
        assert_eq!(eval(&mut client, script), Reply::text("nil"), "{script}");
    }
}

#[test]
fn bounds_are_kept_of_scripts_that_are_known_and_that_run_long() {
    let running = Running::start(DomainChoice::Emulated);
    let mut client = running.client();
    let Reply::Bulk(kept) = client.ask(&["SCRIPT", "LOAD", "return 'kept'"]) else { panic!("no digest") };
    let kept = String::from_utf8_lossy(&kept).into_owned();
    for from in (0..10_500).step_by(500) {
        let some = (from..from + 500).flat_map(|n| request(&["EVAL", &format!("return {n}"), "0"]));
        client.send(&some.collect::<Vec<_>>());
        (from..from + 500).for_each(|n| assert_eq!(client.reply(), Reply::Int(n)));
    }
    let Reply::Bulk(info) = client.say("INFO memory") else { panic!("no text") };
    assert!(String::from_utf8_lossy(&info).contains("number_of_cached_scripts:10000"));
    // Those that were only run have gone first.
    assert_eq!(client.ask(&["EVALSHA", &kept, "0"]), Reply::text("kept"));
    client.say("CONFIG SET lua-time-limit 60000");
    let mut long: Vec<Client> = (0..8).map(|_| running.client()).collect();
    let endless = request(&["EVAL", "while true do end", "0"]);
    long.iter_mut().for_each(|one| one.send(&endless));
    until("all run", || {
        let Reply::Bulk(info) = client.say("INFO memory") else { panic!("no text") };
        String::from_utf8_lossy(&info).contains("scripts_running_long:8")
    });
    // One more waits for a place, as long as it may run.
    client.say("CONFIG SET lua-time-limit 100");
    let mut more = running.client();
    more.send(&endless);
    assert!(more.reply().error().contains("too many scripts run long"));
    client.say("CONFIG SET lua-time-limit 60000");
    more.send(&endless);
    let has_reply = |one: &Client| {
        one.0.get_ref().set_nonblocking(true).unwrap();
        let has = one.0.get_ref().peek(&mut [0]).is_ok();
        one.0.get_ref().set_nonblocking(false).unwrap();
        has
    };
    until("they are killed, and the one that waited runs and is killed", || {
        client.say("SCRIPT KILL");
        has_reply(&more)
    });
    long.push(more);
    for one in &mut long {
        assert!(one.reply().error().contains("Script killed by user"));
    }
}
