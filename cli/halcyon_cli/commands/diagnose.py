"""`halcyon diagnose NAME`: likely causes of a model's trouble, and a bundle with what speaks for them, secrets removed.

Only reads. Not here: the rules (`findings`), what is removed (`redaction`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import yaml

from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon.render import names
from halcyon_cli.arguments.options import FILE, Output, clustered, emit, formatted, named
from halcyon_cli.diagnose import bundle as archive
from halcyon_cli.diagnose import redaction
from halcyon_cli.diagnose.facts import Cause, Facts
from halcyon_cli.diagnose.registry import causes
from halcyon_cli.errors import ClusterError
from halcyon_cli.explain.build import report
from halcyon_cli.kube import fields, free_capacity
from halcyon_cli.kube.client import Cluster, Place
from halcyon_cli.kube.inventory import Inventory, look
from halcyon_cli.kube.pod_stage import stage
from halcyon_cli.output.report_text import text

LINES = 500
_MAX_LOGS = 20
"""Pods whose logs are taken: those in trouble first."""
_OPERATOR = "app.kubernetes.io/name=halcyon"
_ALSO = (kinds.SERVICE, kinds.PDB, kinds.CONFIG_MAP, kinds.ROLE, kinds.ROLE_BINDING, kinds.NETWORK_POLICY)
"""Kinds that are in the bundle beside those of the tree."""
_EPILOG = """\
\b
examples:
  halcyon diagnose resnet50
  halcyon diagnose resnet50 --bundle /tmp/resnet50.tar.gz
  halcyon diagnose resnet50 --no-bundle -o json

The bundle holds the objects, events and the ends of the logs of everything that was made for the model, the tree, and what halcyon explain
tells. Values whose names or forms say that they are secret are removed; Secrets are never read. Nothing can know every secret: look at it
before you pass it on.

\b
exit status:
  0  nothing speaks for a trouble
  1  likely causes were found
  2  nothing could be looked at: no such name, no access, no cluster; or the bundle can't be written
"""


@dataclass
class _Gathered:
    """What goes into the bundle."""

    facts: Facts
    objects: dict[Kind, list[Mapping[str, Any]]] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    """By pod and container, as a path."""
    lacking: list[str] = field(default_factory=list)
    """What could not be read."""


@click.command("diagnose", epilog=_EPILOG)
@named()
@click.option(
    "--bundle",
    type=FILE,
    metavar="FILE.tar.gz",
    help="Where to write it; halcyon-NAME-TIME.tar.gz in this folder where it is left out.",
)
@click.option("--no-bundle", "without", is_flag=True, help="Only tell the likely causes.")
@click.option(
    "--lines",
    type=click.IntRange(1, 100_000),
    default=LINES,
    metavar="N",
    help=f"Of each log, from its end; {LINES} where it is left out.",
)
@clustered
@formatted("table", "json", "yaml")
def main(  # noqa: PLR0917  # click gives them by keyword
    name: str, bundle: Path | None, without: bool, lines: int, place: Place, output: Output
) -> int:  # fmt: skip
    """Tell what is likely wrong with a model, the likeliest first, and gather what is needed to see why."""
    cluster, now = Cluster(place), datetime.now(UTC)
    written = None if without else bundle or Path(f"halcyon-{name}-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    if written is not None and written.exists():
        raise archive.there_already(written)
    gathered = _gather(cluster, name, now)
    found = causes(gathered.facts)
    if written is not None:
        _gather_more(cluster, name, gathered, lines)
        contents = _contents(cluster, gathered, found, now)
        archive.write(written, contents, root=written.name.removesuffix(".tar.gz"), at=now.timestamp())
    if output.is_data:
        told = {"causes": [cause.to_dict() for cause in found], "notRead": gathered.lacking}
        output.data(told | ({"bundle": str(written)} if written else {}))
    else:
        emit(page(f"{cluster.namespace}/{name}", found, gathered.lacking))
        if written:
            emit(
                f"\n{written}: what was looked at, without secrets as far as they can be known; look at it before you pass it on"
            )
    return 1 if found else 0


def page(who: str, found: Sequence[Cause], lacking: Sequence[str] = ()) -> str:
    """The likely causes, for a person."""
    count = "nothing speaks for a trouble" if not found else f"{len(found)} likely cause{'s' if len(found) > 1 else ''}"
    lines = [f"{who}: {count}"]
    for n, cause in enumerate(found, 1):
        lines += ["", f"{n}. {cause.what}", *(f"   - {one}" for one in cause.evidence), f"   > {cause.then}"]
    if lacking:
        lines += ["", "could not be read:", *(f"   - {one}" for one in lacking)]
    return "\n".join(redaction.text(line) for line in lines)


# Reading.


def _gather(cluster: Cluster, name: str, now: datetime) -> _Gathered:
    """What the rules need."""
    seen = look(cluster, name)
    gathered = _Gathered(Facts(seen, now), lacking=list(seen.hidden))
    events = _try(gathered, lambda: cluster.items(kinds.EVENT), "events") or []
    operators = _try(
        gathered, lambda: cluster.items(kinds.POD, selector=_OPERATOR, everywhere=True), "the operator's pods"
    )
    lacks = free_capacity.lacking(stage(pod).message for pod in seen.servers)
    found = _try(gathered, lambda: free_capacity.look(cluster, lacks), f"how much {' and '.join(lacks)} is free") or ()
    gathered.facts = Facts(seen, now, [e for e in events if _concerns(e, name)], operators, found)
    return gathered


def _gather_more(cluster: Cluster, name: str, gathered: _Gathered, lines: int) -> None:
    """What a reader needs besides."""
    selector = f"{names.OWNER_LABEL}={name}"
    for kind in _ALSO:
        gathered.objects[kind] = (
            _try(gathered, lambda kind=kind: cluster.items(kind, selector=selector), kind.plural) or []
        )
    seen = gathered.facts.seen
    order = {"failed": 0, "unready": 1, "loading": 2, "warming": 3}
    ranked = sorted((*seen.servers, *seen.balancer_pods), key=lambda pod: order.get(stage(pod).state, 9))
    deaf: set[str] = set()
    for pod in ranked[:_MAX_LOGS]:
        where, node = str(pod["metadata"]["name"]), str(fields.mapping(pod.get("spec")).get("nodeName") or "")
        if not node or node in deaf:  # nothing has run, or its kubelet doesn't answer
            continue
        try:
            gathered.logs |= _logs(cluster, pod, lines)
        except ClusterError as error:
            deaf.add(node)
            gathered.lacking.append(f"logs of {where}, and of other pods on node {node}: {error}")


def _logs(cluster: Cluster, pod: Mapping[str, Any], lines: int) -> dict[str, str]:
    """The ends of a pod's logs, those before its last restart too; by path."""
    where, found = str(pod["metadata"]["name"]), {}
    for container in _containers(pod):
        for previous in (False, True):
            if told := cluster.log(where, container, lines=lines, previous=previous):
                found[f"{where}/{container}{'.previous' if previous else ''}.log"] = told
    return found


def _containers(pod: Mapping[str, Any]) -> list[str]:
    spec = fields.mapping(pod.get("spec"))
    found = [*fields.mappings(spec.get("initContainers")), *fields.mappings(spec.get("containers"))]
    return [str(container.get("name")) for container in found]


def _try(gathered: _Gathered, read: Any, what: str) -> Any:  # whatever it reads
    try:
        return read()
    except ClusterError as error:
        said = f"{what}: {error}"
        if said not in gathered.lacking:
            gathered.lacking.append(said)
        return None


def _concerns(event: Mapping[str, Any], name: str) -> bool:
    """Whether it is about the model, or an object whose name begins with its name, as those of its children do."""
    about = fields.mapping(event.get("regarding") or event.get("involvedObject")).get("name")
    return about == name or str(about).startswith(f"{name}-")


# Writing.


def _contents(cluster: Cluster, gathered: _Gathered, found: Sequence[Cause], now: datetime) -> dict[str, str]:
    """Text by path in the bundle. Nothing is in it that redaction has not seen."""
    seen = gathered.facts.seen
    model = seen.model
    name = str(model["metadata"]["name"])
    plain: dict[str, str] = {
        "diagnosis.txt": page(f"{cluster.namespace}/{name}", found, gathered.lacking) + "\n",
        "diagnosis.json": json.dumps(redaction.obj({"causes": [cause.to_dict() for cause in found]}), indent=2) + "\n",
        "explain.txt": redaction.text(text(report(model, now, gathered.facts.room), now, width=120)) + "\n",
        "tree.txt": redaction.text(_tree(seen, now)) + "\n",
        "versions.txt": f"halcyon {version('halcyon-operator')}\ntaken {now.isoformat()}\n" + _images(seen),
        "events.yaml": _yaml(gathered.facts.events),
    }
    objects = [model, *seen.deployments, *seen.pods, *seen.hpas, *seen.revisions]
    objects += [_without_model(name, one) for some in gathered.objects.values() for one in some]
    for one in objects:
        kind, own = one.get("kind", kinds.MODEL_DEPLOYMENT.kind), fields.mapping(one.get("metadata")).get("name")
        plain[f"objects/{kind}/{own}.yaml"] = _yaml(one)
    return plain | {f"logs/{path}": redaction.text(log) for path, log in gathered.logs.items()}


def _without_model(name: str, one: Mapping[str, Any]) -> Mapping[str, Any]:
    """The copy of a model in a ConfigMap is its owner's: of it only the configuration is taken."""
    if one.get("kind") != "ConfigMap" or not str(one["metadata"]["name"]).startswith(f"{name}-model-"):
        return one
    left = {part: fields.mapping(one.get(part)) for part in ("data", "binaryData")}
    said = {
        part: {key: value if key.endswith(".pbtxt") else f"({len(value)} characters)" for key, value in values.items()}
        for part, values in left.items()
        if values
    }
    return {**one, **said}


def _tree(seen: Inventory, now: datetime) -> str:
    from halcyon_cli.output import tables  # noqa: PLC0415  # rich, as in `get`
    from halcyon_cli.output.tree import tree  # noqa: PLC0415

    return tables.lines(tables.tree_page(tree(seen), now), width=160)


def _images(seen: Inventory) -> str:
    found = {
        str(container.get("image"))
        for pod in seen.pods
        for container in fields.mappings(fields.mapping(pod.get("spec")).get("containers"))
    }
    return "".join(f"image {image}\n" for image in sorted(found))


def _yaml(value: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    clean: Any = redaction.obj(value) if isinstance(value, Mapping) else [redaction.obj(one) for one in value]
    return yaml.safe_dump(clean, sort_keys=False, allow_unicode=True, width=120)
