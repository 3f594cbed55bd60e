"""`halcyon scale`, `pause`, `resume`: a person takes the count, or gives it back, and says why.

What they write is spec.replicas, spec.scaling.mode, and the annotation that holds the reason. Not here: what becomes of it (`control`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from halcyon.api.user_annotations import REASON
from halcyon_cli.arguments.options import COUNT, clustered, emit, named
from halcyon_cli.errors import InputError
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster, Place

_BY_HAND = f"""\
The reason is the annotation {REASON}; it is shown by halcyon get and explain, and in the condition ScalingActive. Where a GitOps tool
keeps the object as its file says, change the file instead.
"""
_STATUS = "exit status: 0, or 2 where nothing was changed: no such name, not allowed as the spec stands, no access, no cluster."
_WHY = click.option("--reason", metavar="TEXT", help="Why, for whoever looks next.")


@click.command("scale", epilog=f"\b\nexamples:\n  halcyon scale resnet50 4\n  halcyon scale resnet50 4 --pause --reason 'load test until noon'\n\n{_BY_HAND}\n{_STATUS}")  # fmt: skip
@named()
@click.argument("replicas", type=COUNT)
@click.option("--pause", "pausing", is_flag=True, help="Pause scaling with it, so that the count stays.")
@_WHY
@clustered
def scale(name: str, replicas: int, pausing: bool, reason: str | None, place: Place) -> int:
    """Set the count of a model whose scaling is off, paused, or told only to recommend."""
    cluster = Cluster(place)
    scaling = _scaling(cluster.model(name))
    spec: dict[str, Any] = {"replicas": replicas}
    if scaling is not None:
        if pausing:
            spec["scaling"] = {"mode": "Paused"}
        elif scaling.get("mode", "Active") == "Active":
            raise InputError(
                f"spec.scaling.mode of {name} is Active: the count would be written over within seconds; halcyon scale {name} "
                f"{replicas} --pause keeps it, and spec.scaling.minReplicas and maxReplicas bound what scaling may do"
            )
        low, high = scaling.get("minReplicas", 1), scaling.get("maxReplicas")
        if replicas < low or (high is not None and replicas > high):
            raise InputError(f"{replicas} is outside spec.scaling of {name}, minReplicas {low} to maxReplicas {high}; change them, or ask for a count between")  # fmt: skip
    elif pausing:
        raise InputError(f"{name} has no spec.scaling, so there is nothing to pause; halcyon scale {name} {replicas}")
    cluster.patch(name, _noted(spec, reason))
    emit(f"{name} has {replicas} replicas to have{_because(reason)}. halcyon get {name} -w shows it")
    return 0


@click.command("pause", epilog=f"\b\nexample:\n  halcyon pause resnet50 --reason 'node gpu-7 is being repaired'\n\n{_BY_HAND}\n{_STATUS}")  # fmt: skip
@named()
@_WHY
@clustered
def pause(name: str, reason: str | None, place: Place) -> int:
    """Keep a model's count as it is until scaling is resumed. Decisions go on, and are shown."""
    cluster = Cluster(place)
    model = cluster.model(name)
    if _scaling(model) is None:
        raise InputError(
            f"{name} has no spec.scaling: its count is spec.replicas already; halcyon scale {name} N sets it"
        )
    found = cluster.patch(name, _noted({"scaling": {"mode": "Paused"}}, reason))
    count = fields.mapping(found.get("spec")).get("replicas", 1)
    emit(f"{name} is paused{_because(reason)}, at {count} replicas; halcyon resume {name} ends it")
    return 0


@click.command("resume", epilog=f"\b\nexample:\n  halcyon resume resnet50\n\n{_STATUS}")
@named()
@clustered
def resume(name: str, place: Place) -> int:
    """Let scaling write the count again, and take away the reason that was given."""
    cluster = Cluster(place)
    scaling = _scaling(cluster.model(name))
    if scaling is None:
        raise InputError(
            f"{name} has no spec.scaling, so there is nothing to resume; spec.scaling: {{maxReplicas: 8}} begins it"
        )
    before = scaling.get("mode", "Active")
    cluster.patch(name, _noted({"scaling": {"mode": "Active"}}, None))
    was = "was active already" if before == "Active" else f"was {before}"
    emit(f"scaling of {name} is active ({was}); halcyon explain {name} tells what it decides")
    return 0


def _scaling(model: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """spec.scaling; None where there is none."""
    found = fields.mapping(model.get("spec")).get("scaling")
    return found if isinstance(found, Mapping) else None


def _noted(spec: Mapping[str, Any], reason: str | None) -> dict[str, Any]:
    """The change, and the reason for it; an earlier one goes."""
    return {"metadata": {"annotations": {REASON: reason or None}}, "spec": dict(spec)}


def _because(reason: str | None) -> str:
    return f" ({reason})" if reason else ""
