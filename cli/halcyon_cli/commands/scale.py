"""`halcyon scale`, `pause` and `resume`: manual control of a model's replicas, with a reason.

The commands write spec.replicas, spec.scaling.mode, and the annotation with the reason. A pause takes effect once the
operator has processed it and stopped the HPA. Until then, the HPA may change the replicas once more, so the commands
wait for the operator, and then correct the replicas. Out of scope: the effect of these fields (`control`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

import click

from halcyon.api.stored.replicas_in_force import replicas_in_force
from halcyon.api.types import GROUP
from halcyon.api.user_annotations import PAUSED_FROM, REASON
from halcyon.control.autoscaling.limits.site_hold import SWITCH
from halcyon.kube import kinds
from halcyon_cli.arguments.options import (
    REPLICAS,
    Output,
    cluster_options,
    emit,
    name_argument,
    output_options,
    selector_option,
    warn,
)
from halcyon_cli.errors import ClusterError, InputError
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster, Target
from halcyon_cli.kube.operator_pods import only_operator, release_metadata

_BY_HAND = f"""\
The reason is stored in the annotation {REASON}, and shown by halcyon get, by halcyon explain and in the condition ScalingActive. If a
GitOps tool manages the object, change its file instead.
"""
_PAUSE_ALL = """\
With --all, models whose scaling is paused already stay as they are. --site sets
a switch of the operator instead: within 5 s, no model loses a replica to a
scaling decision, and models still scale up. See docs/guides/incidents.md.
"""
_RESUME_ALL = """\
A model gets back the mode that it had before the pause, Active or Recommend. With --all, models that were
paused one by one stay paused. --site turns the site's switch off.
"""
_EXIT_STATUS = """\
\b
exit status:
  0  done
  1  {negative}
  2  nothing was changed: no such name, not allowed by the current spec, no
     access, no cluster
"""
_SCALE_EXIT_STATUS = _EXIT_STATUS.format(
    negative="with --pause: the operator doesn't confirm the pause within 10 s, or\n     rejects the spec"
)
_PAUSE_EXIT_STATUS = _EXIT_STATUS.format(
    negative="the operator doesn't confirm the pause within 10 s, or rejects the spec;\n     with --all: a model couldn't be changed"
)
_RESUME_EXIT_STATUS = _EXIT_STATUS.format(negative="with --all: a model couldn't be changed")
_MODE_BEFORE = f"{GROUP}/mode-before-pause"
"""Annotation with the value of spec.scaling.mode before a pause of this model alone, if it wasn't Active. Unlike
`PAUSED_FROM`, it doesn't let `resume --all` resume the model."""
RELEASE_TIMEOUT_S = 10.0
"""Time within which the operator must confirm a pause, in seconds."""
_POLL_INTERVAL_S = 0.2
_REASON_OPTION = click.option("--reason", metavar="TEXT", help="Reason, for other users.")


@click.command("scale", epilog=f"\b\nexamples:\n  halcyon scale resnet50 4\n  halcyon scale resnet50 --replicas=4\n  halcyon scale resnet50 4 --pause --reason 'load test until noon'\n\n{_BY_HAND}\n{_SCALE_EXIT_STATUS}")  # fmt: skip
@name_argument()
@click.argument("replicas", type=REPLICAS, required=False)
@click.option("--replicas", "option", type=REPLICAS, metavar="N", help="The same as the argument, as in kubectl.")
@click.option("--pause", "pausing", is_flag=True, help="Also pause scaling, so that the replicas stay.")
@_REASON_OPTION
@cluster_options
@output_options("table", "name", "json", "yaml")
def scale(  # noqa: PLR0917  # click passes them by keyword
    name: str,
    replicas: int | None,
    option: int | None,
    pausing: bool,
    reason: str | None,
    target: Target,
    output: Output,
) -> int:
    """Set the replicas of a model whose scaling is off, paused or in mode Recommend."""
    if (replicas is None) == (option is None):
        raise InputError(f"give the number of replicas once, for example halcyon scale {name} 4")
    replicas = (option or 0) if replicas is None else replicas
    cluster = Cluster(target)
    model = cluster.model(name)
    scaling = _scaling(model)
    if scaling is not None:
        if not pausing and _is_active(scaling):
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
    patched = cluster.patch(
        name,
        _pausing_patch(model, {"replicas": replicas}, reason) if pausing else _scaling_patch(model, replicas, reason),
    )
    change, why_unsure = f"scaled to {replicas}", ""
    if pausing and scaling is not None and _is_active(scaling):
        patched, why_unsure = _wait_until_paused(cluster, patched)
        replicas_left = _replicas(patched)
        if replicas_left != replicas:
            patched = cluster.patch(name, {"spec": {"replicas": replicas}})
            change += f", again after scaling had set {replicas_left} before it stopped"
    output.changed(patched, f"{change}{_reason_suffix(reason)}", f"halcyon status {name} -w")
    return _pause_status(name, why_unsure)


_ALL_OPTIONS = (
    click.option("--all", "all_models", is_flag=True, help="All models in the namespace that have spec.scaling."),
    click.option("--site", is_flag=True, help="The site's switch: no model loses a replica to a scaling decision."),
    click.option(
        "-A", "--all-namespaces", "all_namespaces", is_flag=True, help="With --all: models in all namespaces."
    ),
)


def _bulk_options(command: Any) -> Any:
    """Add the options --all, --site, -A and -l to a command."""
    for option in (*reversed(_ALL_OPTIONS), selector_option):
        command = option(command)
    return command


@click.command("pause", epilog=f"\b\nexamples:\n  halcyon pause resnet50 --reason 'node gpu-7 is being repaired'\n  halcyon pause --all -A --reason 'incident 4711'\n  halcyon pause --site --reason 'incident 4711'\n\n{_BY_HAND}\n{_PAUSE_ALL}\n{_PAUSE_EXIT_STATUS}")  # fmt: skip
@name_argument(required=False)
@_bulk_options
@_REASON_OPTION
@cluster_options
@output_options("table", "name", "json", "yaml")
def pause(  # noqa: PLR0917  # click passes them by keyword
    name: str | None, all_models: bool, site: bool, all_namespaces: bool, selector: str, reason: str | None, target: Target, output: Output
) -> int:  # fmt: skip
    """Keep a model's replicas until scaling is resumed. Decisions continue and are shown."""
    _check_filters(name, all_models=all_models, site=site, all_namespaces=all_namespaces, selector=selector)
    cluster = Cluster(target)
    if site:
        return _switch(cluster, reason or "halcyon pause --site", name, output, all_models=all_models)
    if name is not None and not all_models:
        model = cluster.model(name)
        scaling = _scaling(model)
        if scaling is None:
            raise InputError(
                f"{name} has no spec.scaling, so its replicas are fixed; set them with halcyon scale {name} N"
            )
        patched, why_unsure = cluster.patch(name, _pausing_patch(model, {}, reason)), ""
        if _is_active(scaling):
            patched, why_unsure = _wait_until_paused(cluster, patched)
        output.changed(
            patched,
            f"paused at {replicas_in_force(patched)}{_reason_suffix(reason)}",
            f"halcyon resume {name}",
        )
        return _pause_status(name, why_unsure)
    models = _selected(cluster, name, all_models=all_models, all_namespaces=all_namespaces, selector=selector)
    active = [(model, scaling.get("mode", "Active")) for model in models if (scaling := _scaling(model)) is not None]
    changes = []
    for model, mode in active:
        if mode != "Paused":
            patch = _patch_with_reason({"scaling": {"mode": "Paused"}}, reason)
            patch["metadata"]["annotations"][PAUSED_FROM] = mode
            changes.append((model, patch))
    return _change_all(cluster, changes, "paused", len(models), output)


@click.command(
    "resume",
    epilog=f"\b\nexamples:\n  halcyon resume resnet50\n  halcyon resume --all -A\n  halcyon resume --site\n\n{_RESUME_ALL}\n{_RESUME_EXIT_STATUS}",
)
@name_argument(required=False)
@_bulk_options
@cluster_options
@output_options("table", "name", "json", "yaml")
def resume(  # noqa: PLR0917  # click passes them by keyword
    name: str | None, all_models: bool, site: bool, all_namespaces: bool, selector: str, target: Target, output: Output
) -> int:  # fmt: skip
    """Resume scaling, and remove the recorded reason."""
    _check_filters(name, all_models=all_models, site=site, all_namespaces=all_namespaces, selector=selector)
    cluster = Cluster(target)
    if site:
        return _switch(cluster, "", name, output, all_models=all_models)
    if name is not None and not all_models:
        model = cluster.model(name)
        scaling = _scaling(model)
        if scaling is None:
            raise InputError(
                f"{name} has no spec.scaling, so there is nothing to resume; enable it with spec.scaling: {{maxReplicas: 8}}"
            )
        mode = scaling.get("mode", "Active")
        resumed = _mode_before_pause(model, PAUSED_FROM, _MODE_BEFORE) or "Active"
        patched = cluster.patch(name, _patch_with_reason({"scaling": {"mode": resumed}}, None))
        was = "was active already" if mode == "Active" else f"was {mode}"
        now = "" if resumed == "Active" else f", in mode {resumed} as before"
        output.changed(patched, f"resumed ({was}){now}", f"halcyon explain {name}")
        return 0
    models = _selected(cluster, name, all_models=all_models, all_namespaces=all_namespaces, selector=selector)
    changes = [
        (model, _patch_with_reason({"scaling": {"mode": mode}}, None))
        for model in models
        if (mode := _mode_before_pause(model, PAUSED_FROM)) is not None
    ]
    return _change_all(cluster, changes, "resumed", len(models), output)


def _mode_before_pause(model: Mapping[str, Any], *annotations: str) -> str | None:
    """Return the mode of a paused model before the pause; None if it isn't paused, or has none of the annotations."""
    stored = fields.mapping(fields.mapping(model.get("metadata")).get("annotations"))
    before = next((stored[name] for name in annotations if stored.get(name)), None)
    if before is None or fields.mapping(_scaling(model)).get("mode") != "Paused":
        return None
    return before if before in {"Active", "Recommend"} else "Active"


def _check_filters(name: str | None, *, all_models: bool, site: bool, all_namespaces: bool, selector: str) -> None:
    """Check that -A and -l are used only with --all.

    Raises:
        InputError: -A or -l is used without --all.
    """
    option = "-A" if all_namespaces else "-l" if selector else ""
    if option and site:
        raise InputError(f"--site is for the whole site; omit {option}")
    if option and name is not None and not all_models:
        raise InputError(f"{option} needs --all, and {name} names one model; omit {option}")


def _switch(cluster: Cluster, reason: str, name: str | None, output: Output, *, all_models: bool) -> int:
    """Set or clear the site-wide switch that stops scaling down. An empty reason clears it."""
    if name is not None or all_models:
        raise InputError("--site is for the whole site; omit the name and --all")
    operator = only_operator(cluster, kinds.DEPLOYMENT)
    site = cluster.in_namespace(str(operator["metadata"]["namespace"]))
    # Without the key, no field of it belongs to this client, with which an upgrade by Helm would be in conflict.
    config_map = site.set_switch(
        f"{operator['metadata']['name']}-switches", SWITCH, reason or None, release_metadata(operator)
    )
    change = f"set: no model loses a replica ({reason})" if reason else "set: scaling down is allowed again"
    output.changed({"apiVersion": "v1", "kind": "ConfigMap", **config_map}, change)
    return 0


def _selected(
    cluster: Cluster, name: str | None, *, all_models: bool, all_namespaces: bool, selector: str
) -> list[Mapping[str, Any]]:
    """Return the models that --all selects.

    Raises:
        InputError: both a name and --all were given, or neither.
    """
    if all_models and name is not None:
        raise InputError(f"--all is for all models, and {name} names one; omit one of them")
    if not all_models:
        raise InputError(f"give a name or --all; for example halcyon {cluster.target.command} resnet50")
    return list(cluster.models(all_namespaces=all_namespaces, selector=selector))


def _change_all(
    cluster: Cluster, changes: list[tuple[Mapping[str, Any], dict[str, Any]]], change: str, total: int, output: Output
) -> int:
    """Apply a patch to each model, print the results, and return the exit status.

    If a model can't be changed, the other models are still changed, and the reason is printed at the end.

    Raises:
        ClusterError: no model could be changed.
    """
    changed, failed = [], []
    for model, patch in changes:
        meta = fields.mapping(model.get("metadata"))
        try:
            changed.append(cluster.in_namespace(str(meta.get("namespace"))).patch(str(meta.get("name")), patch))
        except ClusterError as error:
            failed.append(f"{meta.get('namespace')}/{meta.get('name')}: {error}")
            continue
        if not output.is_data:
            output.changed(changed[-1], f"{change} in namespace {meta.get('namespace')}")
    if output.is_data:
        output.objects(changed)
    elif output.form != "name":
        emit(f"{len(changed)} of {total} models {change}")
    if failed and not changed:
        raise ClusterError("; ".join(failed))
    for failure in failed:
        warn(cluster.target.command, failure)
    return 1 if failed else 0


# spec rejected   generation observed, mode Paused   time is up   result
# yes             -                                  -            the model, rejected
# no              yes                                -            the model
# no              no                                 yes          the model, not confirmed
# no              no                                 no           wait
def _wait_until_paused(cluster: Cluster, paused_model: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Wait until nothing scales a model that was just paused.

    Return the model, and the reason why this is not certain; empty if it is certain. The operator writes the mode to
    the status after it has stopped the HPA.
    """
    meta, deadline = fields.mapping(paused_model.get("metadata")), time.monotonic() + RELEASE_TIMEOUT_S
    name, generation, model = str(meta.get("name")), int(meta.get("generation") or 0), paused_model
    while True:
        with contextlib.suppress(ClusterError):  # a failed request is retried until the time limit
            model = cluster.model(name)
        status = fields.mapping(model.get("status"))
        if int(status.get("observedGeneration") or 0) >= generation:
            accepted = next((c for c in fields.mappings(status.get("conditions")) if c.get("type") == "Accepted"), {})
            if accepted.get("status") == "False":
                return model, f"the operator rejects the spec, so scaling goes on: {accepted.get('message')}"
            if fields.mapping(status.get("scaling")).get("mode") == "Paused":
                return model, ""
        if time.monotonic() >= deadline:
            return model, (
                f"the operator has not confirmed the pause within {RELEASE_TIMEOUT_S:.0f} s, so scaling may change the replicas "
                f"once more; see halcyon explain {name}, and repeat the command once the operator runs"
            )
        time.sleep(_POLL_INTERVAL_S)


def _pause_status(name: str, why: str) -> int:
    """Print the reason if a pause is not certain, and return the exit status of the command."""
    if why:
        click.echo(f"{name}: {why}", err=True)
    return 1 if why else 0


def _replicas(model: Mapping[str, Any]) -> int:
    return int(fields.mapping(model.get("spec")).get("replicas", 1))


def _is_active(scaling: Mapping[str, Any]) -> bool:
    return bool(scaling.get("mode", "Active") == "Active")


def _scaling(model: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return spec.scaling of a model; None if it has none."""
    scaling = fields.mapping(model.get("spec")).get("scaling")
    return scaling if isinstance(scaling, Mapping) else None


def _patch_with_reason(spec: Mapping[str, Any], reason: str | None) -> dict[str, Any]:
    """Return a patch with these fields of the spec, which also sets or removes the annotation for the reason.

    It removes the annotations with the mode before a pause.
    """
    annotations = {REASON: reason or None, PAUSED_FROM: None, _MODE_BEFORE: None}
    return {"metadata": {"annotations": annotations}, "spec": dict(spec)}


def _pausing_patch(model: Mapping[str, Any], spec: Mapping[str, Any], reason: str | None) -> dict[str, Any]:
    """Return a patch with these fields of the spec that pauses this model alone, and records the mode before."""
    patch = _patch_with_reason({**spec, "scaling": {"mode": "Paused"}}, reason)
    mode = fields.mapping(_scaling(model)).get("mode", "Active")
    before = _mode_before_pause(model, PAUSED_FROM, _MODE_BEFORE) if mode == "Paused" else mode
    if before not in {None, "Active"}:
        patch["metadata"]["annotations"][_MODE_BEFORE] = before
    return patch


def _scaling_patch(model: Mapping[str, Any], replicas: int, reason: str | None) -> dict[str, Any]:
    """Return a patch that sets the replicas. If the model is paused, the mode before and the reason stay."""
    patch = _patch_with_reason({"replicas": replicas}, reason)
    if fields.mapping(_scaling(model)).get("mode") == "Paused":
        patch["metadata"]["annotations"] = {REASON: reason} if reason else {}
    return patch


def _reason_suffix(reason: str | None) -> str:
    return f" ({reason})" if reason else ""
