"""Numbers that are shown under load, compared with values computed apart.

Row 7.1: at 10 %, 70 % and 300 % of the capacity, on 1 and 4 pods. Its parts are in two places: the code of agent and operator
in this process, with and without balancers (`shown.in_process`), and programs: an operator, an agent, a Prometheus and the
command line (`shown.programs`). Each part takes 1 to 5 minutes. The row is recorded after each. The parts are in
docs/quality/data/numbers, in git, so that a later run goes on where the last one has ended, on another machine too.

Row 7.2: the replicas that both policies ask for through a step, with and without the gauge.

python -m benchmarks.right.numbers [ROW...] [--places code|shown] [--pods N...] [--shares SHARE...] [--again]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby, product
from pathlib import Path
from typing import Any

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import Work
from benchmarks.errors import BenchError
from benchmarks.profile import Phase, Profile
from benchmarks.quality.rows import DATA, Row, commit, record, replace
from benchmarks.right.shown import programs
from benchmarks.right.shown.in_process import LONG_S, MEASURE_S, SETTLE_S, compared, run
from benchmarks.right.shown.load import LAW, MODEL, PEAK_RPS, PER_ROW_MS, SHARES, T0_MS, steady
from benchmarks.right.shown.scene import STAND_INS
from benchmarks.right.shown.truth import Pair

Part = tuple[str, int, bool, float]
"""Part of row 7.1: (place, pods, whether there are balancers, share of the capacity)."""
CODE: tuple[Part, ...] = tuple(("code", *rest) for rest in product((1, 4), (True, False), SHARES))
SHOWN: tuple[Part, ...] = tuple(("shown", *rest) for rest in product((1, 4), (True,), SHARES))
PARTS = (*CODE, *SHOWN)
KEPT = DATA / "numbers"
"""Folder with a file per part that was measured."""


def file_of(part: Part, folder: Path) -> Path:
    """Return the file of a part, such as `code-4-direct-300.json`."""
    place, pods, balanced, share = part
    return folder / f"{place}-{pods}-{'balancers' if balanced else 'direct'}-{share * 100:.0f}.json"


async def numbers(parts: Iterable[Part]) -> None:
    """Measure these parts of row 7.1, and record the row after each."""
    for pods, group in groupby(parts, lambda part: part[1]):
        with tritons.running([Work(MODEL, T0_MS, PER_ROW_MS)] * pods) as servers:
            for part in group:
                _, _, balanced, share = part
                measure_s = MEASURE_S if share > 1 else LONG_S
                profile = steady(pods, share, SETTLE_S + measure_s)
                with skipping(part):
                    measured_run = await run(servers, profile, balanced=balanced)
                    add(compared(measured_run, pods=pods, balanced=balanced), part)
                # Without a balancer, the requests of an overload still wait in Triton.
                await asyncio.sleep(20 if not balanced and share > 1 else 3)


@contextmanager
def skipping(part: Part) -> Iterator[None]:
    """Print why a part could not be measured, and go on with the next one."""
    try:
        yield
    except BenchError as error:
        print(f"not measured: {file_of(part, KEPT).stem}: {error}", flush=True)


def add(pairs: Iterable[Pair], part: Part) -> None:
    """Keep the numbers of a part in place of those of an earlier run, and record row 7.1."""
    place, pods, balanced, share = part
    entries = [{"number": pair.name, "shown": pair.shown, "true": pair.true, "right": pair.is_right} for pair in pairs]
    keep(entries, part, KEPT)
    for entry in entries:
        if not entry["right"]:
            print(f"wrong: {entry}", flush=True)
    print(f"{place}, {pods} pods, balancers {balanced}, {share:.0%}: {len(entries)} numbers", flush=True)
    record("right", [_row(measured_parts(KEPT))])


def keep(entries: Iterable[Mapping[str, Any]], part: Part, folder: Path) -> None:
    """Write the numbers of a part to its file, one a line, with the commit that they were measured on."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    replace(file_of(part, folder), f'{{"commit": "{commit()}", "numbers": [\n{lines}\n]}}\n')


def measured_parts(folder: Path) -> dict[Part, list[dict[str, Any]]]:
    """Return the numbers of each part that was measured, with the commit of each."""
    by_part = {}
    for part in PARTS:
        if (file := file_of(part, folder)).exists():
            content = json.loads(file.read_text())
            by_part[part] = [entry | {"commit": content["commit"]} for entry in content["numbers"]]
    return by_part


def _row(measured: Mapping[Part, Sequence[Mapping[str, Any]]]) -> Row:
    entries = [(part, entry) for part, part_entries in measured.items() for entry in part_entries]
    wrong = [_named(part, entry) for part, entry in entries if not entry["right"]]
    commits = sorted({entry["commit"] for _, entry in entries})
    missing = [part for part in PARTS if part not in measured]
    why = [f"wrong: {entry}" for entry in wrong[:8]]
    if missing:
        why.append(f"{len(missing)} of {len(PARTS)} parts are not measured yet")
    return Row(
        id="7.1",
        what="Numbers under load, each compared with a value computed apart",
        value={"wrong": len(wrong), "compared": len(entries), "parts": len(measured)},
        target="0 wrong: each within 5 % (quantiles: within their bucket)",
        limits=[("wrong", 0, "=="), ("compared", 100, ">="), ("parts", len(PARTS), ">=")],
        command="python -m benchmarks.right.numbers 7.1",
        stand_ins="in the parts `code`, the agent's and the operator's code runs in one process; " + STAND_INS,
        why="; ".join(why),
        n=len(entries),
        law=LAW,
        load=f"Poisson, {', '.join(f'{share:.0%}' for share in SHARES)} of the capacity of 1 and 4 pods; "
        f"the parts were measured on {', '.join(commits)}",
        raw=[entry for _, entry in entries],
    )


def _named(part: Part, entry: Mapping[str, Any]) -> str:
    place, pods, balanced, share = part
    shown = "unknown" if entry["shown"] is None else f"{entry['shown']:.4g}"
    true = " or ".join(sorted({f"{value:.4g}" for value in entry["true"]}))
    balancers = "" if balanced else " without balancers"
    return f"{entry['number']} ({place}, {pods} pods{balancers}, {share:.0%}): {shown}, and {true} apart"


async def policies() -> Row:
    """Measure row 7.2: the replicas asked for through a step from 30 % to 250 % of one pod."""
    worst: dict[str, int] = {}
    raw = []
    with tritons.running([Work(MODEL, T0_MS, PER_ROW_MS)]) as servers:
        phases = (Phase(0.0, 0.3 * PEAK_RPS), Phase(40.0, 2.5 * PEAK_RPS), Phase(80.0, 0.3 * PEAK_RPS))
        measured_run = await run(servers, Profile(phases, 120.0), balanced=True)
    for policy in ("rules", "planner"):
        counts = {
            gauge: [(sample.at, getattr(sample, policy)[1] or 0) for sample in samples]
            for gauge, samples in measured_run.samples.items()
        }
        raw.append({"policy": policy, "with": counts[True], "without": counts[False]})
        worst[policy] = max(
            min(abs(count - other) for when, other in counts[True] if abs(when - at) <= 10.0)
            for at, count in counts[False]
        )
    return Row(
        id="7.2",
        what="Replicas asked for by Rules and Planner through a step, on a Triton page without the gauge",
        value=worst,
        target="the same as with the gauge, +-1, within 10 s",
        limits=[("rules", 1, "<="), ("planner", 1, "<=")],
        command="python -m benchmarks.right.numbers 7.2",
        stand_ins="the replicas asked for are not applied: one pod throughout; sleeping stands in for a GPU",
        n=len(measured_run.samples[True]),
        law=LAW,
        load="Poisson, 30 %, 250 % and 30 % of one pod, 40 s each",
        raw=raw,
    )


def main(arguments: Sequence[str]) -> int:
    """Measure the rows named, or both. Of row 7.1, only parts are measured that no earlier run has."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", default=["7.1", "7.2"])
    parser.add_argument("--places", nargs="*", default=["code", "shown"], choices=["code", "shown"])
    parser.add_argument("--pods", nargs="*", type=int, default=[1, 4])
    parser.add_argument("--shares", nargs="*", type=float, default=SHARES)
    parser.add_argument("--again", action="store_true", help="measure parts that earlier runs have measured, too")
    options = parser.parse_args(arguments)
    if "7.1" in options.rows:
        measured = set() if options.again else set(measured_parts(KEPT))
        parts = [
            part
            for part in PARTS
            if part[0] in options.places
            and part[1] in options.pods
            and part[3] in options.shares
            and part not in measured
        ]
        asyncio.run(numbers([part for part in parts if part[0] == "code"]))
        for part in parts:
            if part[0] == "shown":
                with skipping(part):
                    add(asyncio.run(programs.measure(part[1], part[3])), part)
    if "7.2" in options.rows:
        record("right", [asyncio.run(policies())])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
