"""`halcyon diagnose NAME`: shows likely causes of a model's problems, and writes a redacted bundle with the evidence.

It changes nothing in the cluster. Out of scope: the rules (`diagnose.registry`) and the redaction
(`diagnose.redaction`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import yaml

from halcyon.api.timestamps import rfc3339
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon.render import names
from halcyon_cli.arguments.options import (
    FILE,
    Output,
    check_unused,
    cluster_options,
    emit,
    name_argument,
    output_options,
)
from halcyon_cli.diagnose import bundle as archive
from halcyon_cli.diagnose import redaction
from halcyon_cli.diagnose.facts import Cause, Facts
from halcyon_cli.diagnose.registry import causes
from halcyon_cli.errors import ClusterError, InputError
from halcyon_cli.explain.build import report
from halcyon_cli.kube import batches, fields, free_capacity
from halcyon_cli.kube.client import Cluster, Target
from halcyon_cli.kube.inventory import Inventory, read_inventory
from halcyon_cli.kube.pod_stage import stage
from halcyon_cli.output.report_text import render

LOG_LINES = 500
_MAX_LOGS = 20
"""Maximum number of pods whose logs are read. Failing pods come first."""
_MAX_RUNNER_LOGS = 5
"""Maximum number of batch runner pods whose logs are read. The newest come first."""
_OPERATOR_SELECTOR = "app.kubernetes.io/name=halcyon"
_BUNDLE_KINDS = (kinds.SERVICE, kinds.PDB, kinds.CONFIG_MAP, kinds.ROLE, kinds.ROLE_BINDING, kinds.NETWORK_POLICY)
"""Kinds of objects in the bundle, in addition to the kinds that `halcyon get NAME` shows."""
_EPILOG = """\
\b
examples:
  halcyon diagnose resnet50
  halcyon diagnose resnet50 --bundle /tmp/resnet50.tar.gz
  halcyon diagnose resnet50 --no-bundle -o json

The bundle contains the objects and events of the model and of its batches, the end of their logs, the tree, and the output of halcyon explain. Values whose name or
form marks them as secret are removed, and Secrets are never read. No rule recognizes every secret: review the bundle before you share it.

\b
exit status:
  0  no likely cause
  1  likely causes were found
  2  nothing was checked: no such name, no access, no cluster, or no bundle
"""


@dataclass
class _Evidence:
    """Contents of the bundle before redaction."""

    facts: Facts
    objects: dict[Kind, list[Mapping[str, Any]]] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    """Text of each log, by its path in the bundle, POD/CONTAINER."""
    unread: list[str] = field(default_factory=list)
    """Sentences about objects and logs that could not be read, each with the reason."""
    batch_events: Sequence[Mapping[str, Any]] = ()
    """Events about batches of the model, and about their Jobs and pods."""


@click.command("diagnose", epilog=_EPILOG)
@name_argument()
@click.option(
    "--bundle",
    type=FILE,
    metavar="FILE.tar.gz",
    help="File for the bundle. Default: halcyon-NAME-TIME.tar.gz in the current folder.",
)
@click.option("--no-bundle", is_flag=True, help="Print the likely causes only.")
@click.option(
    "--lines",
    type=click.IntRange(1, 100_000),
    default=LOG_LINES,
    metavar="N",
    help=f"Lines from the end of each log. Default: {LOG_LINES}.",
)
@cluster_options
@output_options("table", "json", "yaml")
def main(  # noqa: PLR0917  # click passes them by keyword
    name: str, bundle: Path | None, no_bundle: bool, lines: int, target: Target, output: Output
) -> int:  # fmt: skip
    """Show likely causes of a model's problems, the likeliest first, and write a bundle with the evidence."""
    if no_bundle:
        check_unused(("lines",), "limits the logs of the bundle, and --no-bundle writes none; leave one of them out")
    if no_bundle and bundle is not None:
        raise InputError("--bundle names a file, and --no-bundle writes none; leave one of them out")
    cluster, now = Cluster(target), datetime.now(UTC)
    bundle_path = None if no_bundle else bundle or Path(f"halcyon-{name}-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    if bundle_path is not None and bundle_path.exists():
        raise archive.already_exists(bundle_path)
    evidence = _collect_facts(cluster, name, now)
    likely = causes(evidence.facts)
    if bundle_path is not None:
        _collect_bundle(cluster, name, evidence, lines)
        contents = _contents(cluster, evidence, likely, now)
        archive.write(bundle_path, contents, root=bundle_path.name.removesuffix(".tar.gz"), at=now.timestamp())
    if output.is_data:
        document = {"causes": [cause.to_dict() for cause in likely], "notRead": evidence.unread}
        output.data(document | ({"bundle": str(bundle_path)} if bundle_path else {}))
    else:
        emit(page(f"{cluster.namespace}/{name}", likely, evidence.unread))
        if bundle_path:
            emit(
                f"\n{bundle_path}: the evidence, with secrets removed as far as they are recognized; review it before you share it"
            )
    return 1 if likely else 0


def page(subject: str, likely: Sequence[Cause], unread: Sequence[str] = ()) -> str:
    """Return the likely causes as text, with a list of what could not be read."""
    count = "no likely cause" if not likely else f"{len(likely)} likely cause{'s' if len(likely) > 1 else ''}"
    lines = [f"{subject}: {count}"]
    for n, cause in enumerate(likely, 1):
        lines += ["", f"{n}. {cause.summary}", *(f"   - {item}" for item in cause.evidence), f"   > {cause.next_step}"]
    if unread:
        lines += ["", "could not be read:", *(f"   - {item}" for item in unread)]
    return "\n".join(redaction.text(line) for line in lines)


# Reading.


def _collect_facts(cluster: Cluster, name: str, now: datetime) -> _Evidence:
    """Read the objects that the rules evaluate."""
    inventory = read_inventory(cluster, name)
    evidence = _Evidence(Facts(inventory, now), unread=list(inventory.unreadable))
    events = _read_or_note(evidence, lambda: cluster.items(kinds.EVENT), "events") or []
    operators = _read_or_note(
        evidence,
        lambda: cluster.items(kinds.POD, selector=_OPERATOR_SELECTOR, all_namespaces=True),
        "the operator's pods",
    )
    resources = free_capacity.insufficient_resources(stage(pod).message for pod in inventory.servers)
    capacity = (
        _read_or_note(
            evidence,
            lambda: free_capacity.read_free_capacity(cluster, resources),
            f"the free capacity of {' and '.join(resources)}",
        )
        or ()
    )
    model_batches = _read_or_note(evidence, lambda: batches.of_model(cluster, name), "its batches") or ()
    batch_names = [_name(batch) for batch in model_batches]
    models = _read_or_note(evidence, cluster.models, "other models, whose events may be among those of this one") or []
    others = [other for model in models if (other := _name(model)).startswith(f"{name}-")]
    own = {_name(obj) for obj in (*inventory.pods, *inventory.deployments)}
    model_events = [e for e in events if _is_about(e, name) and not is_of_another(e, others, own)]
    evidence.facts = Facts(inventory, now, model_events, operators, capacity, model_batches)
    evidence.batch_events = [
        e
        for e in events
        if any(_is_about(e, batch_name) for batch_name in batch_names) and e not in evidence.facts.events
    ]
    return evidence


def _collect_bundle(cluster: Cluster, name: str, evidence: _Evidence, lines: int) -> None:
    """Add the parts of the evidence that only the bundle needs: objects of further kinds, and logs."""
    selector = f"{names.OWNER_LABEL}={name}"
    for kind in _BUNDLE_KINDS:
        evidence.objects[kind] = (
            _read_or_note(evidence, lambda kind=kind: cluster.items(kind, selector=selector), kind.plural) or []
        )
    inventory, runners = evidence.facts.inventory, _collect_batches(cluster, evidence)
    order = {"failed": 0, "unready": 1, "loading": 2, "warming": 3}
    ranked = sorted((*inventory.servers, *inventory.balancer_pods), key=lambda pod: order.get(stage(pod).state, 9))
    unreachable_nodes: set[str] = set()
    for pod in (*ranked[:_MAX_LOGS], *runners):
        pod_name, node = str(pod["metadata"]["name"]), str(fields.mapping(pod.get("spec")).get("nodeName") or "")
        if not node or node in unreachable_nodes:  # the pod's containers haven't run, or its kubelet doesn't respond
            continue
        try:
            _add_logs(cluster, pod, lines, evidence.logs)
        except ClusterError as error:
            unreachable_nodes.add(node)
            evidence.unread.append(f"logs of {pod_name} and of other pods on node {node}: {error}")


def _collect_batches(cluster: Cluster, evidence: _Evidence) -> list[Mapping[str, Any]]:
    """Add the batches of the model and their Jobs to the evidence, and return the newest pods of their runners."""
    model_batches = evidence.facts.batches
    if not model_batches:
        return []
    evidence.objects[kinds.BATCH_INFERENCE] = list(model_batches)
    selector = f"{names.BATCH_LABEL} in ({','.join(str(batch['metadata']['name']) for batch in model_batches)})"
    for kind in (kinds.JOB, kinds.POD):
        objects = _read_or_note(
            evidence, lambda kind=kind: cluster.items(kind, selector=selector), f"{kind.plural} of its batches"
        )
        evidence.objects[kind] = objects or []
    pods = sorted(evidence.objects[kinds.POD], key=lambda pod: str(pod["metadata"].get("creationTimestamp")))
    return pods[::-1][:_MAX_RUNNER_LOGS]


def _add_logs(cluster: Cluster, pod: Mapping[str, Any], lines: int, logs: dict[str, str]) -> None:
    """Add the last lines of a pod's logs to the evidence, including those of previous runs of its containers.

    Raises:
        ClusterError: a log can't be read. The logs before it have been added.
    """
    pod_name = _name(pod)
    for container in _containers(pod):
        for previous in (False, True):
            if log_text := cluster.log(pod_name, container, lines=lines, previous=previous):
                logs[f"{pod_name}/{container}{'.previous' if previous else ''}.log"] = log_text


def _containers(pod: Mapping[str, Any]) -> list[str]:
    spec = fields.mapping(pod.get("spec"))
    containers = [*fields.mappings(spec.get("initContainers")), *fields.mappings(spec.get("containers"))]
    return [str(container.get("name")) for container in containers]


def _read_or_note(evidence: _Evidence, read: Any, subject: str) -> Any:  # of any type
    try:
        return read()
    except ClusterError as error:
        note = f"{subject}: {error}"
        if note not in evidence.unread:
            evidence.unread.append(note)
        return None


def _is_about(event: Mapping[str, Any], name: str) -> bool:
    """Return True if the event is about the model, or about an object whose name starts with the model's name."""
    subject = _subject(event)
    return subject == name or subject.startswith(f"{name}-")


def is_of_another(event: Mapping[str, Any], others: Sequence[str], own: Collection[str]) -> bool:
    """Return True if an event is about another model whose name starts with this model's name, or about its objects.

    `own` contains the names of this model's pods and Deployments, which could otherwise be mistaken for another
    model's.
    """
    return _subject(event) not in own and any(_is_about(event, other) for other in others)


def _subject(event: Mapping[str, Any]) -> str:
    """Return the name of the object that an event is about."""
    return str(fields.mapping(event.get("regarding") or event.get("involvedObject")).get("name"))


def _name(obj: Mapping[str, Any]) -> str:
    return str(fields.mapping(obj.get("metadata")).get("name"))


# Writing.


def _contents(cluster: Cluster, evidence: _Evidence, likely: Sequence[Cause], now: datetime) -> dict[str, str]:
    """Return the redacted texts of the bundle, by path."""
    inventory = evidence.facts.inventory
    model = inventory.model
    name = str(model["metadata"]["name"])
    contents: dict[str, str] = {
        "diagnosis.txt": page(f"{cluster.namespace}/{name}", likely, evidence.unread) + "\n",
        "diagnosis.json": json.dumps(redaction.resource({"causes": [cause.to_dict() for cause in likely]}), indent=2)
        + "\n",
        "explain.txt": redaction.text(render(report(model, now, evidence.facts.free_capacity), now, width=120)) + "\n",
        "tree.txt": redaction.text(_tree(inventory, now)) + "\n",
        "versions.txt": f"halcyon {version('halcyon-cli')}\ntaken {rfc3339(now.timestamp())}\n" + _images(inventory),
        "events.yaml": _yaml([*evidence.facts.events, *evidence.batch_events]),
    }
    objects = [model, *inventory.deployments, *inventory.pods, *inventory.hpas, *inventory.revisions]
    objects += [_without_model(name, obj) for kind_objects in evidence.objects.values() for obj in kind_objects]
    for obj in objects:
        kind, object_name = (
            obj.get("kind", kinds.MODEL_DEPLOYMENT.kind),
            fields.mapping(obj.get("metadata")).get("name"),
        )
        contents[f"objects/{kind}/{object_name}.yaml"] = _yaml(obj)
    return contents | {f"logs/{path}": redaction.text(log) for path, log in evidence.logs.items()}


def _without_model(name: str, obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object. A ConfigMap with the files of the model keeps only the content of config.pbtxt."""
    if obj.get("kind") != "ConfigMap" or not str(obj["metadata"]["name"]).startswith(f"{name}-model-"):
        return obj
    sections = {part: fields.mapping(obj.get(part)) for part in ("data", "binaryData")}
    summarised = {
        part: {key: value if key.endswith(".pbtxt") else f"({len(value)} characters)" for key, value in values.items()}
        for part, values in sections.items()
        if values
    }
    return {**obj, **summarised}


def _tree(inventory: Inventory, now: datetime) -> str:
    from halcyon_cli.output import tables  # noqa: PLC0415  # rich, as in `get`
    from halcyon_cli.output.tree import build_tree  # noqa: PLC0415

    return tables.lines(tables.tree_page(build_tree(inventory), now), width=160)


def _images(inventory: Inventory) -> str:
    images = {
        str(container.get("image"))
        for pod in inventory.pods
        for container in fields.mappings(fields.mapping(pod.get("spec")).get("containers"))
    }
    return "".join(f"image {image}\n" for image in sorted(images))


def _yaml(value: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    clean: Any = redaction.resource(value) if isinstance(value, Mapping) else [redaction.resource(obj) for obj in value]
    return yaml.safe_dump(clean, sort_keys=False, allow_unicode=True, width=120)
