-- A stream of gRPC whose server is gone in the middle of it ends with status 14, UNAVAILABLE: so its client knows to begin another.
--
-- HAProxy itself can only reset such a stream, which clients take for CANCELLED. So streams pass a hop of HTTP/1.1 (`streams.py`), where
-- an answer ends with a last chunk and its trailers; `filter lua.streams` writes them where the connection ends without.

-- Longest trailers that are recognised as an answer's end.
local TAIL = 8192
local BROKEN_OFF = "0\r\ngrpc-status: 14\r\ngrpc-message: the server of this stream is gone; begin another\r\n\r\n"

local broken = 0

local Streams = { id = "streams" }
Streams.__index = Streams

function Streams:new()
    return setmetatable({ head = "", tail = "" }, Streams)
end

function Streams:start_analyze(_, channel)
    filter.register_data_filter(self, channel)
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
            self.head = nil
        end
    end
    if #data < TAIL then
        data = (self.tail .. data):sub(-TAIL)
    end
    self.tail = data
end

function Streams:tcp_payload(_, channel)
    local ends = not channel:may_recv()
    if not channel:is_resp() then
        -- A client closes before the answer is over only if it wants no more of it.
        self.left = self.left or ends
        return
    end
    if channel:input() > 0 then
        self:read(channel:data())
    end
    if ends and self.chunked and not self.left and not self.ended and not is_over(self.tail) then
        broken = broken + 1
        channel:append(BROKEN_OFF)
    end
    self.ended = self.ended or ends
end

core.register_filter("streams", Streams, function(class)
    return class
end)

core.register_cli({ "show", "broken" }, "show broken : streams whose server went away in the middle of them", function(applet)
    applet:send(string.format("broken=%d\n", broken))
end)
