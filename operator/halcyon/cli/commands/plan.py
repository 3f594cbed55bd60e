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
from halcyon.cli import input_files
from halcyon.cli.arguments.options import DURATION, FILE, REPLICAS, Output, cluster_options, emit, output_options
from halcyon.cli.errors import InputError
from halcyon.cli.kube.client import Cluster, Target
from halcyon.cli.plan.observations_file import ObservationsError, RecordedReading, parse_observations
from halcyon.scaling.planner.objectives import START_S, NoScalingError, largest, objectives, schedules, windows
from halcyon.scaling.planner.outputs import Plan, PlannerMemory
from halcyon.scaling.planner.plan import plan
from halcyon.scaling.planner.reading import OpenWindow
from halcyon.scaling.planner.serialization import packed, unpacked
from halcyon.scaling.schedules import InForce, in_force, problems

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
class _Options:
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
class _TimedDecision:
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
@click.option("--min", "low", type=REPLICAS, metavar="N", help="What if minReplicas were this; it may be 0.")
@click.option(
    "--idle-after",
    type=DURATION,
    metavar="TIME",
    help="What if idleAfter were this: the time without a request until no replica is left, where the least is 0.",
)
@click.option("--start-time", type=DURATION, default=START_S, metavar="TIME", help=f"What if a pod took this long to start, until one was seen; {START_S:.0f}s where it is left out.")  # fmt: skip
@cluster_options
@output_options("table", "json", "yaml")
def main(offline: bool, target: Target, output: Output, **given: Any) -> int:
    """What a ModelDeployment would become, or what the planner decides on recorded observations of it, and why.

    Of observations: latency, idleAfter and schedules are the resource's own; its policy, actuator and mode make no difference.
    """
    options = _Options(**given)
    if options.observations is None:
        return _preview(options, target, output, offline=offline)
    if output.form == "yaml":
        raise InputError("decisions are printed as a table or as JSON; leave -o yaml out")
    return _replay(replace(options, as_json=options.as_json or output.is_data), options.observations)


def _preview(options: _Options, target: Target, output: Output, *, offline: bool) -> int:
    """The children, and what would change."""
    for option, value in (("--memory", options.memory), ("--save-memory", options.save_memory)):
        if value is not None:
            raise InputError(f"{option} is of the planner, which decides on --observations; give both, or neither")
    from halcyon.cli.plan.preview import show  # noqa: PLC0415  # the builders take a while to load

    documents = _documents(options.file)
    name, _ = _model(documents, options.file, options.name)
    document = next(d for d in documents if d.get("kind") == KIND and _document_name(d) == name)
    own = (document.get("metadata") or {}).get("namespace")
    if own is not None and target.namespace not in {None, own}:
        raise InputError(
            f"{options.file}: {KIND} {name} is of namespace {own}, and -n says {target.namespace}; leave -n out"
        )
    cluster = None if offline else Cluster(replace(target, namespace=target.namespace or own))
    return show(document, documents, cluster, replace(output, form="json") if options.as_json else output)


def _replay(options: _Options, observations: Path) -> int:
    """The decisions on a record."""
    try:
        name, spec = _model(_documents(options.file), options.file, options.name)
        record = parse_observations(_text(observations), file=str(observations))
        memory = _load_memory(options.memory)
        _check_memory_is_older(record[0], memory, options)
        decisions, memory = _decisions(spec, record, memory, options)
        if options.save_memory is not None:
            _write(options.save_memory, json.dumps(packed(memory), separators=(",", ":")) + "\n")
    except NoScalingError as error:
        raise InputError(f"{options.file}: ModelDeployment {name}: {error}") from None
    except ObservationsError as error:
        raise InputError(str(error)) from None
    if options.as_json:
        emit(json.dumps({"name": name, "decisions": [_as_dict(timed) for timed in decisions]}, indent=2))
    else:
        groups = (
            ([timed] for timed in decisions)
            if options.every
            else (list(run) for _, run in groupby(decisions, _similarity_key))
        )
        emit("\n\n".join(_table(first) + _repetitions(rest) for first, *rest in groups))
    return 0


def _decisions(
    spec: Spec, record: Iterable[RecordedReading], memory: PlannerMemory, options: _Options
) -> tuple[list[_TimedDecision], PlannerMemory]:
    decisions = []
    largest_batch: int | None = None
    rules = schedules(spec)
    current_schedules: InForce | None = None
    idle_after_s = options.idle_after
    if idle_after_s is None and options.low == 0:
        idle_after_s = defaults.idle_after_s(spec) or defaults.IDLE_AFTER_S
    for recorded in record:
        if current_schedules is None or not current_schedules.holds(recorded.now):
            current_schedules = in_force(rules, recorded.now)
        open_windows = windows(current_schedules)
        reading_largest = largest(recorded.reading.batches)
        largest_batch = reading_largest if largest_batch is None else max(largest_batch, reading_largest or 0)
        planner_objectives = objectives(
            spec,
            low=options.low,
            latency_s=options.latency,
            idle_after_s=idle_after_s,
            start_s=options.start_time,
            largest_seen=largest_batch,
            windows=open_windows,
        )
        if planner_objectives.low > planner_objectives.high:
            raise InputError(
                f"--min {planner_objectives.low} is above spec.scaling.maxReplicas, which is {planner_objectives.high}; for example --min 0"
            )
        decision = plan(recorded.now, planner_objectives, recorded.reading, memory)
        memory = decision.memory
        decisions.append(_TimedDecision(recorded.now, decision, open_windows))
    return decisions, memory


# Files.


def _documents(file: Path) -> list[dict[str, Any]]:
    try:
        return [d for d in yaml.safe_load_all(_text(file)) if isinstance(d, dict)]
    except yaml.YAMLError as error:
        raise InputError(f"{file}: not YAML: {' '.join(str(error).split())}") from None


def _document_name(document: Mapping[str, Any]) -> str:
    meta = document.get("metadata")
    return str(meta.get("name", "")) if isinstance(meta, dict) else ""


def _model(documents: Iterable[Mapping[str, Any]], file: Path, requested_name: str | None) -> tuple[str, Spec]:
    by_name = {_document_name(document): document for document in documents if document.get("kind") == KIND}
    names = ", ".join(sorted(by_name))
    if not by_name:
        raise InputError(f"{file}: holds no {KIND}; for example apiVersion: {API_VERSION}, kind: {KIND}")
    if requested_name is None and len(by_name) > 1:
        raise InputError(
            f"{file}: holds {len(by_name)} of kind {KIND} ({names}); choose one, for example --name {min(by_name)}"
        )
    if requested_name is not None and requested_name not in by_name:
        raise InputError(
            f"{file}: holds no {KIND} {requested_name}; it holds {names}, for example --name {min(by_name)}"
        )
    name = next(iter(by_name)) if requested_name is None else requested_name
    document = by_name[name]
    if document.get("apiVersion") != API_VERSION:
        raise InputError(
            f"{file}: {KIND} {name}: apiVersion is {document.get('apiVersion')!r}; it must be {API_VERSION}"
        )
    spec = document.get("spec")
    if not isinstance(spec, dict):
        raise InputError(f"{file}: {KIND} {name}: spec is {spec!r}; it must be an object with a model and scaling")
    return name, _spec(name, spec, file)


def _spec(name: str, spec_fields: Mapping[str, Any], file: Path) -> Spec:
    try:
        spec = parse(name, spec_fields)
    except SpecError as error:
        raise InputError(f"{file}: {KIND} {name}: {error}") from None
    except TypeError as error:  # YAML has values that JSON lacks, dates for example
        raise InputError(f"{file}: {KIND} {name}: a value of spec is none of JSON ({error}); quote it") from None
    if invalid := problems(schedules(spec)):
        reasons = "; ".join(problem.say() for problem in invalid)
        raise InputError(f"{file}: {KIND} {name}: spec.scaling.schedules: {reasons}")
    return spec


def _load_memory(file: Path | None) -> PlannerMemory:
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


def _check_memory_is_older(first: RecordedReading, memory: PlannerMemory, options: _Options) -> None:
    """What is remembered has to lie before what is decided on: a planner that has seen the future tells nothing."""
    times = memory.arrivals.times
    if times and times[-1] > first.now:
        raise InputError(
            f"{options.memory}: remembers until {_timestamp(times[-1])}, and {options.observations} begins at {_timestamp(first.now)}; "
            "give the memory of a time before, or none"
        )


def _text(file: Path) -> str:
    return input_files.text(file, max_bytes=MAX_BYTES, hint="; cut it, and pass the memory on")


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text)
    except OSError as error:
        raise InputError(f"{file}: can't be written: {error.strerror}") from None


# What is printed.


def _table(timed: _TimedDecision) -> str:
    """The time, the sentence, and a line for each term, limit and open schedule; a star marks the term that decides."""
    decision = timed.plan
    rows: list[tuple[str, str, str, str]] = [
        (term.name, str(term.replicas), "*" if term.name == decision.winner else "", term.why)
        for term in decision.terms
    ]
    rows += [(f"limit {limit.name}", str(limit.replicas), "", limit.why) for limit in decision.limits]
    rows += [(f"schedule {window.name}", "", "", _bounds(window)) for window in timed.windows]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
    lines = [f"  {name:<{widths[0]}}  {count:>{widths[1]}} {star:1} {why}" for name, count, star, why in rows]
    head = f"{_timestamp(timed.now)}  {decision.say()} ({_previous_count(decision)}; {_next_evaluation(timed)})"
    return "\n".join([head, *lines])


def _similarity_key(timed: _TimedDecision) -> tuple[object, ...]:
    """What two decisions have in common that need not be told twice."""
    decision = timed.plan
    return (
        decision.count,
        decision.current,
        decision.winner,
        tuple(limit.name for limit in decision.limits),
        timed.windows,
    )


def _repetitions(repeated: Sequence[_TimedDecision]) -> str:
    return f"\n  and {len(repeated)} more like it until {_timestamp(repeated[-1].now)}" if repeated else ""


def _bounds(window: OpenWindow) -> str:
    bounds = [] if window.low is None else [f"at least {window.low}"]
    return ", ".join(bounds if window.high is None else [*bounds, f"at most {window.high}"])


def _next_evaluation(timed: _TimedDecision) -> str:
    """When the operator would look again, whatever it hears until then."""
    wait_s = timed.plan.look_again_at - timed.now
    return f"next look in {wait_s:.3g} s" if math.isfinite(wait_s) else "next look when there is news"


def _previous_count(decision: Plan) -> str:
    return "unchanged" if decision.count == decision.current else f"{decision.current} before"


def _as_dict(timed: _TimedDecision) -> dict[str, Any]:
    decision = timed.plan
    return {
        "now": timed.now,
        "count": decision.count,
        "current": decision.current,
        "winner": decision.winner,
        "terms": [{"name": t.name, "replicas": t.replicas, "why": t.why} for t in decision.terms],
        "limits": [{"name": t.name, "replicas": t.replicas, "why": t.why} for t in decision.limits],
        "schedules": [{"name": w.name, "min": w.low, "max": w.high} for w in timed.windows],
        "look_again_at": decision.look_again_at,
        "say": decision.say(),
    }


def _timestamp(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{at:.3f}"
