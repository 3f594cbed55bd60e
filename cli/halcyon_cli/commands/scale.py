"""`halcyon scale`, `pause` and `resume`: manual control of a model's replicas, with a reason.

The commands write spec.replicas, spec.scaling.mode, and the annotation that holds the reason. Out of scope: the effect
of these fields (`control`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from halcyon.api.user_annotations import REASON
from halcyon_cli.arguments.options import REPLICAS, Output, cluster_options, name_argument, output_options
from halcyon_cli.errors import InputError
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster, Target

_BY_HAND = f"""\
The reason is stored in the annotation {REASON}, and shown by halcyon get, by halcyon explain and in the condition ScalingActive. If a
GitOps tool manages the object, change its file instead.
"""
_EXIT_STATUS = (
    "exit status: 0, or 2 if nothing was changed: no such name, not allowed by the current spec, no access, no cluster."
)
_REASON_OPTION = click.option("--reason", metavar="TEXT", help="Reason, for other users.")


@click.command("scale", epilog=f"\b\nexamples:\n  halcyon scale resnet50 4\n  halcyon scale resnet50 4 --pause --reason 'load test until noon'\n\n{_BY_HAND}\n{_EXIT_STATUS}")  # fmt: skip
@name_argument()
@click.argument("replicas", type=REPLICAS)
@click.option("--pause", "pausing", is_flag=True, help="Also pause scaling, so that the replicas stay.")
@_REASON_OPTION
@cluster_options
@output_options("table", "json", "yaml")
def scale(  # noqa: PLR0917  # click passes them by keyword
    name: str, replicas: int, pausing: bool, reason: str | None, target: Target, output: Output
) -> int:
    """Set the replicas of a model whose scaling is off, paused or in mode Recommend."""
    cluster = Cluster(target)
    scaling = _scaling(cluster.model(name))
    spec: dict[str, Any] = {"replicas": replicas}
    if scaling is not None:
        if pausing:
            spec["scaling"] = {"mode": "Paused"}
        elif scaling.get("mode", "Active") == "Active":
            raise InputError(
                f"spec.scaling.mode of {name} is Active: scaling would overwrite the value within seconds; halcyon scale {name} "
                f"{replicas} --pause keeps it, and spec.scaling.minReplicas and maxReplicas limit scaling"
            )
        low, high = scaling.get("minReplicas", 1), scaling.get("maxReplicas")
        if replicas < low or (high is not None and replicas > high):
            raise InputError(f"{replicas} is outside spec.scaling of {name}, minReplicas {low} to maxReplicas {high}; change them, or give a number between")  # fmt: skip
    elif pausing:
        raise InputError(
            f"{name} has no spec.scaling, so there is nothing to pause; use halcyon scale {name} {replicas}"
        )
    patched = cluster.patch(name, _patch_with_reason(spec, reason))
    message = f"{name} scaled to {replicas} replicas{_reason_suffix(reason)}; watch it with halcyon get {name} -w"
    output.result(message, patched)
    return 0


@click.command("pause", epilog=f"\b\nexample:\n  halcyon pause resnet50 --reason 'node gpu-7 is being repaired'\n\n{_BY_HAND}\n{_EXIT_STATUS}")  # fmt: skip
@name_argument()
@_REASON_OPTION
@cluster_options
@output_options("table", "json", "yaml")
def pause(name: str, reason: str | None, target: Target, output: Output) -> int:
    """Keep a model's replicas until scaling is resumed. Decisions continue and are shown."""
    cluster = Cluster(target)
    model = cluster.model(name)
    if _scaling(model) is None:
        raise InputError(f"{name} has no spec.scaling, so its replicas are fixed; set them with halcyon scale {name} N")
    patched = cluster.patch(name, _patch_with_reason({"scaling": {"mode": "Paused"}}, reason))
    replicas = fields.mapping(patched.get("spec")).get("replicas", 1)
    message = f"{name} paused at {replicas} replicas{_reason_suffix(reason)}; resume it with halcyon resume {name}"
    output.result(message, patched)
    return 0


@click.command("resume", epilog=f"\b\nexample:\n  halcyon resume resnet50\n\n{_EXIT_STATUS}")
@name_argument()
@cluster_options
@output_options("table", "json", "yaml")
def resume(name: str, target: Target, output: Output) -> int:
    """Resume scaling, and remove the recorded reason."""
    cluster = Cluster(target)
    scaling = _scaling(cluster.model(name))
    if scaling is None:
        raise InputError(
            f"{name} has no spec.scaling, so there is nothing to resume; enable it with spec.scaling: {{maxReplicas: 8}}"
        )
    mode = scaling.get("mode", "Active")
    patched = cluster.patch(name, _patch_with_reason({"scaling": {"mode": "Active"}}, None))
    was = "was active already" if mode == "Active" else f"was {mode}"
    output.result(f"scaling of {name} resumed ({was}); see its decisions with halcyon explain {name}", patched)
    return 0


def _scaling(model: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return spec.scaling, or None."""
    scaling = fields.mapping(model.get("spec")).get("scaling")
    return scaling if isinstance(scaling, Mapping) else None


def _patch_with_reason(spec: Mapping[str, Any], reason: str | None) -> dict[str, Any]:
    """Return a patch of the spec that also sets the annotation for the reason, or removes it if there is no reason."""
    return {"metadata": {"annotations": {REASON: reason or None}}, "spec": dict(spec)}


def _reason_suffix(reason: str | None) -> str:
    return f" ({reason})" if reason else ""
