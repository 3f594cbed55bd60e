"""Files of this pod's service account that the kubelet renews: its token, and the CA of the API server."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from kubernetes.aio.client.configuration import Configuration

from halcyon.kube.clock import Clock

log = logging.getLogger(__name__)

FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN, CA = "token", "ca.crt"
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


class CaFile:
    """File with the CA of the API server. Changes of the file are loaded while the TLS context is in use.

    The CA of a cluster is replaced in steps: the file first has the old and the new one. A CA that is no longer in the
    file stays trusted until this process ends, because a TLS context can't drop one.
    """

    def __init__(self, path: Path, context: ssl.SSLContext) -> None:
        """Record the current version of the file, which the context must have loaded already."""
        self._path, self._context = path, context
        self._checked, self._loaded = self._version(), path.read_bytes()

    def refresh(self) -> None:
        """Load the file into the TLS context if its content has changed. If that fails, the context keeps its CAs.

        The kubelet writes the file again, with the same content, whenever it renews the token.
        """
        version = self._version()
        if version in {self._checked, None}:
            return
        self._checked = version
        try:
            content = self._path.read_bytes()
            if content != self._loaded:
                self._context.load_verify_locations(cafile=self._path)
                self._loaded = content
                log.info("the CA of the API server has changed")
        except (OSError, ValueError) as error:  # OSError includes ssl.SSLError
            log.warning("cannot read the CA of the API server", extra={"error": str(error)})

    def _version(self) -> tuple[int, int] | None:
        """Return the inode and the modification time of the file; None if there is no file."""
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_mtime_ns
