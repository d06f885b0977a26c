-- SPDX-License-Identifier: Apache-2.0
-- A part of a look at all sessions: one that is in no index is found by no query, and would stay for ever; so would an ended one without
-- an entry for its retention. Returns where to go on, and how many were put right.
local prefix, pattern, cursor = unpack(ARGV)
local part = redis.call('SCAN', cursor, 'MATCH', pattern, 'COUNT', 200)
local repaired = 0

local function enter(key, id)
    local found = redis.call('HMGET', key, '_at', 'state', 'owner', 'key', 'node')
    local at = found[1] or tostring(redis.call('INCR', prefix .. 'at'))
    local owner = found[3] or ''
    local names = {'s.all', found[2] == 'ended' and 's.ended' or 's.live', 's.own:' .. owner}

    if found[4] then
        names[#names + 1] = 's.key:' .. found[4]
    end
    names[#names + 1] = found[2] == 'ended' and 's.ended.own:' .. owner or 's.node:' .. (found[5] or '-')
    for _, name in ipairs(names) do
        redis.call('ZADD', prefix .. name, at, id)
    end
    names[#names + 1] = 's.retention'
    redis.call('HSET', key, '_at', at, '_in', cmsgpack.pack(names))
end

for _, key in ipairs(part[2]) do
    local id = string.sub(key, #prefix + 3)
    local is_hash = redis.call('TYPE', key).ok == 'hash'
    local is_lost = is_hash and not redis.call('ZSCORE', prefix .. 's.all', id)
    local stays = is_hash and redis.call('HGET', key, 'state') == 'ended' and not redis.call('ZSCORE', prefix .. 's.retention', id)

    if is_lost then
        enter(key, id)
    end
    if stays then
        redis.call('ZADD', prefix .. 's.retention', math.max(1, tonumber(redis.call('HGET', key, 'retain_until_wall_us') or '1')), id)
    end
    if is_lost or stays then
        repaired = repaired + 1
    end
end
return {part[1], tostring(repaired)}
