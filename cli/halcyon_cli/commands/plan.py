"""`halcyon plan -f FILE`: what a ModelDeployment would become, and what the planner decides on recorded observations of it.

The same code as in the operator; nothing is changed. Of observations, each reading is decided on with the memory of those before, so a
record can be gone through in pieces: what one run saves, the next one loads. Not here: children and differences (`outlook`), the form
of a record (`readings`), a decision (`planner`).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import yaml

from halcyon.api.spec import Spec, defaults
from halcyon.api.spec.parse import SpecError, parse
from halcyon.api.types import API_VERSION, KIND
from halcyon.scaling.planner.objectives import START_S, NoScalingError, largest, objectives, schedules, windows
from halcyon.scaling.planner.outputs import Plan, PlannerMemory
from halcyon.scaling.planner.plan import plan
from halcyon.scaling.planner.reading import OpenWindow
from halcyon.scaling.planner.serialization import packed, unpacked
from halcyon.scaling.schedules import InForce, in_force, problems
from halcyon_cli import input_files as given_files
from halcyon_cli.arguments.options import COUNT, DURATION, FILE, Output, clustered, emit, formatted
from halcyon_cli.errors import InputError
from halcyon_cli.kube.client import Cluster, Place
from halcyon_cli.plan.observations_file import ReadingsError, Recorded, parsed

MAX_BYTES = 256 * 2**20
_EPILOG = """\
Without observations: the objects that would be made for it, and what would change in the cluster, tried by dry runs on the API server
where you may (else compared here). Nothing is written. The operator's own rules are this version's.

\b
A record is a JSON list of readings in the order of their times; a field that is left out is not known:
  [{"at": 1763700000, "replicas": 1, "arrived": 0, "waiting": 0, "inflight": 0, "batches": {"16": [3, 0.039]},
    "pods": [{"name": "m-a-1", "phase": "ready", "created_at": 1763690000, "ready_at": 1763690045}]}, ...]
All fields: docs/reference/observations.md.

\b
examples:
  halcyon plan -f model.yaml
  halcyon plan -f model.yaml --offline -o yaml
  halcyon plan -f manifests/examples/digits.yaml --observations manifests/examples/observations.json
  halcyon plan -f model.yaml --observations monday.json --save-memory week.json
  halcyon plan -f model.yaml --observations tuesday.json --memory week.json --json
  halcyon plan -f model.yaml --observations monday.json --latency 300ms --min 0

\b
exit status:
  0  done
  1  the spec would not be accepted
  2  an option or a file is wrong, or the cluster can't be asked or would refuse it
"""


@dataclass(frozen=True)
class _Asked:
    """The options, times in seconds."""

    file: Path
    observations: Path | None
    name: str | None
    memory: Path | None
    save_memory: Path | None
    as_json: bool
    every: bool
    latency: float | None
    low: int | None
    idle_after: float | None
    start_time: float


@dataclass(frozen=True)
class _Decided:
    now: float
    plan: Plan
    windows: tuple[OpenWindow, ...]
    """Schedules that were open."""


@click.command("plan", epilog=_EPILOG)
@click.option(
    "-f",
    "--file",
    type=FILE,
    required=True,
    metavar="FILE.yaml",
    help="YAML with the ModelDeployment; others in it are passed over.",
)
@click.option("--offline", is_flag=True, help="Ask no cluster: the objects of a new model.")
@click.option("--observations", type=FILE, metavar="FILE.json", help="What the planner would decide on this record, as below; no cluster is asked.")  # fmt: skip
@click.option("--name", metavar="NAME", help="Which ModelDeployment, where the file holds several.")
@click.option("--memory", type=FILE, metavar="FILE.json", help="Begin with the memory that an earlier run saved.")
@click.option("--save-memory", type=FILE, metavar="FILE.json", help="Write the memory after the last reading.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--every", is_flag=True, help="Print every decision; else those that are like the one before are only counted.")  # fmt: skip
@click.option("--latency", type=DURATION, metavar="TIME", help="What if targets.latency were this, for example 300ms.")
@click.option("--min", "low", type=COUNT, metavar="N", help="What if minReplicas were this; it may be 0.")
@click.option(
    "--idle-after",
    type=DURATION,
    metavar="TIME",
    help="What if idleAfter were this: the time without a request until no replica is left, where the least is 0.",
)
@click.option("--start-time", type=DURATION, default=START_S, metavar="TIME", help=f"What if a pod took this long to start, until one was seen; {START_S:.0f}s where it is left out.")  # fmt: skip
@clustered
@formatted("table", "json", "yaml")
def main(offline: bool, place: Place, output: Output, **given: Any) -> int:
    """What a ModelDeployment would become, or what the planner decides on recorded observations of it, and why.

    Of observations: latency, idleAfter and schedules are the resource's own; its policy, actuator and mode make no difference.
    """
    options = _Asked(**given)
    if options.observations is None:
        return _shown(options, place, output, offline=offline)
    if output.form == "yaml":
        raise InputError("decisions are printed as a table or as JSON; leave -o yaml out")
    return _decide(replace(options, as_json=options.as_json or output.is_data), options.observations)


def _shown(options: _Asked, place: Place, output: Output, *, offline: bool) -> int:
    """The children, and what would change."""
    for option, value in (("--memory", options.memory), ("--save-memory", options.save_memory)):
        if value is not None:
            raise InputError(f"{option} is of the planner, which decides on --observations; give both, or neither")
    from halcyon_cli.plan.preview import show  # noqa: PLC0415  # the builders take a while to load

    documents = _documents(options.file)
    name, _ = _model(documents, options.file, options.name)
    document = next(d for d in documents if d.get("kind") == KIND and _named(d) == name)
    own = (document.get("metadata") or {}).get("namespace")
    if own is not None and place.namespace not in {None, own}:
        raise InputError(
            f"{options.file}: {KIND} {name} is of namespace {own}, and -n says {place.namespace}; leave -n out"
        )
    cluster = None if offline else Cluster(replace(place, namespace=place.namespace or own))
    return show(document, documents, cluster, replace(output, form="json") if options.as_json else output)


def _decide(options: _Asked, observations: Path) -> int:
    """The decisions on a record."""
    try:
        name, spec = _model(_documents(options.file), options.file, options.name)
        record = parsed(_text(observations), file=str(observations))
        memory = _loaded(options.memory)
        _need_later(record[0], memory, options)
        decided, memory = _decisions(spec, record, memory, options)
        if options.save_memory is not None:
            _write(options.save_memory, json.dumps(packed(memory), separators=(",", ":")) + "\n")
    except NoScalingError as error:
        raise InputError(f"{options.file}: ModelDeployment {name}: {error}") from None
    except ReadingsError as error:
        raise InputError(str(error)) from None
    if options.as_json:
        emit(json.dumps({"name": name, "decisions": [_plain(one) for one in decided]}, indent=2))
    else:
        alike = ([one] for one in decided) if options.every else (list(run) for _, run in groupby(decided, _kind))
        emit("\n\n".join(_table(first) + _more(rest) for first, *rest in alike))
    return 0


def _decisions(
    spec: Spec, record: Iterable[Recorded], memory: PlannerMemory, options: _Asked
) -> tuple[list[_Decided], PlannerMemory]:
    decided = []
    seen: int | None = None
    rules = schedules(spec)
    held: InForce | None = None
    idle_after_s = options.idle_after
    if idle_after_s is None and options.low == 0:
        idle_after_s = defaults.idle_after_s(spec) or defaults.IDLE_AFTER_S
    for one in record:
        if held is None or not held.holds(one.now):
            held = in_force(rules, one.now)
        opened = windows(held)
        now_largest = largest(one.reading.batches)
        seen = now_largest if seen is None else max(seen, now_largest or 0)
        aims = objectives(
            spec,
            low=options.low,
            latency_s=options.latency,
            idle_after_s=idle_after_s,
            start_s=options.start_time,
            largest_seen=seen,
            windows=opened,
        )
        if aims.low > aims.high:
            raise InputError(
                f"--min {aims.low} is above spec.scaling.maxReplicas, which is {aims.high}; for example --min 0"
            )
        made = plan(one.now, aims, one.reading, memory)
        memory = made.memory
        decided.append(_Decided(one.now, made, opened))
    return decided, memory


# Files.


def _documents(file: Path) -> list[dict[str, Any]]:
    try:
        return [d for d in yaml.safe_load_all(_text(file)) if isinstance(d, dict)]
    except yaml.YAMLError as error:
        raise InputError(f"{file}: not YAML: {' '.join(str(error).split())}") from None


def _named(document: Mapping[str, Any]) -> str:
    meta = document.get("metadata")
    return str(meta.get("name", "")) if isinstance(meta, dict) else ""


def _model(documents: Iterable[Mapping[str, Any]], file: Path, wanted: str | None) -> tuple[str, Spec]:
    named = {_named(document): document for document in documents if document.get("kind") == KIND}
    names = ", ".join(sorted(named))
    if not named:
        raise InputError(f"{file}: holds no {KIND}; for example apiVersion: {API_VERSION}, kind: {KIND}")
    if wanted is None and len(named) > 1:
        raise InputError(
            f"{file}: holds {len(named)} of kind {KIND} ({names}); choose one, for example --name {min(named)}"
        )
    if wanted is not None and wanted not in named:
        raise InputError(f"{file}: holds no {KIND} {wanted}; it holds {names}, for example --name {min(named)}")
    name = next(iter(named)) if wanted is None else wanted
    found = named[name]
    if found.get("apiVersion") != API_VERSION:
        raise InputError(f"{file}: {KIND} {name}: apiVersion is {found.get('apiVersion')!r}; it must be {API_VERSION}")
    spec = found.get("spec")
    if not isinstance(spec, dict):
        raise InputError(f"{file}: {KIND} {name}: spec is {spec!r}; it must be an object with a model and scaling")
    return name, _spec(name, spec, file)


def _spec(name: str, given: Mapping[str, Any], file: Path) -> Spec:
    try:
        spec = parse(name, given)
    except SpecError as error:
        raise InputError(f"{file}: {KIND} {name}: {error}") from None
    except TypeError as error:  # YAML has values that JSON lacks, dates for example
        raise InputError(f"{file}: {KIND} {name}: a value of spec is none of JSON ({error}); quote it") from None
    if wrong := problems(schedules(spec)):
        said = "; ".join(problem.describe() for problem in wrong)
        raise InputError(f"{file}: {KIND} {name}: spec.scaling.schedules: {said}")
    return spec


def _loaded(file: Path | None) -> PlannerMemory:
    """The memory in a file; a warning for what can't be read of it. A file that is no JSON at all is a mistake."""
    if file is None:
        return PlannerMemory()
    try:
        document = json.loads(_text(file))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: not JSON: {error}; it has to be what --save-memory wrote") from None
    restored = unpacked(document)
    for problem in restored.problems:
        print(f"halcyon plan: {file}: {problem}", file=sys.stderr)
    return restored.memory


def _need_later(first: Recorded, memory: PlannerMemory, options: _Asked) -> None:
    """What is remembered has to lie before what is decided on: a planner that has seen the future tells nothing."""
    times = memory.arrivals.times
    if times and times[-1] > first.now:
        raise InputError(
            f"{options.memory}: remembers until {_said(times[-1])}, and {options.observations} begins at {_said(first.now)}; "
            "give the memory of a time before, or none"
        )


def _text(file: Path) -> str:
    return given_files.text(file, most_bytes=MAX_BYTES, hint="; cut it, and pass the memory on")


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text)
    except OSError as error:
        raise InputError(f"{file}: can't be written: {error.strerror}") from None


# What is printed.


def _table(decided: _Decided) -> str:
    """The time, the sentence, and a line for each term, limit and open schedule; a star marks the term that decides."""
    made = decided.plan
    rows: list[tuple[str, str, str, str]] = [
        (term.name, str(term.replicas), "*" if term.name == made.winner else "", term.why) for term in made.parts
    ]
    rows += [(f"limit {limit.name}", str(limit.replicas), "", limit.why) for limit in made.limits]
    rows += [(f"schedule {window.name}", "", "", _bounds(window)) for window in decided.windows]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
    lines = [f"  {name:<{widths[0]}}  {count:>{widths[1]}} {star:1} {why}" for name, count, star, why in rows]
    head = f"{_said(decided.now)}  {made.describe()} ({_change(made)}; {_next(decided)})"
    return "\n".join([head, *lines])


def _kind(decided: _Decided) -> tuple[object, ...]:
    """What two decisions have in common that need not be told twice."""
    made = decided.plan
    return (made.count, made.current, made.winner, tuple(limit.name for limit in made.limits), decided.windows)


def _more(alike: Sequence[_Decided]) -> str:
    return f"\n  and {len(alike)} more like it until {_said(alike[-1].now)}" if alike else ""


def _bounds(window: OpenWindow) -> str:
    least = [] if window.low is None else [f"at least {window.low}"]
    return ", ".join(least if window.high is None else [*least, f"at most {window.high}"])


def _next(decided: _Decided) -> str:
    """When the operator would look again, whatever it hears until then."""
    wait_s = decided.plan.next_decision_at - decided.now
    return f"next look in {wait_s:.3g} s" if math.isfinite(wait_s) else "next look when there is news"


def _change(made: Plan) -> str:
    return "unchanged" if made.count == made.current else f"{made.current} before"


def _plain(decided: _Decided) -> dict[str, Any]:
    made = decided.plan
    return {
        "now": decided.now,
        "count": made.count,
        "current": made.current,
        "winner": made.winner,
        "terms": [{"name": t.name, "replicas": t.replicas, "why": t.why} for t in made.parts],
        "limits": [{"name": t.name, "replicas": t.replicas, "why": t.why} for t in made.limits],
        "schedules": [{"name": w.name, "min": w.low, "max": w.high} for w in decided.windows],
        "look_again_at": made.next_decision_at,
        "say": made.describe(),
    }


def _said(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{at:.3f}"
