"""`halcyon plan -f FILE`: previews a ModelDeployment's objects, or replays recorded observations.

The command runs the operator's own code and changes nothing. A replay makes one decision per reading, with the planner
memory of the earlier readings. For a long replay in parts, one run saves the memory and the next one loads it. Out of
scope: objects and differences (`plan.preview`), observations files (`plan.observations_file`), decisions (`scaling.planner`).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from halcyon.api.spec import Spec, defaults
from halcyon.api.spec.parse import SpecError, parse
from halcyon.api.timestamps import rfc3339
from halcyon.api.types import API_VERSION, KIND
from halcyon.scaling.lazy_text import plain
from halcyon.scaling.planner.objectives import START_S, NoScalingError, largest, objectives, schedules, windows
from halcyon.scaling.planner.outputs import Plan, PlannerMemory
from halcyon.scaling.planner.plan import plan
from halcyon.scaling.planner.reading import OpenWindow
from halcyon.scaling.planner.serialization import packed, unpacked
from halcyon.scaling.policy.limits import bounded
from halcyon.scaling.schedules import InForce, in_force, problems
from halcyon_cli import input_files, output_files
from halcyon_cli.arguments.options import (
    DURATION,
    FILE,
    REPLICAS,
    Output,
    check_unused,
    cluster_options,
    emit,
    output_options,
)
from halcyon_cli.errors import InputError
from halcyon_cli.kube.client import Cluster, Target
from halcyon_cli.plan import manifest_documents
from halcyon_cli.plan.observations_file import ObservationsError, RecordedReading, parse_observations

MAX_BYTES = 256 * 2**20
_PLANNER_OPTIONS = frozenset({"memory", "save_memory", "every", "latency", "low", "idle_after", "start_time"})
_EPILOG = """\
Without --observations, it lists the objects of the model and the changes that applying it would make in the cluster. Changes come from
dry runs on the API server, or from a local comparison if you have no permission for them. Nothing is written. The rules are those of this version of halcyon.

-o json and yaml print the objects as a List that kubectl applies. -o report prints the changes as JSON. With --observations, the three print the decisions.

\b
An observations file is a JSON list of readings in chronological order.
Omitted fields are unknown:
  [{"at": 1763700000, "replicas": 1, "arrived": 0, "waiting": 0,
    "inflight": 0, "batches": {"16": [3, 0.039]},
    "pods": [{"name": "m-a-1", "phase": "ready", "created_at": 1763690000,
    "ready_at": 1763690045}]}, ...]
All fields: docs/reference/observations.md.

\b
examples:
  halcyon plan -f model.yaml
  halcyon plan -f model.yaml --offline -o yaml > objects.yaml
  halcyon plan -f model.yaml --observations day.json
  halcyon plan -f model.yaml --observations day.json --save-memory week.json
  halcyon plan -f model.yaml --observations day2.json --memory week.json
  halcyon plan -f model.yaml --observations day.json --latency 300ms --min 0

\b
exit status:
  0  done
  1  the operator would reject the spec, for example without its source
  2  an option, a file or a field is invalid, or the cluster rejects it
"""


@dataclass(frozen=True)
class _Options:
    """Options of the command. All times are in seconds."""

    file: Path
    observations: Path | None
    name: str | None
    memory: Path | None
    save_memory: Path | None
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
    """Schedules that are open at the time of the decision."""


@click.command("plan", epilog=_EPILOG)
@click.option(
    "-f",
    "--file",
    type=FILE,
    required=True,
    metavar="FILE.yaml",
    help="YAML file with the ModelDeployment; other kinds are skipped.",
)
@click.option("--offline", is_flag=True, help="Use no cluster: list the objects of a new model.")
@click.option("--observations", type=FILE, metavar="FILE.json", help="Replay these observations through the planner (format below). Uses no cluster.")  # fmt: skip
@click.option("--name", metavar="NAME", help="ModelDeployment to use, if the file contains several.")
@click.option("--memory", type=FILE, metavar="FILE.json", help="Planner memory to start with, saved by an earlier run.")
@click.option(
    "--save-memory", type=FILE, metavar="FILE.json", help="File for the planner memory after the last reading."
)
@click.option("--every", is_flag=True, help="Print every decision. Default: repeated decisions are only counted.")  # fmt: skip
@click.option(
    "--latency", type=DURATION, metavar="TIME", help="Replace spec.scaling.targets.latency, for example 300ms."
)
@click.option("--min", "low", type=REPLICAS, metavar="N", help="Replace spec.scaling.minReplicas; may be 0.")
@click.option(
    "--idle-after",
    type=DURATION,
    metavar="TIME",
    help="Replace spec.scaling.idleTimeout: time without requests before scaling to zero, if the minimum is 0.",
)
@click.option("--start-time", type=DURATION, default=START_S, metavar="TIME", help=f"Startup time of a pod until the record contains one. Default: {START_S:.0f}s.")  # fmt: skip
@cluster_options
@output_options("table", "name", "json", "yaml", "report")
def main(offline: bool, target: Target, output: Output, **arguments: Any) -> int:
    """Preview the objects of a ModelDeployment, or replay recorded observations through the planner.

    A replay uses the latency, idleTimeout and schedules of the resource; its policy, actuator and mode have no effect.
    """
    options = _Options(**arguments)
    if options.observations is None:
        return _preview(options, target, output, offline=offline)
    return _replay(options, options.observations, output)


def _preview(options: _Options, target: Target, output: Output, *, offline: bool) -> int:
    """Show the objects of the model and the changes that an apply would make."""
    check_unused(_PLANNER_OPTIONS, "is for the planner, which needs --observations; give both, or neither")
    from halcyon_cli.plan.preview import show  # noqa: PLC0415  # slow to import

    documents = _documents(options.file)
    name, _ = _model(documents, options.file, options.name)
    document = next(d for d in documents if d.get("kind") == KIND and _document_name(d) == name)
    namespace = document["metadata"].get("namespace")
    if namespace is not None and not isinstance(namespace, str):
        raise InputError(
            f"{options.file}: {KIND} {name}: metadata.namespace is {namespace!r}; it must be a string, for example team-a"
        )
    if namespace is not None and target.namespace not in {None, namespace}:
        raise InputError(
            f"{options.file}: {KIND} {name} has namespace {namespace}, and -n is {target.namespace}; omit -n"
        )
    cluster = None if offline else Cluster(replace(target, namespace=target.namespace or namespace))
    return show(document, documents, cluster, output)


def _replay(options: _Options, observations: Path, output: Output) -> int:
    """Print the planner's decisions for the recorded observations."""
    if output.form == "name":
        raise InputError("-o name is for the objects of a model, and a replay has none; for example -o json")
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
    if output.is_data:
        output.data({"name": name, "decisions": [_as_dict(timed) for timed in decisions]})
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
        replan = partial(plan, recorded.now, reading=recorded.reading, memory=memory)
        decision = bounded(replan(planner_objectives), planner_objectives, replan)
        memory = decision.memory
        decisions.append(_TimedDecision(recorded.now, decision, open_windows))
    return decisions, memory


# Files.


def _documents(file: Path) -> list[dict[str, Any]]:
    return manifest_documents.objects(_text(file), input_files.name(file))


def _document_name(document: Mapping[str, Any]) -> str:
    meta = document.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    return "" if name is None else str(name)


def _model(documents: Iterable[Mapping[str, Any]], file: Path, requested_name: str | None) -> tuple[str, Spec]:
    models = [document for document in documents if document.get("kind") == KIND]
    by_name = {_document_name(document): document for document in models}
    names = ", ".join(sorted(by_name))
    if not by_name:
        raise InputError(f"{file}: no {KIND}; it needs apiVersion: {API_VERSION} and kind: {KIND}")
    if "" in by_name:
        raise InputError(f"{file}: a {KIND} has no metadata.name; for example metadata: {{name: resnet50}}")
    if requested_name is None and len(by_name) > 1:
        raise InputError(
            f"{file}: {len(by_name)} objects of kind {KIND} ({names}); choose one, for example --name {min(by_name)}"
        )
    if requested_name is not None and requested_name not in by_name:
        raise InputError(f"{file}: no {KIND} {requested_name}; it contains {names}, for example --name {min(by_name)}")
    name = next(iter(by_name)) if requested_name is None else requested_name
    if (count := sum(_document_name(document) == name for document in models)) > 1:
        raise InputError(f"{file}: {count} objects of kind {KIND} have the name {name}; give a file with one of them")
    document = by_name[name]
    if document.get("apiVersion") != API_VERSION:
        raise InputError(
            f"{file}: {KIND} {name}: apiVersion is {document.get('apiVersion')!r}; it must be {API_VERSION}"
        )
    spec = document.get("spec")
    if not isinstance(spec, dict):
        raise InputError(f"{file}: {KIND} {name}: spec is {spec!r}; it must be an object with model and scaling")
    return name, _spec(name, spec, file)


def _spec(name: str, spec_fields: Mapping[str, Any], file: Path) -> Spec:
    try:
        spec = parse(name, spec_fields)
    except SpecError as error:
        text = str(error) if len(error.sentences) == 1 else "\n  ".join(("", *error.sentences))
        raise InputError(f"{file}: {KIND} {name}: {text}") from None
    except TypeError as error:  # YAML has types that JSON lacks, for example dates
        raise InputError(f"{file}: {KIND} {name}: a value in spec is not valid JSON ({error}); quote it") from None
    if invalid := problems(schedules(spec)):
        reasons = "; ".join(problem.describe() for problem in invalid)
        raise InputError(f"{file}: {KIND} {name}: spec.scaling.schedules: {reasons}")
    return spec


def _load_memory(file: Path | None) -> PlannerMemory:
    """Load the planner memory, and print a warning for each unreadable part. A file that isn't JSON is an error."""
    if file is None:
        return PlannerMemory()
    try:
        document = json.loads(_text(file))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: invalid JSON: {error}; it must be a file written by --save-memory") from None
    restored = unpacked(document)
    for problem in restored.problems:
        print(f"halcyon plan: {file}: {problem}", file=sys.stderr)
    return restored.memory


def _check_memory_is_older(first: RecordedReading, memory: PlannerMemory, options: _Options) -> None:
    """Raise an error if the memory is newer than the observations.

    With such a memory, a replay would use data from the future.
    """
    times = memory.arrivals.times
    if times and times[-1] > first.now:
        raise InputError(
            f"{options.memory}: the memory ends at {_timestamp(times[-1])}, and {options.observations} starts at {_timestamp(first.now)}; "
            "use an older memory, or none"
        )


def _text(file: Path) -> str:
    return input_files.text(
        file, max_bytes=MAX_BYTES, hint="; split it, and carry the memory over with --save-memory and --memory"
    )


def _write(file: Path, text: str) -> None:
    try:
        output_files.write(file, text.encode())
    except OSError as error:
        raise InputError(f"{file}: can't write it: {error.strerror}") from None


# Output.


def _table(timed: _TimedDecision) -> str:
    """Return a decision as text: time, summary, and one line per part, limit and open schedule.

    A star marks the deciding part.
    """
    decision = timed.plan
    rows: list[tuple[str, str, str, str]] = [
        (part.name, str(part.replicas), "*" if part.name == decision.winner else "", part.why)
        for part in decision.parts
    ]
    rows += [(f"limit {limit.name}", str(limit.replicas), "", limit.why) for limit in decision.limits]
    rows += [(f"schedule {window.name}", "", "", _bounds(window)) for window in timed.windows]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
    lines = [f"  {name:<{widths[0]}}  {count:>{widths[1]}} {star:1} {why}" for name, count, star, why in rows]
    head = f"{_timestamp(timed.now)}  {decision.describe()} ({_previous_count(decision)}; {_next_evaluation(timed)})"
    return "\n".join([head, *lines])


def _similarity_key(timed: _TimedDecision) -> tuple[object, ...]:
    """Return the fields that are equal in repeated decisions. In the output, repeated decisions are only counted."""
    decision = timed.plan
    return (
        decision.count,
        decision.current,
        decision.winner,
        tuple(limit.name for limit in decision.limits),
        timed.windows,
    )


def _repetitions(repeated: Sequence[_TimedDecision]) -> str:
    return f"\n  and {len(repeated)} more until {_timestamp(repeated[-1].now)}" if repeated else ""


def _bounds(window: OpenWindow) -> str:
    bounds = [] if window.low is None else [f"at least {window.low}"]
    return ", ".join(bounds if window.high is None else [*bounds, f"at most {window.high}"])


def _next_evaluation(timed: _TimedDecision) -> str:
    """Return the time of the operator's next decision if no report arrives earlier."""
    wait_s = timed.plan.next_decision_at - timed.now
    return f"next evaluation {f'in {plain(wait_s, 3)} s' if math.isfinite(wait_s) else 'on the next report'}"


def _previous_count(decision: Plan) -> str:
    return "unchanged" if decision.count == decision.current else f"{decision.current} before"


def _as_dict(timed: _TimedDecision) -> dict[str, Any]:
    decision = timed.plan
    return {
        "now": timed.now,
        "desired": decision.count,
        "current": decision.current,
        "decidedBy": decision.winner,
        "parts": [{"name": t.name, "replicas": t.replicas, "why": t.why} for t in decision.parts],
        "limits": [{"name": t.name, "replicas": t.replicas, "why": t.why} for t in decision.limits],
        "schedules": [{"name": w.name, "min": w.low, "max": w.high} for w in timed.windows],
        "nextEvaluationAt": decision.next_decision_at,
        "summary": decision.describe(),
    }


def _timestamp(at: float) -> str:
    try:
        return rfc3339(at)
    except (OverflowError, ValueError, OSError):
        return f"{at:.3f}"
