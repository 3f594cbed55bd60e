"""Sections of haproxy.cfg through which gRPC streams (`ModelStreamInfer`) pass from a front end to a slot's back end. Pure.

On its way, a stream is converted from HTTP/2 to HTTP/1.1 and back to HTTP/2.

After its first message, a stream stays on one server for an unlimited time. It is cut if its server disappears, or if
it does not end within the server's drain time. In HTTP/2, HAProxy could only reset the stream, which gRPC clients
report as CANCELLED. In HTTP/1.1, the response can be completed: `streams.lua`, in section `streams_end`, ends it with
gRPC status 14 (UNAVAILABLE), or with 4 (DEADLINE_EXCEEDED) after the response timeout.

All hops are unix sockets of the same HAProxy process. Each stream has its own connections, and no other requests pass
through them. The PROXY protocol passes on the client's address, and a number of the stream in place of the client's
port. From both, `streams.lua` recognises a stream in its last two hops.
"""

# front end `grpc` --> streams --> streams_end --> front end `streams_in` --> back end of a slot
#     HTTP/2            HTTP/1.1    bytes           HTTP/1.1                   HTTP/2

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from halcyon.balancer.config import error_responses
from halcyon.balancer.config.memory_budget import MAX_STREAMS

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.config.writer import Writer

IS_STREAM: Final = "{ path -m str /inference.GRPCInferenceService/ModelStreamInfer }"
BACKEND: Final = "streams"
FRONTEND: Final = "streams_in"
_ENDS: Final = "{ res.hdr(grpc-status) -m found }"
_NUMBER: Final = "proc.stream"
"""HAProxy variable with the number of the last stream, from 0 to 65534."""


def prologue(out: Writer, plan: BalancerPlan, *, lua: str) -> None:
    """Add the line to the section `global` that makes HAProxy load `streams.lua` from the path `lua`."""
    out.add("lua-load $file $ms", file=lua, ms=plan.response_timeout_ms)
    out.add(f"set-var {_NUMBER} int(0)")


def arrival_rules(out: Writer) -> None:
    """Add the rules of front end `grpc` that count streams on their way through the hops as waiting requests.

    They come after the rules that count the queues. A stream reaches a queue only in its last hop, so without these
    rules, all streams that arrive meanwhile would pass the queue limit.
    """
    out.add(f"http-request set-var(txn.arrived) fe_conn({FRONTEND}) if {IS_STREAM}")
    out.add(f"http-request set-var(txn.waiting) be_conn({BACKEND}),sub(txn.arrived),add(txn.waiting) if {IS_STREAM}")


def sections(out: Writer, *, path: str, end_path: str, longest_ms: int) -> None:
    """Add the sections through which gRPC streams pass. The caller completes the last one, front end `streams_in`.

    Args:
        out: receives the sections.
        path: unix socket on which the front end `streams_end` listens.
        end_path: unix socket on which the front end `streams_in` listens.
        longest_ms: timeout of these sections, in milliseconds. It must exceed the timeout of the slots' back ends.
    """
    out.section(f"backend {BACKEND}")
    error_responses.errors(out, "grpc")
    out.add("retries 0")
    out.add("timeout server $ms", ms=longest_ms)
    # Each connection ends with its stream, so no idle connection delays the end of the process.
    out.add(f"http-request set-var({_NUMBER}) var({_NUMBER}),add(1),mod(65535)")
    out.add(f"http-request set-src-port var({_NUMBER})")
    out.add("server end unix@$file pool-max-conn 0 maxconn $most send-proxy-v2", file=path, most=MAX_STREAMS)
    out.section("frontend streams_end")
    out.add("mode tcp")
    out.add("no option idle-close-on-response")
    out.add("bind unix@$file mode 600 accept-proxy", file=path)
    out.add("timeout client $ms", ms=longest_ms)
    out.add("filter lua.streams")
    out.add("default_backend streams_end")
    out.section("backend streams_end")
    out.add("mode tcp")
    out.add("timeout server $ms", ms=longest_ms)
    out.add("server in unix@$file send-proxy-v2", file=end_path)
    out.section(f"frontend {FRONTEND}")
    out.add("bind unix@$file mode 600 accept-proxy", file=end_path)
    out.add("timeout client $ms", ms=longest_ms)
    out.add("http-request lua.at_server")
    # HAProxy's own responses have no content type, which some clients require (`response_rules`).
    out.add(f"http-after-response set-header content-type application/grpc if {_ENDS}")


def response_rules(out: Writer) -> None:
    """Add the rules of front end `streams_in` for a server's response that ends without a message.

    Its status is in the headers. HTTP/1.1 would send them with an empty chunked body, which a gRPC client reports as
    UNKNOWN: for HTTP/2, the end is then behind the headers. HAProxy's own response has a length, so the end is in the
    headers again. They are the last `http-response` rules of the front end.
    """
    # HAProxy empties the response before it adds headers.
    out.add(f"http-response set-var(txn.grpc_status) res.hdr(grpc-status) if {_ENDS}")
    out.add(f"http-response set-var(txn.grpc_message) res.fhdr(grpc-message) if {_ENDS}")
    response = "http-response return status 200 hdr grpc-status %[var(txn.grpc_status)]"
    message = "hdr grpc-message %[var(txn.grpc_message)]"
    out.add(f"{response} {message} if {_ENDS} {{ var(txn.grpc_message) -m found }}")
    out.add(f"{response} if {_ENDS}")
