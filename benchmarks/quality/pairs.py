"""Comparison of memory and import time of operator and agent with the base commit: `python -m benchmarks.quality.pairs`.

Runs of both versions alternate. The ratios of the medians (for import time, of the minima) and the duration of the unit
tests are written to build/quality/raw/pairs.json, which benchmarks/quality/house.py reads.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.quality.rows import commit

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "quality" / "raw" / "pairs.json"
BASE = "a528a11"
PROCESSES = {
    "operator": ("halcyon.control.app", "halcyon.control.runtime.app"),
    "agent": ("halcyon.balancer.main", "halcyon.balancer.agent.main"),
}
"""Module of each process: (name at the base commit, name now)."""
ROUNDS = 7
CHILD = """
import sys, time
sys.modules["kubernetes_validate"] = None  # a package of the tests, which `kubernetes` imports if it is installed
began = time.perf_counter()
import {module}
took = time.perf_counter() - began
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
print(peak, took)
"""


def main() -> int:
    """Measure, and write the ratios."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", BASE, "operator"], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        sides = (Path(folder) / "operator", ROOT / "operator")
        figures: dict[str, list[list[tuple[float, float]]]] = {name: [[], []] for name in PROCESSES}
        for _ in range(ROUNDS + 1):  # the first round only compiles byte code
            for name, modules in PROCESSES.items():
                for side in (0, 1):
                    figures[name][side].append(_run(modules[side], sides[side]))
    value = {}
    for name, (before, after) in figures.items():
        peaks = [statistics.median(peak for peak, _ in runs[1:]) for runs in (before, after)]
        value[f"{name}_memory"] = round(peaks[1] / peaks[0], 3)
    shortest = [sum(min(took for _, took in figures[name][side][1:]) for name in PROCESSES) for side in (0, 1)]
    value["import_time"] = round(shortest[1] / shortest[0], 3)
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "tests.parts", "tests/unit", "-q"], cwd=ROOT, check=True, capture_output=True)
    value["unit_s"] = round(time.monotonic() - began, 1)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({"commit": commit(), **value}))
    print(json.dumps(value | {"samples": figures}))
    return 0


def _run(module: str, source: Path) -> tuple[float, float]:
    """Return the peak memory in KiB and the import time in seconds of a module, in a new process."""
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONDONTWRITEBYTECODE", "PYTHONPATH"}}
    out = subprocess.run(
        [sys.executable, "-c", CHILD.format(module=module)],
        env=environment | {"PYTHONPATH": str(source)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    return float(out[0]), float(out[1])


if __name__ == "__main__":
    sys.exit(main())
