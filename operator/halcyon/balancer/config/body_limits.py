"""Rules of haproxy.cfg that limit the size of a request. Pure.

A request that is too large is rejected with HTTP status 413, or with gRPC status 8. The size is known from
Content-Length, from the length in front of a gRPC message, or only from the bytes received. The rejection comes as soon
as the size is known.

Without Content-Length, HAProxy waits for the first `MAX_BYTES` of the body, or for all of a shorter one, before it
chooses a server. It does not wait for streams, because their size is unlimited.

The wait also ends when the buffer is full. Long headers leave less than `MAX_BYTES` of it for the body, so the rules
for HTTP compare the size of headers and body together. The length of a gRPC message is always in the buffer, because
Triton accepts at most 16 KiB of metadata.
"""

# the size is known from                         | response above the limit
# Content-Length                                 | 413, gRPC 8; before it counts as a request
# gRPC: the length in front of a message         | gRPC 8
# HTTP without Content-Length: bytes received    | 413; 411 from `retries.MAX_BYTES` on, or if headers and body fill the buffer, because
#                                                | a longer body could only be measured while it is sent to a server

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from halcyon.balancer.config import error_responses
from halcyon.balancer.config.grpc_streams import IS_STREAM
from halcyon.balancer.config.memory_budget import BUFFER_BYTES
from halcyon.balancer.config.retries import BODY_TIMEOUT_MS, MAX_BYTES

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.config.error_responses import Protocol
    from halcyon.balancer.config.writer import Writer

_PREFIX = 5
"""Length of the prefix of a gRPC message, in bytes: 1 for the compression flag and 4 for the message length."""
_TOO_LARGE = (413, 8, "the request is larger than $most bytes, the limit for model $model")
_NO_LENGTH = (411, 8, "a body of $bytes bytes or more requires Content-Length")
_FULL = (411, 8, "a request with $bytes bytes of headers and body, or more, requires Content-Length")
_FULL_BYTES: Final = BUFFER_BYTES - 2768
"""Number of bytes of headers and body at which a buffer may be full. HAProxy keeps 1 KiB of each buffer free, and needs
8 bytes for each header."""


def length_rules(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """Add the rules of a client-facing front end that check the header Content-Length.

    They come before the rules that count requests.
    """
    most = plan.max_request_bytes
    if not most:
        return
    large = "{ req.body_size gt $limit }" + (f" !{IS_STREAM}" if protocol == "grpc" else "")
    limit = most + (_PREFIX if protocol == "grpc" else 0)
    error_responses.reject(out, protocol, _TOO_LARGE, large, most=most, model=plan.model, limit=limit)


def byte_rules(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """Add the rules of a client-facing front end that limit the number of received bytes.

    They come after the rules that wait for the first part of the body, and use the ACL `infers`.
    """
    most = plan.max_request_bytes
    if not most:
        return
    # Earlier rules wait only for the bodies of inference requests, and not if the model is stateful.
    condition = (f"if !{IS_STREAM}" if protocol == "grpc" else "") if plan.sequences else "if !infers"
    out.add(
        f"http-request wait-for-body time $ms at-least $bytes {condition}".rstrip(), ms=BODY_TIMEOUT_MS, bytes=MAX_BYTES
    )
    if protocol == "http":
        _reject_without_length(out, plan)
        return
    # The last four bytes of the prefix are the message length. It is compared for each request, because a message that is not complete
    # can be short if the metadata is long.
    announced = f"{{ req.body_size ge {_PREFIX} }} {{ req.body,bytes(1,4),be2dec(,4),add(0) gt $most }} !{IS_STREAM}"
    # With this variable set, the request is not counted as rejected. Rejected requests would make the operator add a replica.
    out.add(f"http-request set-var(txn.answered) bool(true) if {announced}", most=most)
    error_responses.reject(out, protocol, _TOO_LARGE, "{ var(txn.answered) -m found }", most=most, model=plan.model)


def _reject_without_length(out: Writer, plan: BalancerPlan) -> None:
    most = plan.max_request_bytes
    no_length = "!{ req.fhdr(content-length) -m found }"
    error_responses.reject(
        out,
        "http",
        _TOO_LARGE if most < MAX_BYTES else _NO_LENGTH,
        f"{{ req.body_size gt $counted }} {no_length}",
        most=most,
        model=plan.model,
        counted=min(most, MAX_BYTES - 1),
        bytes=MAX_BYTES,
    )
    # GET requests have no length, and no body.
    for body in ("{ req.body_size gt 0 }", "{ req.fhdr(transfer-encoding) -m found }"):
        out.add(f"http-request set-var(txn.head_bytes) req.hdrs,length if {no_length} {body}")
    full = "{ var(txn.head_bytes) -m found } { req.body_size,add(txn.head_bytes) ge $bytes }"
    error_responses.reject(out, "http", _FULL, full, bytes=_FULL_BYTES)
