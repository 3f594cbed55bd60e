"""The path of streams (`ModelStreamInfer`) from a front end to a slot's back end, as sections of haproxy.cfg. Pure.

    front end `grpc` --> streams --> streams_end --> front end `streams_in` --> back end of a slot
        HTTP/2            HTTP/1.1    bytes           HTTP/1.1                   HTTP/2

A stream belongs to one server from its first message on, and has no end of its own. When that server's drain is over, or the server is
gone, the response is cut. HTTP/2 can only reset it then, which gRPC clients read as CANCELLED. In HTTP/1.1 an end can be written:
`streams.lua`, at `streams_end`, ends such a response with status 14, UNAVAILABLE.

All hops are sockets of this very process. Each stream has its own connections through them, and no other request takes this path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from halcyon.balancer.config import error_responses
from halcyon.balancer.config.memory_budget import MAX_STREAMS

if TYPE_CHECKING:
    from halcyon.balancer.config.writer import Writer

IS_STREAM: Final = "{ path -m str /inference.GRPCInferenceService/ModelStreamInfer }"
BACKEND: Final = "streams"
FRONTEND: Final = "streams_in"


def prologue(out: Writer, *, lua: str) -> None:
    """Add lines to `global`."""
    out.add("lua-load $file", file=lua)


def sections(out: Writer, *, path: str, end_path: str, longest_ms: int) -> None:
    """Add all sections but the last front end, and the first lines of that.

    Args:
        out: receives the sections.
        path: socket to the part that ends responses.
        end_path: socket from there to the last front end.
        longest_ms: maximum silence; the slots' back ends have a shorter one, which must come first.
    """
    out.section(f"backend {BACKEND}")
    error_responses.errors(out, "grpc")
    out.add("retries 0")
    out.add("timeout server $ms", ms=longest_ms)
    # Each connection ends with its stream, so none delays a process that is to end.
    out.add("server end unix@$file pool-max-conn 0 maxconn $most", file=path, most=MAX_STREAMS)
    out.section("frontend streams_end")
    out.add("mode tcp")
    out.add("no option idle-close-on-response")
    out.add("bind unix@$file mode 600", file=path)
    out.add("timeout client $ms", ms=longest_ms)
    out.add("filter lua.streams")
    out.add("default_backend streams_end")
    out.section("backend streams_end")
    out.add("mode tcp")
    out.add("timeout server $ms", ms=longest_ms)
    out.add("server in unix@$file", file=end_path)
    out.section(f"frontend {FRONTEND}")
    out.add("bind unix@$file mode 600", file=end_path)
    out.add("timeout client $ms", ms=longest_ms)
