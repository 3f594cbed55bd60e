"""Revision of a pod, by its name. Pure."""

from __future__ import annotations


def revision_of(pod: str) -> str:
    """Return the name of the ReplicaSet to which a pod belongs. All pods of a ReplicaSet have the same template."""
    return pod.rpartition("-")[0]
