-- Holds requests of the lower class until servers have room for them, and lets jobs go in turn.
--
-- Loaded with `lua-load FILE TIMEOUT_MS BACKEND...`: maximum time of a request here, and all back ends of slots. Then
-- `http-request lua.lower` sets txn.lower to the result:
--   go    servers have room, and no other request waits for one
--   late  the time is over, or this process stops: its successor knows the room
--
-- A request may go if, with it, servers have at most proc.room rows, and at most proc.lower_rows rows of this class. The agent sets both.
-- If proc.batch_us is set, it goes just before the server begins its next batch (`let_go_at_end`). Requests of users count towards the
-- room, but never wait for it. If a client disconnects, HAProxy ends the wait of its request without a callback. So each request has an
-- expiry time, which it renews whenever it wakes.

local parameters = { ... }
local timeout_ms = tonumber(table.remove(parameters, 1))
local backends = parameters

-- A poll takes a few microseconds. Any poll lets all requests go that there is room for.
local MIN_POLL_INTERVAL_MS, MAX_POLLS_PER_MS = 2, 8
local GRACE_MS = 1000
-- Rows of the stick table `counters`: users, this class, and one whose conn_cur is the number of this class's requests in servers.
local USERS, LOWER, SENT = 1, 2, 3
-- Counters of the table: requests that came, and those that were answered.
local CAME, ANSWERED = 0, 6
-- The answers of a batch arrive within this time.
local ANSWERS_MS = 5
local GOLDEN = 0.6180339887
local MAX_ROWS = 9999

local lines, jobs = {}, {}
local expires_ms, rows_of, granted_ms = {}, {}, {}
local waiting, came, mean_rows = 0, 0, nil
local stopping, checked_ms = false, 0
-- Batch that the server computes now: when it began, its rows, answers until then, and what was sent for the next batch.
local began_ms, executing, answered, users_at, sent_rows, phase = 0, 0, 0, 0, 0, 0

local function now_ms()
    local now = core.now()
    return now.sec * 1000 + now.usec // 1000
end

local function is_stopping(now)
    if not stopping and now - checked_ms >= 100 then
        checked_ms = now
        stopping = core.get_info()["Stopping"] == 1
    end
    return stopping
end

local function forget(id)
    if expires_ms[id] then
        expires_ms[id], rows_of[id] = nil, nil
        waiting = waiting - 1
    end
end

local function enter(id, job, rows)
    local line = lines[job]
    if not line then
        line = { first = 1, last = 0 }
        lines[job] = line
        jobs[#jobs + 1] = job
    end
    line.last = line.last + 1
    line[line.last] = id
    rows_of[id] = rows
    waiting = waiting + 1
end

-- The oldest request of the job whose turn it is; nil if none waits.
local function next_id(now)
    while jobs[1] do
        local line = lines[jobs[1]]
        while line.first <= line.last do
            local id = line[line.first]
            if expires_ms[id] and expires_ms[id] >= now then
                return id
            end
            forget(id)
            line[line.first] = nil
            line.first = line.first + 1
        end
        lines[table.remove(jobs, 1)] = nil
    end
end

local function grant(id, now)
    local job = table.remove(jobs, 1)
    local line = lines[job]
    line[line.first] = nil
    line.first = line.first + 1
    if line.first <= line.last then
        jobs[#jobs + 1] = job
    else
        lines[job] = nil
    end
    local rows = rows_of[id]
    forget(id)
    granted_ms[id] = now
    mean_rows = mean_rows and mean_rows + (rows - mean_rows) / 16 or rows
end

-- Rows in servers, and those of this class among them; nil while other requests wait for a server, or none is up.
local function used_rows(txn, now)
    local requests, is_up = 0, false
    if halcyon_late and halcyon_late() > 0 then
        return nil
    end
    for _, backend in ipairs(backends) do
        if txn.f:queue(backend) > 0 then
            return nil
        end
        is_up = is_up or txn.f:nbsrv(backend) > 0
        requests = requests + txn.f:be_conn(backend)
    end
    if not is_up then
        return nil
    end
    -- Those that may go are not in a back end until they wake.
    local sent = txn.c:table_conn_cur(SENT, "counters")
    local going = 0
    for id, at in pairs(granted_ms) do
        if now - at > GRACE_MS then
            granted_ms[id] = nil
        else
            going = going + 1
        end
    end
    local users = math.max(requests - sent, 0) * math.max(txn:get_var("proc.user_rows") or 1, 1)
    local lower = (sent + going) * (mean_rows or 1)
    return users + lower, lower
end

local function begin_batch(now, came)
    began_ms, users_at, sent_rows, phase = now, came, 0, (phase + GOLDEN) % 1
end

-- For a server that computes one batch at a time. When answers arrive, the next batch has begun. Its end is due by its rows. Just before,
-- what users have sent for the batch after it is known, and requests of this class fill it up.
local function let_go_at_end(txn, now, batch_us)
    local used = used_rows(txn, now)
    local came = txn.c:table_gpc(USERS, CAME, "counters")
    local ended = txn.c:table_gpc(USERS, ANSWERED, "counters") + txn.c:table_gpc(LOWER, ANSWERED, "counters")
    if ended ~= answered then
        if now - began_ms > ANSWERS_MS then
            begin_batch(now, came)
        end
        answered, executing = ended, used or 0
    end
    local id = next_id(now)
    if not used or not id or (txn:get_var("proc.room") or 0) <= 0 then
        return
    end
    local due_ms = began_ms + (batch_us + (txn:get_var("proc.row_us") or 0) * math.max(executing, 1)) / 1000
    local less = (came - users_at) * (txn:get_var("proc.next_less") or 0)
    local most = ((txn:get_var("proc.next_rows") or 0) - less) / 100 + phase
    while id and (now >= due_ms and sent_rows + rows_of[id] <= most or used < 0.5) do
        if used < 0.5 then
            begin_batch(now, came)
        end
        used, sent_rows = used + rows_of[id], sent_rows + rows_of[id]
        grant(id, now)
        id = next_id(now)
    end
end

local function let_go(txn, now)
    local batch_us = txn:get_var("proc.batch_us") or 0
    if batch_us > 0 then
        return let_go_at_end(txn, now, batch_us)
    end
    local room, most = txn:get_var("proc.room") or 0, txn:get_var("proc.lower_rows") or 0
    local id = next_id(now)
    if not id or room <= 0 or most <= 0 then
        return
    end
    local used, lower = used_rows(txn, now)
    -- With nothing in servers, a request of more rows than there is room for may go.
    while used and id and (used + rows_of[id] <= room and lower + rows_of[id] <= most or used < 0.5) do
        used, lower = used + rows_of[id], lower + rows_of[id]
        grant(id, now)
        id = next_id(now)
    end
end

core.register_action("lower", { "http-req" }, function(txn)
    came = came + 1
    local id, now = came, now_ms()
    local deadline = now + timeout_ms
    local job = txn.sf:req_fhdr("halcyon-batch")
    local rows = math.floor(tonumber(txn.sf:req_fhdr("halcyon-batch-rows")) or 1)
    rows = math.max(1, math.min(rows, MAX_ROWS))
    while true do
        if now >= deadline or is_stopping(now) then
            forget(id)
            granted_ms[id] = nil
            txn:set_var("txn.lower", "late")
            return
        end
        local pause_ms = math.max(MIN_POLL_INTERVAL_MS, waiting // MAX_POLLS_PER_MS)
        if not granted_ms[id] then
            if not rows_of[id] then
                -- It is new, or it woke so late that it counted as gone.
                enter(id, job, rows)
            end
            expires_ms[id] = now + 2 * pause_ms + GRACE_MS
            let_go(txn, now)
        end
        if granted_ms[id] then
            granted_ms[id] = nil
            txn:set_var("txn.lower", "go")
            return
        end
        core.msleep(math.max(1, math.min(pause_ms, deadline - now)))
        now = now_ms()
    end
end)
