-- SPDX-License-Identifier: Apache-2.0
-- One commit of a node: its changes and claims, or nothing. Values are text.
--
-- Keys: node:<node>    hash: epoch, commit (number of the last one), outcomes (of its claims), sequence (of the last event)
--       at             the last position that was given to a record
--       <table>:<id>   hash: a record, its position (_at) and the indexes that it is in (_in)
--       <index>        sorted set of ids, by position or by a time
local prefix, node, epoch, number, previous, accept, now, body = unpack(ARGV)
local home = prefix .. 'node:' .. node
local was = redis.call('HMGET', home, 'epoch', 'commit', 'outcomes', 'sequence')
local stored, own = tonumber(was[1] or '0'), tonumber(epoch)

-- Another process has the name of this node now.
if stored > own then
    return {'fenced', was[1], redis.call('HGET', home, 'lost') or ''}
end
-- The answer was lost, not the commit.
if stored == own and was[2] == number then
    return cmsgpack.unpack(was[3])
end
-- The server has forgotten what it acknowledged.
if accept ~= '1' and (stored < own or was[2] ~= previous) then
    return {'lost', was[2] or '0'}
end

local ops = cmsgpack.unpack(body)
local sequence = tonumber(was[4] or '0')
for _, op in ipairs(ops) do
    if op[2] == 'e' and op[4] and tonumber(op[4]) > sequence then
        sequence = tonumber(op[4])
    end
end

-- A session has one home: a record that names another node is not taken back. It happens after a failover that has lost a takeover.
local function names_another(op)
    local set = op[5]

    for i = 1, #set, 2 do
        if set[i] == 'node' then
            local home_now = (set[i + 1] == node or set[i + 1] == '-') and redis.call('HGET', prefix .. 's:' .. op[3], 'node')

            return home_now and home_now ~= node
        end
    end
    return false
end
for _, op in ipairs(ops) do
    if op[1] == 'put' and op[2] == 's' and names_another(op) then
        return {'fenced', was[1], '1'}
    end
end

-- The first write is one that a server without memory refuses: it refuses none behind that.
redis.call('HSET', home, 'epoch', epoch, 'sequence', string.format('%.0f', sequence))

local changed, outcomes = {}, {'ok'}

local function note(kind, id)
    if kind == 'd' then
        changed[#changed + 1] = id
    end
end

local function leave(id, packed, kept)
    if not packed then
        return
    end
    for _, name in ipairs(cmsgpack.unpack(packed)) do
        if not kept[name] then
            redis.call('ZREM', prefix .. name, id)
        end
    end
end

-- An event never changes: nothing is compared with what is there.
local function put(kind, id, at, set, unset, indexes, old)
    local key = prefix .. kind .. ':' .. id
    local names, kept = {}, {}

    old = old or (kind == 'e' and {}) or redis.call('HMGET', key, '_at', '_in')

    at = old[1] or (at ~= '' and at) or tostring(redis.call('INCR', prefix .. 'at'))
    for i = 1, #indexes, 2 do
        names[#names + 1] = indexes[i]
        kept[indexes[i]] = true
    end
    local packed = cmsgpack.pack(names)
    if old[2] ~= packed then
        leave(id, old[2], kept)
    end
    for i = 1, #indexes, 2 do
        if indexes[i + 1] ~= '' then
            redis.call('ZADD', prefix .. indexes[i], indexes[i + 1], id)
        elseif old[2] ~= packed then
            redis.call('ZADD', prefix .. indexes[i], at, id)
        end
    end
    if old[1] and #unset > 0 then
        redis.call('HDEL', key, unpack(unset))
    end
    redis.call('HSET', key, '_at', at, '_in', packed, unpack(set))
    note(kind, id)
end

local function forget(kind, id)
    local key = prefix .. kind .. ':' .. id

    leave(id, redis.call('HGET', key, '_in'), {})
    redis.call('DEL', key)
    note(kind, id)
end

local function forget_session(id)
    for _, kind in ipairs({'x', 'e'}) do
        for _, of_session in ipairs(redis.call('ZRANGE', prefix .. kind .. '.session:' .. id, 0, -1)) do
            forget(kind, of_session)
        end
    end
    forget('s', id)
end

-- A document that was put, or has expired, is held by nobody: version 0.
local function look(id)
    local found = redis.call('HMGET', prefix .. 'd:' .. id, 'version', 'json', 'expires_wall_us', '_at', '_in')
    local expires = tonumber(found[3] or '0')
    local version = found[1] or '0'

    if expires > 0 and expires <= tonumber(now) then
        version = '0'
    end
    return found, version
end

local function claim(id, expected, set, unset, indexes)
    local found, version = look(id)

    if version ~= expected then
        outcomes[#outcomes + 1] = version == '0' and 'none' or 'lost'
        outcomes[#outcomes + 1] = version
        outcomes[#outcomes + 1] = found[2] or ''
        return
    end
    if set then
        put('d', id, '', set, unset, indexes, {found[4], found[5]})
    else
        forget('d', id)
    end
    outcomes[#outcomes + 1] = 'won'
    outcomes[#outcomes + 1] = ''
    outcomes[#outcomes + 1] = ''
end

-- New sessions whose claim another one holds.
local unwanted = {}
for _, op in ipairs(ops) do
    if op[1] == 'claim' and op[8] and op[8] ~= '' then
        local _, version = look(op[3])

        unwanted[op[8]] = version ~= op[4] and redis.call('EXISTS', prefix .. 's:' .. op[8]) == 0
    end
end

local has_documents = false
for _, op in ipairs(ops) do
    local what, kind, id = op[1], op[2], op[3]

    has_documents = has_documents or kind == 'd'
    if what == 'put' and not (kind == 's' and unwanted[id]) then
        put(kind, id, op[4], op[5], op[6], op[7])
    elseif what == 'claim' then
        claim(id, op[4], op[5], op[6], op[7])
    elseif what == 'forget' and kind == 's' then
        forget_session(id)
    elseif what == 'forget' then
        forget(kind, id)
    end
end
-- Now and then: no query finds them anyway.
if has_documents and tonumber(number) % 16 == 1 then
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', prefix .. 'd.expiry', '-inf', now, 'LIMIT', 0, 100)) do
        leave(id, redis.call('HGET', prefix .. 'd:' .. id, '_in'), {})
        redis.call('ZREM', prefix .. 'd.expiry', id)
        redis.call('DEL', prefix .. 'd:' .. id)
    end
end
-- Behind all that may fail: a commit that has failed has no number.
redis.call('HSET', home, 'commit', number, 'outcomes', cmsgpack.pack(outcomes))
for _, id in ipairs(changed) do
    redis.call('PUBLISH', prefix .. 'changed', id)
end
return outcomes
