"""`halcyon refresh NAME|--all`: render servers anew as the operator that runs now does, and roll them over.

It is an annotation that names the revision, so it counts for that one and no other. Not here: what becomes of it (`control.refresh`), and
what makes a model outdated (the condition RuntimeOutdated, which is read here and never judged anew).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import click

from halcyon.control.rollout.refresh import REFRESH
from halcyon_cli.arguments.options import DURATION, clustered, emit, named
from halcyon_cli.errors import ClusterError, InputError
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster, Place

POLL_INTERVAL_S = 1.0
WITHIN_S = 1800.0
"""Longest wait for one model."""
Json = Mapping[str, Any]
State = Literal["waiting", "served", "stalled"]
_EPILOG = """\
\b
examples:
  halcyon refresh resnet50 -n team
  halcyon refresh --all -A --dry-run
  halcyon refresh --all -n team

An upgrade of Halcyon restarts no model pod: each runs what was rendered for it. Who runs an older rendering has the condition
RuntimeOutdated, which says what differs. A refreshed model rolls over by its own spec.rollout, and goes back where that fails. With --all
the models are taken one after the other, each once the one before it is served; the first that isn't ends it. The same by hand, for one:
kubectl annotate mdep resnet50 serving.halcyon.dev/refresh=REVISION, with the REVISION of status.revision.target. More:
docs/guides/upgrade.md.

\b
exit status:
  0  done, or there was nothing to do
  1  a model that was refreshed isn't served by its new rendering
  2  nothing done: no such name, no access, no cluster
"""


@click.command("refresh", epilog=_EPILOG)
@named(required=False)
@click.option("--all", "every", is_flag=True, help="Every model of the namespace that runs an older rendering.")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="With --all: those of all namespaces.")
@click.option("--dry-run", is_flag=True, help="Only tell which models would be, and what differs.")
@click.option("--within", "within_s", type=DURATION, default=WITHIN_S, metavar="TIME", help="With --all: longest time for each model; 30m where it is left out.")  # fmt: skip
@clustered
def main(  # noqa: PLR0917  # by keyword: click gives them so
    name: str | None, every: bool, everywhere: bool, dry_run: bool, within_s: float, place: Place
) -> int:
    """Roll servers over to what the operator that runs now renders for them."""
    if (name is None) == (not every):
        raise InputError("give a name, or --all: for example halcyon refresh resnet50")
    if everywhere and not every:
        raise InputError(f"-A is for --all, and {name} is one model; leave -A out, and give its namespace with -n")
    cluster = Cluster(place)
    models = [cluster.model(name)] if name is not None else cluster.models(everywhere=everywhere)
    found = [one for one in map(_outdated, models) if one is not None]
    if not found:
        emit(_none_of(name, len(models)))
        return 0
    if dry_run:
        for one in found:
            emit(f"{one.namespace}/{one.name}: {one.message}")
        return 0
    if name is not None:
        _ask(cluster, found[0])
        emit(f"{name} is rendered anew and rolls over; kubectl get mdep {name} -w shows it")
        return 0
    return _in_turn(cluster, found, within_s)


@dataclass(frozen=True)
class Outdated:
    """A model that runs an older rendering."""

    namespace: str
    name: str
    revision: str
    message: str


def _outdated(model: Json) -> Outdated | None:
    """None where it doesn't, or the operator hasn't said so."""
    meta, status = fields.mapping(model.get("metadata")), fields.mapping(model.get("status"))
    revision = fields.text(fields.mapping(status.get("revision")).get("target"))
    for condition in fields.mappings(status.get("conditions")):
        if condition.get("type") == "RuntimeOutdated" and condition.get("status") == "True" and revision:
            message = fields.text(condition.get("message")) or ""
            return Outdated(str(meta.get("namespace")), str(meta.get("name")), revision, message)
    return None


def _none_of(name: str | None, count: int) -> str:
    if name is not None:
        return f"{name} is as the operator renders it now; nothing to do"
    return f"{count} models, none of them runs an older rendering; nothing to do"


def _ask(cluster: Cluster, one: Outdated) -> None:
    cluster.within(one.namespace).annotate(one.name, {REFRESH: one.revision})


def _in_turn(cluster: Cluster, found: list[Outdated], within_s: float) -> int:
    """One after the other: rollouts at the same time would ask for the room of all at once."""
    for number, one in enumerate(found, 1):
        there = cluster.within(one.namespace)
        _ask(cluster, one)

        def state(there: Cluster = there, one: Outdated = one) -> State:
            try:
                return state_of(there.model(one.name), one.revision)
            except ClusterError:
                return "waiting"  # it is asked again, until the time is over

        end = wait(state, within_s)
        who = f"{number} of {len(found)}: {one.namespace}/{one.name}"
        if end != "served":
            left = len(found) - number
            why = f"isn't served within {within_s:.0f} s" if end == "waiting" else "is stalled"
            emit(f"{who} {why}; halcyon get {one.name} -n {one.namespace} says why. {left} left as they are")
            return 1
        emit(f"{who} is served by its new rendering")
    return 0


def wait(
    state: Callable[[], State],
    within_s: float,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> State:
    """The first state that isn't waiting, or waiting once the time is over."""
    end = clock() + within_s
    while (now := state()) == "waiting" and clock() < end:
        pause(POLL_INTERVAL_S)
    return now


# asked for is another revision   stalled   that one serves, all of it   state
# no                              -         -                            waiting: the operator hasn't seen it yet
# yes                             yes       -                            stalled
# yes                             no        no                           waiting
# yes                             no        yes                          served
def state_of(model: Json, before: str) -> State:
    """Where a model is that was asked for another rendering than the revision `before`."""
    status = fields.mapping(model.get("status"))
    revision = fields.mapping(status.get("revision"))
    conditions = {str(c.get("type")): c.get("status") for c in fields.mappings(status.get("conditions"))}
    if revision.get("target") in {None, before}:
        return "waiting"
    if conditions.get("Stalled") == "True":
        return "stalled"
    is_whole = fields.mapping(status.get("rollout")).get("phase") == "Complete"
    return "served" if is_whole and revision.get("current") == revision.get("target") else "waiting"
