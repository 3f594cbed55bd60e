"""Notices to a model's balancers about changes of its server pods.

A notice is sent at once when a server pod becomes ready or unready, or is being deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from halcyon.api.documents.pod_notice import Notice, PodChange
from halcyon.control.objects import pods
from halcyon.render import names

if TYPE_CHECKING:
    from halcyon.control.state.cluster_state import ClusterState
    from halcyon.kube.client import Object
    from halcyon.kube.kinds import Key

SendNotice = Callable[[str, str, str], None]
"""Type of the function that sends a notice. Its arguments are the namespace and the name of a model, and the text for
the model's agents."""


class PodNotices:
    """Sender of notices about changes of pods in the cache."""

    def __init__(self, caches: ClusterState, send: SendNotice) -> None:
        """Subscribe to changes of pods in the caches."""
        self._send = send
        caches.pods.listeners.append(self._changed)

    def _changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        owner = None if after is None else after["metadata"]["labels"].get(names.OWNER_LABEL)
        if after is None or owner is None:
            return
        notice = of_change(before, after)
        if notice is not None:
            self._send(key.namespace, owner, notice.to_json())


def of_change(before: Object | None, after: Object) -> Notice | None:
    """Return the notice about a change of a pod; None if the balancers don't need one.

    The first appearance of a pod in the cache needs no notice. A new pod isn't ready yet, and the balancers already
    have the data of an older pod.
    """
    if before is None or before["metadata"]["uid"] != after["metadata"]["uid"] or not pods.is_server(after):
        return None
    change = _change_of(after)
    if change == _change_of(before):
        return None
    slot, address = after["metadata"]["labels"].get(names.SLOT_LABEL), after["status"]["podIP"] or ""
    if slot is None or (change == "ready" and not address):
        return None
    return Notice(after["metadata"]["name"], slot, address, change)


def _change_of(pod: Object) -> PodChange:
    if pod["metadata"]["deletionTimestamp"] is not None:
        return "leaving"
    return "ready" if pods.is_ready(pod) else "unready"
