"""Rules of haproxy.cfg for the access log: one line of JSON on HAProxy's standard output for each client request. Pure.

Values that HAProxy generates are logged unchanged. Only three values come from the client's request: the path, the
request id if it has only harmless characters, and the trace id of a valid W3C `traceparent`. The path is escaped as
ASCII JSON, and bytes that are not UTF-8 are dropped.

Some requests pass through HAProxy twice (`queueing`, `grpc_streams`). The client-facing front end then does not see which pod
responded. A slot's back end therefore passes on the pod, the service time and the retries in a response header. The front end removes
this header before the client receives the response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from halcyon.balancer.config.writer import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.config.error_responses import Protocol
    from halcyon.balancer.config.writer import Writer

OFF: Final = "None"
_LOG_LEVELS = {"All": "", "Errors": " err"}
"""End of the `log` line in haproxy.cfg, for each value of `traffic.accessLog`."""
_ID = "x-request-id"
_TRACE: Final = "traceparent"
_VALID_TRACE: Final = "^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"
_NO_TRACE_ID: Final = f"00-{'0' * 32}"
"""Prefix of a `traceparent` whose trace id is not valid."""
_HOP_HEADER = "halcyon-way"
# An escaped byte of the path takes up to 6 characters, and the rest of a line less than 1000. HAProxy truncates longer lines.
_MAX_PATH_BYTES = 1024
_MAX_LINE_BYTES = 8192
_FIELDS: Final = {
    "time": '"%[date(0,ms),ms_utime(%Y-%m-%dT%H:%M:%S.%3NZ)]"',
    "id": "%[var(txn.log_id,null)]",
    "trace": "%[var(txn.log_trace,null)]",
    "client": "%[var(txn.log_client,null)]",
    "protocol": '"$protocol"',
    "path": "%[var(txn.log_path,null)]",
    "status": "%ST",
    "grpcStatus": "%[var(txn.log_grpc,null)]",
    "pod": "%[var(txn.log_pod,null)]",
    "queueMs": "%[var(txn.log_queue,null)]",
    "serviceMs": "%[var(txn.log_service,null)]",
    "totalMs": "%Ta",
    "bytesIn": "%U",
    "bytesOut": "%B",
    "retries": "%[var(txn.log_retries,null)]",
    "termination": '"%ts"',
}
"""Fields of a log line, each with its HAProxy expression. A value that is not set is logged as null, for example `pod`
if no pod responded."""


def arrival_rules(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """Add the access log's first rules, which also give each request an id, to a client-facing front end.

    They precede all other request rules, so that requests that are rejected later also have an id.

    Raises:
        ConfigError: this agent version does not support the plan's value of `access_log`.
    """
    if plan.access_log == OFF:
        return
    if plan.access_log not in _LOG_LEVELS:
        raise ConfigError(f"access_log is {plan.access_log!r}; this agent supports {', '.join([OFF, *_LOG_LEVELS])}")
    out.add("log stdout len $most format raw local0" + _LOG_LEVELS[plan.access_log], most=_MAX_LINE_BYTES)
    out.add(f"log-format '{_line(_FIELDS)}'", protocol=protocol)
    # For an invalid HTTP request no variable is set, not even to its default.
    fields = {name: value if "var(" not in value else "null" for name, value in _FIELDS.items()}
    out.add(f"error-log-format '{_line(fields)}'", protocol=protocol)
    # Do not log connections without a request, for example TCP health checks.
    out.add("option dontlognull")
    harmless = f"{{ req.fhdr({_ID}) -m reg ^[A-Za-z0-9._~+/=:-]{{1,128}}$ }}"
    out.add(f"http-request set-var(txn.id) req.fhdr({_ID}) if {harmless}")
    out.add("http-request set-var(txn.id) uuid() if !{ var(txn.id) -m found }")
    out.add(f"http-request set-header {_ID} %[var(txn.id)]")
    out.add("http-request set-var(txn.log_at) date(0,ms)")
    out.add("""http-request set-var-fmt(txn.log_id) '"%[var(txn.id)]"'""")
    trace = f"{{ req.fhdr({_TRACE}) -m reg {_VALID_TRACE} }} !{{ req.fhdr({_TRACE}) -m beg {_NO_TRACE_ID} }}"
    out.add(f"""http-request set-var-fmt(txn.log_trace) '"%[req.fhdr({_TRACE}),field(2,-)]"' if {trace}""")
    out.add(
        """http-request set-var-fmt(txn.log_path) '"%[path,bytes(0,$most),json(utf8ps)]"'""",
        most=_MAX_PATH_BYTES,
    )
    out.add(f"http-after-response set-header {_ID} %[var(txn.id)] if {{ var(txn.id) -m found }}")
    out.add(f"http-response set-var(txn.way) res.hdr({_HOP_HEADER})")
    out.add(f"http-response del-header {_HOP_HEADER}")
    has_way = "if { var(txn.way) -m found }"
    out.add(f"""http-response set-var-fmt(txn.log_pod) '"%[var(txn.way),field(1,;)]"' {has_way}""")
    for number, name in enumerate(("service", "retries"), 2):
        out.add(f"http-response set-var(txn.log_{name}) var(txn.way),field({number},;),add(0) {has_way}")
    # HAProxy's own queue timer does not include the time for which a request was held.
    out.add(f"http-response set-var(txn.log_queue) date(0,ms),sub(txn.log_at),sub(txn.log_service) {has_way}")
    out.add(f"http-response set-var(txn.log_queue) int(0) {has_way} {{ var(txn.log_queue) -m int lt 0 }}")
    out.add("http-after-response set-var(txn.log_retries) txn.conn_retries if !{ var(txn.log_retries) -m found }")
    if protocol == "grpc":
        out.add("http-after-response set-var(txn.log_grpc) res.fhdr(grpc-status),add(0)")
    if plan.access_log == "Errors":
        # HAProxy detects retries, aborts and truncated responses only at the end of a request; error statuses are known here.
        out.add("option log-separate-errors")
        out.add("http-after-response set-log-level err if { status ge 400 }")
        if protocol == "grpc":
            out.add("http-after-response set-log-level err if { var(txn.log_grpc) -m int gt 0 }")


def _line(fields: Mapping[str, str]) -> str:
    return "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"


def client_rule(out: Writer, plan: BalancerPlan, variable: str) -> None:
    """Add the rule that logs the client's name, taken from the HAProxy variable `variable`.

    The name must have only harmless characters.
    """
    if plan.access_log != OFF:
        out.add(
            f"""http-request set-var-fmt(txn.log_client) '"%[var({variable})]"' if {{ var({variable}) -m found }}"""
        )


def hop_header_rule(out: Writer, plan: BalancerPlan) -> None:
    """Add the rule of a slot's back end that sets a response header for the log.

    The header contains the pod, the service time and the number of retries.
    """
    if plan.access_log != OFF:
        way = "%[bc_dst];%[res.timer.hdr];%[txn.conn_retries]"
        out.add(f"http-response set-header {_HOP_HEADER} '{way}'")
