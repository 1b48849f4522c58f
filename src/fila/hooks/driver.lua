-- What runs the hooks of a batch: bodies in, columns out, one call for all of them.
--
-- Bodies come as they are stored, and are read in Lua (`body.lua`): a string costs a tenth of an object in Python. Everything in
-- this file is trusted and runs unwatched; the script runs in a thread of its own.
local sandbox_source, body_source, json_source, protobuf_source, settings = ...

-- A round of the collector has a part that cannot be divided and takes longer than a call: rounds are seldom. `lua.py` asks
-- for one between calls, the watch during them.
collectgarbage("incremental", 1000, 100, 10)

-- Keep what is needed, before the globals are taken away.
local error, load, next, pcall = error, load, next, pcall
local create, resume, yield = coroutine.create, coroutine.resume, coroutine.yield
local tonumber, tostring, type = tonumber, tostring, type
local find, gsub, sub = string.find, string.gsub, string.sub
local ceil, math_type, to_integer = math.ceil, math.type, math.tointeger
local unpack, utf8_length = table.unpack, utf8.len
local collectgarbage = collectgarbage

local sandbox = load(sandbox_source, "=sandbox", "t")()
local watch, OUT_OF_MEMORY, OUT_OF_TIME = sandbox.watch, sandbox.OUT_OF_MEMORY, sandbox.OUT_OF_TIME
local null = {}
local parse_json = load(json_source, "=json", "t")(sandbox.look, null)
local parse_protobuf = load(protobuf_source, "=protobuf", "t")(sandbox.look)

local KEY_BYTES_MAX, GATES_MAX = settings.key_bytes_max, settings.gates_max
local WEIGHT_MAX, COST_MAX, DELAY_MS_MAX = settings.weight_max, settings.cost_max, settings.delay_ms_max
local ERROR_BYTES_MAX = settings.error_bytes_max
local SECONDS, NAME, QUEUE = settings.seconds, settings.name, settings.queue
local KNOWN_MAX = 1000
local MALFORMED = "the body of the message is malformed"
local read_body = load(body_source, "=body", "t")(settings, MALFORMED)

local config = {}
local environment = sandbox.new_environment()
environment.fila = {
  get = function(key)
    if type(key) ~= "string" then error("get: a string was expected, not a " .. type(key), 2) end
    return config[key]
  end,
  parse_json = parse_json,
  parse_protobuf = parse_protobuf,
  null = null,
}

-- From here on there are no globals: whoever gets out of the sandbox finds nothing.
local globals = _G
for name in next, globals do globals[name] = nil end

local hook
local wants_payload

-- Checking what a hook returned. A table of a script has no metatable: it can make none.
local function refuse(field, value, expected)
  local kind = type(value)
  local shown = kind == "number" and tostring(value) or "a " .. kind
  error(NAME .. " returned " .. field .. " = " .. shown .. ": " .. expected .. " was expected", 0)
end

local function check_whole(field, value, maximum, rounds)
  local number = value
  if type(number) == "string" then number = #number <= 20 and tonumber(number) end
  if type(number) ~= "number" or not (number >= 0 and number <= maximum) then
    refuse(field, value, "a number from 0 to " .. maximum)
  end
  local whole = to_integer(rounds and ceil(number) or number)
  if not whole then refuse(field, value, "a whole number") end
  return whole
end

-- What was checked once need not be again.
local function known_numbers(field, maximum, rounds)
  local known, size = {}, 0
  return known, function(value)
    local whole = check_whole(field, value, maximum, rounds)
    if size < KNOWN_MAX then
      size = size + 1
      known[value] = whole
    end
    return whole
  end
end

local known_weights, check_weight = known_numbers("weight", WEIGHT_MAX, false)
local known_costs, check_cost = known_numbers("cost", COST_MAX, true)
local known_delays, check_delay = known_numbers("delay_ms", DELAY_MS_MAX, true)

local function check_key(field, value)
  if math_type(value) == "integer" then return tostring(value) end
  if type(value) ~= "string" then refuse(field, value, "a string or a whole number") end
  if #value > KEY_BYTES_MAX then
    error(NAME .. " returned " .. field .. " of " .. #value .. " bytes: at most " .. KEY_BYTES_MAX .. " are allowed", 0)
  end
  if not utf8_length(value) then error(NAME .. " returned " .. field .. " that is not UTF-8", 0) end
  return value
end

-- The thread of the script: it takes a message, runs the hook and gives back the result. An error is its end.
local thread

local function serve(message, attempts)
  while true do message, attempts = yield(hook(message, attempts)) end
end

local function renew()
  thread = create(serve)
  watch.guard(thread)
end

-- What a call is about. `place` is where the next body begins. Columns are kept from call to call: their size is bounded.
local count, text, columns, place = 0, "", nil, 1
local no_problems = {}
local strikes_max, strikes, problems = 0, 0, no_problems
local keys, key_places
local key_index, weights, costs, delays, retries, out = {}, {}, {}, {}, {}, {}
local has_weights, has_costs, has_delays
local gates, pools
local current, phase = 0, nil

local function add_key(value)
  local key = check_key("fairness_key", value)
  local index = key_places[key]
  if not index then
    index = #keys
    keys[index + 1] = key
    key_places[key] = index
  end
  key_places[value] = index
  return index
end

local function fill(column, stop)
  for i = 1, stop do column[i] = 0 end
end

-- Distinct lists of keys: a tree of tables whose nodes know, at [1], the number of the list that ends there.
local empty = {}

local function new_sets(field)
  return {field = field, index = {}, flat = empty, size = 0, tree = false, used = false}
end
gates, pools = new_sets("throttle_keys"), new_sets("concurrency_keys")

-- What no message of a call names costs the call nothing.
local function begin_sets(sets, i)
  sets.used, sets.size, sets.tree, sets.flat = true, 0, {}, {}
  fill(sets.index, i - 1)
end

local function forget_sets(sets)
  if sets.used then sets.used, sets.tree, sets.flat = false, false, empty end
end

local function add_set(sets, list, length, node)
  local checked, flat = {}, sets.flat
  for i = 1, length do checked[i] = check_key(sets.field, list[i]) end
  flat[#flat + 1] = length
  for i = 1, length do flat[#flat + 1] = checked[i] end
  sets.size = sets.size + 1
  node[1] = sets.size
  return sets.size
end

local function find_set(sets, list)
  if type(list) ~= "table" then refuse(sets.field, list, "a list of strings") end
  local node, length = sets.tree, 0
  while true do
    local key = list[length + 1]
    if key == nil then break end
    length = length + 1
    -- An integer would be taken for a place in the tree.
    if type(key) ~= "string" then key = check_key(sets.field, key) end
    if key == "" then error(NAME .. " returned an empty key in " .. sets.field, 0) end
    local below = node[key]
    if not below then
      if length > GATES_MAX then
        error(NAME .. " returned more than " .. GATES_MAX .. " keys in " .. sets.field, 0)
      end
      below = {}
      node[key] = below
    end
    node = below
  end
  if length == 0 then
    if next(list) ~= nil then refuse(sets.field, list, "a list of strings") end
    return 0
  end
  return node[1] or add_set(sets, list, length, node)
end

local function keep_lists(sets, i, list)
  if not sets.used then begin_sets(sets, i) end
  sets.index[i] = find_set(sets, list)
end

local function blank(i)
  key_index[i] = key_places[""] or add_key("")
  weights[i], costs[i], delays[i], gates.index[i], pools.index[i] = 0, 0, 0, 0, 0
end

-- Columns begin where the first message has something to say in them.
local function keep_routing(i, result)
  if type(result) ~= "table" then
    if result == nil then return blank(i) end
    error(NAME .. " returned a " .. type(result) .. ": a table was expected", 0)
  end
  local value = result.fairness_key
  if value == nil then value = "" end
  key_index[i] = key_places[value] or add_key(value)
  value = result.weight
  if value ~= nil then
    value = known_weights[value] or check_weight(value)
    if not has_weights then has_weights = fill(weights, i - 1) or true end
    weights[i] = value
  elseif has_weights then
    weights[i] = 0
  end
  value = result.throttle_keys
  if value ~= nil then keep_lists(gates, i, value) elseif gates.used then gates.index[i] = 0 end
  value = result.concurrency_keys
  if value ~= nil then keep_lists(pools, i, value) elseif pools.used then pools.index[i] = 0 end
  value = result.cost
  if value ~= nil then
    value = known_costs[value] or check_cost(value)
    if not has_costs then has_costs = fill(costs, i - 1) or true end
    costs[i] = value
  elseif has_costs then
    costs[i] = 0
  end
  value = result.delay_ms
  if value ~= nil then
    value = known_delays[value] or check_delay(value)
    if not has_delays then has_delays = fill(delays, i - 1) or true end
    delays[i] = value
  elseif has_delays then
    delays[i] = 0
  end
end

local function route_on()
  while current < count do
    local i = current + 1
    current, phase = i, "body"
    local start = place
    place = start + columns[i]
    local headers, payload_size, payload = read_body(text, start, place, wants_payload)
    local message = {headers = headers, payload_size = payload_size, queue = QUEUE, payload = payload}
    phase, watch.message = "script", i
    local done, result = resume(thread, message)
    if not done then error(result, 0) end
    phase = "result"
    keep_routing(i, result)
    strikes = 0
  end
end

local function keep_verdict(i, result)
  local action, delay = nil, nil
  if result ~= nil then
    if type(result) ~= "table" then error(NAME .. " returned a " .. type(result) .. ": a table was expected", 0) end
    action, delay = result.action, result.delay_ms
  end
  if action ~= nil and action ~= "retry" and action ~= "dlq" then
    local shown = type(action) == "string" and #action <= 40 and action or "a " .. type(action)
    error(NAME .. " returned action = " .. shown .. ': "retry" or "dlq" was expected', 0)
  end
  if delay ~= nil then delay = known_delays[delay] or check_delay(delay) end
  retries[i] = action ~= "dlq"
  -- Absent: the queue's own back-off.
  delays[i] = delay or -1
end

local function judge_on()
  while current < count do
    local i = current + 1
    current, phase = i, "body"
    local start, row = place, i * 4
    place = start + columns[row - 3]
    local headers = read_body(text, start, place)
    local attempts = columns[row - 1]
    local message = {headers = headers, id = columns[row - 2], attempts = attempts, queue = QUEUE, error = columns[row]}
    phase, watch.message = "script", i
    local done, result = resume(thread, message, attempts)
    if not done then error(result, 0) end
    phase = "result"
    keep_verdict(i, result)
    strikes = 0
  end
end

local function describe(problem)
  -- A place in our own code says nothing to the author of a script.
  if type(problem) == "string" then
    return (gsub(gsub(sub(problem, 1, ERROR_BYTES_MAX), "^sandbox:%d+: ", ""), "^driver:%d+: ", ""))
  end
  if type(problem) == "number" then return tostring(problem) end
  return "the error is a " .. type(problem)
end

-- Forget all that belongs to the script: what follows needs the room.
local function release()
  hook, thread, text, columns = nil, nil, "", nil
  for name in next, environment do environment[name] = nil end
  collectgarbage()
end

local function note(kind, line, what)
  if problems == no_problems then problems = {} end
  local size = #problems
  problems[size + 1], problems[size + 2], problems[size + 3], problems[size + 4] = current, kind, line, what
end

-- Take in that a message failed. Returns why the batch has to end here, or nil.
local function fail(problem, blank_one)
  local fatal = watch.stopped or problem == OUT_OF_MEMORY and "memory"
  if fatal then
    local line = phase == "script" and watch.line(NAME) or 0
    release()
    blank_one(current)
    note(fatal, line, problem)
    strikes = strikes + 1
    return fatal
  end
  blank_one(current)
  if phase == "body" then
    -- Whoever sent it is to blame, and not the script.
    note("message", 0, find(problem, "^body:") and MALFORMED or problem)
    return nil
  end
  if phase == "script" then
    note("script", watch.line(NAME), describe(problem))
    renew()
  else
    note("result", 0, describe(problem))
  end
  strikes = strikes + 1
  return strikes >= strikes_max and "strikes" or nil
end

-- Run `step` to the end of the batch, past the messages that fail. Returns why it ended early, or false.
local function run_all(step, blank_one)
  while true do
    local done, problem = pcall(step)
    if done then return false end
    local reason = fail(problem, blank_one)
    if reason then return reason end
  end
end

local function append(out, size, column, length)
  for i = 1, length do out[size + i] = column[i] end
  return size + length
end

local function start(seconds_in_all, memory_bytes_max, strikes_before, strikes_allowed)
  place, current, problems, strikes, strikes_max = 1, 0, no_problems, strikes_before, strikes_allowed
  watch.start(SECONDS, seconds_in_all, memory_bytes_max)
end

-- Returns: reason; number of messages done, of keys, of values of throttle lists, of concurrency lists, of problems; failures
-- in a row; whether there are weights, costs, delays; the processor time that scripts took, as far as they were slow. Then the columns: key index (of two keys or more), weights, costs,
-- delays, the keys, throttle lists, concurrency lists (each: index, then length and keys of each list), problems.
local function route_columns(reason)
  local done, size = current, 11
  local key_count = #keys
  local gate_values, pool_values = #gates.flat, #pools.flat
  out[1], out[2], out[3], out[4], out[5] = reason, done, key_count, gate_values, pool_values
  out[6], out[7], out[8], out[9], out[10] = #problems, strikes, has_weights, has_costs, has_delays
  out[11] = watch.seconds()
  if key_count > 1 then size = append(out, size, key_index, done) end
  if has_weights then size = append(out, size, weights, done) end
  if has_costs then size = append(out, size, costs, done) end
  if has_delays then size = append(out, size, delays, done) end
  size = append(out, size, keys, key_count)
  if gate_values > 0 then size = append(out, append(out, size, gates.index, done), gates.flat, gate_values) end
  if pool_values > 0 then size = append(out, append(out, size, pools.index, done), pools.flat, pool_values) end
  size = append(out, size, problems, #problems)
  return size
end

local function judge_columns(reason)
  out[1], out[2], out[3], out[4], out[5] = reason, current, #problems, strikes, watch.seconds()
  local size = append(out, append(out, 5, retries, current), delays, current)
  return append(out, size, problems, #problems)
end

-- A script may have left hardly any room: then it has to go.
local function finish(collect, reason)
  local done, size = pcall(collect, reason)
  if not done then
    release()
    size = collect("memory")
  end
  text, columns, keys, key_places = "", nil, nil, nil
  forget_sets(gates)
  forget_sets(pools)
  return unpack(out, 1, size)
end

local function route(batch, seconds_in_all, memory_bytes_max, strikes_before, strikes_allowed, bodies, ...)
  count, text, columns = batch, bodies, {...}
  keys, key_places = {}, {}
  has_weights, has_costs, has_delays = false, false, false
  start(seconds_in_all, memory_bytes_max, strikes_before, strikes_allowed)
  return finish(route_columns, run_all(route_on, blank))
end

local function blank_verdict(i)
  retries[i], delays[i] = true, -1
end

-- Returns what `judge_columns` says: reason, number done, of values of problems, failures in a row, processor time; whether to retry, delays,
-- problems.
local function judge(batch, seconds_in_all, memory_bytes_max, strikes_before, strikes_allowed, bodies, ...)
  count, text, columns = batch, bodies, {...}
  start(seconds_in_all, memory_bytes_max, strikes_before, strikes_allowed)
  return finish(judge_columns, run_all(judge_on, blank_verdict))
end

-- Compiles a script and runs its body. Returns nil, or what is wrong with it and the line where it was stopped.
local function define(source, memory_bytes_max, payload)
  wants_payload = payload
  local compiled, problem = load(source, "=" .. NAME, "t", environment)
  if not compiled then return problem, 0 end
  thread = create(compiled)
  watch.guard(thread)
  watch.start(SECONDS, SECONDS, memory_bytes_max)
  local done, what = resume(thread)
  if not done then return describe(what), watch.line(NAME) end
  hook = environment[NAME]
  if type(hook) ~= "function" then return "the script does not define the function " .. NAME, 0 end
  renew()
end

-- Sets keys of the configuration: names and values in turn, false for a value that is gone.
local function configure(...)
  local values = {...}
  for i = 1, #values, 2 do config[values[i]] = values[i + 1] or nil end
end

return define, configure, NAME == "on_failure" and judge or route, collectgarbage
