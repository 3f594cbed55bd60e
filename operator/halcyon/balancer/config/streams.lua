-- Ends a gRPC stream with status 14, UNAVAILABLE, if its server went away before it ended, so that the client opens another.
--
-- HAProxy itself can only reset such a stream, which clients read as CANCELLED. So streams pass through a hop of HTTP/1.1
-- (`grpc_streams.py`), where a response ends with a last chunk and its trailers. `filter lua.streams` writes them if the connection
-- ends without them.
--
-- Loaded with `lua-load FILE MS`: the response timeout. It applies to a stream whose client has sent its last message. A stream that ends by
-- it has status 4, DEADLINE_EXCEEDED, as a single request has.
--
-- A stream rests if its server owes no answer: its client has sent no message, or none since the last part of the response. `show streams`
-- lists for how long each stream has rested, so that the agent can end some of them while others wait for their servers (`slow_clients.py`).

-- Maximum size of trailers that are recognised as the end of a response.
local MAX_TAIL_BYTES = 8192
-- Size of the last chunk of a request, with the end of the line before it.
local LAST_CHUNK_BYTES = 7
local UNAVAILABLE = "0\r\ngrpc-status: 14\r\ngrpc-message: the server of this stream is gone; open another\r\n\r\n"
local LATE = "0\r\ngrpc-status: 4\r\ngrpc-message: the server did not respond in time\r\n\r\n"

-- HAProxy measures the timeout in another hop, where the last read or write can be earlier than the one seen here.
local timeout_ms = tonumber((...)) * 9 // 10

local broken = 0
-- Streams by client and number. One that ends without a last call is left to the garbage collector.
local by_client = setmetatable({}, { __mode = "v" })

local function now_ms()
    local now = core.now()
    return now.sec * 1000 + now.usec // 1000
end

-- The PROXY protocol has brought the client's address here. Its port is a number of the stream (`grpc_streams.py`).
local function key_of(txn)
    return txn.f:src() .. " " .. txn.f:src_port()
end

local Streams = { id = "streams" }
Streams.__index = Streams

function Streams:new()
    return setmetatable({ asked = "", asked_tail = "", head = "", tail = "" }, Streams)
end

function Streams:start_analyze(txn, channel)
    filter.register_data_filter(self, channel)
    if not self.key then
        self.source, self.key, self.at_ms = txn.f:src(), key_of(txn), now_ms()
        by_client[self.key] = self
    end
end

-- The head of the request is no message.
function Streams:ask(data)
    self.asked_tail = (self.asked_tail .. data):sub(-LAST_CHUNK_BYTES)
    if self.asked then
        self.asked = self.asked .. data
        local _, ends = self.asked:find("\r\n\r\n", 1, true)
        if not ends or ends == #self.asked then
            return
        end
        self.asked = nil
    end
    self.is_owed, self.at_ms = true, now_ms()
end

local function is_over(tail)
    return tail:find("\r\n0\r\n\r\n$") or tail:find("\r\n0\r\n[%w-]+:[^\0]*\r\n\r\n$")
end

function Streams:read(data)
    if self.head then
        self.head = self.head .. data
        local ends = self.head:find("\r\n\r\n", 1, true)
        if ends then
            self.chunked = self.head:sub(1, ends):lower():find("\r\ntransfer-encoding: chunked", 1, true)
            self.is_owed = self.is_owed and ends + 3 == #self.head
            self.head = nil
        end
    else
        self.is_owed = false
    end
    self.at_ms = now_ms()
    if #data < MAX_TAIL_BYTES then
        data = (self.tail .. data):sub(-MAX_TAIL_BYTES)
    end
    self.tail = data
end

-- Whether the response timeout has ended the stream.
function Streams:is_late()
    return self.asked_tail == "\r\n0\r\n\r\n" and now_ms() - self.at_ms >= timeout_ms
end

function Streams:tcp_payload(_, channel)
    local ends = not channel:may_recv()
    if not channel:is_resp() then
        -- A client closes before the end of the response only if it doesn't need the rest.
        self.left = self.left or ends
        if channel:input() > 0 then
            self:ask(channel:data())
        end
        return
    end
    if channel:input() > 0 then
        self:read(channel:data())
    end
    if ends and self.chunked and not self.left and not self.ended and not is_over(self.tail) then
        broken = broken + 1
        channel:append(self:is_late() and LATE or UNAVAILABLE)
    end
    self.ended = self.ended or ends
end

core.register_filter("streams", Streams, function(class)
    return class
end)

core.register_cli({ "show", "broken" }, "show broken : streams whose server went away before they ended", function(applet)
    applet:send(string.format("broken=%d\n", broken))
end)

-- In `show sess`, the last hop of a stream has no address of its client. HAProxy 3.0 has its identifier there only in this text.
core.register_action("at_server", { "http-req" }, function(txn)
    local stream = by_client[key_of(txn)]
    if stream then
        stream.id = txn.f:fs_debug_str():match("%.sc%.app=(0x%x+)")
    end
end)

core.register_cli({ "show", "streams" }, "show streams : identifier, client and time at rest in milliseconds of each stream", function(applet)
    local now, lines = now_ms(), {}
    for _, stream in pairs(by_client) do
        if stream.id and not stream.left and not stream.ended then
            local rest_ms = stream.is_owed and 0 or now - stream.at_ms
            lines[#lines + 1] = string.format("stream %s %s %d", stream.id, stream.source, rest_ms)
        end
    end
    lines[#lines + 1] = ""
    applet:send(table.concat(lines, "\n"))
end)
