-- fila.parse_json: text to tables, strings, numbers and booleans, in Lua so that the watch sees every step.
--
-- Strict as RFC 8259. A null in an object leaves its key out; in a list, where places count, it is `null`.
local raw_error, tonumber, type = error, tonumber, type
local byte, find, match, sub = string.byte, string.find, string.match, string.sub
local concat, utf8_char, huge = table.concat, utf8.char, math.huge

local look, null = ...
local DEPTH_MAX = 100
-- A string in it is one step of the matcher's, some 3 ns a byte.
local TEXT_BYTES_MAX = 262144

local ESCAPES = {
  ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t",
}

local function fail(what, place)
  raw_error("parse_json: " .. what .. " at byte " .. place, 0)
end

local function skip(text, place)
  local code = byte(text, place)
  if not code or code > 32 then return place end
  return match(text, "^[ \t\r\n]*()", place)
end

-- A code unit outside of a pair is no character.
local function read_unicode(text, place)
  local digits = match(text, "^%x%x%x%x", place)
  if not digits then fail("four hexadecimal digits expected", place) end
  local code = tonumber(digits, 16)
  place = place + 4
  if code >= 0xD800 and code <= 0xDFFF then
    local low = code < 0xDC00 and match(text, "^\\u([dD][c-fC-F]%x%x)", place)
    if not low then return "\u{FFFD}", place end
    return utf8_char(0x10000 + ((code - 0xD800) << 10) + (tonumber(low, 16) - 0xDC00)), place + 6
  end
  return utf8_char(code), place
end

local function read_string(text, place)
  -- Most have no escape.
  local plain, after = match(text, '^([^\0-\31"\\]*)"()', place)
  if plain then return plain, after end
  local start = place
  local pieces
  while true do
    local stop = match(text, '^[^\0-\31"\\]*()', place)
    local code = byte(text, stop)
    if code == 34 then
      local rest = sub(text, place, stop - 1)
      if not pieces then return rest, stop + 1 end
      pieces[#pieces + 1] = rest
      return concat(pieces), stop + 1
    end
    if code ~= 92 then fail(code and "control character in a string" or "string without an end", code and stop or start) end
    local letter = sub(text, stop + 1, stop + 1)
    local piece = ESCAPES[letter]
    local after = stop + 2
    if not piece then
      if letter ~= "u" then fail("unknown escape", stop) end
      piece, after = read_unicode(text, after)
    end
    pieces = pieces or {}
    pieces[#pieces + 1] = sub(text, place, stop - 1)
    pieces[#pieces + 1] = piece
    place = after
  end
end

local function read_number(text, place)
  local whole, stop = match(text, "^(-?%d+)()", place)
  if not whole then fail("value expected", place) end
  if find(whole, "^-?0%d") then fail("number with a leading zero", place) end
  local after = byte(text, stop)
  if after ~= 46 and after ~= 101 and after ~= 69 and #whole < 19 then return tonumber(whole), stop end
  local fraction_stop = match(text, "^%.%d+()", stop) or stop
  local number_stop = match(text, "^[eE][+-]?%d+()", fraction_stop) or fraction_stop
  local next_code = byte(text, number_stop)
  if next_code == 46 or next_code == 101 or next_code == 69 then fail("malformed number", place) end
  local number = #whole < 1000 and tonumber(sub(text, place, number_stop - 1))
  if not number or number == huge or number == -huge then fail("number out of range", place) end
  return number, number_stop
end

local read_value

local function read_list(text, place, depth)
  local values, size = {}, 0
  place = skip(text, place)
  if byte(text, place) == 93 then return values, place + 1 end
  while true do
    local value
    value, place = read_value(text, place, depth)
    size = size + 1
    if value == nil then value = null end
    values[size] = value
    place = skip(text, place)
    local code = byte(text, place)
    if code == 93 then return values, place + 1 end
    if code ~= 44 then fail("',' or ']' expected", place) end
    place = skip(text, place + 1)
  end
end

local function read_object(text, place, depth)
  local values = {}
  place = skip(text, place)
  if byte(text, place) == 125 then return values, place + 1 end
  while true do
    if byte(text, place) ~= 34 then fail("a key in quotes expected", place) end
    local key
    key, place = read_string(text, place + 1)
    place = skip(text, place)
    if byte(text, place) ~= 58 then fail("':' expected", place) end
    values[key], place = read_value(text, skip(text, place + 1), depth)
    place = skip(text, place)
    local code = byte(text, place)
    if code == 125 then return values, place + 1 end
    if code ~= 44 then fail("',' or '}' expected", place) end
    place = skip(text, place + 1)
  end
end

function read_value(text, place, depth)
  local code = byte(text, place)
  if code == 34 then return read_string(text, place + 1) end
  if code == 123 or code == 91 then
    if depth == 0 then fail("more than " .. DEPTH_MAX .. " levels", place) end
    return (code == 123 and read_object or read_list)(text, place + 1, depth - 1)
  end
  if code == 116 and sub(text, place, place + 3) == "true" then return true, place + 4 end
  if code == 102 and sub(text, place, place + 4) == "false" then return false, place + 5 end
  if code == 110 and sub(text, place, place + 3) == "null" then return nil, place + 4 end
  return read_number(text, place)
end

return function(text)
  if type(text) ~= "string" then raw_error("parse_json: a string was expected, not a " .. type(text), 2) end
  if #text > TEXT_BYTES_MAX then raw_error("parse_json: at most " .. TEXT_BYTES_MAX .. " bytes", 2) end
  if #text > 1024 then look() end
  local value, place = read_value(text, skip(text, 1), DEPTH_MAX)
  place = skip(text, place)
  if place <= #text then fail("end expected", place) end
  return value
end
