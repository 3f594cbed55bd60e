"""Rules of haproxy.cfg that limit the size of a request. Pure.

A request that is too large is rejected with HTTP status 413, or with gRPC status 8. When this happens depends on where
the size is known from: Content-Length, the length in front of a gRPC message, or the bytes received.

Without Content-Length, HAProxy waits for the first `MAX_BYTES` of the body, or for all of a shorter one, before it
chooses a server. It does not wait for streams, because their size is unlimited.
"""

# the size is known from                         | response above the limit
# Content-Length                                 | 413, gRPC 8; before it counts as a request
# gRPC: the length in front of a message         | gRPC 8
# HTTP without Content-Length: bytes received    | 413; 411 from `retries.MAX_BYTES` on, because a longer body could only be measured
#                                                | while it is sent to a server

from __future__ import annotations

from typing import TYPE_CHECKING

from halcyon.balancer.config import error_responses
from halcyon.balancer.config.grpc_streams import IS_STREAM
from halcyon.balancer.config.retries import BODY_TIMEOUT_MS, MAX_BYTES

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.config.error_responses import Protocol
    from halcyon.balancer.config.writer import Writer

_PREFIX = 5
"""Length of the prefix of a gRPC message, in bytes: 1 for the compression flag and 4 for the message length."""
_TOO_LARGE = (413, 8, "the request is larger than $most bytes, the limit for model $model")
_NO_LENGTH = (411, 8, "a body of $bytes bytes or more requires Content-Length")


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
    counted = min(most, MAX_BYTES - 1)
    if protocol == "http":
        without_length = "{ req.body_size gt $counted } !{ req.fhdr(content-length) -m found }"
        reason = _TOO_LARGE if most < MAX_BYTES else _NO_LENGTH
        error_responses.reject(
            out, protocol, reason, without_length, most=most, model=plan.model, counted=counted, bytes=MAX_BYTES
        )
        return
    # The last four bytes of the prefix are the message length. For most requests, only the first condition is evaluated.
    announced = "{ req.body_size gt $counted } { req.body,bytes(1,4),be2dec(,4),add(0) gt $most } !" + IS_STREAM
    # With this variable set, the request is not counted as rejected. Rejected requests would make the operator add a replica.
    out.add(f"http-request set-var(txn.answered) bool(true) if {announced}", most=most, counted=counted)
    error_responses.reject(out, protocol, _TOO_LARGE, "{ var(txn.answered) -m found }", most=most, model=plan.model)
