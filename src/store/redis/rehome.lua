-- SPDX-License-Identifier: Apache-2.0
-- Sessions get a new home: those of a node that has not reported since `beat`, or of none ('-').
-- The first call for a node takes its epoch away: whatever it writes from now on is refused.
local prefix, node, epoch, from, from_epoch, beat, most = unpack(ARGV)
local home = redis.call('HMGET', prefix .. 'node:' .. node, 'epoch', 'lost')
local sequence = '0'

if home[1] ~= epoch then
    return {'fenced', home[1] or '0', home[2] or ''}
end
if from ~= '-' then
    local key = prefix .. 'node:' .. from
    local found = redis.call('HMGET', key, 'epoch', 'beat', 'lost', 'sequence')

    sequence = found[4] or '0'
    if found[3] ~= '1' then
        if found[1] ~= from_epoch or found[2] ~= beat then
            return {'alive'}
        end
        redis.call('HSET', key, 'lost', '1', 'epoch', string.format('%.0f', tonumber(from_epoch) + 1))
    end
end

local old, new = 's.node:' .. from, 's.node:' .. node
local answer = {'ok', sequence}

for _, id in ipairs(redis.call('ZRANGE', prefix .. old, 0, tonumber(most) - 1)) do
    local key = prefix .. 's:' .. id
    local found = redis.call('HMGET', key, '_at', '_in')

    if found[1] then
        local names = cmsgpack.unpack(found[2])

        for i, name in ipairs(names) do
            if name == old then
                names[i] = new
            end
        end
        redis.call('HSET', key, 'node', node, '_in', cmsgpack.pack(names))
        redis.call('ZADD', prefix .. new, found[1], id)
        answer[#answer + 1] = id
    end
    redis.call('ZREM', prefix .. old, id)
end
return answer
