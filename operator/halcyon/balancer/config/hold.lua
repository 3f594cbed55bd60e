-- Requests that find no server wait here until one is up, up to a bound and each to its own deadline.
--
-- Loaded with `lua-load FILE BOUND SLOTS`: most requests that wait at once, and the number of slots that take requests. Then
-- `http-request lua.hold BACKEND...` (one backend per slot) needs txn.left_ms and txn.waiting, and leaves its verdict in txn.held:
--   up    a server is up; txn.left_ms is what is left of the time
--   late  the deadline has come
--   full  so many wait already that this one may not
--   next  this process stops: another one has its place, and knows of servers that come
--
-- HAProxy ends the wait of a request whose client has gone without telling: so each one that waits says until when it is to be
-- believed, and says so again whenever it wakes.

local bound, slots = ...
bound, slots = tonumber(bound), tonumber(slots)

-- At 4000 looks a second, all together, waiting takes some hundredths of a core. So up to 200 look every 50 ms.
local SOONEST_MS, LOOKS_PER_MS = 20, 4
-- A process that was short of CPU must not forget who still waits.
local GRACE_MS = 1000
-- From the first notice of the end until nobody can connect to this process any more: what goes on before comes back here.
local SETTLED_MS = 200

local believed = {}
local held, came = 0, 0
local stopping_since, asked_ms = nil, 0

local function now_ms()
    local now = core.now()
    return now.sec * 1000 + now.usec // 1000
end

local function forget(id)
    if believed[id] then
        believed[id] = nil
        held = held - 1
    end
end

local function forget_the_gone()
    local now = now_ms()
    for id, until_ms in pairs(believed) do
        if until_ms < now then
            forget(id)
        end
    end
end

-- The answer has a hundred fields, so one for all who wait.
local function is_stopping(now)
    if not stopping_since and now - asked_ms >= 100 then
        asked_ms = now
        if core.get_info()["Stopping"] == 1 then
            stopping_since = now
        end
    end
    return stopping_since and now - stopping_since >= SETTLED_MS
end

local function is_up(txn, backends)
    for _, backend in ipairs(backends) do
        if txn.f:nbsrv(backend) > 0 then
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
        if not believed[id] then
            held = held + 1
        end
        local pause_ms = math.max(1, math.min(math.max(SOONEST_MS, held // LOOKS_PER_MS), deadline - now))
        believed[id] = now + 2 * pause_ms + GRACE_MS
        core.msleep(pause_ms)
    end
end

core.register_action("hold", { "http-req" }, function(txn, ...)
    came = came + 1
    local id = came
    local deadline = now_ms() + (txn:get_var("txn.left_ms") or 0)
    local queued = txn:get_var("txn.waiting") or 0
    if queued + held >= bound then
        forget_the_gone()
    end
    if queued + held >= bound and not is_up(txn, { ... }) then
        txn:set_var("txn.held", "full")
        return
    end
    local verdict = wait(txn, id, deadline, { ... })
    forget(id)
    txn:set_var("txn.left_ms", math.max(0, deadline - now_ms()))
    txn:set_var("txn.held", verdict)
end, slots)

core.register_cli({ "show", "held" }, "show held : requests that wait for a server, and how many ever have", function(applet)
    forget_the_gone()
    applet:send(string.format("held=%d came=%d\n", held, came))
end)
