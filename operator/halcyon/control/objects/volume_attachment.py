"""Detection of pods that can't start because their volume can be attached to only one node at a time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from halcyon.control.objects import pods
from halcyon.kube.kinds import Object

_SHARED = frozenset({"ReadOnlyMany", "ReadWriteMany"})


def exclusive_modes(claim: Object) -> str:
    """Return the access modes of a claim whose volume can be attached to only one node at a time.

    The result is empty for other PersistentVolumeClaims.
    """
    modes = (claim.get("spec") or {}).get("accessModes") or ()
    return "" if _SHARED & set(modes) else ", ".join(modes)


def first_conflict(server_pods: Iterable[Object], exclusive: Mapping[str, str]) -> str:
    """Return a message about the first server pod of a model that can't attach its volume.

    The message comes from `conflict`. It is empty if all pods can attach their volume.
    """
    candidates = tuple(server_pods) if exclusive else ()
    return next(filter(None, (conflict(pod, candidates, exclusive) for pod in candidates)), "")


def conflict(pod: Object, others: Iterable[Object], exclusive: Mapping[str, str]) -> str:
    """Return the reason why a server pod can't attach its model's volume; empty if nothing prevents it.

    `others` are all server pods of the model. `exclusive` has the access modes of the claims whose volume only one node
    can attach, by name of the claim.
    """
    claim, node = pod["spec"].get("claim"), pod["spec"].get("nodeName")
    statuses = (*pod["status"]["initContainerStatuses"], *pod["status"]["containerStatuses"])
    if claim not in exclusive or node is None or any("waiting" not in c["state"] for c in statuses):
        return ""
    holder = next(
        (
            other
            for other in others
            if other["spec"].get("claim") == claim
            and other["spec"].get("nodeName") not in {None, node}
            and any("waiting" not in c["state"] for c in other["status"]["containerStatuses"])
            and other["status"]["phase"] not in {"Failed", "Succeeded"}
        ),
        None,
    )
    if holder is None or not pods.is_live(pod):
        return ""
    return (
        f"pod {pod['metadata']['name']} is on node {node} and can't attach PersistentVolumeClaim {claim} ({exclusive[str(claim)]}), "
        f"which pod {holder['metadata']['name']} uses on node {holder['spec']['nodeName']}; use a claim with ReadOnlyMany or "
        "ReadWriteMany, or spec.rollout.strategy: Replace"
    )
