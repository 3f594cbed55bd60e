"""Notice about a long outage of the API server while a command waits, such as `halcyon status -w`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from halcyon_cli.arguments.options import warn
from halcyon_cli.errors import ClusterError

MAX_SILENT_S = 30.0
"""Duration in seconds above which an outage is reported. A restart of the API server usually takes less."""


@dataclass
class OutageNotice:
    """Warning on stderr, once for each outage of the cluster that lasts longer than `MAX_SILENT_S`.

    Without it, a command whose token has expired would wait forever without any message.
    """

    command: str
    """Name of the command that waits, such as `status`."""
    clock: Callable[[], float] = time.monotonic
    _since: float | None = None
    """Time of the first failed request of the outage; None if the last request succeeded."""
    _is_reported: bool = False

    def request_failed(self, error: ClusterError) -> None:
        """Record a failed request, and print its error if the outage has lasted longer than `MAX_SILENT_S`."""
        now = self.clock()
        self._since = now if self._since is None else self._since
        if not self._is_reported and now - self._since >= MAX_SILENT_S:
            self._is_reported = True
            warn(
                self.command,
                f"no request has succeeded for {now - self._since:.0f} s, and the command goes on: {error}",
            )

    def request_succeeded(self) -> None:
        """Record a request that succeeded, which ends the outage."""
        self._since, self._is_reported = None, False
