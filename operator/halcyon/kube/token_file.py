"""Token of this pod's service account, in a file that the kubelet renews."""

from __future__ import annotations

import logging
from pathlib import Path

from kubernetes.aio.client.configuration import Configuration

from halcyon.kube.clock import Clock

log = logging.getLogger(__name__)

FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
READ_INTERVAL_S = 60.0
"""Time, in seconds, after which the file with the token is read again. The kubelet renews a token at least ten minutes
before it expires."""


class TokenFile:
    """Hook of the `kubernetes` package that sets the token before each request.

    The package's own hook compares times of the wall clock. If the wall clock is set back by an hour, that hook uses an
    expired token.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        """Create the hook. The file with the token is read before the first request."""
        self._path, self._clock = path, clock
        self._token = ""
        self._read_at = 0.0

    def __call__(self, configuration: Configuration) -> None:
        """Set the token of a request.

        Read the file first if the last read is older than `READ_INTERVAL_S`. If the read fails, keep the token.
        """
        now = self._clock.monotonic()
        if not self._token or now - self._read_at >= READ_INTERVAL_S:
            self._read_at = now
            try:
                self._token = self._path.read_text().strip() or self._token
            except (OSError, ValueError) as error:
                log.warning("cannot read the token of the service account", extra={"error": str(error)})
        configuration.api_key["BearerToken"] = f"Bearer {self._token}"
