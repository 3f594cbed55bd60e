"""`halcyon plan`: what the planner decides on recorded observations, and why. The same code as in the operator.

Nothing of a cluster is asked or changed. Each reading is decided on with the memory of those before, so a record can be gone
through in pieces: what one run saves, the next one loads. Not here: the form of a record (`readings`), a decision (`planner`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from halcyon.api.parse import SpecError, parse
from halcyon.api.spec import Spec
from halcyon.api.types import API_VERSION, KIND, duration_s
from halcyon.cli.readings import ReadingsError, Recorded, parsed
from halcyon.scaling.planner.objectives import START_S, NoScalingError, largest, objectives
from halcyon.scaling.planner.planner import plan
from halcyon.scaling.planner.result import Plan, PlannerMemory
from halcyon.scaling.planner.stored import packed, unpacked

MOST_BYTES = 256 * 2**20
_EPILOG = """\
A record is a JSON list of readings in the order of their times; a field that is left out is not known:
  [{"at": 1763700000, "replicas": 1, "arrived": 0, "waiting": 0, "inflight": 0, "batches": {"16": [3, 0.039]},
    "pods": [{"name": "m-a-1", "phase": "ready", "created_at": 1763690000, "ready_at": 1763690045}]}, ...]
All fields: docs/reference/observations.md.

examples:
  halcyon plan -f manifests/examples/digits.yaml --observations manifests/examples/observations.json
  halcyon plan -f model.yaml --observations monday.json --latency 300ms --save-memory week.json
  halcyon plan -f model.yaml --observations tuesday.json --latency 300ms --memory week.json --json

exit status: 0, or 2 where an option or a file is wrong.
"""


class _InputError(ValueError):
    """A file can't be used; the text says which, where and why."""


@dataclass(frozen=True)
class _Decided:
    now: float
    plan: Plan


def main(argv: Sequence[str]) -> int:
    """Run with the arguments after `plan`; gives the exit status: 0, or 2 where something in them is wrong."""
    options = _parser().parse_args(argv)
    try:
        name, spec = _model(options.file, options.name)
        record = parsed(_text(options.observations), file=str(options.observations))
        memory = _loaded(options.memory)
        _need_later(record[0], memory, options)
        decided, memory = _decisions(spec, record, memory, options)
        if options.save_memory is not None:
            _write(options.save_memory, json.dumps(packed(memory), separators=(",", ":")) + "\n")
    except NoScalingError as error:
        return _wrong(f"{options.file}: ModelDeployment {name}: {error}")
    except (_InputError, ReadingsError) as error:
        return _wrong(str(error))
    if options.json:
        _print(json.dumps({"name": name, "decisions": [_plain(one) for one in decided]}, indent=2))
    else:
        _print("\n\n".join(_table(one) for one in decided))
    return 0


def _decisions(
    spec: Spec, record: Iterable[Recorded], memory: PlannerMemory, options: argparse.Namespace
) -> tuple[list[_Decided], PlannerMemory]:
    decided = []
    seen: int | None = None
    for one in record:
        now_largest = largest(one.reading.batches)
        seen = now_largest if seen is None else max(seen, now_largest or 0)
        aims = objectives(
            spec,
            low=options.low,
            latency_s=options.latency,
            idle_after_s=options.idle_after,
            start_s=options.start_time,
            largest_seen=seen,
        )
        if aims.low > aims.high:
            raise _InputError(
                f"--min {aims.low} is above spec.scaling.maxReplicas, which is {aims.high}; for example --min 0"
            )
        made = plan(one.now, aims, one.reading, memory)
        memory = made.memory
        decided.append(_Decided(one.now, made))
    return decided, memory


# Files.


def _model(file: Path, wanted: str | None) -> tuple[str, Spec]:
    try:
        documents = [d for d in yaml.safe_load_all(_text(file)) if isinstance(d, dict) and d.get("kind") == KIND]
    except yaml.YAMLError as error:
        raise _InputError(f"{file}: not YAML: {' '.join(str(error).split())}") from None
    named: dict[str, Mapping[str, Any]] = {}
    for document in documents:
        meta = document.get("metadata")
        named[str(meta.get("name", "")) if isinstance(meta, dict) else ""] = document
    names = ", ".join(sorted(named))
    if not named:
        raise _InputError(f"{file}: holds no {KIND}; for example apiVersion: {API_VERSION}, kind: {KIND}")
    if wanted is None and len(named) > 1:
        raise _InputError(
            f"{file}: holds {len(named)} of kind {KIND} ({names}); choose one, for example --name {min(named)}"
        )
    if wanted is not None and wanted not in named:
        raise _InputError(f"{file}: holds no {KIND} {wanted}; it holds {names}, for example --name {min(named)}")
    name = next(iter(named)) if wanted is None else wanted
    found = named[name]
    if found.get("apiVersion") != API_VERSION:
        raise _InputError(f"{file}: {KIND} {name}: apiVersion is {found.get('apiVersion')!r}; it must be {API_VERSION}")
    spec = found.get("spec")
    if not isinstance(spec, dict):
        raise _InputError(f"{file}: {KIND} {name}: spec is {spec!r}; it must be an object with a model and scaling")
    try:
        return name, parse(name, spec)
    except SpecError as error:
        raise _InputError(f"{file}: {KIND} {name}: {error}") from None
    except TypeError as error:  # YAML has values that JSON lacks, dates for example
        raise _InputError(f"{file}: {KIND} {name}: a value of spec is none of JSON ({error}); quote it") from None


def _loaded(file: Path | None) -> PlannerMemory:
    """The memory in a file; a warning for what can't be read of it. A file that is no JSON at all is a mistake."""
    if file is None:
        return PlannerMemory()
    try:
        document = json.loads(_text(file))
    except (ValueError, RecursionError) as error:
        raise _InputError(f"{file}: not JSON: {error}; it has to be what --save-memory wrote") from None
    restored = unpacked(document)
    for problem in restored.problems:
        print(f"halcyon plan: {file}: {problem}", file=sys.stderr)
    return restored.memory


def _need_later(first: Recorded, memory: PlannerMemory, options: argparse.Namespace) -> None:
    """What is remembered has to lie before what is decided on: a planner that has seen the future tells nothing."""
    times = memory.arrivals.times
    if times and times[-1] > first.now:
        raise _InputError(
            f"{options.memory}: remembers until {_said(times[-1])}, and {options.observations} begins at {_said(first.now)}; "
            "give the memory of a time before, or none"
        )


def _text(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise _InputError(f"{file}: is larger than {MOST_BYTES // 2**20} MiB; cut it, and pass the memory on")
        return content.decode()
    except OSError as error:
        raise _InputError(f"{file}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise _InputError(f"{file}: not UTF-8: {error.reason} at byte {error.start}") from None


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text)
    except OSError as error:
        raise _InputError(f"{file}: can't be written: {error.strerror}") from None


# What is printed.


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # The reader has seen enough (`| head`). What is still buffered must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _table(decided: _Decided) -> str:
    """The time, the sentence, and a line for each term and limit; a star marks the one that decides."""
    made = decided.plan
    rows: list[tuple[str, str, str, str]] = [
        (term.name, str(term.replicas), "*" if term.name == made.winner else "", term.why) for term in made.terms
    ]
    rows += [(f"limit {limit.name}", str(limit.replicas), "", limit.why) for limit in made.limits]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
    lines = [f"  {name:<{widths[0]}}  {count:>{widths[1]}} {star:1} {why}" for name, count, star, why in rows]
    head = f"{_said(decided.now)}  {made.say()} ({_change(made)})"
    return "\n".join([head, *lines])


def _change(made: Plan) -> str:
    return "unchanged" if made.count == made.current else f"{made.current} before"


def _plain(decided: _Decided) -> dict[str, Any]:
    made = decided.plan
    return {
        "now": decided.now,
        "count": made.count,
        "current": made.current,
        "winner": made.winner,
        "terms": [{"name": t.name, "replicas": t.replicas, "why": t.why} for t in made.terms],
        "limits": [{"name": t.name, "replicas": t.replicas, "why": t.why} for t in made.limits],
        "look_again_at": made.look_again_at,
        "say": made.say(),
    }


def _said(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{at:.3f}"


def _wrong(text: str) -> int:
    print(f"halcyon plan: {text}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="halcyon plan",
        description="What Halcyon's planner decides on recorded observations of a ModelDeployment, and why.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "-f",
        "--file",
        type=Path,
        required=True,
        metavar="FILE.yaml",
        help="YAML with the ModelDeployment; others in it are passed over",
    )
    add("--observations", type=Path, required=True, metavar="FILE.json", help="the record, as below")
    add("--name", help="which ModelDeployment, where the file holds several")
    add("--memory", type=Path, metavar="FILE.json", help="begin with the memory that an earlier run saved")
    add("--save-memory", type=Path, metavar="FILE.json", help="write the memory after the last reading")
    add("--json", action="store_true", help="print JSON")
    what_if = parser.add_argument_group("what the resource has no field for yet")
    what_if.add_argument("--latency", type=_duration, metavar="TIME", help="latency objective, for example 300ms")
    what_if.add_argument("--min", dest="low", type=_count, metavar="N", help="instead of minReplicas; it may be 0")
    what_if.add_argument(
        "--idle-after",
        type=_duration,
        metavar="TIME",
        help="with --min 0: no replica after this long without a request",
    )
    what_if.add_argument(
        "--start-time",
        type=_duration,
        default=START_S,
        metavar="TIME",
        help=f"start of a pod until one was seen; {START_S:.0f}s",
    )
    return parser


def _duration(text: str) -> float:
    try:
        seconds = duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no time at all; write for example 300ms")
    return seconds


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 1000):
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 0 to 1000; write for example 0")
    return int(text)
