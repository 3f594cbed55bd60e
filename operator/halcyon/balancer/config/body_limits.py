"""The limit on the size of a request, as rules of haproxy.cfg. Pure.

    the size is known from                         | above the limit
    Content-Length                                 | 413, gRPC 8; before it counts as a request
    gRPC: the length in front of a message         | gRPC 8
    HTTP without Content-Length: the bytes so far  | 413; from `retries.MAX_BYTES` on 411, since the rest could only be counted on its
                                                   | way to a server

The last two take a body's first `MAX_BYTES`, or all of it: HAProxy waits for that much before it chooses a server. It does not wait
for a stream, which has no end to be counted to.
"""

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
"""Bytes in front of a gRPC message: whether it is compressed, and its length."""
_TOO_LARGE = (413, 8, "the request is larger than $most bytes, the limit for model $model")
_NO_LENGTH = (411, 8, "a body of $bytes bytes or more requires Content-Length")


def length_rules(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """Add a client-facing front end's rules before anything is counted."""
    most = plan.max_request_bytes
    if not most:
        return
    large = "{ req.body_size gt $limit }" + (f" !{IS_STREAM}" if protocol == "grpc" else "")
    limit = most + (_PREFIX if protocol == "grpc" else 0)
    error_responses.reject(out, protocol, _TOO_LARGE, large, most=most, model=plan.model, limit=limit)


def byte_rules(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """Add a client-facing front end's rules behind those that wait for the first part of a body; they use its acl `infers`."""
    most = plan.max_request_bytes
    if not most:
        return
    # No earlier rule waits for requests of a stateful model, or for requests that aren't inference.
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
    # The last four bytes in front of a message are its length. For most requests, only the first condition is evaluated.
    announced = "{ req.body_size gt $counted } { req.body,bytes(1,4),be2dec(,4),add(0) gt $most } !" + IS_STREAM
    # This variable keeps it from being counted as rejected, which would request another replica.
    out.add(f"http-request set-var(txn.answered) bool(true) if {announced}", most=most, counted=counted)
    error_responses.reject(out, protocol, _TOO_LARGE, "{ var(txn.answered) -m found }", most=most, model=plan.model)
