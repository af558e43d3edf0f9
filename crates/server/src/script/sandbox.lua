-- What scripts see, made of what Lua has and of functions in Rust. Scripts never get hold of a table of this file: they see stand-ins, which are empty and read only.
-- Errors of functions in Rust are objects of their own until somebody catches them: then they become what Lua's functions raise.
local lua, rust, libraries = ...
local error, pcall, xpcall, type, next, select, unpack = lua.error, lua.pcall, lua.xpcall, lua.type, lua.next, lua.select, lua.unpack
local setmetatable, tostring, tonumber, rawget, pairs = lua.setmetatable, lua.tostring, lua.tonumber, lua.rawget, lua.pairs
local sub, insert_raw, concat_raw = lua.string.sub, lua.table.insert, lua.table.concat
local floor = lua.math.floor
local check, running = rust.check, rust.running

local READ_ONLY = "Attempt to modify a readonly table"
-- The table behind each stand-in.
local behind = {}

local function read_only()
    error(READ_ONLY, 2)
end

local function stand_in(t)
    local p = setmetatable({}, { __index = t, __newindex = read_only, __metatable = false })
    behind[p] = t
    return p
end

local function copy(t)
    local c = {}
    for k, v in next, t do
        c[k] = v
    end
    return c
end

-- What a library of Lua has by these names. Another name for a function that is replaced here would be a way around it.
local function named(t, names)
    local c = {}
    for name in lua.string.gmatch(names, "%a+") do
        c[name] = t[name]
    end
    return c
end

-- An error as a script sees it: what is not of Lua becomes that, and a place in this file is none.
local function plain(e)
    if type(e) == "userdata" then
        e = rust.plain(e)
    end
    if type(e) == "string" and sub(e, 1, 8) == "[cairn]:" then
        e = lua.string.gsub(e, "^%[cairn%]:%d+: ", "")
    end
    return e
end

-- An error that ends the script is not for it to catch.
local function resumed(ok, e, ...)
    if not ok then
        check()
        e = plain(e)
    end
    return ok, e, ...
end

local function caught(ok, e, ...)
    if ok then
        return ok, e, ...
    end
    check()
    e = plain(e)
    if type(e) == "table" then
        local text = e.err
        if type(text) == "string" or type(text) == "number" then
            return ok, text
        end
        -- As Redis does, which leaves it where it has looked.
        return ok, e, text
    end
    return ok, e
end

local real = {
    _VERSION = lua._VERSION, assert = lua.assert, error = error, gcinfo = lua.gcinfo, ipairs = lua.ipairs,
    rawequal = lua.rawequal, select = select, tonumber = tonumber, tostring = tostring, type = type, unpack = rust.unpack,
}
local env = setmetatable({}, {
    __index = setmetatable(real, {
        __index = function(_, name)
            error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
        end,
    }),
    __newindex = read_only,
    __metatable = stand_in({}),
})
behind[env] = real
real._G = env

-- Arguments are looked at here where Lua's own function would look at them: it would take the place in this file for that of its caller.
local function table_of(name, ...)
    local t = ...
    if type(t) ~= "table" then
        error("bad argument #1 to '" .. name .. "' (table expected, got " .. (select("#", ...) == 0 and "no value" or type(t)) .. ")", 3)
    end
    return t
end

local function expect(count, name, ...)
    if select("#", ...) < count then
        error("bad argument #" .. select("#", ...) + 1 .. " to '" .. name .. "' (value expected)", 3)
    end
end

function real.pcall(...)
    return caught(pcall(...))
end

function real.xpcall(...)
    local f, handler = ...
    if select("#", ...) < 2 then
        error("bad argument #2 to 'xpcall' (value expected)", 2)
    end
    return resumed(xpcall(f, function(e)
        check()
        return handler(plain(e))
    end))
end

function real.next(...)
    local t = table_of("next", ...)
    return next(behind[t] or t, (select(2, ...)))
end

function real.pairs(...)
    local t = table_of("pairs", ...)
    local b = behind[t]
    if b then
        return next, copy(b), nil
    end
    return pairs(t)
end

function real.rawget(...)
    local t = table_of("rawget", ...)
    expect(2, "rawget", ...)
    return rawget(behind[t] or t, (select(2, ...)))
end

local rawset = lua.rawset
function real.rawset(...)
    local t = table_of("rawset", ...)
    if behind[t] then
        error(READ_ONLY, 0)
    end
    expect(3, "rawset", ...)
    return rawset(...)
end

function real.setmetatable(...)
    local t = table_of("setmetatable", ...)
    if behind[t] then
        error(READ_ONLY, 0)
    end
    local ok, e = pcall(setmetatable, ...)
    if not ok then
        error(e, 2)
    end
    return e
end

local getmetatable = lua.getmetatable
function real.getmetatable(...)
    expect(1, "getmetatable", ...)
    return getmetatable(...) or nil
end

-- Only what has no effect beyond the script.
local collectgarbage = lua.collectgarbage
function real.collectgarbage(what, ...)
    if what == nil or what == "collect" or what == "count" or what == "step" then
        running()
        return collectgarbage(what, ...)
    end
    return 0
end

-- Bytes of a chunk's name; people are shown 60.
local NAMED = 1024
local loadstring, setfenv = lua.loadstring, lua.setfenv

-- Text only: nothing says that bytecode is what the compiler makes.
local function load_text(text, name)
    running()
    if sub(text, 1, 1) == "\27" then
        return nil, rust.bytecode
    end
    local f, e = loadstring(text, sub(name, 1, NAMED))
    if f then
        return setfenv(f, env)
    end
    return nil, e
end

local is_text = { string = true, number = true }

local function text_of(name, at, ...)
    local text, count = (select(at, ...)), select("#", ...)
    if not is_text[type(text)] then
        error("bad argument #" .. at .. " to '" .. name .. "' (string expected, got " .. (count < at and "no value" or type(text)) .. ")", 3)
    end
    return tostring(text)
end

function real.loadstring(...)
    local text, name = text_of("loadstring", 1, ...), (select(2, ...))
    if name ~= nil then
        name = text_of("loadstring", 2, ...)
    end
    return load_text(text, name or text)
end

function real.load(f, name)
    if type(f) ~= "function" then
        error("bad argument #1 to 'load' (function expected, got " .. (f == nil and "no value" or type(f)) .. ")", 2)
    end
    local pieces = {}
    while true do
        local piece = f()
        if piece == nil or piece == "" then
            break
        elseif type(piece) ~= "string" and type(piece) ~= "number" then
            return nil, "reader function must return a string"
        end
        pieces[#pieces + 1] = piece
    end
    return load_text(concat_raw(pieces), name or "=(load)")
end

-- ---- libraries of Lua ----------------------------------------------------------------------------------------------

local string = named(lua.string, "byte char dump format len lower reverse sub upper")
for _, name in next, { "rep", "find", "match", "gmatch" } do
    string[name] = rust[name]
end
string.gfind = string.gmatch

-- A number as C has it as an `int`.
local function int(number)
    if not (number > -2 ^ 63 and number < 2 ^ 63) then
        return 0
    end
    number = (number < 0 and -floor(-number) or floor(number)) % 2 ^ 32
    return number < 2 ^ 31 and number or number - 2 ^ 32
end

function string.gsub(...)
    local s, p, r, n = ...
    local kind = type(r)
    if kind ~= "table" and kind ~= "function" then
        return rust.gsub(...)
    end
    s, p = text_of("gsub", 1, ...), text_of("gsub", 2, ...)
    if n ~= nil and not tonumber(n) then
        error("bad argument #4 to 'gsub' (number expected, got " .. type(n) .. ")", 2)
    end
    local pieces, count, from, step = {}, 0, 0, rust.substitute
    n = n == nil and 1 / 0 or int(tonumber(n))
    local done = false
    while not done and count < n do
        -- What is passed by, the match, where to go on, what stands before that, whether this is the end, and captures.
        local found = step(s, p, from, kind == "table")
        insert_raw(pieces, found[1])
        from, done = found[3], found[5]
        if found[2] then
            count = count + 1
            local by
            if kind == "table" then
                by = r[found[6]]
            else
                by = r(unpack(found, 6))
            end
            if not by then
                by = found[2]
            elseif not is_text[type(by)] then
                error("invalid replacement value (a " .. type(by) .. ")", 2)
            end
            insert_raw(pieces, by)
            insert_raw(pieces, found[4])
        end
    end
    insert_raw(pieces, sub(s, from + 1))
    return concat_raw(pieces), count
end

local table = named(lua.table, "concat foreach foreachi getn maxn setn")
-- Elements that are moved at one time without a look at the clock; and places in front of a table that they may be moved from.
local MOVED, IN_FRONT = 10000, 1000

local function number_of(name, at)
    local number = tonumber(at)
    if not number then
        error("bad argument #2 to '" .. name .. "' (number expected, got " .. type(at) .. ")", 3)
    end
    return number
end

function table.insert(...)
    local t, count = table_of("insert", ...), select("#", ...)
    if behind[t] then
        error(READ_ONLY, 0)
    end
    if count == 3 then
        local at = number_of("insert", (select(2, ...)))
        if at < -IN_FRONT or at > 2147483647 then
            error("bad argument #2 to 'insert' (position out of bounds)", 2)
        elseif #t - at > MOVED then
            running()
        end
    elseif count ~= 2 then
        error("wrong number of arguments to 'insert'", 2)
    end
    return insert_raw(...)
end

local remove_raw = lua.table.remove
function table.remove(...)
    local t, at = table_of("remove", ...), select(2, ...)
    if at ~= nil and #t - number_of("remove", at) > MOVED then
        running()
    end
    return remove_raw(...)
end

-- Elements that Lua's own sort may have without a look at the clock, and bytes of a string that are compared at one time.
local SORTED, COMPARED = 20000, 4096

-- How Lua sorts, step by step: what is equal comes in the same order. True if the order is none.
local function sort(t, from, to, less)
    while from < to do
        if less(t[to], t[from]) then
            t[from], t[to] = t[to], t[from]
        end
        if to - from == 1 then
            return
        end
        local i = floor((from + to) / 2)
        if less(t[i], t[from]) then
            t[i], t[from] = t[from], t[i]
        elseif less(t[to], t[i]) then
            t[i], t[to] = t[to], t[i]
        end
        if to - from == 2 then
            return
        end
        local pivot = t[i]
        t[i], t[to - 1] = t[to - 1], pivot
        local j
        i, j = from, to - 1
        while true do
            i = i + 1
            while less(t[i], pivot) do
                if i > to then
                    return true
                end
                i = i + 1
            end
            j = j - 1
            while less(pivot, t[j]) do
                if j < from then
                    return true
                end
                j = j - 1
            end
            if j < i then
                break
            end
            t[i], t[j] = t[j], t[i]
        end
        t[to - 1], t[i] = t[i], t[to - 1]
        local is_none
        if i - from < to - i then
            is_none = sort(t, from, i - 1, less)
            from = i + 1
        else
            is_none = sort(t, i + 1, to, less)
            to = i - 1
        end
        if is_none then
            return true
        end
    end
end

local function less_numbers(a, b)
    return a < b
end

local function less_strings(a, b)
    if #a > COMPARED and #b > COMPARED then
        running()
        if a == b then
            return false
        end
    end
    return a < b
end

-- Whether the elements are long to compare, and which they are: all numbers, all strings, or some of these and some of those.
local function kinds(t)
    local first, other, long = type(rawget(t, 1)), nil, #t > SORTED
    for at = 1, #t do
        local one = rawget(t, at)
        local kind = type(one)
        if kind ~= first then
            other = other or kind
        end
        long = long or kind == "string" and #one > COMPARED
    end
    return long, first, other
end

local INVALID = "invalid order function for sorting"
local sort_raw = lua.table.sort
function table.sort(...)
    local t, less = table_of("sort", ...), (select(2, ...))
    if less ~= nil and type(less) ~= "function" then
        error("bad argument #2 to 'sort' (function expected, got " .. type(less) .. ")", 2)
    elseif behind[t] then
        return
    elseif less == nil then
        local long, kind, other = kinds(t)
        if long and other then
            error("attempt to compare " .. kind .. " with " .. other, 2)
        elseif not long or kind ~= "string" and kind ~= "number" then
            local ok, e = pcall(sort_raw, t)
            if not ok then
                error(e, e == INVALID and 2 or 0)
            end
            return
        end
        less = kind == "string" and less_strings or less_numbers
    end
    local all, len = t, #t
    if getmetatable(t) ~= nil then
        -- The elements themselves, whatever that says.
        all = setmetatable({}, {
            __index = function(_, at)
                return rawget(t, at)
            end,
            __newindex = function(_, at, one)
                rawset(t, at, one)
            end,
        })
    end
    -- Not by Lua's own, which would take the place in this file for that of its caller.
    if sort(all, 1, len, less) then
        error(INVALID, 2)
    end
end

local coroutine = named(lua.coroutine, "create running status yield")
local create, resume = lua.coroutine.create, lua.coroutine.resume

-- Lua puts the place in front of an error that is a text. Those of functions in Rust are not yet.
local function went_on(ok, e, ...)
    if ok then
        return e, ...
    end
    check()
    e = plain(e)
    -- In between stands the function that has called this one as its last.
    error(e, type(e) == "string" and 3 or 0)
end

function coroutine.wrap(...)
    local ok, co = pcall(create, ...)
    if not ok then
        error("bad argument #1 to 'wrap' (Lua function expected)", 2)
    end
    return function(...)
        return went_on(resume(co, ...))
    end
end

function coroutine.resume(...)
    if type((...)) ~= "thread" then
        error("bad argument #1 to 'resume' (coroutine expected)", 2)
    end
    return resumed(resume(...))
end

local math = named(lua.math, "abs acos asin atan ceil cos cosh deg exp floor fmod frexp huge ldexp log max min mod modf pi pow rad sin sinh sqrt tan tanh")
math.atan2, math.log10 = lua.math.atan2, lua.math.log10
math.random, math.randomseed = rust.random, rust.randomseed

real.string, real.table, real.coroutine, real.math = stand_in(string), stand_in(table), stand_in(coroutine), stand_in(math)
local of_strings = getmetatable("")
of_strings.__index = string
of_strings.__metatable = stand_in({ __index = real.string })

-- ---- libraries of Redis --------------------------------------------------------------------------------------------

for name, functions in next, libraries do
    local library = copy(functions)
    if name == "cjson" then
        library.new = function()
            return copy(library)
        end
    end
    real[name] = stand_in(library)
end

-- `call`, `pcall` and `acl_check_cmd` are those of the script that runs.
local redis = copy(rust.redis)

local function trim(text)
    return (lua.string.gsub(lua.string.gsub(text, "^[\r\n]+", ""), "[\r\n]+$", ""))
end

function redis.error_reply(...)
    local text = ...
    if select("#", ...) ~= 1 or type(text) ~= "string" then
        return { err = "ERR wrong number or type of arguments" }
    end
    if sub(text, 1, 1) == "-" then
        text = sub(text, 2)
    end
    -- As a text in C.
    text = lua.string.match(text, "^[^%z]*")
    local at = lua.string.find(text, " ", 1, true)
    if at then
        return { err = sub(text, 1, at) .. trim(sub(text, at + 1)) }
    end
    return { err = "ERR " .. trim(text) }
end

function redis.status_reply(...)
    local text = ...
    if select("#", ...) ~= 1 or type(text) ~= "string" then
        return { err = "ERR wrong number or type of arguments" }
    end
    return { ok = text }
end

function redis.replicate_commands()
    return true
end

function redis.breakpoint()
    return false
end

function redis.debug() end

real.redis = stand_in(redis)

local explain = rust.explain

-- Nothing of a script is there for the next one to see. One that is ended in here leaves something, and the next one begins with its own.
local function ended(redis, ...)
    redis.call, redis.pcall, redis.acl_check_cmd = nil, nil, nil
    real.KEYS, real.ARGV = nil, nil
    return ...
end

local function run(f, keys, args, ...)
    redis.call, redis.pcall, redis.acl_check_cmd = ...
    real.KEYS, real.ARGV = keys, args
    return ended(redis, xpcall(f, explain))
end

-- ---- functions -----------------------------------------------------------------------------------------------------

-- What functions see: the same, without what is for `EVAL` alone.
local called = copy(real)
local redis_called = copy(redis)
redis_called.replicate_commands, redis_called.breakpoint, redis_called.debug = nil, nil, nil
called.redis = stand_in(redis_called)
setmetatable(called, lua.getmetatable(real))

-- What a library sees while it is loaded.
local redis_loading = setmetatable(copy(rust.loading), lua.getmetatable(real))
local loading = setmetatable({ redis = stand_in(redis_loading) }, lua.getmetatable(real))

-- One or the other is behind the environment of libraries.
local of_library = { __index = called, __newindex = read_only, __metatable = stand_in({}) }
local library = setmetatable({}, of_library)
behind[library] = called
called._G = library

local function load_library(f)
    of_library.__index, behind[library] = loading, loading
    local ok, e = xpcall(f, explain)
    of_library.__index, behind[library] = called, called
    return ok, e
end

local function run_function(f, keys, args, ...)
    redis_called.call, redis_called.pcall, redis_called.acl_check_cmd = ...
    return ended(redis_called, xpcall(function()
        return f(keys, args)
    end, explain))
end

return env, run, { env = library, load = load_library, run = run_function }
