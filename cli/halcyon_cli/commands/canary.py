"""`halcyon promote NAME`, `halcyon abort NAME`: a person's word on the canary under way.

It is an annotation that names the revision, so it counts for that one and no other. Not here: what becomes of it
(`control.canary`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from halcyon.api.types import GROUP
from halcyon_cli.arguments.options import clustered, emit, named
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube.client import Cluster, Place

_WORDS = ("promote", "abort")
_THEN = {
    "promote": "it gets all requests once a pod of it is ready",
    "abort": "the revision before it serves all requests again",
}
_EPILOG = """\
\b
example:
  halcyon {word} resnet50 -n team

The same by hand: kubectl annotate mdep resnet50 {group}/{word}=REVISION, with the REVISION of status.revision.target. How
canaries go: docs/concepts/rollouts.md.

{more}exit status: 0, or 2 where there is nothing to {word}: no such name, no canary, no access, no cluster.
"""
_LEFT = """\
A canary that the spec has left (another one was applied) goes pod by pod; abort ends it at once.

"""
_UNDER_WAY = frozenset({"Progressing", "Blocked"})


@click.command("promote", epilog=_EPILOG.format(word="promote", group=GROUP, more=""))
@named()
@clustered
def promote(name: str, place: Place) -> int:
    """Give the canary under way all requests, once a pod of it is ready, whatever steps and analysis say."""
    return _say("promote", name, place)


@click.command("abort", epilog=_EPILOG.format(word="abort", group=GROUP, more=_LEFT))
@named()
@clustered
def abort(name: str, place: Place) -> int:
    """Take all requests from the canary under way, and go back to the revision that served before."""
    return _say("abort", name, place)


def _say(word: str, name: str, place: Place) -> int:
    there = Cluster(place)
    model = there.model(name)
    left = left_canary(model) if word == "abort" else None
    revision, step = (left, "gone from the spec already") if left else _canary(model, name)
    other = next(each for each in _WORDS if each != word)
    # The word before is taken back: the last one counts.
    there.annotate(name, {f"{GROUP}/{word}": revision, f"{GROUP}/{other}": None})
    then = "what is left of it goes at once" if left else _THEN[word]
    emit(f"revision {revision} of {name}, {step}: {then}. kubectl get mdep {name} -w shows it")
    return 0


def left_canary(resource: Mapping[str, Any]) -> str | None:
    """The revision that was on its way when the spec left it, while a rollout takes its place; None: there is none.

    Where it was no canary the word has no effect.
    """
    rollout = (resource.get("status") or {}).get("rollout") or {}
    history: Sequence[Mapping[str, Any]] = rollout.get("history") or ()
    last = history[0] if history else {}
    if rollout.get("canary") or rollout.get("phase") not in _UNDER_WAY or last.get("result") != "Superseded":
        return None
    return str(last.get("revision") or "") or None


def _canary(resource: Mapping[str, Any], name: str) -> tuple[str, str]:
    """(revision, where it is) of the canary under way.

    Raises:
        ClusterError: there is none.
    """
    status = resource.get("status") or {}
    rollout, revision = status.get("rollout") or {}, (status.get("revision") or {}).get("target")
    found = rollout.get("canary")
    if not found or not revision:
        strategy = (((resource.get("spec") or {}).get("rollout")) or {}).get("strategy", "Auto")
        hint = "" if strategy == "Canary" else f"; spec.rollout.strategy is {strategy}, and Canary makes one"
        raise ClusterError(
            f"no canary of {name} is under way: its rollout is {rollout.get('phase', 'not known')}{hint}"
        )
    return str(revision), f"at step {found.get('step', '?')} with {found.get('weight', '?')} % of the requests"
