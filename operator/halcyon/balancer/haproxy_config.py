"""From the accepted plan to the text of haproxy.cfg. Pure.

What HAProxy does by itself stands here: routes, limits, time-outs, retries, health checks, what is counted. What changes while
it runs (addresses and states of servers) is given by the runtime socket; the file only repeats the last known state of it, so
that a restarted or reloaded HAProxy serves at once.

Every line goes through `_Writer`, which takes constants of this module and values of three narrow kinds. There is no
way to hand it free text.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from halcyon.api.plan import BalancerPlan, Slot

COUNTERS = "counters"
"""Stick table with one row (key 1): gpc0 inference requests, gpc1 refused ones, gpc2 ones lost on the way."""
PROTOCOLS: Final = ("http", "grpc")
UNUSED_ADDRESS = "127.0.0.1"
UNUSED_PORT = 1

_BUFFER_BYTES = 32768
# A stream that waits in the queue does not read its body. Were its window larger than the buffer, what the client sends
# for it would block all other requests of the same gRPC channel.
_WINDOW_BYTES = 30000
_STREAMS_PER_CHANNEL = 1000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_PATH = re.compile(r"/[A-Za-z0-9_./-]{0,90}")
_PLACE = re.compile(r"\$([a-z_]+)")
_MAX_NUMBER = 2**31 - 1


class ConfigError(ValueError):
    """A value that can't stand in haproxy.cfg."""


@dataclass(frozen=True)
class Ports:
    """Where HAProxy listens, and where Triton does."""

    http: int = 8000
    grpc: int = 8001
    metrics: int = 9101
    server_http: int = 8000
    server_grpc: int = 8001


@dataclass(frozen=True)
class Listen:
    """How this pod's HAProxy is reached."""

    ports: Ports = Ports()
    dual_stack: bool = False
    """Listen on IPv6 too. Must be false where the node has no IPv6: HAProxy would not start."""
    socket_path: str = "/run/halcyon/haproxy.sock"
    """Runtime socket, as HAProxy sees it."""


@dataclass(frozen=True, order=True)
class LineKey:
    """One server line, in both protocols: `s3` of `http_a` and `grpc_a` is slot `a`, number 3."""

    slot: str
    number: int


class _Writer:
    """Collects lines; `$name` in a template stands for a checked value."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def section(self, template: str, **values: int | str) -> None:
        self._lines += ["", self._fill(template, values)]

    def add(self, template: str, **values: int | str) -> None:
        self._lines.append("  " + self._fill(template, values))

    def text(self) -> str:
        return "\n".join(self._lines).lstrip("\n") + "\n"

    @staticmethod
    def _fill(template: str, values: Mapping[str, int | str]) -> str:
        return _PLACE.sub(lambda place: _checked(place[1], values[place[1]]), template)


def _checked(field: str, value: int | str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ConfigError(f"{field} is {value!r}; a number or a name is needed")
    if isinstance(value, int):
        if not 0 <= value <= _MAX_NUMBER:
            raise ConfigError(f"{field} is {value}; it must be from 0 to {_MAX_NUMBER}, for example 60000")
        return str(value)
    if field == "address":
        return _address(value)
    if field == "file":
        return _match(_PATH, field, value, "/run/halcyon/haproxy.sock")
    name = _match(_NAME, field, value, "digits-v2")
    # In regular expressions a dot would stand for any character.
    return name.replace(".", "[.]") if field == "model_re" else name


def _match(pattern: re.Pattern[str], field: str, value: str, example: str) -> str:
    if not pattern.fullmatch(value):
        raise ConfigError(f"{field} is {value!r}; it must match {pattern.pattern}, for example {example}")
    return value


def _address(value: str) -> str:
    try:
        address = ipaddress.ip_address(value)
    except ValueError as error:
        raise ConfigError(f"address is {value!r}; it must be an IP address, for example 10.0.0.7") from error
    if address.version == 6 and address.scope_id is not None:
        raise ConfigError(f"address is {value!r}; an address with a zone can't be a server's")
    return f"[{address}]" if address.version == 6 else str(address)


def render(plan: BalancerPlan, *, listen: Listen, placed: Mapping[LineKey, str] | None = None) -> str:
    """The text of haproxy.cfg.

    Args:
        plan: what the controller asks.
        listen: ports and socket.
        placed: address of each server line that takes requests now; the others are disabled.

    Raises:
        ConfigError: where a value of the plan can't stand in the file; it names the value and a good example.
    """
    if not plan.slots or sum(slot.weight for slot in plan.slots) < 1:
        raise ConfigError(f"slots of {plan.name} have no weight in all; at least one must have a weight from 1 to 256")
    if len({slot.name for slot in plan.slots}) < len(plan.slots):
        raise ConfigError(f"slots of {plan.name} have the same name twice; names are `a` and `b`")
    body = _body(plan, listen, {})
    out = _Writer()
    out.section("global")
    # `show info` tells it again: so the agent knows which configuration a process runs.
    out.add("description $digest", digest=_digest(body))
    return out.text() + (_body(plan, listen, placed) if placed else body)


def digest(plan: BalancerPlan, *, listen: Listen) -> str:
    """What `show info` tells as the description of a HAProxy that runs this plan, whatever its servers are."""
    return _digest(_body(plan, listen, {}))


def _digest(body: str) -> str:
    return "halcyon-" + hashlib.sha256(body.encode()).hexdigest()[:16]


def _body(plan: BalancerPlan, listen: Listen, placed: Mapping[LineKey, str]) -> str:
    out = _Writer()
    _global(out, plan, listen)
    _defaults(out, plan)
    out.section("frontend metrics")
    _bind(out, listen, listen.ports.metrics, "")
    out.add("http-request use-service prometheus-exporter if { path -m str /metrics } METH_GET")
    out.add("http-request return status 404")
    out.section("backend $table", table=COUNTERS)
    out.add("stick-table type integer size 16 store gpc(3)")
    _frontend_http(out, plan, listen)
    _frontend_grpc(out, plan, listen)
    for slot in plan.slots:
        _backends(out, plan, slot, listen.ports, placed)
    return out.text()


def _global(out: _Writer, plan: BalancerPlan, listen: Listen) -> None:
    # One thread: it carries 40,000 requests a second, its queue bound is exact, and each thread costs memory.
    out.add("nbthread 1")
    out.add("maxconn $connections", connections=min(max(4000, 2000 + plan.queue_limit), 20000))
    out.add("stats socket $file mode 600 level admin expose-fd listeners", file=listen.socket_path)
    out.add("stats timeout 10s")
    out.add("hard-stop-after $ms", ms=plan.drain_ms)
    out.add("tune.bufsize $bytes", bytes=_BUFFER_BYTES)
    out.add("tune.h2.fe.max-concurrent-streams $streams", streams=_STREAMS_PER_CHANNEL)
    out.add("tune.h2.fe.initial-window-size $bytes", bytes=_WINDOW_BYTES)
    out.add("tune.h2.be.initial-window-size $bytes", bytes=_WINDOW_BYTES)


def _defaults(out: _Writer, plan: BalancerPlan) -> None:
    timeout = plan.request_timeout_ms
    out.section("defaults")
    out.add("mode http")
    # Once, elsewhere: a request that kills its server must not kill them all.
    out.add("retries 1")
    out.add("option redispatch 1")
    out.add("retry-on conn-failure empty-response")
    # Without it a request that its client gave up stays in the queue, and its stream counts against the channel's limit.
    out.add("option abortonclose")
    # A stopping process says `Connection: close` in an answer; closing an idle connection races with the client's next request.
    out.add("option idle-close-on-response")
    out.add("http-reuse always")
    out.add("timeout connect 1s")
    out.add("timeout queue $ms", ms=timeout)
    out.add("timeout server $ms", ms=timeout)
    # Only a client that is in the middle of sending meets this one; idle channels meet http-keep-alive.
    out.add("timeout client $ms", ms=max(timeout + 30000, 60000))
    out.add("timeout http-request 30s")
    out.add("timeout http-keep-alive 1h")


def _bind(out: _Writer, listen: Listen, port: int, options: str) -> None:
    out.add(("bind :::$port v4v6" if listen.dual_stack else "bind :$port") + options, port=port)


def _frontend_http(out: _Writer, plan: BalancerPlan, listen: Listen) -> None:
    out.section("frontend http")
    _bind(out, listen, listen.ports.http, "")
    # Exact comparison with the path as it came, undecoded: what is written in another way is not found.
    out.add("acl reads path -m str /v2 /v2/health/live /v2/health/ready")
    out.add("acl reads path -m str /v2/models/$model /v2/models/$model/ready", model=plan.model)
    out.add("acl reads path -m reg ^/v2/models/$model_re/versions/[0-9]{1,18}(/ready)?$", model_re=plan.model)
    for verb in ("infer", "generate", "generate_stream"):
        out.add(f"acl infers path -m str /v2/models/$model/{verb}", model=plan.model)
    out.add(
        "acl infers path -m reg ^/v2/models/$model_re/versions/[0-9]{1,18}/(infer|generate|generate_stream)$",
        model_re=plan.model,
    )
    out.add("http-request return status 404 content-type application/json " + _NOT_OPEN + " unless reads or infers")
    out.add("http-request return status 405 content-type application/json " + _USE_GET + " if reads !METH_GET")
    out.add("http-request return status 405 content-type application/json " + _USE_POST + " if infers !{ method POST }")
    # The servers see the path that was compared, with neither query nor host before it, and no offer of another protocol.
    out.add("http-request set-uri %[path]")
    out.add("http-request del-header upgrade")
    _count(out, plan)
    out.add(
        "http-request return status 429 content-type application/json hdr Retry-After 1 "
        """string '{"error":"$waiting requests for model $model wait already, the limit of this balancer; try later"}' """
        "if infers { var(txn.waiting) -m int ge $waiting }",
        waiting=plan.queue_limit,
        model=plan.model,
    )
    _choose(out, plan, "http")


_NOT_OPEN = """string '{"error":"not found: this address serves inference, readiness and metadata of one model"}'"""
_USE_GET = """hdr Allow GET string '{"error":"method not allowed; use GET"}'"""
_USE_POST = """hdr Allow POST string '{"error":"method not allowed; use POST"}'"""
_GRPC = "/inference.GRPCInferenceService/"


def _frontend_grpc(out: _Writer, plan: BalancerPlan, listen: Listen) -> None:
    out.section("frontend grpc")
    _bind(out, listen, listen.ports.grpc, " proto h2")
    out.add("http-request return status 405 hdr Allow POST unless { method POST }")
    reads = ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata")
    out.add("acl reads path -m str " + " ".join(_GRPC + method for method in reads))
    out.add("acl reads path -m str /grpc.health.v1.Health/Check")
    out.add(f"acl infers path -m str {_GRPC}ModelInfer {_GRPC}ModelStreamInfer")
    out.add(
        "http-request return status 200 hdr grpc-status 12 "
        'hdr grpc-message "this address serves inference, readiness and metadata of one model" unless reads or infers'
    )
    out.add("http-request set-uri %[path]")
    # A stream can't be repeated from its first message.
    out.add(f"http-request disable-l7-retry if {{ path -m str {_GRPC}ModelStreamInfer }}")
    _count(out, plan)
    out.add(
        "http-request return status 200 hdr grpc-status 8 hdr grpc-retry-pushback-ms 1000 "
        'hdr grpc-message "$waiting requests for model $model wait already, the limit of this balancer; try later" '
        "if infers { var(txn.waiting) -m int ge $waiting }",
        waiting=plan.queue_limit,
        model=plan.model,
    )
    _choose(out, plan, "grpc")
    # A client that meets an HTTP status other than 200 loses the message, so failures are told in gRPC's own way.
    _grpc_errors(out)
    out.add("http-after-response set-status 200 if { status 502:504 } !{ var(txn.answered) -m found }")
    out.add("http-after-response set-header content-type application/grpc if { res.hdr(grpc-status) -m found }")


def _count(out: _Writer, plan: BalancerPlan) -> None:
    out.add("http-request track-sc0 int(1) table $table if infers", table=COUNTERS)
    out.add("http-request sc-inc-gpc(0,0) if infers")
    first = True
    for slot in plan.slots:
        for protocol in PROTOCOLS:
            more = "" if first else ",add(txn.waiting)"
            out.add(f"http-request set-var(txn.waiting) queue({protocol}_$slot){more}", slot=slot.name)
            first = False


def _choose(out: _Writer, plan: BalancerPlan, protocol: str) -> None:
    left = sum(slot.weight for slot in plan.slots)
    for slot in plan.slots[:-1]:
        if slot.weight:
            out.add(
                f"use_backend {protocol}_$slot if {{ rand($left) lt $weight }}",
                slot=slot.name,
                left=left,
                weight=slot.weight,
            )
        left -= slot.weight
    last = next(slot for slot in reversed(plan.slots) if slot.weight)
    out.add(f"default_backend {protocol}_$slot", slot=last.name)
    out.add("http-response set-var(txn.answered) bool(true)")
    # These rules see every answer, HAProxy's own too; only inference requests are tracked, so only they count. With a
    # server's id a 503 is a failed connection, without one the request never left the queue.
    own = "!{ var(txn.answered) -m found }"
    out.add(f"http-after-response sc-inc-gpc(1,0) if {{ status 429 }} {own}")
    if protocol == "grpc":
        out.add(f"http-after-response sc-inc-gpc(1,0) if {{ status 200 }} {{ res.hdr(grpc-status) -m str 8 }} {own}")
    out.add(f"http-after-response sc-inc-gpc(1,0) if {{ status 503 }} !{{ srv_id -m found }} {own}")
    out.add(f"http-after-response sc-inc-gpc(2,0) if {{ status 503 }} {{ srv_id -m found }} {own}")
    out.add(f"http-after-response sc-inc-gpc(2,0) if {{ status 502 504 }} {own}")


def _http_errors(out: _Writer) -> None:
    for status, message in (
        (502, "the server broke off; the request may have run"),
        (503, "no server had room in time"),
        (504, "the server did not answer in time"),
    ):
        retry = " hdr Retry-After 1" if status == 503 else ""
        out.add(f"""http-error status {status} content-type application/json{retry} string '{{"error":"{message}"}}'""")


def _grpc_errors(out: _Writer) -> None:
    for status, code, message in (
        (502, 14, "the server broke off; the request may have run"),
        (503, 14, "no server had room in time"),
        (504, 4, "the server did not answer in time"),
    ):
        retry = " hdr grpc-retry-pushback-ms 1000" if status == 503 else ""
        out.add(f'http-error status {status} hdr grpc-status {code} hdr grpc-message "{message}"{retry}')


def _backends(out: _Writer, plan: BalancerPlan, slot: Slot, ports: Ports, placed: Mapping[LineKey, str]) -> None:
    out.section("backend http_$slot", slot=slot.name)
    out.add("balance leastconn")
    _http_errors(out)
    out.add("option httpchk")
    out.add("http-check send meth GET uri /v2/models/$model/ready", model=plan.model)
    out.add("http-check expect status 200")
    # Two refused connections in a row take the server out until its next good check, or leastconn would send it everything.
    # Two, because the only server must not be lost to one that a second attempt repairs.
    out.add(
        "default-server maxconn $most check inter 1s fall 3 rise 1 observe layer4 error-limit 2 on-error mark-down",
        most=plan.max_connections,
    )
    _servers(out, slot, ports.server_http, placed, "")
    out.section("backend grpc_$slot", slot=slot.name)
    out.add("balance leastconn")
    _grpc_errors(out)
    out.add("default-server proto h2 maxconn $most", most=plan.max_connections)
    _servers(out, slot, ports.server_grpc, placed, " track http_$slot/s$number")


def _servers(out: _Writer, slot: Slot, port: int, placed: Mapping[LineKey, str], options: str) -> None:
    for number in range(1, slot.capacity + 1):
        address = placed.get(LineKey(slot.name, number))
        end = "" if address else " disabled"
        out.add(
            "server s$number $address:$port" + options + end,
            number=number,
            slot=slot.name,
            address=address or UNUSED_ADDRESS,
            port=port if address else UNUSED_PORT,
        )
