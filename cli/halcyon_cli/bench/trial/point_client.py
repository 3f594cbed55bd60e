"""Client of the point server in a trial pod, which implements `halcyon_tune.points.Measuring` for the command.

Out of scope: the pod itself (`trial_session`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from typing import Any

from halcyon_cli.bench.trial import point_json
from halcyon_cli.errors import ClusterError
from halcyon_tune.errors import TuneError
from halcyon_tune.points import Configuration, Load, Point

POLL_S = 0.5
UNREACHABLE_S = 120.0
"""Time, in seconds, after which the client gives up on a point server that can't be reached. Connections through the
API server may break for a moment."""


class PointClient:
    """Implementation of `Measuring` that sends requests for points to the server in a trial pod."""

    def __init__(
        self,
        connect: Callable[[], HTTPConnection],
        *,
        threads_parameter: str = "",
        keep: Callable[[], None] = lambda: None,
        show: Callable[[str], None] = lambda _: None,
        unreachable_s: float = UNREACHABLE_S,
    ) -> None:
        """Store the settings.

        Args:
            connect: function that returns an open connection to the point server. It raises ClusterError or OSError.
            threads_parameter: key in `model.parameters` for the number of threads of an instance; empty if that number
                stays unchanged.
            keep: function that is called at least once a second. It extends the pod's lease, and raises an error if the
                pod no longer exists.
            show: function that shows progress.
            unreachable_s: time after which the client gives up on a server that can't be reached, in seconds.
        """
        self._connect, self._threads_parameter, self._keep, self._show = connect, threads_parameter, keep, show
        self._unreachable_s = unreachable_s
        self._count = 0

    def config(self, within_s: float) -> dict[str, Any]:
        """Return Triton's configuration of the model, once the model is loaded.

        Raises:
            TuneError: the model can't be loaded, or isn't loaded within this time.
        """
        end = time.monotonic() + within_s
        while True:
            status, document = self._exchange("GET", "/config")
            if status == 200:
                return dict(document)
            if status != 503:
                raise TuneError(str(document.get("error")))
            progress = str(document.get("said"))
            if time.monotonic() > end:
                raise TuneError(f"the model isn't loaded after {within_s:.0f} s: {progress}")
            self._wait(progress)

    def measure(self, configuration: Configuration, load: Load) -> Point:
        """Measure a point, and return it.

        Raises:
            TuneError: no further points can be measured.
        """
        self._count += 1
        path = f"/points/{self._count}"
        self._exchange("PUT", path, point_json.request(configuration, load, threads_parameter=self._threads_parameter))
        while True:
            status, document = self._exchange("GET", path)
            if status == 200 and "point" in document:
                return point_json.parsed_point(document["point"])
            if status != 202:
                raise TuneError(str(document.get("error") or f"the client in the trial pod responds with {status}"))
            self._wait(str(document.get("said")))

    def end(self) -> None:
        """End the point server, so that its Job ends by itself."""
        self._exchange("POST", "/end")

    def _wait(self, text: str) -> None:
        self._show(text)
        self._keep()
        time.sleep(POLL_S)

    def _exchange(
        self, method: str, path: str, document: Mapping[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Send one request, and retry it while the server can't be reached.

        Raises:
            TuneError: the server can't be reached for `unreachable_s`.
        """
        end = time.monotonic() + self._unreachable_s
        content = None if document is None else json.dumps(document).encode()
        while True:
            try:
                with closing(self._connect()) as connection:
                    connection.request(method, path, content)
                    response = connection.getresponse()
                    answer = json.loads(response.read() or b"{}")
                    return response.status, answer if isinstance(answer, dict) else {}
            except (OSError, HTTPException, ClusterError, ValueError) as error:
                if time.monotonic() > end:
                    raise TuneError(
                        f"the client in the trial pod can't be reached for {self._unreachable_s:.0f} s: "
                        f"{str(error) or type(error).__name__}"
                    ) from None
                self._wait("the client in the trial pod can't be reached; trying again")
