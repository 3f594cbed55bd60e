"""How large a request may be, as rules of haproxy.cfg. Pure.

    what its size is known by                      | above the limit
    Content-Length                                 | 413, gRPC 8; before it counts as a request
    gRPC: the length that stands before a message  | gRPC 8
    HTTP without Content-Length: what has come     | 413; from `retries.MAX_BYTES` on 411, since what comes behind them could only
                                                   | be counted on its way to a server

The last two take a body's first `MAX_BYTES`, or all of it: HAProxy waits for so much before it chooses a server. A stream is not
waited for, and has no end to be counted to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halcyon.balancer.config import error_responses
from halcyon.balancer.config.grpc_streams import IS_STREAM
from halcyon.balancer.config.retries import BODY_MS, MAX_BYTES

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.config.error_responses import Protocol
    from halcyon.balancer.config.writer import Writer

_PREFIX = 5
"""Bytes before a message of gRPC: whether it is compressed, and its length."""
_LARGE = (413, 8, "the request is larger than $most bytes, the limit for model $model")
_UNSAID = (411, 8, "a body of $bytes bytes or more needs Content-Length")


def at_once(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """A client's front end, before anything is counted."""
    most = plan.max_request_bytes
    if not most:
        return
    large = "{ req.body_size gt $room }" + (f" !{IS_STREAM}" if protocol == "grpc" else "")
    room = most + (_PREFIX if protocol == "grpc" else 0)
    error_responses.reject(out, protocol, _LARGE, large, most=most, model=plan.model, room=room)


def by_its_bytes(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """A client's front end, behind the rules that wait for the first part of a body; these use its acl `infers`."""
    most = plan.max_request_bytes
    if not most:
        return
    # What a model with a state is sent, and what is no inference, nobody has waited for.
    whom = (f"if !{IS_STREAM}" if protocol == "grpc" else "") if plan.sequences else "if !infers"
    out.add(f"http-request wait-for-body time $ms at-least $bytes {whom}".rstrip(), ms=BODY_MS, bytes=MAX_BYTES)
    looked = min(most, MAX_BYTES - 1)
    if protocol == "http":
        unsaid = "{ req.body_size gt $looked } !{ req.fhdr(content-length) -m found }"
        why = _LARGE if most < MAX_BYTES else _UNSAID
        error_responses.reject(out, protocol, why, unsaid, most=most, model=plan.model, looked=looked, bytes=MAX_BYTES)
        return
    # The last four bytes before a message are its length. Most requests end with the look at what is there.
    announced = "{ req.body_size gt $looked } { req.body,bytes(1,4),be2dec(,4),add(0) gt $most } !" + IS_STREAM
    # With this variable it is not counted as refused, which would ask for another server.
    out.add(f"http-request set-var(txn.answered) bool(true) if {announced}", most=most, looked=looked)
    error_responses.reject(out, protocol, _LARGE, "{ var(txn.answered) -m found }", most=most, model=plan.model)
