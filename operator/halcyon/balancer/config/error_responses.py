"""Lines of haproxy.cfg for HAProxy's own error responses, for HTTP and for gRPC. Pure.

gRPC clients discard the error message unless the HTTP status is 200. gRPC errors are therefore sent with status 200, no
body, and the headers `grpc-status` and `grpc-message`. The codes are 4 DEADLINE_EXCEEDED, 8 RESOURCE_EXHAUSTED, 14
UNAVAILABLE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.config.writer import Writer

Protocol = Literal["http", "grpc"]
PROTOCOLS: Final[tuple[Protocol, ...]] = ("http", "grpc")
OverloadReason = Literal[
    "too many",
    "too many wait",
    "too many of one",
    "over objective",
    "too late",
    "no server",
    "too many lower",
    "no room",
    "too slow",
    "too slow to read",
]

_OVERLOAD_RESPONSES: dict[OverloadReason, tuple[int, int, str]] = {
    "too many": (
        429,
        8,
        "this balancer, or this source, has too many requests for model $model in progress; retry later",
    ),
    "too many wait": (
        429,
        8,
        "$waiting requests for model $model are queued already, the limit of this balancer; retry later",
    ),
    "too many of one": (
        429,
        8,
        "$own requests of this source for model $model are queued already, its share of the limit; retry later",
    ),
    "over objective": (
        429,
        8,
        "more requests for model $model arrive than its pods can answer within $objective ms; retry later",
    ),
    "too late": (
        429,
        8,
        "too many requests for model $model are queued to answer this one before its deadline; retry later",
    ),
    "no server": (503, 14, "no server for model $model became ready in time; retry later"),
    "too many lower": (429, 8, "too many batch requests for model $model are in progress; retry later"),
    "too slow": (
        429,
        8,
        "this source held servers with requests that it did not finish sending; send less than $large bytes, or retry after a minute",
    ),
    "too slow to read": (
        429,
        8,
        "this source held servers with responses that it did not read or streams that it did not use; retry after a minute",
    ),
    "no room": (503, 14, "the servers of model $model had no room for a batch request in time; retry later"),
}
_ERRORS = (
    (408, 4, "the request was not received in time"),
    (502, 14, "the server closed the connection; the request may have been executed"),
    (503, 14, "no server had free capacity in time"),
    (504, 4, "the server did not respond in time"),
)
_BAD_REQUEST = "the body is not valid, or the client closed its side of the connection before the response"
"""Message sent with HTTP status 400. Without it, HAProxy's response to headers that it can't parse would be HTML."""
_MALFORMED_JSON: Final = (
    "^.{2}error.{3}(failed to parse the request JSON buffer:|failed to get request params"
    "|attempt to get members for non-object|Expected JSON object for keyword"
    "|Unable to (parse|set) [^:]{1,80}: (attempt to access|Shape does not match))"
)
"""Regular expression for the beginning of Triton's responses to a body that isn't a valid request, as in 2.51."""
_MALFORMED_JSON_BYTES: Final = 200
"""Number of bytes at the beginning of a response that suffice for `_MALFORMED_JSON`."""
_MALFORMED_MESSAGE: Final = "Unable to parse request"
"""gRPC's message for a call whose message isn't a valid protobuf."""


def reject_retryable(
    out: Writer,
    plan: BalancerPlan,
    protocol: Protocol,
    reason: OverloadReason,
    condition: str,
    *,
    own: int = 0,
    large: int = 0,
) -> None:
    """Add a rule that rejects a request if `condition` is true, and states after what time the client may retry.

    The condition must be a constant. In the condition and in the message of the reason, `$waiting` stands for the limit
    on all queued requests, `$own` for the limit of one source, `$large` for a number of bytes, and `$objective` for the
    latency objective in milliseconds.
    """
    status, code, message = _OVERLOAD_RESPONSES[reason]
    if protocol == "http":
        response = (
            f"""status {status} content-type application/json hdr Retry-After 1 string '{{"error":"{message}"}}'"""
        )
    else:
        response = f'status 200 hdr grpc-status {code} hdr grpc-retry-pushback-ms 1000 hdr grpc-message "{message}"'
    out.add(
        f"http-request return {response} if {condition}",
        waiting=plan.queue_limit,
        model=plan.model,
        own=own,
        large=large,
        objective=plan.objective_ms,
    )


def reject(out: Writer, protocol: Protocol, reason: tuple[int, int, str], condition: str, **values: int | str) -> None:
    """Add a rule that rejects a request if `condition` is true, and signals the client not to retry.

    `reason` is the HTTP status, the gRPC status and the message. Message and condition must be constants; `$name` in them stands for
    one of `values`.
    """
    status, code, message = reason
    if protocol == "http":
        how = " hdr WWW-Authenticate Bearer" if status == 401 else ""
        response = f"""status {status} content-type application/json{how} string '{{"error":"{message}"}}'"""
    else:
        response = f'status 200 hdr grpc-status {code} hdr grpc-retry-pushback-ms -1 hdr grpc-message "{message}"'
    out.add(f"http-request return {response} if {condition}", **values)


def client_error_rules(out: Writer, protocol: Protocol, *, response_timeout_ms: int) -> None:
    """Add the rules that correct the status of a server's response to a malformed request.

    Triton responds to JSON that it can't parse with 500, also if only the number of values doesn't fit the shape, and
    to a malformed gRPC message with INTERNAL. Clients would retry such a request, and it would count as a failure.
    They come before the rules that count failed responses.
    """
    if protocol == "http":
        # Triton sends these responses with a length, and streams without one. HAProxy sends its own 504 if it waits in vain, so it
        # waits no shorter than for the response, and never for the end of a stream.
        condition = "{ status 500 } { res.hdr(content-length) -m found }"
        out.add(
            f"http-response wait-for-body time $ms at-least $bytes if {condition}",
            ms=response_timeout_ms,
            bytes=_MALFORMED_JSON_BYTES,
        )
        out.add(f'http-response set-status 400 if {{ status 500 }} {{ res.body -m reg "{_MALFORMED_JSON}" }}')
    else:
        malformed = f'{{ res.hdr(grpc-status) -m str 13 }} {{ res.fhdr(grpc-message) -m str "{_MALFORMED_MESSAGE}" }}'
        out.add(f"http-response set-header grpc-status 3 if {malformed}")


def errors(out: Writer, protocol: Protocol) -> None:
    """Add the responses that a section sends if HAProxy could not complete a request.

    For gRPC, a later rule changes the status to 200.
    """
    if protocol == "http":
        out.add(f"""http-error status 400 content-type application/json string '{{"error":"{_BAD_REQUEST}"}}'""")
    for status, code, message in _ERRORS:
        if protocol == "http":
            retry = " hdr Retry-After 1" if status == 503 else ""
            body = f"""string '{{"error":"{message}"}}'"""
            out.add(f"http-error status {status} content-type application/json{retry} {body}")
        else:
            retry = " hdr grpc-retry-pushback-ms 1000" if status == 503 else ""
            out.add(f'http-error status {status} hdr grpc-status {code} hdr grpc-message "{message}"{retry}')
