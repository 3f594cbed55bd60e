"""Progress of the downloads in a model's pods, read from the logs of their fetchers.

Out of scope: the lines in the logs (`api.documents.download_progress`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from halcyon.api.documents import download_progress
from halcyon.api.documents.download_progress import MIN_INTERVAL_S, DownloadProgress
from halcyon.render import names
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster
from halcyon_cli.kube.pod_stage import stage

MAX_PODS = 10
"""Maximum number of pods whose logs are read. Each log is one request."""
_MAX_LINES = 20


class Downloads:
    """Reader of the progress of downloads.

    It reads a log at most once per `MIN_INTERVAL_S`, because the log has no more than one new progress line in this
    time.
    """

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        """Create a reader for this cluster."""
        self._cluster, self._clock = cluster, clock
        self._read_at: dict[str, float] = {}
        self._progress: dict[str, DownloadProgress] = {}

    def progress(self, pods: Iterable[Mapping[str, Any]]) -> Mapping[str, DownloadProgress]:
        """Return the download progress of the pods that are fetching their model, by pod.

        Pods with unknown progress are omitted.
        """
        fetching = [
            str(fields.mapping(pod.get("metadata")).get("name")) for pod in pods if stage(pod).state == "fetching"
        ]
        for pod in fetching[:MAX_PODS]:
            if self._clock() - self._read_at.get(pod, -MIN_INTERVAL_S) >= MIN_INTERVAL_S:
                self._read_at[pod] = self._clock()
                self._read(pod)
        return {pod: self._progress[pod] for pod in fetching if pod in self._progress}

    def _read(self, pod: str) -> None:
        try:
            text = self._cluster.log(pod, names.FETCHER, lines=_MAX_LINES)
        except ClusterError:  # for example no permission to read logs: the progress stays unknown
            return
        if (progress := download_progress.last((text or "").splitlines())) is not None:
            self._progress[pod] = progress
