"""Row 2.3 from kills of one or more runs.

A run lasts about ten minutes. A kill takes half a minute on a busy machine, so a run ends after `SLOT_S`, and the next one
resumes. The results are in docs/quality/data/kills.json, in git.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure.kills.killed import TARGETS, Killed, add_node, killed, unchangeable
from benchmarks.measure.kills.watched import REMOVAL_TIMEOUT_S, Watched
from benchmarks.quality.rows import DATA, Row, commit, replace, today
from e2e.cluster import cluster as clusters
from e2e.cluster.options import Options
from e2e.cluster.progress import say
from tests.integration.operator_process import running
from tests.integration.operator_space import Space

KILLS = int(os.environ.get("KILLS", "20"))
SLOT_S = float(os.environ.get("SLOT_S", "420"))
"""Seconds after which a run begins no further kill."""
FILE = DATA / "kills.json"
_LONGEST_RUN_S = 6.0
"""About the time from the first object of a measurement with KWOK's pods to its end, in seconds."""


def row_3() -> Row:
    """Kill measurements at random moments, and return for how long their objects stay."""
    records = _read()
    if len(records) < KILLS:
        records += _kills(len(records))
        replace(FILE, json.dumps(records, indent=1) + "\n")
    return _row(records)


def _kills(first: int) -> list[dict[str, Any]]:
    """Kill the measurements from this number on, until all are killed or the time of a run is over."""
    name = f"bench-kills-{os.getpid()}"
    kills: list[Killed] = []
    end = time.monotonic() + SLOT_S
    with tempfile.TemporaryDirectory() as folder:
        try:
            cluster = clusters.up(name, Options(control_plane_only=True))
            space = Space(cluster.api, "default")
            add_node(space, 0)
            with running(cluster, Path(folder), watch="default"), Watched(space) as watched:
                before: dict[str, Any] = {}
                for number in range(first, KILLS):
                    if time.monotonic() > end:
                        break
                    model, target, seed = f"m{number}", TARGETS[number % len(TARGETS)], random.Random(43 + number)
                    space.serve(model, traffic={"mode": "Direct"})
                    before[model] = unchangeable(space, model)
                    while (kill := killed(target, model, cluster, space, seed.uniform(0.0, _LONGEST_RUN_S))) is None:
                        pass
                    kills.append(kill)
                    watched.add(kill)
                    say(f"measure: row 2.3: {kill}")
                watched.wait()
                changed = {model for model in before if unchangeable(space, model) != before[model]}
        finally:
            for kill in kills:
                kill.process.kill()
            clusters.down(name)
    return [
        {
            "what": kill.target, "after_s": round(kill.after_s, 2), "present": kill.present_kinds, "gone_s": watched.removed_after_s[kill.model],
            "changed": kill.model in changed, "status": kill.process.poll(), "commit": commit(), "date": today(),
        }
        for kill in kills
    ]  # fmt: skip


def _row(records: list[dict[str, Any]]) -> Row:
    times = [float(record["gone_s"]) for record in records if record["gone_s"] is not None]
    others = sorted({str(record["commit"]) for record in records} - {commit()})
    reasons = [
        *([f"{len(records)} kills of {KILLS} so far"] if len(records) < KILLS else []),
        *([f"kills are of {', '.join(others)}"] if others else []),
    ]
    return Row(
        id="2.3",
        what="command, Job or node killed at random moments between the first object of the measurement and its end: seconds until nothing is left, the original untouched",
        value={
            "kills": len(records),
            **{f"{target}s": sum(record["what"] == target for record in records) for target in TARGETS},
            "left": sum(record["gone_s"] is None for record in records),
            "longest_s": round(max(times), 1) if times else None,
            "originals_changed": sum(bool(record["changed"]) for record in records),
            "with_a_copy": sum("ModelDeployment" in record["present"] for record in records),
            "with_a_client": sum("Pod client" in record["present"] for record in records),
        },
        target="nothing left after 5 min, 20 of 20",
        limits=[
            ("kills", 20, ">="), ("left", 0, "=="), ("longest_s", REMOVAL_TIMEOUT_S, "<="), ("originals_changed", 0, "=="),
            ("with_a_copy", 1, ">="), ("with_a_client", 1, ">="), *((f"{target}s", 6, ">=") for target in TARGETS),
        ],
        command="python -m benchmarks.measure.place 2.3",
        stand_ins="KWOK's pods and nodes; a node is killed by the deletion of its object, as a cloud's controller does it",
        why="; ".join(reasons),
        n=len(records),
        raw=records,
    )  # fmt: skip


def _read() -> list[dict[str, Any]]:
    """Return the kills so far; none if all have been made, so that the next run begins again."""
    records: list[dict[str, Any]] = json.loads(FILE.read_text()) if FILE.exists() else []
    return records if len(records) < KILLS else []
