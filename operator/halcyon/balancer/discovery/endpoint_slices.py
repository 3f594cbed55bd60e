"""Conversion of the EndpointSlices of the slots' headless Services into the model's pods. Pure."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from halcyon.triton.client import Endpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SERVICE_LABEL = "kubernetes.io/service-name"


def of_slice(document: Mapping[str, Any], *, slots: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """Return the pods of one EndpointSlice.

    Args:
        document: EndpointSlice object of `discovery.k8s.io/v1`.
        slots: name of each slot, by the name of its Service.

    Returns: the pods; empty if the slice belongs to another Service. Endpoints that are not pods or have no IP address
        are skipped.
    """
    slot = slots.get((document.get("metadata", {}).get("labels") or {}).get(SERVICE_LABEL, ""))
    if slot is None or document.get("addressType") not in {"IPv4", "IPv6"}:
        return ()
    return tuple(e for raw in document.get("endpoints") or () if (e := _endpoint(slot, raw)))


def _endpoint(slot: str, raw: Mapping[str, Any]) -> Endpoint | None:
    target = raw.get("targetRef") or {}
    addresses = raw.get("addresses") or ()
    if target.get("kind") != "Pod" or not target.get("name") or not addresses:
        return None
    try:
        ipaddress.ip_address(addresses[0])
    except ValueError:
        return None
    conditions = raw.get("conditions") or {}
    serving = conditions.get("serving")
    if serving is None:
        serving = conditions.get("ready")
    return Endpoint(
        slot=slot,
        pod=target["name"],
        address=addresses[0],
        # An unset condition means true, as the API defines it.
        serving=serving is not False,
        terminating=conditions.get("terminating") is True,
    )


def merge(slices: Iterable[Iterable[Endpoint]]) -> tuple[Endpoint, ...]:
    """Return the pods of all slices, each pod once, in a stable order.

    A pod can be in two slices: briefly while the EndpointSlice controller moves it, and always in dual-stack clusters,
    which have one slice per address family. The pod's IPv4 address is used. If the slices disagree, the pod counts as
    not serving.
    """
    merged: dict[tuple[str, str], Endpoint] = {}
    for endpoint in (e for group in slices for e in group):
        key = (endpoint.slot, endpoint.pod)
        other = merged.get(key)
        if other is None:
            merged[key] = endpoint
            continue
        first = min(other, endpoint, key=lambda e: (":" in e.address, e.address))
        merged[key] = Endpoint(
            slot=first.slot,
            pod=first.pod,
            address=first.address,
            serving=other.serving and endpoint.serving,
            terminating=other.terminating or endpoint.terminating,
        )
    return tuple(merged[key] for key in sorted(merged))
