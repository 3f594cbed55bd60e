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

from benchmarks.measure.kills.killed import KILLED, Killed, add_node, killed, untouched
from benchmarks.measure.kills.watched import GONE_S, Watched
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
    """Measurements that end early at random moments: what is left, and for how long."""
    known = _read()
    if len(known) < KILLS:
        known += _kills(len(known))
        replace(FILE, json.dumps(known, indent=1) + "\n")
    return _row(known)


def _kills(first: int) -> list[dict[str, Any]]:
    """Kill the measurements from this number on, until all are killed or the time of a run is over."""
    name = f"bench-kills-{os.getpid()}"
    made: list[Killed] = []
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
                    model, what, seed = f"m{number}", KILLED[number % len(KILLED)], random.Random(43 + number)
                    space.serve(model, traffic={"mode": "Direct"})
                    before[model] = untouched(space, model)
                    while (one := killed(what, model, cluster, space, seed.uniform(0.0, _LONGEST_RUN_S))) is None:
                        pass
                    made.append(one)
                    watched.add(one)
                    say(f"measure: row 2.3: {one}")
                watched.wait()
                changed = {model for model in before if untouched(space, model) != before[model]}
        finally:
            for one in made:
                one.process.kill()
            clusters.down(name)
    return [
        {
            "what": one.what, "after_s": round(one.after_s, 2), "present": one.present, "gone_s": watched.gone[one.model],
            "changed": one.model in changed, "status": one.process.poll(), "commit": commit(), "date": today(),
        }
        for one in made
    ]  # fmt: skip


def _row(known: list[dict[str, Any]]) -> Row:
    times = [float(one["gone_s"]) for one in known if one["gone_s"] is not None]
    others = sorted({str(one["commit"]) for one in known} - {commit()})
    reasons = [
        *([f"{len(known)} kills of {KILLS} so far"] if len(known) < KILLS else []),
        *([f"kills are of {', '.join(others)}"] if others else []),
    ]
    return Row(
        id="2.3",
        what="command, Job or node killed at random moments between the first object of the measurement and its end: seconds until nothing is left, the original untouched",
        value={
            "kills": len(known),
            **{f"{what}s": sum(one["what"] == what for one in known) for what in KILLED},
            "left": sum(one["gone_s"] is None for one in known),
            "longest_s": round(max(times), 1) if times else None,
            "originals_changed": sum(bool(one["changed"]) for one in known),
            "with_a_copy": sum("ModelDeployment" in one["present"] for one in known),
            "with_a_client": sum("Pod client" in one["present"] for one in known),
        },
        target="nothing left after 5 min, 20 of 20",
        limits=[
            ("kills", 20, ">="), ("left", 0, "=="), ("longest_s", GONE_S, "<="), ("originals_changed", 0, "=="),
            ("with_a_copy", 1, ">="), ("with_a_client", 1, ">="), *((f"{what}s", 6, ">=") for what in KILLED),
        ],
        command="python -m benchmarks.measure.place 2.3",
        stand_ins="KWOK's pods and nodes; a node is killed by the deletion of its object, as a cloud's controller does it",
        why="; ".join(reasons),
        n=len(known),
        raw=known,
    )  # fmt: skip


def _read() -> list[dict[str, Any]]:
    """Return the kills so far; none if all have been made, so that the next run begins again."""
    known: list[dict[str, Any]] = json.loads(FILE.read_text()) if FILE.exists() else []
    return known if len(known) < KILLS else []
