-- Scripts that mean harm. Each case is the body of a function that gets `msg`; the harness calls it for one message
-- between innocent ones. The line before a body names the case and what must come of it:
--   key TEXT     it returns, with this fairness key
--   script       it ends with an error of its own       result   what it returns is refused
--   time         it is stopped in time                  memory   it is stopped for the memory it takes
--   any          it ends in any of these ways
-- A body may use `show(x)`, the type of x.

--- reach: no library that touches the world | key nil nil nil nil nil nil
return {fairness_key = show(io) .. " " .. show(os) .. " " .. show(debug) .. " " .. show(package) .. " " .. show(require) .. " " .. show(python)}
--- reach: no way to compile or run other code | key nil nil nil nil nil
return {fairness_key = show(load) .. " " .. show(loadstring) .. " " .. show(dofile) .. " " .. show(loadfile) .. " " .. show(string.dump)}
--- reach: no coroutines, metatables or collector | key nil nil nil nil nil nil
return {fairness_key = show(coroutine) .. " " .. show(setmetatable) .. " " .. show(getmetatable) .. " " .. show(collectgarbage) .. " " .. show(xpcall) .. " " .. show(rawset)}
--- reach: no way to take strings apart that a loop of C hides in | key nil nil nil nil
return {fairness_key = show(string.gmatch) .. " " .. show(string.pack) .. " " .. show(string.unpack) .. " " .. show(table.move)}
--- reach: no warn, print or globals table | key nil nil nil
return {fairness_key = show(warn) .. " " .. show(print) .. " " .. show(_G)}
--- reach: the environment holds nothing of ours | key
local found = {}
for name, value in pairs(_ENV) do
  if type(value) == "userdata" or type(value) == "thread" then found[#found + 1] = name end
end
return {fairness_key = table.concat(found, " ")}
--- reach: everything that can be reached is a table, function, string or number | key
local seen, bad = {}, ""
local function walk(value, depth)
  local kind = type(value)
  if kind == "userdata" or kind == "thread" then bad = bad .. kind end
  if kind ~= "table" or seen[value] or depth > 10 then return end
  seen[value] = true
  for key, below in next, value do walk(key, depth + 1) walk(below, depth + 1) end
end
walk(_ENV, 0)
walk(msg, 0)
return {fairness_key = bad}
--- reach: io.open | script
return {fairness_key = io.open("/etc/passwd"):read("a")}
--- reach: io.popen | script
return {fairness_key = io.popen("id"):read("a")}
--- reach: os.execute | script
os.execute("touch canary-touched")
--- reach: os.getenv | script
return {fairness_key = os.getenv("CANARY")}
--- reach: os.exit | script
os.exit(3)
--- reach: os.remove | script
os.remove("canary")
--- reach: require | script
require("os").exit(3)
--- reach: package.loadlib | script
package.loadlib("libc.so.6", "*")
--- reach: load as text | script
return load("return os")()
--- reach: load as bytecode | script
return load("\27Lua\84\0\25\147\r\n\26\n")()
--- reach: dofile | script
dofile("/dev/stdin")
--- reach: loadstring | script
loadstring("os.exit(3)")()
--- reach: string.dump | script
string.dump(function() end)
--- reach: debug.getregistry | script
return {fairness_key = show(debug.getregistry()[1])}
--- reach: debug.sethook takes the watch off | script
debug.sethook()
while true do end
--- reach: debug.getinfo climbs the stack | script
debug.getinfo(1).func()
--- reach: debug.setmetatable on a string | script
debug.setmetatable("", {__index = function() return os end})
--- reach: debug.upvalueid | script
debug.upvaluejoin(show, 1, show, 1)
--- reach: python.eval | script
python.eval("__import__('os').system('touch canary-touched')")
--- reach: python.builtins | script
python.builtins.open("canary", "w")
--- reach: python.as_attrgetter of the message | script
return {fairness_key = python.as_attrgetter(msg).__class__}
--- reach: attributes of a string as of a Python object | script
return {fairness_key = msg.queue.__class__.__name__}
--- reach: a string called like a Python object | script
msg.queue("x")
--- reach: a global of another hook | key nil
return {fairness_key = show(on_failure)}
--- reach: the address of a table | key table table
return {fairness_key = tostring({}) .. " " .. tostring(msg)}
--- reach: the address of a function | key function
return {fairness_key = tostring(pcall)}
--- reach: %p prints an address | script
return {fairness_key = string.format("%p", {})}
--- reach: %p with flags prints an address | script
return {fairness_key = string.format("%-20p", "x")}
--- reach: %s of a table prints an address | script
return {fairness_key = string.format("%s", {})}
--- reach: an error with a table prints an address | script
error({})
--- reach: an error with a function | script
error(show)
--- reach: concatenating a table | script
return {fairness_key = "x" .. {}}
--- reach: a bad argument names a table | script
return {fairness_key = ("x"):rep({})}
--- reach: _ENV replaced in a function | key nil
local function inner() local _ENV = {} return tostring end
return {fairness_key = show(inner())}

--- string metatable: __index through a string | key nil
return {fairness_key = show((""). __index)}
--- string metatable: methods of strings are the safe ones | script
return {fairness_key = (" "):rep(1e9)}
--- string metatable: dump through a method | script
return (""):dump()
--- string metatable: gmatch through a method | script
for word in ("a b"):gmatch("%a") do end
--- string metatable: poisoned methods stay in this queue | key safe
string.find = function() return 1, 2, "evil" end
string.sub = nil
string.format = error
return {fairness_key = "safe"}
--- string metatable: poisoned library under our parser | key 1
string.byte, string.match, string.sub, table.concat, tonumber = nil, nil, nil, nil, nil
return {fairness_key = tostring(fila.parse_json('{"a\\n":[1]}')["a\n"][1])}
--- environment: everything removed | key nil
for name in pairs(_ENV) do _ENV[name] = nil end
return {fairness_key = show(tostring)}
--- environment: the hook redefined | key kept
on_enqueue = function() while true do end end
return {fairness_key = "kept"}
--- environment: error and type replaced by loops | key fine
error = function() while true do end end
type = error
return {fairness_key = "fine"}
--- environment: fila.get replaced | key nil
local get = fila.get
fila.get = function() while true do end end
return {fairness_key = show(get("x"))}
--- environment: pcall replaced | script
pcall = function(f) return f() end
error("x")

--- loop: while | time
while true do end
--- loop: repeat | time
repeat until false
--- loop: for without an end | time
for i = 1, math.huge do end
--- loop: for over all integers | time
for i = math.mininteger, math.maxinteger do end
--- loop: goto | time
::again:: goto again
--- loop: goto with a nested block | time
do ::a:: do goto b end ::b:: goto a end
--- loop: tail calls | time
local function f() return f() end
return f()
--- loop: mutual tail calls | time
local a, b
a = function(n) return b(n + 1) end
b = function(n) return a(n + 1) end
a(0)
--- loop: pcall swallows the stop | time
while true do pcall(function() while true do end end) end
--- loop: pcall in pcall | time
local function f() while true do pcall(f) end end
f()
--- loop: pcall at the bottom of the stack | time
local function f(n) if n > 0 then table.sort({2, 1}, function() f(n - 1) end) else while true do pcall(f, 0) end end end
pcall(f, 20)
while true do for n = 30, 0, -1 do pcall(f, n) end end
--- loop: pcall and gsub in turn | time
local function f() while true do pcall(string.gsub, "ab", ".", f) end end
f()
--- loop: pcall with error objects | time
while true do pcall(error, {}) end
--- loop: pcall of pcall of C functions | time
while true do pcall(pcall, pcall, pcall, error) end
--- loop: an iterator that never ends | time
for _ in function() return 1 end do end
--- loop: next over a table that grows | any
local t = {1}
for key in pairs(t) do t[key + 1] = 1 end
--- loop: counting characters | time
local s = ("x"):rep(60000)
while true do local n = #s end
--- loop: next on a table of holes | time
local t = {}
for i = 1, 3000 do t["k" .. i] = i end
for i = 1, 3000 do t["k" .. i] = nil end
while true do next(t) end
--- loop: in a comparator | time
table.sort({3, 2, 1}, function() while true do end end)
--- loop: in a substitution | time
("abc"):gsub(".", function() while true do end end)
--- loop: after a result was made ready | time
local result = {fairness_key = "evil"}
while true do result.weight = 1 end
--- loop: in the handler of its own error | time
pcall(function() error("x") end)
local ok, problem = pcall(function() while true do end end)
return {fairness_key = "went on: " .. tostring(problem)}
--- loop: select over many arguments | time
local function f(...) return f(1, ...) end
pcall(f)
while true do end
--- loop: metamethods of numbers in strings | time
while true do local x = "10" + "5" end
--- loop: formatting | time
while true do string.format("%99.99f%99.99f%99.99f%99.99f", 1e308, 1e308, 1e308, 1e308) end
--- loop: upper and lower of long strings | time
local s = ("x"):rep(65536)
while true do s:upper():lower():reverse() end
--- loop: comparing long strings | time
local a, b = ("x"):rep(65536) .. "a", ("x"):rep(65536) .. "b"
while true do local x = a < b end
--- loop: equality of long strings | time
local a, b = ("x"):rep(65536) .. "a", ("x"):rep(65536) .. "b"
while true do local x = a == b end
--- loop: joining long strings | time
local s = ("x"):rep(65536)
while true do local t = s .. s .. s end
--- loop: tonumber of long text | time
local s = (" "):rep(65000) .. "1"
while true do local x = tonumber(s) end
--- loop: arithmetic on long text | time
local s = (" "):rep(65000) .. "1"
while true do local x = s + 1 end
--- loop: insert at the front | any
local t = {}
while true do table.insert(t, 1, 1) end
--- loop: remove from the front | time
local t = {}
for i = 1, 8000 do t[i] = i end
while true do table.remove(t, 1) table.insert(t, 1, 1) end
--- loop: pack and unpack | time
local t = {}
for i = 1, 250 do t[i] = i end
while true do t = table.pack(table.unpack(t)) end
--- loop: parse_json again and again | time
local text = "[" .. ("[1,2,3],"):rep(2000) .. "1]"
while true do pcall(fila.parse_json, text) end
--- loop: parse_json of one long string | time
local text = '"' .. ("x"):rep(65000) .. '"'
while true do fila.parse_json(text) end
--- loop: parse_protobuf again and again | time
local text = ("\8\1"):rep(1000)
while true do fila.parse_protobuf(text) end
--- loop: configuration | time
while true do fila.get("x") end

--- pattern: lazy quantifiers without an end | script
return ("x"):rep(1000):find((".-"):rep(8) .. "y")
--- pattern: three lazy quantifiers on a long subject | script
return ("x"):rep(30000):find(".-.-.-y")
--- pattern: three lazy quantifiers on a subject just short enough, for ever | time
local s = ("x"):rep(40)
while true do s:find(".-.-.-y") end
--- pattern: one quantifier on a subject just short enough, for ever | time
local s = ("x"):rep(700)
while true do s:find(".-y") end
--- pattern: greedy quantifiers | script
return ("a"):rep(60000):match("a*a*a*b")
--- pattern: optional characters | script
return ("a"):rep(60):match(("a?"):rep(30) .. ("a"):rep(30))
--- pattern: balance on open brackets | script
return ("("):rep(60000):find("%b()")
--- pattern: back references | script
return ("ab"):rep(30000):find("(.-)%1%1c")
--- pattern: frontiers | script
return ("x"):rep(60000):find("%f[%a]%f[%a]%f[%a].-%f[%d]")
--- pattern: a long class | script
return ("x"):rep(60000):find("[" .. ("a-b"):rep(80) .. "]y")
--- pattern: longer than any is | script
return ("x"):find(("x"):rep(60000))
--- pattern: many captures | script
return ("x"):rep(100):find(("()"):rep(40))
--- pattern: malformed class | script
return ("x"):find("[")
--- pattern: ends in a per cent sign | script
return ("x"):find("%")
--- pattern: unfinished capture | script
return ("x"):find("(")
--- pattern: nothing matched often, replaced by much | any
return {fairness_key = #(("x"):rep(60000):gsub("", ("y"):rep(60000)))}
--- pattern: replaced by itself many times | any
return {fairness_key = #(("x"):rep(1000):gsub(".", ("%0"):rep(1000)))}
--- pattern: C function called for each place | any
return {fairness_key = (("x"):rep(65536):gsub("", type))}
--- pattern: gsub with functions of C, for ever | time
local s = ("x"):rep(2000)
while true do s:gsub("", math.type) end
--- pattern: gsub with a table, for ever | time
local s = ("x"):rep(2000)
while true do s:gsub(".", {}) end
--- pattern: plain find of a long needle | script
return ("a"):rep(60000):find(("a"):rep(30000) .. "b", 1, true)
--- pattern: plain find of a middling needle, for ever | time
local s, needle = ("a"):rep(60000), ("a"):rep(200) .. "b"
while true do s:find(needle, 1, true) end
--- pattern: a zero in it | key 2
return {fairness_key = tostring((("a\0b"):find("\0", 1)))}

--- memory: rep of an empty string | key
return {fairness_key = (""):rep(2 ^ 52)}
--- memory: rep with an empty separator | key
return {fairness_key = (""):rep(math.maxinteger, "")}
--- memory: rep that overflows | script
return {fairness_key = ("xx"):rep(math.maxinteger)}
--- memory: rep with a long separator | script
return {fairness_key = ("x"):rep(1000, ("y"):rep(1000))}
--- memory: rep of a rep | script
return {fairness_key = ("x"):rep(65536):rep(65536)}
--- memory: doubling | memory
local s = "x"
while true do s = s .. s end
--- memory: doubling under pcall | memory
local s = "x"
while true do pcall(function() s = s .. s end) end
--- memory: a table without an end | any
local t = {}
while true do t[#t + 1] = {} end
--- memory: a table without an end under pcall | any
local t = {}
while true do pcall(function() while true do t[#t + 1] = {} end end) end
--- memory: strings without an end | any
local t = {}
for i = 1, math.huge do t[i] = "string " .. i end
--- memory: deep recursion | memory
local function f(n) return 1 + f(n + 1) end
f(1)
--- memory: deep recursion under pcall | any
local function f(n) pcall(f, n + 1) return 1 + f(n + 1) end
f(1)
--- memory: recursion through pcall | any
local function f() return (pcall(f)) end
while true do f() end
--- memory: recursion through a comparator | any
local function f() table.sort({3, 2, 1}, function(a, b) f() return a < b end) end
f()
--- memory: recursion through a substitution | any
local function f(s) return (s:gsub(".", f)) end
f("abc")
--- memory: arguments that grow | any
local function f(...) return f(1, 2, 3, 4, 5, 6, 7, 8, ...) end
f()
--- memory: concat of one string many times | memory
local t, s = {}, ("x"):rep(60000)
for i = 1, 1000 do t[i] = s end
table.concat(t)
--- memory: concat with a long separator | memory
local t = {}
for i = 1, 1000 do t[i] = "" end
table.concat(t, ("x"):rep(60000))
--- memory: concat of a range that is not there | script
table.concat({}, "", 1, math.maxinteger)
--- memory: unpack of everything | script
table.unpack({}, 1, 1e8)
--- memory: unpack between the ends of the integers | script
table.unpack({}, math.mininteger, math.maxinteger)
--- memory: select far behind | script
select(-1e9, 1)
--- memory: format of long strings | script
string.format(("%s"):rep(30), ("x"):rep(60000), ("x"):rep(60000))
--- memory: format with a width | script
string.format("%999999999d", 1)
--- memory: char of many | script
local t = {}
for i = 1, 300 do t[i] = 65 end
string.char(table.unpack(t))
--- memory: closures without an end | any
local t = {}
while true do local x = {} t[#t + 1] = function() return x, t end end
--- memory: kept in globals | any
kept = kept or {}
while true do kept[#kept + 1] = ("x"):rep(1000) .. #kept end
--- memory: full of small things, then garbage at the edge | any
local t = {}
for i = 1, 9000 do t[i] = {} end
local s = ("x"):rep(65536)
s = s .. s .. s
local u = s .. "y"
for i = 1, 1e9 do local garbage = {} end
--- memory: full of small things, then a jump to the edge and garbage | any
local t = {}
for i = 1, 3500 do t[i] = {{}} end
local s, big = ("x"):rep(16384), {}
for i = 1, 60 do big[i] = s .. i end
for i = 1, 1e9 do local garbage = {{}} end
--- memory: probing for the edge under pcall | memory
local kept, size = {}, 65536
while true do
  local ok, s = pcall(string.rep, "x", size)
  if ok then kept[#kept + 1] = s .. #kept else size = size // 2 end
end
--- memory: an error that says it is out of memory | memory
error("not enough memory", 0)
--- memory: a key as long as can be | result
return {fairness_key = ("x"):rep(60000)}
--- memory: parse_json of deep lists | script
return fila.parse_json(("["):rep(60000))
--- memory: parse_json of many keys | any
local text = "{" .. ('"a%d":1,'):rep(1000) .. '"b":1}'
local t = {}
for i = 1, 1e6 do t[i] = fila.parse_json(text) end
--- memory: parse_protobuf that claims a huge length | script
return fila.parse_protobuf("\10\255\255\255\255\15x")
--- memory: parse_protobuf with a varint without an end | script
return fila.parse_protobuf(("\255"):rep(60000))
--- memory: parse_protobuf of groups | script
return fila.parse_protobuf(("\11"):rep(60000))

--- sort: a comparator that always says yes | any
local t = {}
for i = 1, 1000 do t[i] = i % 7 end
table.sort(t, function() return true end)
--- sort: a comparator that lies at random | any
local t, x = {}, 1
for i = 1, 500 do t[i] = i end
table.sort(t, function() x = (x * 1103515245 + 12345) % 2147483648 return x % 2 == 0 end)
--- sort: a comparator that empties the table | any
local t = {}
for i = 1, 500 do t[i] = i end
table.sort(t, function(a, b) for i = 1, 500 do t[i] = nil end return a < b end)
--- sort: a comparator that is a function of C | any
local t = {}
for i = 1, 5000 do t[i] = i end
table.sort(t, math.max)
--- sort: mixed types | script
table.sort({1, "x", {}, true})
--- sort: many equal long strings | any
local t, s = {}, ("x"):rep(60000)
for i = 1, 3000 do t[i] = s end
while true do table.sort(t) end
--- sort: not a number | any
table.sort({0 / 0, 1, 0 / 0, 2, 0 / 0})
--- insert: at a place that is not there | script
table.insert({}, 1e15, 1)
--- insert: without a place | script
table.insert({}, nil, 1)
--- remove: far away | script
table.remove({1, 2, 3}, -5)

--- close: a variable to be closed needs a metatable | script
local guard <close> = {}
--- close: the fourth value of for | script
for x in function() return nil end, nil, nil, {__close = error} do end
--- gc: a finalizer | script
setmetatable({}, {__gc = function() while true do end end})
--- index: a result that runs code when read | script
return setmetatable({}, {__index = function() while true do end end})
--- index: a list of keys that runs code when read | script
return {throttle_keys = setmetatable({}, {__index = function() return "x" end})}
--- index: a metatable as a plain field does nothing | key plain
return {fairness_key = "plain", __index = function() while true do end end, __gc = 1}
--- pairs: a result that refers to itself | key self
local t = {fairness_key = "self"}
t.throttle_keys = {}
t.t = t
return t

--- result: not a number as weight | result
return {weight = 0 / 0}
--- result: infinite weight | result
return {weight = math.huge}
--- result: negative weight | result
return {weight = -1}
--- result: fractional weight | result
return {weight = 1.5}
--- result: weight beyond all integers | result
return {weight = 2 ^ 63}
--- result: least integer as weight | result
return {weight = math.mininteger}
--- result: weight as hexadecimal text | result
return {weight = "0xffffffffffffffff"}
--- result: weight as text that is not a number | result
return {weight = "nan"}
--- result: weight as a table | result
return {weight = {}}
--- result: weight as a boolean | result
return {weight = true}
--- result: not a number as cost | result
return {cost = 0 / 0}
--- result: infinite cost | result
return {cost = -math.huge}
--- result: not a number as delay | result
return {delay_ms = 0 / 0}
--- result: a delay of ages | result
return {delay_ms = 1e300}
--- result: a key that is a table | result
return {fairness_key = {}}
--- result: a key that is a function | result
return {fairness_key = show}
--- result: a key that is a boolean | result
return {fairness_key = true}
--- result: a key that is not a number | result
return {fairness_key = 0 / 0}
--- result: a key that is not UTF-8 | result
return {fairness_key = "\255\254"}
--- result: a key that is a surrogate | result
return {fairness_key = "\u{D800}"}
--- result: a key with a zero | key a\0b
return {fairness_key = "a\0b"}
--- result: a throttle key that is not UTF-8 | result
return {throttle_keys = {"\255"}}
--- result: throttle keys as text | result
return {throttle_keys = "provider"}
--- result: throttle keys with names | result
return {throttle_keys = {a = "b"}}
--- result: throttle keys in a table of tables | result
return {throttle_keys = {{"a"}}}
--- result: too many throttle keys | result
local t = {}
for i = 1, 1000 do t[i] = "k" .. i end
return {throttle_keys = t}
--- result: an empty throttle key | result
return {throttle_keys = {""}}
--- result: a long throttle key | result
return {throttle_keys = {("x"):rep(60000)}}
--- result: an integer among throttle keys | key fine
return {fairness_key = "fine", throttle_keys = {1, 2, 1}}
--- result: concurrency keys that are not a number | result
return {concurrency_keys = {0 / 0}}
--- result: text | result
return "tenant"
--- result: a number | result
return 42
--- result: a function | result
return show
--- result: several values | key first
return {fairness_key = "first"}, {fairness_key = "second"}, io
--- result: enormous | any
local t = {fairness_key = "enormous"}
for i = 1, 5000 do t["field" .. i] = i end
return t
--- result: the message itself | key
return msg
--- result: the headers | key
return msg.headers

--- message: headers with odd names | key 1 2 3
local h = msg.headers
return {fairness_key = h["__index"] .. " " .. h["__gc"] .. " " .. h["end"]}
--- message: filled without an end | memory
local i = 0
while true do i = i + 1 msg.headers[i] = {} end
--- message: kept over the call | key kept
held = msg
return {fairness_key = "kept"}
--- message: changed | key changed
msg.headers, msg.queue, msg.payload_size = nil, nil, nil
return {fairness_key = "changed"}
