-- fila.parse_protobuf: an encoded message to its fields by number, without its schema.
--
-- Returns two tables: the last value of each field, and the list of all its values. Varints and fixed numbers are
-- integers of 64 bits, what has a length is a string: text, bytes, or a message that can be parsed again.
local raw_error, type = error, type
local byte, sub, unpack = string.byte, string.sub, string.unpack

local look = ...

local function fail(place)
  raw_error("parse_protobuf: malformed at byte " .. place, 0)
end

local function read_varint(text, place)
  local code = byte(text, place) or fail(place)
  if code < 128 then return code, place + 1 end
  local number, shift = code & 127, 7
  for next_place = place + 1, place + 9 do
    code = byte(text, next_place) or fail(place)
    number = number | ((code & 127) << shift)
    if code < 128 then return number, next_place + 1 end
    shift = shift + 7
  end
  fail(place)
end

return function(text)
  if type(text) ~= "string" then raw_error("parse_protobuf: a string was expected, not a " .. type(text), 2) end
  if #text > 1024 then look() end
  local last, all = {}, {}
  local place, size = 1, #text
  while place <= size do
    local start = place
    local tag, value
    tag, place = read_varint(text, place)
    local field, kind = (tag >> 3), tag & 7
    if field == 0 or tag > 0xFFFFFFFF or tag < 0 then fail(start) end
    if kind == 0 then
      value, place = read_varint(text, place)
    elseif kind == 2 then
      local length
      length, place = read_varint(text, place)
      if length < 0 or length > size - place + 1 then fail(start) end
      value = sub(text, place, place + length - 1)
      place = place + length
    elseif kind == 1 and size - place >= 7 then
      value, place = unpack("<i8", text, place)
    elseif kind == 5 and size - place >= 3 then
      value, place = unpack("<I4", text, place)
    else
      fail(start)
    end
    last[field] = value
    local values = all[field]
    if values then
      values[#values + 1] = value
    else
      all[field] = {value}
    end
  end
  return last, all
end
