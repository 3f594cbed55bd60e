-- Holds requests that find no server until one is up: up to a limit, and each until its own deadline.
--
-- Loaded with `lua-load FILE LIMIT SLOTS`: maximum number of queued and held requests, and number of slots that take requests. Then
-- `http-request lua.hold BACKEND...` (one backend per slot) reads txn.left_ms and txn.waiting, and sets txn.held to the result:
--   up    a server is up; txn.left_ms is the time left until the deadline
--   late  the deadline has passed
--   full  the maximum number of requests is queued or held already
--   next  this process stops: its successor learns of new servers
--
-- If a client disconnects, HAProxy ends the wait of its request without a callback. So each held request has an expiry time, which
-- it renews whenever it wakes.

local limit, slots = ...
limit, slots = tonumber(limit), tonumber(slots)

-- 4000 polls a second in total take a few hundredths of a core. So up to 200 held requests poll every 50 ms.
local MIN_POLL_INTERVAL_MS, MAX_POLLS_PER_MS = 20, 4
-- A process that was short of CPU must not drop requests that are still held.
local GRACE_MS = 1000
-- From when the process begins to stop until it accepts no more connections: a request passed on earlier would come back here.
local SETTLE_MS = 200

local expires_ms = {}
local held, came = 0, 0
local stopping_since, checked_ms = nil, 0

local function now_ms()
    local now = core.now()
    return now.sec * 1000 + now.usec // 1000
end

local function release(id)
    if expires_ms[id] then
        expires_ms[id] = nil
        held = held - 1
    end
end

local function release_expired()
    local now = now_ms()
    for id, until_ms in pairs(expires_ms) do
        if until_ms < now then
            release(id)
        end
    end
end

-- The result has a hundred fields, so all held requests share one call.
local function is_stopping(now)
    if not stopping_since and now - checked_ms >= 100 then
        checked_ms = now
        if core.get_info()["Stopping"] == 1 then
            stopping_since = now
        end
    end
    return stopping_since and now - stopping_since >= SETTLE_MS
end

-- Server `held` of a back end leads here, so it doesn't count.
local function is_up(txn, backends)
    for _, backend in ipairs(backends) do
        local servers = txn.f:nbsrv(backend)
        if servers > 1 or (servers == 1 and txn.f:srv_is_up(backend .. "/held") == 0) then
            return true
        end
    end
    return false
end

local function wait(txn, id, deadline, backends)
    while true do
        local now = now_ms()
        if is_up(txn, backends) then
            return "up"
        elseif now >= deadline then
            return "late"
        elseif is_stopping(now) then
            return "next"
        end
        if not expires_ms[id] then
            held = held + 1
        end
        local pause_ms = math.max(1, math.min(math.max(MIN_POLL_INTERVAL_MS, held // MAX_POLLS_PER_MS), deadline - now))
        expires_ms[id] = now + 2 * pause_ms + GRACE_MS
        core.msleep(pause_ms)
    end
end

core.register_action("hold", { "http-req" }, function(txn, ...)
    came = came + 1
    local id = came
    local deadline = now_ms() + (txn:get_var("txn.left_ms") or 0)
    local queued = txn:get_var("txn.waiting") or 0
    if queued + held >= limit then
        release_expired()
    end
    if queued + held >= limit and not is_up(txn, { ... }) then
        txn:set_var("txn.held", "full")
        return
    end
    local result = wait(txn, id, deadline, { ... })
    release(id)
    if result == "up" then
        -- What was held, and what arrives until it is answered, is bound by its deadlines and not by the latency objective.
        txn:set_var("proc.woken", 1)
    end
    txn:set_var("txn.left_ms", math.max(0, deadline - now_ms()))
    txn:set_var("txn.held", result)
end, slots)

local USAGE = "show held : requests held until a server is up, how many have been held in total, and late requests that wait (late.lua)"
core.register_cli({ "show", "held" }, USAGE, function(applet)
    release_expired()
    applet:send(string.format("held=%d came=%d late=%d\n", held, came, halcyon_late and halcyon_late() or 0))
end)

-- A stopping process refuses `set server`, although its requests still wait for servers.
core.register_cli({ "change", "server" }, "change server BACKEND/SERVER state drain : sends the server no new requests", function(applet, ...)
    local _, _, name = ...
    local backend, server = name:match("^(.+)/(.+)$")
    core.backends[backend].servers[server]:set_drain()
    applet:send("\n")
end)
