"""Reads of a cluster with the user's permissions. What the user may not read is assumed, and noted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from halcyon.kube.kinds import Kind
from halcyon_cli.errors import NoAccessError
from halcyon_cli.kube.client import Cluster

Object = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class PermittedReads:
    """Reads of a cluster. Each method has a note, which is added to `notes` if the user lacks the permission.

    A read that fails for another reason raises ClusterError, because an assumption could be wrong.
    """

    cluster: Cluster
    notes: list[str] = field(default_factory=list)

    def find(self, kind: Kind, name: str, note: str, assumed: Object | None = None) -> Object | None:
        """Return an object; None if it doesn't exist, and `assumed` without the permission."""
        return self._read(partial(self.cluster.find, kind, name), note, assumed)

    def items(self, kind: Kind, note: str, *, selector: str) -> Sequence[Object]:
        """Return the objects of a kind; none without the permission, or if the cluster doesn't have the kind."""
        return self._read(partial(self.cluster.items, kind, selector=selector), note, None) or []

    def is_served(self, kind: Kind, note: str) -> bool:
        """Return whether the cluster has a kind; True without the permission."""
        return self._read(partial(self.cluster.items, kind), note, list[Object]()) is not None

    def _read(self, read: Callable[[], T | None], note: str, assumed: T | None) -> T | None:
        try:
            return read()
        except NoAccessError:
            self.notes.append(note)
            return assumed
