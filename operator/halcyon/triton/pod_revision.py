"""Revision of a pod, by its name. Pure."""

from __future__ import annotations


def revision_of(pod: str) -> str:
    """Return the name of the ReplicaSet of a pod, which all pods with the same template share."""
    return pod.rpartition("-")[0]
