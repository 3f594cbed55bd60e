"""`python -m benchmarks.gpu`: what Halcyon learns from recorded GPUs, as build/bench/gpu.json and docs/benchmarks/gpu.md."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.findings import LOOKS_S, MAX_BATCH, NEW_PODS, SHARES, Busy, Learnt, busy, laws, learnt
from benchmarks.gpu.replay import Law

RECORDINGS = tuple(sorted(Path(__file__).parent.glob("*.json")))
_ROOT = Path(__file__).resolve().parents[2]
_SHOWN = (1, 4, 8, 16, 32, 64)

_HEAD = """# What batches on a real GPU teach

Written by `make bench-gpu` from recordings: {recorded}. The same figures for machines:
build/bench/gpu.json. To record another GPU, on a machine that has one: `python3 benchmarks/gpu/record.py FILE` (4 minutes; it needs PyTorch,
torchvision, transformers and nvidia-ml-py), then `make bench-gpu RECORDING=FILE`, which writes this page of that GPU alone.

No Triton ran there, and no Kubernetes. Batches are counted as Triton counts them: input to the GPU, inference, output to the host.
The pods' metrics and their timing are replayed from the recorded batches (benchmarks/gpu/replay.py); the operator's own code processes them.
"""
_LAWS = """## Batches

The time of a batch, in seconds, is modelled as linear in its size b: S(b) = t0 + a b. If a model is one launch (a CUDA graph, a compiled
engine), that is exact. If each layer is a separate kernel launch, the launches set a minimum time of any batch, and the line is a
compromise.

**The first execution of each size is an outlier**, not only the very first one of a model: libraries are loaded, kernels chosen, memory
is taken. And so is each size's in every pod. Milliseconds; in the last two columns how many usual ones the first of a size took.
"""
_LEARNT = """## What the planner learns

One pod from its warm-up (sizes 1 and {most}, twice each), a minute of load, then {more} more pods from theirs. How much slower than it is the
planner thinks a batch is, in percent; below zero: quicker. At the largest batch that is what a replica can do at most, too little where
it is positive.

Until batches ran, the warm-up is all that is known, first executions and all: an upper bound. With little load it stays one for large
batches, which don't run then. Pods that come add no error, since what a pod tells of a size first is left out. (How it was
before: docs/decisions/0031.)
"""
_BUSY = """## How busy

Percent over 12 s. `derived` is the share of time in which the instance was at work, from the counters of its batches, read every 5 s; the
others are the GPU's own: NVML's utilisation (which DCGM_FI_DEV_GPU_UTIL is) and GPM's graphics engine (what DCGM_FI_PROF_GR_ENGINE_ACTIVE is).
The number in a load's name is its rate, over what one instance can do with full batches.

- Where a batch is one launch, the three agree. Where the host has a part in it (`layer by layer`, `half the host's`), a GPU that is far from
  full may have an instance that can do no more at this batch size: `derived` says so, the GPU doesn't.
- Batches of few rows fill a GPU (`graph at 0.3`): who waits for nobody runs in small batches. A target for GPU utilisation
  requests another replica long before the existing ones are at their limit.
"""


@dataclass(frozen=True)
class Found:
    """What a recording has taught."""

    recording: Mapping[str, Any]
    learnt: Sequence[Learnt]
    busy: Sequence[Busy]

    @classmethod
    def of(cls, recording: Mapping[str, Any]) -> Found:
        """Play it."""
        lines = [learnt(model, law, share) for share in SHARES for model, law in laws(recording).items()]
        return cls(recording, lines, busy(recording))

    def row(self) -> dict[str, Any]:
        """For machines."""
        return {
            "gpu": self.recording["gpu"],
            "learnt": [asdict(one) for one in self.learnt],
            "busy": [asdict(one) for one in self.busy],
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write both; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description="What Halcyon learns from recorded GPUs."
    )
    parser.add_argument(
        "--recording", type=Path, help="what record.py wrote; without it, the recordings beside this program"
    )
    one = parser.parse_args(arguments).recording
    found = [Found.of(json.loads(file.read_text())) for file in ((one,) if one else RECORDINGS)]
    rows = [each.row() for each in found]
    for file, content in (
        (_ROOT / "build" / "bench" / "gpu.json", json.dumps(rows, indent=1) + "\n"),
        (_ROOT / "docs" / "benchmarks" / "gpu.md", text(found)),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        print(file.relative_to(_ROOT))
    return 0


def text(found: Sequence[Found]) -> str:
    """The page."""
    recorded = "; ".join("{gpu}, driver {driver}, PyTorch {torch}".format_map(each.recording) for each in found)
    parts = [_HEAD.format(recorded=recorded), _LAWS]
    for each in found:
        parts += [
            *_named(each),
            *_table(
                ("model", *(f"S({rows})" for rows in _SHOWN), "first of 1 row", "first of other sizes"),
                [(name, *_law(law)) for name, law in laws(each.recording).items()],
            ),
        ]
    parts += ["", _LEARNT.format(most=MAX_BATCH, more=NEW_PODS)]
    for each in found:
        parts += [*_named(each), *_learnt(each.learnt)]
    parts += ["", _BUSY]
    for each in found:
        parts += [
            *_named(each),
            *_table(
                ("load", "derived", "NVML", "graphics engine"),
                [(one.load, *(_busy(of) for of in (one.derived, one.nvml, one.graphics))) for one in each.busy],
            ),
        ]
    return "\n".join(parts) + "\n"


def _named(found: Found) -> Sequence[str]:
    return ("", f"**{found.recording['gpu']}**", "")


def _busy(percent: float | None) -> str:
    return "-" if percent is None else f"{percent:.1f}"


def _learnt(found: Sequence[Learnt]) -> Sequence[str]:
    head = (
        "load",
        "model",
        "after the warm-up",
        *(f"{at_s} s: mean batch" for at_s in LOOKS_S[1:]),
        *(f"{at_s} s: largest" for at_s in LOOKS_S[1:]),
        f"{NEW_PODS} more pods: largest",
        "most in the minute after",
    )
    lines = [
        (
            f"{one.share:g}",
            one.model,
            _percent(one.at_full[0]),
            *(_percent(one.at_mean[at_s]) for at_s in LOOKS_S[1:]),
            *(_percent(one.at_full[at_s]) for at_s in LOOKS_S[1:]),
            _percent(one.scaled),
            f"{one.worst_after:.0f}",
        )
        for one in found
    ]
    return _table(head, lines)


def _law(law: Law) -> Sequence[str]:
    times = {rows: law.first_s[rows] / law.means_s[rows] for rows in law.first_s}
    others = [of for rows, of in times.items() if rows > 1]
    means = (f"{1e3 * law.means_s[rows]:.2f}" for rows in _SHOWN)
    return (*means, f"{times[1]:.0f}", f"{min(others):.0f} to {max(others):.0f}")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:+.0f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = (head, ["---"] * len(head), *rows)
    return ["| " + " | ".join(line) + " |" for line in lines]


if __name__ == "__main__":
    raise SystemExit(main())
