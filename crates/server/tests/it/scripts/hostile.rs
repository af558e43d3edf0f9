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
        ("return string.rep('x', 1e300)", "not enough memory"),
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
    ] {
        let said = eval(&mut client, script);
        match &said {
            Reply::Error(text) => assert!(text.contains(has), "{script}: {text}"),
            _ => assert!(has.is_empty(), "{script}: no error"),
        }
        assert_eq!(eval(&mut client, "return 7"), Reply::Int(7), "behind {script}");
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
    let mut long: Vec<Client> = (0..9).map(|_| running.client()).collect();
    for one in &mut long {
        one.send(&request(&["EVAL", "while true do end", "0"]));
    }
    until("one is too many", || {
        long.iter_mut()
            .any(|one| one.0.get_ref().set_nonblocking(true).is_ok() && one.0.get_ref().peek(&mut [0]).is_ok())
    });
    let mut refused = 0;
    until("they are killed", || client.say("SCRIPT KILL") != Reply::ok());
    for one in &mut long {
        one.0.get_ref().set_nonblocking(false).unwrap();
        let said = one.reply();
        refused += usize::from(said.error().contains("too many scripts run long"));
    }
    assert_eq!(refused, 1);
}
