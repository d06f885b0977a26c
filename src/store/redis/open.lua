-- A process takes the name of a node: from now on the commits of those that had it before are refused.
local prefix, node, version, boot = unpack(ARGV)
local home = prefix .. 'node:' .. node
local format = redis.call('GET', prefix .. 'format')

if format and tonumber(format) > tonumber(version) then
    return {'newer', format}
end
redis.call('SET', prefix .. 'format', version)
local was = redis.call('HMGET', home, 'sequence', 'boot')
local epoch = redis.call('HINCRBY', home, 'epoch', 1)
redis.call('HSET', home, 'commit', '0', 'boot', boot)
redis.call('HDEL', home, 'outcomes')
return {'ok', tostring(epoch), was[1] or '0', was[2] or ''}
