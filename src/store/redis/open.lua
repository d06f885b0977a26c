-- A process takes the name of a node: from now on the commits of those that had it before are refused.
local prefix, node, version, boot, sole = unpack(ARGV)
local home = prefix .. 'node:' .. node
local format = redis.call('GET', prefix .. 'format')

if format and tonumber(format) > tonumber(version) then
    return {'newer', format}
end
-- A daemon takes all records for its own.
local owner = redis.call('GET', prefix .. 'sole')
if sole == '1' and owner and owner ~= node then
    return {'taken', owner}
end
if sole == '1' then
    redis.call('SET', prefix .. 'sole', node)
end
redis.call('SET', prefix .. 'format', version)
local was = redis.call('HMGET', home, 'sequence', 'boot')
local epoch = redis.call('HINCRBY', home, 'epoch', 1)
redis.call('HSET', home, 'commit', '0', 'boot', boot)
redis.call('HDEL', home, 'outcomes')
return {'ok', tostring(epoch), was[1] or '0', was[2] or ''}
