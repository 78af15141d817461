"""
The journal's script: the server executes a list of calls atomically.

Law: nothing is written if the journal is not the one that the caller knows (another *era*, or fewer *writes*): it was emptied or restored
from an older copy, and lost facts must be given back first. Otherwise every call is executed, and each key's era and count of writes are
returned; so every call writes, even one that only reads.

The arguments are flat text: the era for keys without one, whether facts are being restored, each key's era and writes as the caller knows
them, then each call as its name, the number of its key and its own arguments.
"""

from __future__ import annotations

SCRIPT = """
local at = 0
local function next_arg() at = at + 1; return ARGV[at] end
local POSITIONS = {estimates = 'positions', imports = 'import_positions', stamps = 'stamp_positions', verdicts = 'verdict_positions',
  skips = 'skip_positions'}

local function names(facts, kind) return facts .. ':' .. kind, facts .. ':' .. POSITIONS[kind] end
local function put(facts, kind, position, value)
  local values, positions = names(facts, kind)
  redis.call('HSET', values, position, value)
  redis.call('ZADD', positions, 0, position)
end
local function last_from(facts, kind, bound)
  local values, positions = names(facts, kind)
  local position = redis.call('ZREVRANGEBYLEX', positions, bound, '-', 'LIMIT', 0, 1)[1]
  if position then return position, redis.call('HGET', values, position) end
end

local calls = {}

function calls.raise(facts)
  local kind, position, value = next_arg(), next_arg(), next_arg()
  local closed = redis.call('HGET', facts, 'closed')
  if closed and position < closed then return '' end
  local known = redis.call('HGET', names(facts, kind), position)
  if known and known > value then value = known end
  put(facts, kind, position, value)
  return value
end

function calls.close(facts)
  local below, kind, planned, recent = next_arg(), next_arg(), next_arg(), next_arg()
  local closed = redis.call('HGET', facts, 'closed') or '0000000000000000000'
  if below <= closed then return '' end
  if kind ~= '' then
    local last, last_value = last_from(facts, kind, '+')
    if kind == 'stamps' then
      local values, positions = names(facts, 'estimates')
      for _, position in ipairs(redis.call('ZRANGEBYLEX', positions, '[' .. closed, '(' .. below)) do
        local estimated = redis.call('HGET', values, position)
        if estimated > planned then planned = estimated end
        if estimated > recent then recent = estimated end
      end
    end
    if not last or last_value < recent then put(facts, kind, closed, planned) end
  end
  redis.call('HSET', facts, 'closed', below)
  return ''
end

function calls.read(facts)
  local kind, from, till, is_planning = next_arg(), next_arg(), next_arg(), next_arg()
  local values, positions = names(facts, kind)
  if is_planning == '1' then from = last_from(facts, kind, '[' .. from) or from end
  local found = {}
  for _, position in ipairs(redis.call('ZRANGEBYLEX', positions, '[' .. from, '[' .. till)) do
    found[#found + 1] = position
    found[#found + 1] = redis.call('HGET', values, position)
  end
  return found
end

function calls.set_once(facts)
  local name, value = next_arg(), next_arg()
  redis.call('HSETNX', facts, name, value)
  return redis.call('HGET', facts, name)
end

function calls.get(facts)
  return redis.call('HGET', facts, next_arg()) or ''
end

function calls.note_silence(facts)
  local position, silence, boot = next_arg(), next_arg(), next_arg()
  local known = redis.call('HGET', facts, 'silence')
  if known then
    local known_position = string.sub(known, 1, 19)
    local same_boot = string.sub(known, 21, 20 + #boot + 1) == boot .. ' '
    if known_position > position or (known_position == position and same_boot) then return known end
  end
  redis.call('HSET', facts, 'silence', silence)
  return silence
end

function calls.forget(facts)
  local kind, below, most, is_planning = next_arg(), next_arg(), next_arg(), next_arg()
  local values, positions = names(facts, kind)
  if is_planning == '1' then below = last_from(facts, kind, '[' .. below) or '' end
  if below == '' then return 0 end
  local gone = redis.call('ZRANGEBYLEX', positions, '-', '(' .. below, 'LIMIT', 0, most)
  for _, position in ipairs(gone) do
    redis.call('HDEL', values, position)
    redis.call('ZREM', positions, position)
  end
  return #gone
end

function calls.drop(facts)
  redis.call('HDEL', facts, next_arg())
  return ''
end

function calls.reopen(facts)
  redis.call('HSET', facts, 'closed', next_arg())
  return ''
end

function calls.renew(facts)
  redis.call('HSET', facts, 'era', next_arg())
  return ''
end

function calls.withdraw(facts)
  local kind, position = next_arg(), next_arg()
  local values, positions = names(facts, kind)
  redis.call('ZREM', positions, position)
  return redis.call('HDEL', values, position)
end

function calls.restore(facts)
  local kind, position, value, is_planning = next_arg(), next_arg(), next_arg(), next_arg()
  local values, positions = names(facts, kind)
  local known = redis.call('HGET', values, position)
  local closed = redis.call('HGET', facts, 'closed')
  if known and (is_planning == '1' or (closed and position < closed)) then return known == value and 1 or 0 end
  if is_planning == '1' then
    local _, before = last_from(facts, kind, '(' .. position)
    local after = redis.call('ZRANGEBYLEX', positions, '(' .. position, '+', 'LIMIT', 0, 1)[1]
    if before and before > value then return 0 end
    if after and redis.call('HGET', values, after) < value then return 0 end
  end
  if known and known > value then value = known end
  put(facts, kind, position, value)
  return 1
end

local new_era, is_restore, lost = next_arg(), next_arg() == '1', {}
for key = 1, #KEYS do
  local era, writes = next_arg(), next_arg()
  local held = redis.call('HMGET', KEYS[key], 'era', 'writes')
  if held[2] and (#held[2] > 15 or not string.match(held[2], '^%d+$')) then
    redis.call('HSET', KEYS[key], 'writes', 0)
    held[2] = '-1'
  end
  local same = held[1] == era
  if era ~= '' and not (same and tonumber(held[2] or '-1') >= tonumber(writes)) then
    if not is_restore then lost[#lost + 1] = key
    -- Others that know this era must notice too: an older copy came back under it.
    elseif same then redis.call('HSET', KEYS[key], 'era', new_era) end
  end
end
if #lost > 0 then return {'lost', lost, {}} end

local standings, answers = {}, {}
for key = 1, #KEYS do
  redis.call('HSETNX', KEYS[key], 'era', new_era)
  local writes = redis.call('HINCRBY', KEYS[key], 'writes', 1)
  standings[key] = {redis.call('HGET', KEYS[key], 'era'), writes}
end
while at < #ARGV do
  local call = calls[next_arg()]
  answers[#answers + 1] = call(KEYS[tonumber(next_arg())])
end
return {'done', standings, answers}
"""
