"""Rendering of haproxy.cfg from the accepted plan. Pure.

The file configures routes, limits, timeouts, retries, health checks and counters. Addresses and states of servers
change while HAProxy runs, so the agent sets them through the runtime socket. The file contains their last known values,
so that HAProxy can serve immediately after a restart or a reload.

The rules for a request's path from its arrival to a server's queue are in `queueing`, `retries` and `grpc_streams`. HAProxy's own
error responses are in `error_responses`. `writer.Writer` writes every line.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from halcyon.api import open_endpoints
from halcyon.api.documents.balancer_plan import READINESS_TIMEOUT_S
from halcyon.balancer.config import (
    access_log,
    api_keys,
    client_limits,
    error_responses,
    frontends,
    grpc_streams,
    latency_buckets,
    memory_budget,
    queueing,
    stickiness,
)
from halcyon.balancer.config.model import ServerKey
from halcyon.balancer.config.writer import ConfigError, Writer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from halcyon.api.documents.balancer_plan import BalancerPlan, Slot
    from halcyon.balancer.config.error_responses import Protocol
    from halcyon.balancer.config.memory_budget import HaproxyLimits
    from halcyon.balancer.config.model import Listen

LUA = {
    name: Path(__file__).with_name(name).read_text() for name in ("hold.lua", "streams.lua", "late.lua", "lower.lua")
}
"""Text of each Lua file that haproxy.cfg may load, by file name. The files are in the folder of HAProxy's runtime
socket."""

STOPPING: Final = "proc.stopping"
"""HAProxy variable that is 1 if the process will soon stop. Each HTTP/1.1 response then asks the client to close its
connection."""

UNUSED_ADDRESS = "127.0.0.1"
UNUSED_PORT = 1

# A client sends at most one window in each round trip: with 30 KB and 50 ms, a request of 4 MB took 7 s. A smaller window does not keep
# a waiting request from blocking its gRPC channel, because HAProxy opens the window again for what it has received, not for what it has
# passed on. docs/decisions/0050-far-clients.md has the measurements.
_CLIENT_WINDOW_BYTES = 4 * 1024 * 1024
LOST_SERVER_S: Final = 30
"""Seconds without an acknowledgement of the server's kernel, after which a connection to the server counts as lost."""
_KEEPALIVE_S: Final = 5
"""Seconds between keepalive probes on a connection to a server on which nothing is sent."""
_HANDSHAKE_MS: Final = 30_000
"""Maximum time of a TLS handshake, in milliseconds."""
# Servers are near, so responses need no large window.
_SERVER_WINDOW_BYTES = 30000


def render(plan: BalancerPlan, *, listen: Listen, placed: Mapping[ServerKey, str] | None = None) -> str:
    """Return the text of haproxy.cfg.

    Args:
        plan: the accepted plan.
        listen: listen addresses and files of HAProxy.
        placed: pod address of each HAProxy server that takes requests now. All other servers are disabled.

    Raises:
        ConfigError: a value of the plan is not allowed in the file; the message contains the value and a valid example.
    """
    body = _body(plan, listen, {})
    out = Writer()
    out.section("global")
    # `show info` returns the description, which identifies the configuration that a process runs.
    out.add("description $digest", digest=_digest(plan, body))
    return out.text() + (_body(plan, listen, placed) if placed else body)


def digest(plan: BalancerPlan, *, listen: Listen) -> str:
    """Return the digest of haproxy.cfg for this plan. HAProxy's command `show info` shows it as the description.

    It does not depend on the addresses and states of the servers.

    Raises:
        ConfigError: as for `render`.
    """
    return _digest(plan, _body(plan, listen, {}))


def hard_stop_ms(plan: BalancerPlan) -> int:
    """Return the time after which a process replaced by a reload resets its last requests, in milliseconds."""
    return max(plan.drain_ms, queueing.longest_ms(plan))


def _digest(plan: BalancerPlan, body: str) -> str:
    unused = {"late.lua": not plan.objective_ms, "lower.lua": not plan.has_lower_class}
    loaded = [text for name, text in LUA.items() if not unused.get(name)]
    return "halcyon-" + hashlib.sha256(("".join(loaded) + body).encode()).hexdigest()[:16]


def _body(plan: BalancerPlan, listen: Listen, placed: Mapping[ServerKey, str]) -> str:
    if not plan.slots or sum(slot.weight for slot in plan.slots) < 1:
        raise ConfigError(
            f"the slots of {plan.name} have a total weight of 0; at least one must have a weight from 1 to 256"
        )
    if len({slot.name for slot in plan.slots}) < len(plan.slots):
        raise ConfigError(f"the slots of {plan.name} have the same name; the names must be `a` and `b`")
    out, plan = Writer(), api_keys.without_keys(plan, listen)
    room = memory_budget.haproxy_limits(plan, tls=listen.tls is not None)
    _global(out, plan, listen)
    _defaults(out, plan)
    out.section("frontend metrics")
    frontends.bind(out, listen, listen.ports.metrics, "")
    client_limits.connection_rules(out, room, "metrics")
    client_limits.scrape_rules(out)
    # Unused servers are not exported: a plan can have thousands.
    out.add("http-request set-query no-maint")
    out.add("http-request use-service prometheus-exporter if { path -m str /metrics } METH_GET")
    out.add("http-request return status 404")
    queueing.tables(out, plan)
    client_limits.tables(out, room)
    api_keys.usage_table(out)
    _frontend_http(out, plan, listen, room)
    _frontend_grpc(out, plan, listen, room)
    for protocol in error_responses.PROTOCOLS:
        queueing.held_request_sections(out, plan, protocol, path=_held_socket(listen, protocol))
    _streams(out, plan, listen)
    for slot in plan.slots:
        _backends(out, plan, slot, listen, placed)
    return out.text()


def _global(out: Writer, plan: BalancerPlan, listen: Listen) -> None:
    # One thread handles 40,000 requests per second. With more, the queue limit would not be exact, and each thread costs memory.
    out.add("nbthread 1")
    client_limits.prologue(out, memory_budget.haproxy_limits(plan, tls=listen.tls is not None))
    out.add("stats socket $file mode 600 level admin expose-fd listeners", file=listen.socket_path)
    out.add("stats timeout 10s")
    # After a reload, the old worker finishes its requests. (If the pod stops, it has less time: the termination grace period.)
    out.add("hard-stop-after $ms", ms=hard_stop_ms(plan))
    out.add(f"set-var {STOPPING} int(0)")
    out.add("tune.bufsize $bytes", bytes=memory_budget.BUFFER_BYTES)
    out.add("tune.h2.fe.max-concurrent-streams $streams", streams=memory_budget.STREAMS_PER_CHANNEL)
    out.add("tune.h2.fe.initial-window-size $bytes", bytes=_CLIENT_WINDOW_BYTES)
    out.add("tune.h2.be.initial-window-size $bytes", bytes=_SERVER_WINDOW_BYTES)
    # A client that reads its response slowly stops the connection from the server, and all requests of other clients on it. So no two
    # requests share one at the same time; idle connections are used again.
    out.add("tune.h2.be.max-concurrent-streams 1")
    frontends.prologue(out, listen)
    late_lua, lower_lua = listen.beside("late.lua"), listen.beside("lower.lua")
    queueing.prologue(out, plan, lua=listen.beside("hold.lua"), late_lua=late_lua, lower_lua=lower_lua)
    grpc_streams.prologue(out, plan, lua=listen.beside("streams.lua"))


def _defaults(out: Writer, plan: BalancerPlan) -> None:
    out.section("defaults")
    out.add("mode http")
    # Retry once only, on another server: a request that crashes a server must not crash all of them.
    out.add("retries 1")
    out.add("option redispatch 1")
    out.add("retry-on conn-failure empty-response")
    # Without `abortonclose`, a cancelled request stays in the queue, and its stream counts against the limit of its gRPC channel.
    out.add("option abortonclose")
    # A stopping process asks each client in its next response to disconnect. Closing an idle connection instead could lose a request
    # that the client is just sending. (Do not add `close-spread-time`: it closes idle HTTP/1 connections despite this option.)
    out.add("option idle-close-on-response")
    out.add("http-reuse always")
    out.add("timeout connect 1s")
    out.add("timeout queue $ms", ms=plan.queue_timeout_ms)
    out.add("timeout server $ms", ms=plan.response_timeout_ms)
    # If a server's node is lost, nothing is acknowledged, and its requests end or are retried long before `timeout server`. A slow server
    # isn't affected, because its kernel acknowledges, unless it reads nothing of a large request for that time: Linux applies `tcp-ut`
    # to a closed window, too. `tcp-ut` of the servers applies to sent data, and these probes to requests that have been acknowledged.
    out.add("option srvtcpka")
    out.add(f"srvtcpka-idle {_KEEPALIVE_S}s")
    out.add(f"srvtcpka-intvl {_KEEPALIVE_S}s")
    out.add(f"srvtcpka-cnt {LOST_SERVER_S // _KEEPALIVE_S - 1}")
    # Applies only while a client is sending a request, even if that request is held or queued. For idle channels, http-keep-alive
    # applies.
    out.add("timeout client $ms", ms=max(plan.longest_wait_ms + plan.response_timeout_ms + 30000, 60000))
    # Without this line, `timeout client` would apply, which can be an hour.
    out.add("timeout client-hs $ms", ms=_HANDSHAKE_MS)
    out.add("timeout http-request 30s")
    # Applies to gRPC channels, too. HAProxy cannot shorten this timeout when few connections are left; `client_limits` limits their use.
    out.add("timeout http-keep-alive 5m")


def _frontend_http(out: Writer, plan: BalancerPlan, listen: Listen, room: HaproxyLimits) -> None:
    out.section("frontend http")
    frontends.bind_clients(out, listen, "http")
    # Otherwise the kernel holds each event of a stream (`generate_stream`) until the next one, up to 200 ms.
    out.add("option http-no-delay")
    client_limits.connection_rules(out, room, "http")
    access_log.arrival_rules(out, plan, "http")
    client_limits.counting_rules(out, plan, "http", queueing.COUNTERS)
    api_keys.authentication_rules(out, plan, listen, "http")
    # The undecoded path must match exactly; any other spelling gets a 404.
    out.add("acl reads path -m str " + " ".join(open_endpoints.HTTP_SERVER_READS))
    below, below_re = open_endpoints.model_path("$model"), open_endpoints.model_path("$model_re")
    for kind, ends in (("reads", open_endpoints.HTTP_MODEL_READS), ("calls", open_endpoints.HTTP_MODEL_CALLS)):
        out.add(f"acl {kind} path -m str " + " ".join(below + end for end in ends), model=plan.model)
        out.add(f"acl {kind} path -m reg ^{below_re}/versions/[0-9]{{1,18}}({'|'.join(ends)})$", model_re=plan.model)
    latency_buckets.inference_rules(out, "if calls")
    out.add("http-request return status 404 content-type application/json " + _NOT_OPEN + " unless infers or reads")
    out.add("http-request return status 405 content-type application/json " + _USE_GET + " if !infers !METH_GET")
    out.add("http-request return status 405 content-type application/json " + _USE_POST + " if infers !{ method POST }")
    # Triton responds with 501, which would count as a failure of the model.
    unknown = (
        "infers { req.fhdr(content-encoding) -m found } !{ req.fhdr(content-encoding) -m str gzip deflate identity }"
    )
    out.add(f"http-request return status 415 content-type application/json {_CODINGS} if {unknown}")
    # Triton rejects HEAD with 405. HAProxy sends no body to a client that sent HEAD, whatever method the server receives.
    out.add("http-request set-method GET if !infers")
    # Servers receive exactly the path that was compared, without query and host, and without the header Upgrade. Without it, HAProxy
    # can't convert `Connection: Upgrade` to HTTP/2 and would fail a request that is held. Java's HttpClient sends both headers by default.
    out.add("http-request set-uri %[path]")
    out.add("http-request del-header upgrade")
    out.add("http-request del-header connection")
    # This also applies to errors and held requests. gRPC clients get a GOAWAY when the process stops.
    last = f"{{ var({STOPPING}) -m int gt 0 }} or {client_limits.few_connections_left(room)}"
    out.add(f"http-after-response set-header connection close if {last}")
    stickiness.statistics_rule(out, "!infers { path -m end /stats }")
    api_keys.usage_rule(out, listen)
    queueing.arrival_rules(out, plan, "http")
    client_limits.response_rules(out, "http")
    _complete_empty_responses(out)
    latency_buckets.client_response_rules(out)
    error_responses.errors(out, "http")


_SERVES = "this address serves inference, readiness, metadata, configuration and statistics of one model"
_NOT_OPEN = f"""string '{{"error":"not found: {_SERVES}"}}'"""
_USE_GET = """hdr Allow "GET, HEAD" string '{"error":"method not allowed; use GET"}'"""
_USE_POST = """hdr Allow POST string '{"error":"method not allowed; use POST"}'"""
_CODINGS = (
    """hdr Accept-Encoding "gzip, deflate" string '{"error":"Content-Encoding must be gzip, deflate or identity"}'"""
)
_NO_GRPC = """string '{"error":"this port serves gRPC: the Content-Type must be application/grpc"}'"""
_GRPC_CODINGS = 'hdr grpc-status 12 hdr grpc-accept-encoding "identity,deflate,gzip" hdr grpc-message "grpc-encoding must be identity, deflate or gzip"'
_GRPC_TIMEOUT = (
    'hdr grpc-status 3 hdr grpc-message "grpc-timeout must be a whole number and a unit, for example 500m or 2S"'
)
_GRPC_BINARY = 'hdr grpc-status 3 hdr grpc-message "the values of metadata with the suffix -bin must be base64"'
# The last characters of a value whose length is no multiple of 4 have no bits beyond the last byte.
_BASE64 = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048])?=*"
_NOT_BASE64 = rf"{{ req.hdrs -m reg '(^|\n)[^:\n]*-bin: (?!{_BASE64}\r)' }}"


def _complete_empty_responses(out: Writer) -> None:
    """Add the rules that send the empty responses to HTTP/1.0 clients in place of Triton.

    Triton's own have no length, and HAProxy keeps Triton's connection open: the client would wait for the end.
    """
    for status in (200, 400):
        empty = f"{{ status {status} }} {{ res.ver 1.0 }} {{ res.hdr_cnt(content-length) eq 0 }}"
        out.add(f"http-response return status {status} if {empty}")


def _frontend_grpc(out: Writer, plan: BalancerPlan, listen: Listen, room: HaproxyLimits) -> None:
    out.section("frontend grpc")
    frontends.bind_clients(out, listen, "grpc")
    client_limits.connection_rules(out, room, "grpc")
    access_log.arrival_rules(out, plan, "grpc")
    client_limits.reset_rule(out)
    client_limits.counting_rules(out, plan, "grpc", queueing.COUNTERS)
    api_keys.authentication_rules(out, plan, listen, "grpc")
    out.add("http-request return status 405 hdr Allow POST unless { method POST }")
    _check_grpc_headers(out)
    # Compare path and query: gRPC methods have no query, so requests with a query do not match.
    reads, calls = (
        " ".join(f"/{service}/{method}" for service, method in methods)
        for methods in (open_endpoints.GRPC_READS, open_endpoints.GRPC_CALLS)
    )
    out.add(f"acl reads pathq -m str {reads}")
    latency_buckets.inference_rules(out, f"if {{ pathq -m str {calls} }}")
    unimplemented = f'hdr grpc-status 12 hdr grpc-message "{_SERVES}"'
    out.add(f"http-request return status 200 {unimplemented} unless infers or reads")
    # Remove the host in front of the path of a stream, for its HTTP/1.1 hop.
    out.add(f"http-request set-uri %[path] if {grpc_streams.IS_STREAM}")
    stickiness.statistics_rule(out, "!infers { path -m end /ModelStatistics }")
    api_keys.usage_rule(out, listen)
    queueing.arrival_rules(out, plan, "grpc")
    client_limits.response_rules(out, "grpc")
    latency_buckets.client_response_rules(out)
    error_responses.errors(out, "grpc")


def _check_grpc_headers(out: Writer) -> None:
    """Add the rules that reject calls with headers that Triton can't parse, and the header that it requires.

    Triton resets such a call without a response. For HAProxy, this is a lost connection: it would repeat the call on
    another pod, and the call would count as lost.
    """
    # Triton accepts a call without a content type.
    out.add("acl is_grpc req.fhdr(content-type) -m str application/grpc")
    out.add("acl is_grpc req.fhdr(content-type) -m beg application/grpc+ application/grpc;")
    out.add("acl is_grpc req.fhdr(content-type),length eq 0")
    out.add("acl is_grpc req.hdr_cnt(content-type) eq 0")
    out.add(f"http-request return status 415 content-type application/json {_NO_GRPC} unless is_grpc")
    unknown = "!{ req.fhdr(grpc-encoding) -m str identity deflate gzip }"
    out.add(f"http-request return status 200 {_GRPC_CODINGS} if {{ req.fhdr(grpc-encoding) -m found }} {unknown}")
    malformed = "!{ req.fhdr(grpc-timeout) -m reg ^[[:space:]]*[0-9]+[[:space:]]*[HMSmun][[:space:]]*$ }"
    out.add(f"http-request return status 200 {_GRPC_TIMEOUT} if {{ req.fhdr(grpc-timeout) -m found }} {malformed}")
    # `req.hdrs` is a copy of all headers, so it is read only for calls with such metadata.
    out.add(f"http-request return status 200 {_GRPC_BINARY} if {{ req.hdr_names -m sub -- -bin }} {_NOT_BASE64}")
    # Triton doesn't need these.
    attempts = "grpc-previous-rpc-attempts"
    malformed = f"{{ req.hdr_cnt({attempts}) gt 1 }} or !{{ req.fhdr({attempts}) -m reg ^[0-9]{{1,9}}$ }}"
    out.add(f"http-request del-header {attempts} if {malformed}")
    out.add("http-request del-header grpc-internal-encoding-request")
    # A proxy in front of the balancer may have removed it.
    out.add("http-request set-header te trailers")


def _streams(out: Writer, plan: BalancerPlan, listen: Listen) -> None:
    longest_ms = queueing.longest_ms(plan)
    grpc_streams.sections(
        out, path=listen.beside("stream.sock"), end_path=listen.beside("in.sock"), longest_ms=longest_ms
    )
    queueing.stream_rules(out, plan)
    grpc_streams.response_rules(out)
    error_responses.errors(out, "grpc")


def _held_socket(listen: Listen, protocol: Protocol) -> str:
    return listen.beside(f"wait-{protocol}.sock")


def _backends(out: Writer, plan: BalancerPlan, slot: Slot, listen: Listen, placed: Mapping[ServerKey, str]) -> None:
    ports = listen.ports
    out.section("backend http_$slot", slot=slot.name)
    queueing.held_server(out, path=_held_socket(listen, "http"))
    stickiness.balance(out, plan, slot)
    error_responses.errors(out, "http")
    access_log.hop_header_rule(out, plan)
    error_responses.client_error_rules(out, "http", response_timeout_ms=plan.response_timeout_ms)
    latency_buckets.response_rules(out, slot.name, "http")
    out.add("option httpchk")
    out.add("http-check send meth GET uri /v2/models/$model/ready", model=plan.model)
    out.add("http-check expect status 200")
    # As long as the kubelet's readiness probe waits. Without this line, a pod that responds after more than 1 s would be taken out, and
    # with the last pod all queued requests would be rejected, although the pod is ready.
    out.add("timeout check $ms", ms=READINESS_TIMEOUT_S * 1000)
    # Two refused connections in a row take a server out until its next successful health check; otherwise leastconn would send all
    # requests to it. Two and not one, so that a single failure does not take out the only server.
    out.add(
        "default-server maxconn $most check inter 1s fall 3 rise 1 observe layer4 error-limit 2 on-error mark-down",
        most=_first_limit(plan),
    )
    _servers(out, slot, ports.server_http, placed, "")
    out.section("backend grpc_$slot", slot=slot.name)
    queueing.held_server(out, path=_held_socket(listen, "grpc"))
    stickiness.balance(out, plan, slot)
    error_responses.errors(out, "grpc")
    access_log.hop_header_rule(out, plan)
    error_responses.client_error_rules(out, "grpc", response_timeout_ms=plan.response_timeout_ms)
    latency_buckets.response_rules(out, slot.name, "grpc")
    out.add("default-server proto h2 maxconn $most", most=_first_limit(plan))
    _servers(out, slot, ports.server_grpc, placed, " track http_$slot/s$number")


def _first_limit(plan: BalancerPlan) -> int:
    """Return the initial limit on the number of requests in progress at a server, by protocol.

    The agent changes the limit at run time.
    """
    if plan.max_concurrency:
        return max(plan.max_concurrency // plan.balancers, 1)
    return 1 if plan.finds_concurrency else plan.max_connections


def _servers(out: Writer, slot: Slot, port: int, placed: Mapping[ServerKey, str], options: str) -> None:
    # HAProxy 3.0.11 accepts `tcp-ut` in `default-server`, but doesn't apply it to the servers.
    for number in range(1, slot.capacity + 1):
        address = placed.get(ServerKey(slot.name, number))
        end = "" if address else " disabled"
        out.add(
            f"server s$number $address:$port tcp-ut {LOST_SERVER_S}s" + options + end,
            number=number,
            slot=slot.name,
            address=address or UNUSED_ADDRESS,
            port=port if address else UNUSED_PORT,
        )
