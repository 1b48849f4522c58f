-- Reads a body: the protobuf encoding of headers (field 2) and payload (field 3), by whoever encoded it.
--
-- Trusted, and not watched: what it does is bounded by the bytes of the body and the number of headers.
local error, byte, sub = error, string.byte, string.sub

local settings, MALFORMED = ...
local HEADER_BYTES_MAX, HEADERS_MAX = settings.header_bytes_max, settings.headers_max

local function read_varint(text, place)
  local code = byte(text, place)
  local number, shift = code & 127, 7
  while code >= 128 do
    if shift > 63 then error(MALFORMED, 0) end
    place = place + 1
    code = byte(text, place)
    number = number | ((code & 127) << shift)
    shift = shift + 7
  end
  return number, place + 1
end

-- Returns the place after a field that is not ours, or of an entry's other than key and value.
local function skip_field(text, place, kind)
  if kind == 0 then
    local _, after = read_varint(text, place)
    return after
  end
  if kind == 1 then return place + 8 end
  if kind == 5 then return place + 4 end
  if kind ~= 2 then error(MALFORMED, 0) end
  local length, after = read_varint(text, place)
  if length < 0 then error(MALFORMED, 0) end
  return after + length
end

local function read_entry(text, place, stop)
  local key, value = "", ""
  while place < stop do
    local tag, after = read_varint(text, place)
    local finish = skip_field(text, after, tag & 7)
    if finish > stop then error(MALFORMED, 0) end
    if tag == 10 or tag == 18 then
      local _, first = read_varint(text, after)
      if tag == 10 then key = sub(text, first, finish - 1) else value = sub(text, first, finish - 1) end
    end
    place = finish
  end
  return key, value
end

return function(text, place, stop, wants_payload)
  local headers, payload_size, payload = {}, 0, nil
  local header_bytes, header_count = 0, 0
  if wants_payload then payload = "" end
  while place < stop do
    local tag, length, key_tag, key_length = byte(text, place, place + 3)
    if tag == 18 and length < 128 then
      local finish = place + 2 + length
      if finish > stop then error(MALFORMED, 0) end
      header_bytes = header_bytes + length
      header_count = header_count + 1
      -- With lengths below 128, each is one byte.
      local value_place = place + 4 + (key_length or 0)
      local value_tag, value_length = byte(text, value_place, value_place + 1)
      if key_tag == 10 and value_tag == 18 and value_place + 2 + value_length == finish then
        headers[sub(text, place + 4, value_place - 1)] = sub(text, value_place + 2, finish - 1)
      else
        local key, value = read_entry(text, place + 2, finish)
        headers[key] = value
      end
      place = finish
    else
      local after, finish
      tag, after = read_varint(text, place)
      finish = skip_field(text, after, tag & 7)
      if finish > stop then error(MALFORMED, 0) end
      if tag == 26 then
        length, after = read_varint(text, after)
        payload_size = length
        if wants_payload then payload = sub(text, after, finish - 1) end
      elseif tag == 18 then
        length, after = read_varint(text, after)
        header_bytes = header_bytes + length
        header_count = header_count + 1
        if header_bytes <= HEADER_BYTES_MAX then
          local key, value = read_entry(text, after, finish)
          headers[key] = value
        end
      end
      place = finish
    end
    if header_bytes > HEADER_BYTES_MAX or header_count > HEADERS_MAX then
      error("the message has more headers than a hook is given: at most " .. HEADERS_MAX .. " with "
        .. HEADER_BYTES_MAX .. " bytes", 0)
    end
  end
  return headers, payload_size, payload
end
