-- Holds requests that would miss the latency objective, behind all requests that can still meet it.
--
-- Loaded with `lua-load FILE TIME_MS OBJECTIVE_MS LIMIT BACKEND...`: maximum time of a request here, the latency objective, maximum number of
-- requests that wait in HAProxy, and all back ends of slots. Then `http-request lua.late` reads txn.left_ms and txn.waiting, and sets
-- txn.late to the result:
--   go    no other request waits for a server, and fewer than proc.late_room are in servers; or no server is up; or limits are off
--   over  the time is over, or the request waits in vain
--   full  proc.late_most requests wait here already, or as many as may wait in HAProxy
--
-- After a burst, requests go as soon as those in time are answered, which takes no longer than the objective. If none goes for longer than
-- that, and late requests are still rejected (the last one at proc.refused_at), this is an overload, and those that wait do so in vain.
--
-- Requests go in the order in which they came. If a client disconnects, HAProxy ends the wait of its request without a callback. So each
-- request has an expiry time, which it renews whenever it wakes.

local parameters = { ... }
local time_ms = tonumber(table.remove(parameters, 1))
local objective_ms = tonumber(table.remove(parameters, 1))
local limit = tonumber(table.remove(parameters, 1))
local backends = parameters

-- A poll takes a few microseconds, and lets all requests go that there is room for. Those that go next must wake soon, so the interval
-- is longer by 1 ms for each place in the line: 100 requests poll 4500 times a second, and 3000 requests 12,000 times.
local MIN_POLL_INTERVAL_MS, MAX_POLL_INTERVAL_MS, MAX_POLLS_PER_MS = 2, 50, 8
local GRACE_MS = 1000
-- In an overload, if no request goes, others wait for so many objectives. Agents detect an overload once per second, and limit what pods
-- get before that only because requests wait here.
local IDLE_OBJECTIVES, MIN_IDLE_MS = 2, 1000
local CHECK_INTERVAL_MS = 50

local line = { first = 1, last = 0 }
local expires_ms, granted_ms = {}, {}
local waiting, checked_at = 0, 0
local went_at = 0

local function now_ms()
    local now = core.now()
    return now.sec * 1000 + now.usec / 1000
end

local function forget(id)
    if expires_ms[id] then
        expires_ms[id] = nil
        waiting = waiting - 1
    end
end

-- The place in the line of the request that goes next; nil if none waits.
local function next_id(now)
    while line.first <= line.last do
        local id = line.first
        if expires_ms[id] and expires_ms[id] >= now then
            return id
        end
        forget(id)
        line.first = id + 1
    end
end

local function forget_expired(now)
    for id, until_ms in pairs(expires_ms) do
        if until_ms < now then
            forget(id)
        end
    end
end

-- Requests in servers; nil while others wait for one. The second result is whether a server is up.
local function in_servers(txn, now)
    local requests, is_up = 0, false
    for _, backend in ipairs(backends) do
        if txn.f:queue(backend) > 0 then
            return nil, true
        end
        is_up = is_up or txn.f:nbsrv(backend) > 0
        requests = requests + txn.f:be_conn(backend)
    end
    -- Those that may go are not in a back end until they wake.
    for id, at in pairs(granted_ms) do
        if now - at > GRACE_MS then
            granted_ms[id] = nil
        else
            requests = requests + 1
        end
    end
    return requests, is_up
end

local function is_in_vain(txn, came, now)
    local idle_ms = now - math.max(came, went_at)
    local most_ms = math.max(IDLE_OBJECTIVES * objective_ms, MIN_IDLE_MS)
    -- The rules set proc.refused_at by the system clock, from which `core.now` differs after each pause of the process.
    return idle_ms >= most_ms and txn.f:date(0, "ms") - (txn:get_var("proc.refused_at") or 0) < objective_ms
end

local function grant(id, now)
    forget(id)
    granted_ms[id], went_at = now, now
    line.first = id + 1
end

local function let_go(txn, now)
    local id = next_id(now)
    local used, is_up = in_servers(txn, now)
    local room = txn:get_var("proc.late_room") or 0
    local is_limited = is_up and (txn:get_var("proc.hopeless") or 0) > 0
    while id and (not is_limited or used and used < room) do
        used = (used or 0) + 1
        grant(id, now)
        id = next_id(now)
    end
end

local function wait(txn, id, came, deadline)
    local now = came
    while true do
        local longest_ms = math.max(MAX_POLL_INTERVAL_MS, waiting // MAX_POLLS_PER_MS)
        local pause_ms = math.min(MIN_POLL_INTERVAL_MS + id - line.first, longest_ms)
        expires_ms[id] = now + 2 * pause_ms + GRACE_MS
        let_go(txn, now)
        if expires_ms[id] then
            if now >= deadline or is_in_vain(txn, came, now) then
                forget(id)
                return "over"
            end
            core.msleep(math.max(1, math.ceil(math.min(pause_ms, deadline - now))))
            now = now_ms()
        end
        -- It was granted; or it woke so late that it counted as gone, and those behind it went.
        if not expires_ms[id] then
            granted_ms[id] = nil
            return "go"
        end
    end
end

core.register_action("late", { "http-req" }, function(txn)
    local came = now_ms()
    local most = math.min(txn:get_var("proc.late_most") or 0, limit - (txn:get_var("txn.waiting") or 0))
    if waiting >= most then
        forget_expired(came)
    end
    if waiting >= most then
        txn:set_var("txn.late", "full")
        return
    end
    line.last = line.last + 1
    local id = line.last
    expires_ms[id] = came + GRACE_MS
    waiting = waiting + 1
    local left_ms = txn:get_var("txn.left_ms") or time_ms
    local result = wait(txn, id, came, came + math.min(time_ms, left_ms))
    -- A request that is held next, because no server is up, has a deadline.
    txn:set_var("txn.left_ms", math.max(0, math.floor(left_ms - (now_ms() - came))))
    txn:set_var("txn.late", result)
end)

-- Number of late requests that wait, for `hold.lua`, and for `lower.lua`, which reads it often.
function halcyon_late()
    local now = now_ms()
    if waiting > 0 and now - checked_at >= CHECK_INTERVAL_MS then
        checked_at = now
        forget_expired(now)
    end
    return waiting
end
