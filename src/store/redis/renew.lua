-- SPDX-License-Identifier: Apache-2.0
-- A node reports: it lives, and this is its description. Returns the time of the server and all nodes, each with the number of live sessions whose home it is.
local prefix, node, epoch, description = unpack(ARGV)
local home = prefix .. 'node:' .. node
local stored, own = tonumber(redis.call('HGET', home, 'epoch') or '0'), tonumber(epoch)

if stored > own then
    return {'fenced', tostring(stored), redis.call('HGET', home, 'lost') or ''}
end
-- A server that has forgotten this node: the next commit finds out what else it has forgotten.
if stored < own then
    redis.call('HSET', home, 'epoch', epoch)
end
redis.call('HINCRBY', home, 'beat', 1)
redis.call('HSET', home, 'description', description)
redis.call('HDEL', home, 'lost')
redis.call('SADD', prefix .. 'nodes', node)

local time = redis.call('TIME')
local answer = {'ok', tostring(redis.call('ZCARD', prefix .. 's.node:-')), time[1] .. string.format('%06d', time[2])}
for _, id in ipairs(redis.call('SMEMBERS', prefix .. 'nodes')) do
    local found = redis.call('HMGET', prefix .. 'node:' .. id, 'epoch', 'beat', 'lost', 'description')

    answer[#answer + 1] = id
    answer[#answer + 1] = found[1] or '0'
    answer[#answer + 1] = found[2] or '0'
    answer[#answer + 1] = found[3] or ''
    answer[#answer + 1] = found[4] or '{}'
    answer[#answer + 1] = tostring(redis.call('ZCARD', prefix .. 's.node:' .. id))
end
return answer
