"""Outcome and times of one request, the same for every protocol."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

from halcyon_measure.inputs.payloads import Payload

_LONGEST_MESSAGE = 160


class Outcome(IntEnum):
    """Outcome of a request. The values are those of the column `outcome` in a run's file."""

    ANSWERED = 0
    REJECTED = 1
    """Rejected by the server or the balancer, because it was full or had no replica."""
    TIMED_OUT = 2
    """No answer within the timeout of the client or of the server."""
    DISCONNECTED = 3
    """The connection couldn't be opened, or it broke."""
    ERROR = 4
    """The server answered with any other error, with a redirect, or without outputs."""
    WRONG = 5
    """An answer whose outputs differ from the expected ones."""
    NOT_SENT = 6
    """Never sent, because too many requests were in flight, the client was late, or `prepare` had not ended."""


class Reply(NamedTuple):
    """Reply to a request, with its outcome. Times are in seconds of the monotonic clock."""

    outcome: Outcome
    message: str
    """Status and text of a failure; empty if the request succeeded."""
    first_byte_s: float
    body: bytes
    pod: str
    header_length: int | None = None
    """Length of the JSON before the binary outputs in `body`; None if there are no binary outputs."""
    written_s: float = math.nan
    """Time at which the last byte of the request was written to the socket; NaN if unknown."""
    retry_after_s: float = 0.0
    """Time to wait before the next request, in seconds, if a rejection contains it."""


@dataclass(frozen=True)
class Prepared:
    """Serialised request."""

    body: bytes
    rows: int
    header_length: int | None = None
    """Length of the JSON before the binary tensors; None if there are none."""
    encode_s: float = 0.0
    """Time in seconds to serialise the request when it was due; 0 if it was serialised before the run."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of this request in addition to those of its target. Used only with HTTP."""


class Client(Protocol):
    """Interface of a client for one server."""

    def encode(self, payload: Payload) -> Prepared:
        """Return the bytes of a request."""

    async def send(self, request: Prepared, number: int) -> Reply:
        """Send a request and return the reply; never raise. `number` selects one of several connections."""

    async def close(self) -> None:
        """Close all connections."""


def single_line(text: str) -> str:
    """Return a message on one line, shortened to a maximum length."""
    return " ".join(text.split())[:_LONGEST_MESSAGE]


def of_http(status: int) -> Outcome:
    """Return the outcome for an HTTP status."""
    if status < 400:
        return Outcome.ANSWERED
    if status in {429, 503}:
        return Outcome.REJECTED
    return Outcome.TIMED_OUT if status in {408, 504} else Outcome.ERROR
