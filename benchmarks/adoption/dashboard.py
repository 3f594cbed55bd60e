"""First paint, accessibility, console, frames and idle CPU of the dashboard with 5,000 models, by the browser tests.

python -m benchmarks.adoption.dashboard   # runs tests/browser/test_pages.py and test_simulated.py, some 5 minutes
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.quality.rows import ROOT, Row, record

SAMPLES = ROOT / "build" / "browser-samples.json"
TESTS = ("tests/browser/test_pages.py", "tests/browser/test_simulated.py")
MAX_FIRST_PAINT_S = 0.7
MAX_FRAME_MS = 50
MAX_IDLE_SHARE = 0.01


def row(samples: Mapping[str, Sequence[Any]], *, has_passed: bool) -> Row:
    """Return the row of these samples; a measurement without samples is unknown."""
    paints, frames, idle = (samples.get(name, []) for name in ("first_paint_s", "frames_ms", "idle_cpu_share"))
    cpu = samples.get("longest_task_cpu_ms", [])
    pages, checks = samples.get("console", []), samples.get("axe", [])
    value = {
        "first paint seconds, median": round(median(paints), 3) if paints else None,
        "first paint seconds, slowest": round(max(paints), 3) if paints else None,
        "violations by axe": sum(len(violations) for violations in checks) if checks else None,
        "pages checked by axe": len(checks),
        "messages in the console": sum(len(messages) for messages in pages) if pages else None,
        "pages whose console was read": len(pages),
        f"frames over {MAX_FRAME_MS} ms": sum(ms > MAX_FRAME_MS for ms in frames) if frames else None,
        "longest frame ms": round(max(frames), 1) if frames else None,
        "CPU ms of the longest task": round(max(cpu), 1) if cpu else None,
        "idle share of a core": round(median(idle), 4) if idle else None,
        "test runs that failed": int(not has_passed),
    }
    return Row(
        id="7",
        what="dashboard: first paint, axe, console, 5,000 models, idle",
        value=value,
        target="<= 0.7 s, 0, 0, no frame > 50 ms, < 1 % of a core",
        limits=[
            ("first paint seconds, median", MAX_FIRST_PAINT_S, "<="),
            ("violations by axe", 0, "=="),
            ("messages in the console", 0, "=="),
            (f"frames over {MAX_FRAME_MS} ms", 0, "=="),
            ("idle share of a core", MAX_IDLE_SHARE, "<="),
            ("test runs that failed", 0, "=="),
        ],
        command="python -m benchmarks.adoption.dashboard",
        stand_ins=(
            "5,000 models in a real API server that nothing reconciles (first paint, idle); a fleet without a cluster (frames)"
        ),
        why=_why(value),
        n=len(paints),
        load="one page, scrolled through 5,000 rows; idle without a page, 20 s each",
        raw=dict(samples),
    )


def _why(value: Mapping[str, Any]) -> str:
    unknown = [name for name, figure in value.items() if figure is None]
    reasons = [f"not measured: {', '.join(unknown)}"] if unknown else []
    if value["test runs that failed"]:
        reasons.append("a browser test failed")
    frames, cpu_ms = value[f"frames over {MAX_FRAME_MS} ms"], value["CPU ms of the longest task"]
    if frames and cpu_ms is not None and cpu_ms <= MAX_FRAME_MS:
        reasons.append("the page's tasks take less CPU time than a frame may; other programs ran on the machine")
    return "; ".join(reasons)


def main() -> int:
    """Run the browser tests, and record the row."""
    SAMPLES.unlink(missing_ok=True)
    done = subprocess.run([str(ROOT / "scripts" / "browser"), *TESTS], cwd=ROOT, check=False)
    samples = json.loads(SAMPLES.read_text()) if SAMPLES.exists() else {}
    record("adoption", [row(samples, has_passed=done.returncode == 0)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
