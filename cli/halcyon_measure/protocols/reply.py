"""The result of one request, the same for every protocol, and the classes of failures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

from halcyon_measure.inputs.payloads import Payload

_LONGEST_MESSAGE = 160


class Outcome(IntEnum):
    """What became of a request. The values are those of the column `outcome` of a run's file."""

    ANSWERED = 0
    REJECTED = 1
    """Refused by the server or the balancer, because it was full or had no replica."""
    TIMED_OUT = 2
    """No answer within the time-out of the client or of the server."""
    DISCONNECTED = 3
    """The connection couldn't be opened, or it broke."""
    ERROR = 4
    """The server answered with any other error."""
    WRONG = 5
    """An answer whose outputs differ from the expected ones."""
    NOT_SENT = 6
    """Never sent, because too many requests were in flight."""


class Reply(NamedTuple):
    """What the client received for a request. Times are seconds of the monotonic clock."""

    outcome: Outcome
    message: str
    """Status and text of a failure; empty for an answer."""
    first_byte_s: float
    body: bytes
    pod: str
    header_length: int | None = None
    """Length of the JSON in front of the binary outputs in `body`, if there are any."""
    written_s: float = math.nan
    """When the last byte of the request was in the socket; NaN if unknown."""
    retry_after_s: float = 0.0
    """Seconds to wait before the next request, if a refusal names them."""


@dataclass(frozen=True)
class Prepared:
    """A request as bytes."""

    body: bytes
    rows: int
    header_length: int | None = None
    """Length of the JSON in front of binary tensors, if there are any."""
    encode_s: float = 0.0
    """Time to serialise it when it was due; 0 if it was serialised before the run."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of this request, besides those of its target. Only over HTTP."""


class Client(Protocol):
    """Connections to one server."""

    def encode(self, payload: Payload) -> Prepared:
        """Return the bytes of a request."""

    async def send(self, request: Prepared, number: int) -> Reply:
        """Send a request and return what came back; it never raises. `number` selects one of several connections."""

    async def close(self) -> None:
        """Close all connections."""


def one_line(text: str) -> str:
    """Return a message on one line, of bounded length."""
    return " ".join(text.split())[:_LONGEST_MESSAGE]


def of_http(status: int) -> Outcome:
    """Return the outcome for a status of HTTP."""
    if status < 400:
        return Outcome.ANSWERED
    if status in {429, 503}:
        return Outcome.REJECTED
    return Outcome.TIMED_OUT if status in {408, 504} else Outcome.ERROR
