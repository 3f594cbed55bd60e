-- Ends a gRPC stream with status 14, UNAVAILABLE, if its server went away before it ended, so that the client opens another.
--
-- HAProxy itself can only reset such a stream, which clients read as CANCELLED. So streams pass through a hop of HTTP/1.1
-- (`grpc_streams.py`), where a response ends with a last chunk and its trailers. `filter lua.streams` writes them if the connection
-- ends without them.

-- Maximum size of trailers that are recognised as the end of a response.
local MAX_TAIL_BYTES = 8192
local UNAVAILABLE = "0\r\ngrpc-status: 14\r\ngrpc-message: the server of this stream is gone; open another\r\n\r\n"

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
    if #data < MAX_TAIL_BYTES then
        data = (self.tail .. data):sub(-MAX_TAIL_BYTES)
    end
    self.tail = data
end

function Streams:tcp_payload(_, channel)
    local ends = not channel:may_recv()
    if not channel:is_resp() then
        -- A client closes before the end of the response only if it doesn't need the rest.
        self.left = self.left or ends
        return
    end
    if channel:input() > 0 then
        self:read(channel:data())
    end
    if ends and self.chunked and not self.left and not self.ended and not is_over(self.tail) then
        broken = broken + 1
        channel:append(UNAVAILABLE)
    end
    self.ended = self.ended or ends
end

core.register_filter("streams", Streams, function(class)
    return class
end)

core.register_cli({ "show", "broken" }, "show broken : streams whose server went away before they ended", function(applet)
    applet:send(string.format("broken=%d\n", broken))
end)
