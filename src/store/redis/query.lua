-- SPDX-License-Identifier: Apache-2.0
-- A part of a query: walks an index from one score on, and returns where to go on and the records that fit.
-- An index entry without a record is removed.
local prefix, kind, index, id, is_reversed, from, to, offset, wanted, most, now, body = unpack(ARGV)
local filter = cmsgpack.unpack(body) -- fields: name, value, ...; labels: name, value, ...; live, counts: '1' or ''
local fields, labels, is_live, counts = filter[1], filter[2], filter[3] == '1', filter[4] == '1'
local names = {'_at', 'state', 'expires_wall_us', 'labels_json'}
local answer, bytes, matched, removed = {'', '0', '0'}, 0, 0, 0
local ids

for i = 1, #fields, 2 do
    names[#names + 1] = fields[i]
end

local function fits(key)
    local values = redis.call('HMGET', key, unpack(names))

    if not values[1] then
        return nil
    end
    if is_live and values[2] == 'ended' then
        return false
    end
    local expires = tonumber(values[3] or '0')
    if kind == 'd' and expires > 0 and expires <= tonumber(now) then
        return false
    end
    for i = 1, #fields, 2 do
        if (values[4 + (i + 1) / 2] or '') ~= fields[i + 1] then
            return false
        end
    end
    if #labels > 0 then
        local good, has = pcall(cjson.decode, values[4] or '')

        for i = 1, #labels, 2 do
            if not good or type(has) ~= 'table' or has[labels[i]] ~= labels[i + 1] then
                return false
            end
        end
    end
    return true
end

if id ~= '' then
    ids = {id, '0'}
elseif is_reversed == '1' then
    ids = redis.call('ZREVRANGEBYSCORE', prefix .. index, to, from, 'WITHSCORES', 'LIMIT', offset, most)
else
    ids = redis.call('ZRANGEBYSCORE', prefix .. index, from, to, 'WITHSCORES', 'LIMIT', offset, most)
end
if id == '' and #ids == 2 * tonumber(most) then
    answer[1] = ids[#ids]
end
for i = 1, #ids, 2 do
    local key = prefix .. kind .. ':' .. ids[i]
    local verdict = fits(key)

    if verdict == nil and id == '' then
        redis.call('ZREM', prefix .. index, ids[i])
        removed = removed + 1
    elseif verdict then
        matched = matched + 1
    end
    if verdict and not counts then
        local record = redis.call('HGETALL', key)

        answer[#answer + 1] = record
        for j = 2, #record, 2 do
            bytes = bytes + #record[j]
        end
        if (matched == tonumber(wanted) or bytes > 4000000) and i + 2 <= #ids then
            answer[1] = ids[i + 1]
            break
        end
    end
end
answer[2] = tostring(matched)
answer[3] = tostring(removed)
return answer
