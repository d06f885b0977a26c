-- SPDX-License-Identifier: Apache-2.0
-- A process takes the name of a node: from now on the commits of those that had it before are refused.
local prefix, node, version, boot, sole = unpack(ARGV)
local home = prefix .. 'node:' .. node
local format = redis.call('GET', prefix .. 'format')

if format and tonumber(format) > tonumber(version) then
    return {'newer', format}
end
-- A daemon takes all records for its own.
local owner = redis.call('GET', prefix .. 'sole')
if owner and owner ~= node then
    return {'taken', owner}
end
if sole == '1' and redis.call('SCARD', prefix .. 'nodes') > 0 then
    return {'shared', ''}
end
if sole == '1' then
    redis.call('SET', prefix .. 'sole', node)
else
    redis.call('DEL', prefix .. 'sole')
end
-- Format 1 had no indexes by node; only one daemon has used it.
if format == '1' then
    local function enter(kind, name, at, id)
        local key = prefix .. kind .. ':' .. id
        local names = cmsgpack.unpack(redis.call('HGET', key, '_in') or cmsgpack.pack({}))

        names[#names + 1] = name
        redis.call('ZADD', prefix .. name, at, id)
        redis.call('HSET', key, '_in', cmsgpack.pack(names))
    end
    local function enter_all(kind, index, name_of)
        local ids = redis.call('ZRANGE', prefix .. index, 0, -1, 'WITHSCORES')

        for i = 1, #ids, 2 do
            if redis.call('EXISTS', prefix .. kind .. ':' .. ids[i]) == 1 then
                enter(kind, name_of(ids[i]), ids[i + 1], ids[i])
            end
        end
    end
    enter_all('s', 's.live', function(id) return 's.node:' .. (redis.call('HGET', prefix .. 's:' .. id, 'node') or node) end)
    enter_all('b', 'b.all', function(id) return 'b.node:' .. (redis.call('HGET', prefix .. 'b:' .. id, 'node') or node) end)
    enter_all('e', 'e.all', function(id) return 'e.node:' .. node end)
    enter_all('e', 'e.all', function(id) return 'e.own:' .. node .. '/' .. (redis.call('HGET', prefix .. 'e:' .. id, 'owner') or '') end)
end
redis.call('SET', prefix .. 'format', version)
local was = redis.call('HMGET', home, 'sequence', 'boot')
local epoch = redis.call('HINCRBY', home, 'epoch', 1)
redis.call('HSET', home, 'commit', '0', 'boot', boot)
redis.call('HDEL', home, 'outcomes', 'lost')
redis.call('HINCRBY', home, 'beat', 1)
local time = redis.call('TIME')
return {'ok', tostring(epoch), was[1] or '0', was[2] or '', time[1] .. string.format('%06d', time[2])}
