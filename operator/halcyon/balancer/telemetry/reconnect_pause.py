"""Pauses before an agent connects to an operator replica again. Pure.

After an outage, thousands of agents connect at once. Each TLS handshake costs the replica about a millisecond, even if
the connection is then given up. So an agent waits long enough for a busy replica to respond, and the replica decides
when rejected agents may retry.
"""

# the attempt                                               | the pause before the next one
# opened a stream, which stayed open for `steady_s`         | 0.05 to 0.1 s
# was refused, or closed before TLS: it cost almost nothing | doubles with each attempt, up to 1 s
# had no response within `CONNECT_TIMEOUT_S`                | as above, because the attempt itself took long
# was rejected by a busy replica, with Retry-After          | the requested time, and up to 1 s more
# failed otherwise: wrong token, certificate, report        | doubles with each attempt, up to 30 s; at least what Retry-After requests

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

CONNECT_TIMEOUT_S: Final = 20.0
"""Maximum time of an attempt, from the connection to the beginning of the stream, in seconds. An operator replica lets a connection
wait for 3 s, then allows 10 s for the TLS handshake, and reviews the token after that. If agents gave up sooner, the replica would
have begun their handshakes in vain."""
MAX_RETRY_AFTER_S: Final = 60.0
_SPREAD_S: Final = 1.0
"""Maximum time that is added to the requested one, in seconds, because Retry-After has whole seconds."""

Failure = Literal["refused", "timeout", "busy", "other"]
"""Reason why an attempt to open a stream failed, as in the table of this module."""


@dataclass(frozen=True)
class PauseLimits:
    """Limits of the pauses before an agent reconnects, in seconds."""

    min_s: float = 0.1
    """Pause before the first attempt to reconnect. It is randomised, so that not all agents of a lost replica reconnect
    at once."""
    max_short_s: float = 1.0
    """Maximum pause after an attempt that cost the operator replica almost nothing, for example because it refused the
    connection. After a restart of the replica, all agents retry within this time."""
    max_s: float = 30.0
    """Maximum pause after any other failure. The attempts of thousands of agents must not keep a busy operator replica
    from accepting any."""


class ReconnectPause:
    """Pauses of one agent before it connects to one operator replica again."""

    def __init__(self, limits: PauseLimits, uniform: Callable[[float, float], float] = random.uniform) -> None:
        """Create an instance whose next pause is the shortest. `uniform` returns a random number between two others."""
        self._limits, self._uniform = limits, uniform
        self._next_s = limits.min_s

    def reset(self) -> None:
        """Make the next pause the shortest again, because a stream was accepted."""
        self._next_s = self._limits.min_s

    def after(self, failure: Failure, retry_after_s: float = 0.0) -> float:
        """Return the pause before the next attempt, in seconds.

        `retry_after_s` is the time that the operator replica requests, in seconds; 0 if it requests none.
        """
        if failure == "busy":
            return retry_after_s + self._uniform(0.0, _SPREAD_S)
        most_s = self._limits.max_short_s if failure in {"refused", "timeout"} else self._limits.max_s
        pause_s = min(self._next_s, most_s)
        self._next_s = min(2 * pause_s, most_s)
        return retry_after_s + self._uniform(pause_s / 2, pause_s)
