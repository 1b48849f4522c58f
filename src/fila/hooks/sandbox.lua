-- What a script can reach: an environment of safe copies, and the watch that stops a script in time.
--
-- Every function in here has a bounded cost of its own or looks at the clock first (`look`), because the watch only
-- fires between instructions, never inside a function of C. Trusted code keeps what it needs in locals: the environment
-- belongs to the script, which may overwrite it.
local clock, sethook, getinfo = os.clock, debug.sethook, debug.getinfo
local count_memory, raw_error, raw_pcall = collectgarbage, error, pcall
local type, tostring, tonumber, select, next = type, tostring, tonumber, select, next
local byte, find, format, gsub = string.byte, string.find, string.format, string.gsub
local match, rep, sub = string.match, string.rep, string.sub
local concat, insert, remove, sort, unpack = table.concat, table.insert, table.remove, table.sort, table.unpack
local to_integer = math.tointeger

-- Instructions between two looks; fewer while the heap has grown, when one instruction can cost a collection of it all.
local STEP, STEP_CLOSE = 100, 10
local STRING_BYTES_MAX = 65536
-- A function of C may go over so much without a look at the clock.
local CHEAP = 1024
local PATTERN_BYTES_MAX = 256
local QUANTIFIERS_MAX = 3
-- Steps of the pattern matcher that one call may take, some 2 ns each; a substitution takes 32 for each place.
local PATTERN_STEPS_MAX = 1000000
local PLAIN_BYTES_MAX = 262144
local ARGUMENTS_MAX = 250
-- Calls from C into the script, one in the other: near the end of the stack of C the watch could not be called.
local NESTED_MAX = 30
local OUT_OF_MEMORY = "not enough memory"
local OUT_OF_TIME = "out of time"

-- The watch looks at the thread that scripts run in, and only at that: what is trusted runs at full speed.
-- `message` is the number of the one whose script runs.
local watch = {message = 0, stopped = false}
local armed, deadline, started = 0, nil, nil
local seconds_per_message, seconds_in_all = 0.01, 0.1
local nested = 0
local close_kib, full_kib, step = 0, 0, STEP
local thread, tick

local function stop(reason)
  watch.stopped = reason
  -- From here on every instruction raises, so that no pcall of the script can go on.
  sethook(thread, tick, "", 1)
  raw_error(OUT_OF_TIME, 0)
end

local function look()
  local now = clock()
  if armed ~= watch.message or not deadline then
    armed = watch.message
    started = started or now
    if now - started > seconds_in_all then stop("batch") end
    deadline = now + seconds_per_message
  elseif now > deadline then
    stop("time")
  end
end

local function set_step(wanted)
  if step ~= wanted then
    step = wanted
    sethook(thread, tick, "", wanted)
  end
end

function tick()
  if watch.stopped then raw_error(OUT_OF_TIME, 0) end
  local kib = count_memory("count")
  if kib > full_kib then
    -- What is only garbage does not count.
    count_memory("collect")
    if count_memory("count") > full_kib then raw_error(OUT_OF_MEMORY, 0) end
  end
  set_step(kib > close_kib and STEP_CLOSE or STEP)
  -- Most scripts end before the second look: they pay for no clock.
  if armed ~= watch.message then
    armed = watch.message
    deadline = nil
  else
    look()
  end
end

function watch.guard(new_thread)
  thread, step, nested = new_thread, STEP, 0
  sethook(thread, tick, "", STEP)
end

function watch.start(per_message, in_all, memory_bytes_max)
  watch.message = 0
  seconds_per_message, seconds_in_all = per_message, in_all
  armed, deadline, started = 0, nil, nil
  local kib = count_memory("count")
  full_kib = memory_bytes_max / 1024
  close_kib = kib + (full_kib - kib) / 4
end

-- What scripts took of the processor since `start`, as far as one was slow enough to be looked at.
function watch.seconds()
  return started and clock() - started or 0
end

-- The line of the script at which a thread came to its end.
function watch.line(name)
  for level = 0, 60 do
    local info = getinfo(thread, level, "Sl")
    if not info then return 0 end
    if info.short_src == name and info.currentline > 0 then return info.currentline end
  end
  return 0
end

-- Every function of C that calls back is entered here. An error leaves the count where it was: pcall sets it right.
local function enter()
  nested = nested + 1
  if nested > NESTED_MAX then raw_error("too many calls inside of one another", 3) end
end

local function leave(...)
  nested = nested - 1
  return ...
end

-- Safe copies.
local function text(value, name)
  local kind = type(value)
  if kind == "string" then return value end
  if kind == "number" then return tostring(value) end
  raw_error(name .. ": a string was expected, not a " .. kind, 3)
end

local function whole(value, name, default)
  if value == nil then return default end
  local number = type(value) == "number" and to_integer(value)
  if not number then raw_error(name .. ": a whole number was expected", 3) end
  return number
end

local QUANTIFIER = {[42] = true, [43] = true, [45] = true, [63] = true}

-- The number of things in a pattern that can take more or less of the subject.
local function count_quantifiers(pattern)
  local quantifiers, place, size = 0, 1, #pattern
  while place <= size do
    local code = byte(pattern, place)
    if code == 37 then
      local class = byte(pattern, place + 1) or 0
      -- %b, and back references.
      if class == 98 or (class >= 48 and class <= 57) then quantifiers = quantifiers + 1 end
      place = place + 2
    else
      if QUANTIFIER[code] then quantifiers = quantifiers + 1 end
      place = place + 1
    end
  end
  return quantifiers
end

local function check_pattern(name, subject_bytes, pattern, factor)
  if #pattern > PATTERN_BYTES_MAX then
    raw_error(name .. ": a pattern has at most " .. PATTERN_BYTES_MAX .. " bytes", 3)
  end
  local quantifiers = count_quantifiers(pattern)
  if quantifiers > QUANTIFIERS_MAX then
    raw_error(name .. ": a pattern has at most " .. QUANTIFIERS_MAX .. " of * + - ? %b %1", 3)
  end
  if byte(pattern, 1) ~= 94 then quantifiers = quantifiers + 1 end
  local steps = #pattern * factor
  for degree = 1, quantifiers do steps = steps * (subject_bytes + degree) / degree end
  if steps > PATTERN_STEPS_MAX then
    raw_error(name .. ": this pattern may take too long on " .. subject_bytes .. " bytes", 3)
  end
  if steps > CHEAP then look() end
end

local safe_string = {}

function safe_string.len(value) return #text(value, "len") end

function safe_string.sub(value, first, last)
  return sub(text(value, "sub"), whole(first, "sub", 1), whole(last, "sub", -1))
end

function safe_string.byte(value, first, last)
  first = whole(first, "byte", 1)
  last = whole(last, "byte", first)
  value = text(value, "byte")
  local size = #value
  if first < 0 then first = first + size + 1 end
  if last < 0 then last = last + size + 1 end
  if first < 1 then first = 1 end
  if last > size then last = size end
  if last - first >= ARGUMENTS_MAX then raw_error("byte: at most " .. ARGUMENTS_MAX .. " bytes at once", 2) end
  return byte(value, first, last)
end

for _, name in next, {"lower", "upper", "reverse"} do
  local raw = string[name]
  safe_string[name] = function(value)
    value = text(value, name)
    if #value > CHEAP then look() end
    return raw(value)
  end
end

safe_string.char = string.char

function safe_string.rep(value, times, separator)
  value, times = text(value, "rep"), whole(times, "rep", 0)
  separator = separator == nil and "" or text(separator, "rep")
  local size = #value + #separator
  if times <= 0 or size == 0 then return "" end
  if times > STRING_BYTES_MAX or times * size > STRING_BYTES_MAX then
    raw_error("rep: the result has at most " .. STRING_BYTES_MAX .. " bytes", 2)
  end
  if times * size > CHEAP then look() end
  return rep(value, times, separator)
end
function safe_string.find(value, pattern, first, plain)
  value, pattern, first = text(value, "find"), text(pattern, "find"), whole(first, "find", 1)
  if plain then
    if #value > PLAIN_BYTES_MAX or #pattern > PATTERN_BYTES_MAX then
      raw_error("find: at most " .. PATTERN_BYTES_MAX .. " bytes in " .. PLAIN_BYTES_MAX, 2)
    end
    if #value > CHEAP then look() end
    return find(value, pattern, first, true)
  end
  check_pattern("find", #value, pattern, 1)
  return find(value, pattern, first)
end

function safe_string.match(value, pattern, first)
  value, pattern, first = text(value, "match"), text(pattern, "match"), whole(first, "match", 1)
  check_pattern("match", #value, pattern, 1)
  return match(value, pattern, first)
end

function safe_string.gsub(value, pattern, replacement, times)
  value, pattern = text(value, "gsub"), text(pattern, "gsub")
  check_pattern("gsub", #value, pattern, 32)
  times = whole(times, "gsub", #value + 1)
  local kind = type(replacement)
  if kind == "function" then
    -- Called from here, so that the watch sees instructions between two places.
    local call = replacement
    replacement = function(...) return (call(...)) end
    enter()
    return leave(gsub(value, pattern, replacement, times))
  elseif kind ~= "table" then
    replacement = text(replacement, "gsub")
  end
  return gsub(value, pattern, replacement, times)
end

function safe_string.format(pattern, ...)
  pattern = text(pattern, "format")
  local values, bytes = {...}, #pattern
  for place = 1, select("#", ...) do
    local value = values[place]
    local kind = type(value)
    if kind == "string" then
      bytes = bytes + #value
    elseif kind == "boolean" or kind == "nil" then
      values[place] = tostring(value)
    elseif kind ~= "number" then
      raw_error("format: a " .. kind .. " cannot be formatted", 2)
    end
  end
  if bytes > STRING_BYTES_MAX then raw_error("format: at most " .. STRING_BYTES_MAX .. " bytes", 2) end
  local place = 1
  while true do
    local sign = find(pattern, "%", place, true)
    if not sign then break end
    local letter = find(pattern, "[^0-9.+# -]", sign + 1)
    if not letter or not find("cdiuoxXeEfFgGaAs%", sub(pattern, letter, letter), 1, true) then
      raw_error("format: this conversion is not allowed", 2)
    end
    place = letter + 1
  end
  if bytes > CHEAP then look() end
  return format(pattern, unpack(values, 1, select("#", ...)))
end

local function list(value, name)
  if type(value) ~= "table" then raw_error(name .. ": a table was expected, not a " .. type(value), 3) end
  return value
end

local safe_table = {}

function safe_table.insert(values, ...)
  list(values, "insert")
  local given = select("#", ...)
  if given == 1 then
    values[#values + 1] = (...)
    return
  end
  local place, value = ...
  place = whole(place, "insert")
  if given ~= 2 or not place then raw_error("insert: table, place and value were expected", 2) end
  if #values - place > CHEAP // 8 then look() end
  insert(values, place, value)
end

function safe_table.remove(values, place)
  local size = #list(values, "remove")
  place = whole(place, "remove", size)
  if size - place > CHEAP // 8 then look() end
  return remove(values, place)
end

function safe_table.concat(values, separator, first, last)
  list(values, "concat")
  separator = separator == nil and "" or text(separator, "concat")
  first, last = whole(first, "concat", 1), whole(last, "concat", #values)
  if last - first > CHEAP // 8 or #separator > CHEAP then look() end
  return concat(values, separator, first, last)
end

function safe_table.unpack(values, first, last)
  list(values, "unpack")
  first, last = whole(first, "unpack", 1), whole(last, "unpack", #values)
  -- The difference of two far ends wraps around.
  if last >= first and (last - first < 0 or last - first >= ARGUMENTS_MAX) then
    raw_error("unpack: at most " .. ARGUMENTS_MAX .. " values", 2)
  end
  return unpack(values, first, last)
end

function safe_table.pack(...) return {n = select("#", ...), ...} end

function safe_table.sort(values, is_less)
  list(values, "sort")
  if is_less ~= nil and type(is_less) ~= "function" then raw_error("sort: a function was expected", 2) end
  -- A comparison in Lua, even of the plain kind: in C the watch would sleep until the last element is in place.
  enter()
  sort(values, is_less and function(a, b) return (is_less(a, b)) end or function(a, b) return a < b end)
  leave()
end

local function settle(level, done, problem, ...)
  nested = level
  if not done and (watch.stopped or problem == OUT_OF_MEMORY) then raw_error(problem, 0) end
  return done, problem, ...
end

local function safe_math()
  local copy = {}
  for _, name in next, {
    "abs", "ceil", "cos", "deg", "exp", "floor", "fmod", "huge", "log", "max", "maxinteger", "min", "mininteger", "modf",
    "pi", "rad", "sin", "sqrt", "tan", "tointeger", "type", "ult",
  } do
    copy[name] = math[name]
  end
  return copy
end

local function new_environment()
  -- Methods of strings come from the same table: s:rep is the safe one.
  getmetatable("").__index = safe_string
  return {
    assert = assert,
    error = raw_error,
    ipairs = ipairs,
    next = next,
    pairs = pairs,
    select = select,
    type = type,
    pcall = function(call, ...)
      local level = nested
      enter()
      return settle(level, raw_pcall(call, ...))
    end,
    tonumber = function(value, base)
      if type(value) == "string" and #value > ARGUMENTS_MAX then return nil end
      if base == nil then return tonumber(value) end
      return tonumber(value, base)
    end,
    tostring = function(value)
      local kind = type(value)
      -- The address of a table is nobody's business.
      if kind == "string" or kind == "number" or kind == "boolean" or kind == "nil" then return tostring(value) end
      return kind
    end,
    string = safe_string,
    table = safe_table,
    math = safe_math(),
  }
end

return {
  watch = watch,
  look = look,
  new_environment = new_environment,
  OUT_OF_MEMORY = OUT_OF_MEMORY,
  OUT_OF_TIME = OUT_OF_TIME,
}
