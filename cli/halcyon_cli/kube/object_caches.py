"""Copies of all objects of some kinds, kept current by watches, one thread per kind.

After a failed watch, the objects are listed again, so that deletions in between are detected. The threads end with the
process, because a thread that waits for the API server can't be interrupted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from halcyon.kube.kinds import Kind
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube.client import Cluster

Object = Mapping[str, Any]

STEADY_S = 5.0
"""Duration in seconds after which the end of a watch is normal, so that earlier failures no longer count. A shorter
watch without an event counts as failed."""
MAX_DELAY_S = 10.0
"""Maximum delay before the objects are listed again after a failure, in seconds."""


@dataclass(frozen=True)
class Selection:
    """Selectors of the objects to cache."""

    labels: str = ""
    fields: str = ""


@dataclass
class ObjectCaches:
    """Copies of the selected objects of several kinds."""

    cluster: Cluster
    selections: Mapping[Kind, Selection]
    _objects: dict[Kind, dict[str, Object]] = field(default_factory=dict)
    """Objects by name, for each kind that has been listed."""
    _warnings: dict[Kind, str] = field(default_factory=dict)
    _changes: int = 0
    _seen_changes: int = 0
    _stopped: bool = False

    def __post_init__(self) -> None:
        """Create empty caches without threads."""
        self._condition = threading.Condition()

    def start(self) -> None:
        """Start the watches, one thread per kind."""
        for kind in self.selections:
            threading.Thread(target=self._keep, args=(kind,), name=f"watch-{kind.plural}", daemon=True).start()

    def stop(self) -> None:
        """Ignore all further changes of the objects."""
        with self._condition:
            self._stopped = True

    @property
    def is_synced(self) -> bool:
        """Whether the objects of all kinds have been listed."""
        return self._objects.keys() == self.selections.keys()

    @property
    def warning(self) -> str:
        """Return the reason why the objects of a kind may be out of date; empty if there is none."""
        with self._condition:
            return next(iter(self._warnings.values()), "")

    def objects(self, kind: Kind) -> list[Object]:
        """Return the objects of a kind, sorted by name."""
        with self._condition:
            return [obj for _, obj in sorted(self._objects.get(kind, {}).items())]

    def wait(self, limit_s: float) -> None:
        """Wait until something has changed since the last call, for at most `limit_s` seconds."""
        with self._condition:
            self._condition.wait_for(lambda: self._changes != self._seen_changes, limit_s)
            self._seen_changes = self._changes

    def _keep(self, kind: Kind) -> None:
        failures = 0
        while not self._stopped:
            began = time.monotonic()
            try:
                version = self._list(kind)
                while not self._stopped:
                    version = self._follow(kind, version)
            except ClusterError as error:
                failures = 1 if time.monotonic() - began >= STEADY_S else failures + 1
                if failures > 1:  # a single failure is harmless: connections end
                    with self._condition:
                        self._warnings[kind] = f"{kind.plural} may be out of date: {error}"
                        self._notify()
                time.sleep(min(0.2 * 2 ** min(failures, 10), MAX_DELAY_S))

    def _follow(self, kind: Kind, since: str) -> str:
        """Watch until the API server ends the watch, and return the resource version of the last event."""
        selection, version, began = self.selections[kind], since, time.monotonic()
        for event, obj in self.cluster.watch(kind, since=since, selector=selection.labels, fields=selection.fields):
            version = str(obj["metadata"]["resourceVersion"])
            if event != "BOOKMARK":
                self._take(kind, obj, deleted=event == "DELETED")
        if version == since and time.monotonic() - began < STEADY_S:
            raise ClusterError("the watch ended at once")
        return version

    def _list(self, kind: Kind) -> str:
        selection = self.selections[kind]
        listed = self.cluster.listing(kind, selector=selection.labels, fields=selection.fields)
        if listed is None:
            raise ClusterError(f"the cluster has no {kind.plural}")
        items, version = listed
        with self._condition:
            self._objects[kind] = {str(item["metadata"]["name"]): item for item in items}
            self._warnings.pop(kind, None)
            self._notify()
        return version

    def _take(self, kind: Kind, obj: Object, *, deleted: bool) -> None:
        name = str(obj["metadata"]["name"])
        with self._condition:
            if deleted:
                self._objects[kind].pop(name, None)
            else:
                self._objects[kind][name] = obj
            self._notify()

    def _notify(self) -> None:
        self._changes += 1
        self._condition.notify_all()
