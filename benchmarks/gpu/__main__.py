"""`python -m benchmarks.gpu`: what Halcyon learns from recorded GPUs, as build/bench/gpu.json and docs/benchmarks/gpu.md."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.findings import COMPARED_AT_S, MAX_BATCH, NEW_PODS, SHARES, Busy, Learnt, busy, laws, learnt
from benchmarks.gpu.replay import Law

RECORDINGS = tuple(sorted(Path(__file__).parent.glob("*.json")))
_ROOT = Path(__file__).resolve().parents[2]
_SHOWN = (1, 4, 8, 16, 32, 64)

_HEAD = """# What batches on a real GPU teach

This page is written by `make bench-gpu` from recordings of these GPUs: {recorded}. The file build/bench/gpu.json
contains the same figures in machine-readable form. To record another GPU, run `python3 benchmarks/gpu/record.py
FILE` on a machine with that GPU (4 minutes; the program needs PyTorch, torchvision, transformers and nvidia-ml-py).
To write this page from a single recording, run `make bench-gpu RECORDING=FILE`.

The batch durations were measured with PyTorch alone, without Triton or Kubernetes. The time of a batch is the sum of three phases, for which
Triton has counters: the input to the GPU, the inference, and the output to the host. The program benchmarks/gpu/replay.py
turns the recorded batches into the metrics that pods would report over time, and the operator's own code processes these
metrics.
"""
_LAWS = """## Batches

Halcyon models the time of a batch of b rows, in seconds, as a straight line: S(b) = t0 + a b. If a model runs as
one kernel launch (a CUDA graph, a compiled engine), the time of a batch is exactly linear in its size. If each
layer is a separate kernel launch, the launches set a minimum time for every batch, and a straight line fits the
times only approximately.

**The first execution of each batch size is slow in every pod**, because libraries are loaded, kernels are selected
and memory is allocated. In the table, S(b) is the time of a batch of b rows in milliseconds. The last two columns
show how long the first execution with a given batch size takes, as a multiple of the usual time.
"""
_LEARNT = """## What the planner learns

The replay of the recording starts with one pod that has finished its warm-up (two batches of 1 row and two of
{most} rows). In the replay, {more} pods that have already finished their warm-up are added after a minute of load.
The table shows the error of the planner's estimates of batch times, in percent. A positive error means that the
planner overestimates the time; a negative error means that it underestimates the time. The planner estimates the
maximum throughput of a replica from the time of the largest batch. If the planner overestimates the time of the
largest batch, it underestimates the replica's maximum throughput.

Until the pods have run batches of real requests, the planner has only the measurements of the warm-up batches.
Warm-up batches include the slow first executions, so their times are an upper bound for later batches. At low load,
no large batches run, so the planner's estimate of their time remains an upper bound. New pods do not make the
estimate worse, because the planner ignores the first measurement of each batch size in each pod
(docs/decisions/0031 describes the earlier behaviour).
"""
_BUSY = """## How busy

The table shows GPU utilisation in percent, measured over 12 s. The value `derived` is the share of time in which
the instance was busy, computed from the instance's batch counters every 5 s. The values `NVML` and `graphics
engine` come from the GPU: the utilisation that NVML reports (the same as DCGM_FI_DEV_GPU_UTIL) and the graphics
engine activity that GPM reports (the same as DCGM_FI_PROF_GR_ENGINE_ACTIVE). The number in the name of a load (for
example, 0.3 in `graph at 0.3`) is the request rate, divided by the maximum rate of one instance with full batches.

- If a batch runs as one kernel launch, the values `derived`, `NVML` and `graphics engine` agree. If the GPU waits
  for the host's CPU during a part of each batch (as in the rows `layer by layer` and `half the host's`), an
  instance may be at its limit although the GPU is far from fully used. Only `derived` shows this.
- At 30% of the maximum request rate, small batches can already keep a GPU busy (row `graph at 0.3`). With a target
  for GPU utilisation, an autoscaler adds replicas long before the existing replicas are at their limit.
"""


@dataclass(frozen=True)
class RecordingResults:
    """Results of the replay of a recording."""

    recording: Mapping[str, Any]
    learnt: Sequence[Learnt]
    busy: Sequence[Busy]

    @classmethod
    def of(cls, recording: Mapping[str, Any]) -> RecordingResults:
        """Replay a recording, and return the results."""
        lines = [learnt(model, law, share) for share in SHARES for model, law in laws(recording).items()]
        return cls(recording, lines, busy(recording))

    def row(self) -> dict[str, Any]:
        """Return the results in the format of gpu.json."""
        return {
            "gpu": self.recording["gpu"],
            "learnt": [asdict(entry) for entry in self.learnt],
            "busy": [asdict(entry) for entry in self.busy],
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file and the page, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description="What Halcyon learns from recorded GPUs."
    )
    parser.add_argument(
        "--recording", type=Path, help="what record.py wrote; without it, the recordings beside this program"
    )
    recording = parser.parse_args(arguments).recording
    results = [
        RecordingResults.of(json.loads(file.read_text())) for file in ((recording,) if recording else RECORDINGS)
    ]
    rows = [result.row() for result in results]
    for file, content in (
        (_ROOT / "build" / "bench" / "gpu.json", json.dumps(rows, indent=1) + "\n"),
        (_ROOT / "docs" / "benchmarks" / "gpu.md", text(results)),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        print(file.relative_to(_ROOT))
    return 0


def text(results: Sequence[RecordingResults]) -> str:
    """Return the page."""
    recorded = "; ".join("{gpu}, driver {driver}, PyTorch {torch}".format_map(result.recording) for result in results)
    parts = [_HEAD.format(recorded=recorded), _LAWS]
    for result in results:
        parts += [
            *_named(result),
            *_table(
                ("model", *(f"S({rows})" for rows in _SHOWN), "first of 1 row", "first of other sizes"),
                [(name, *_law(law)) for name, law in laws(result.recording).items()],
            ),
        ]
    parts += ["", _LEARNT.format(most=MAX_BATCH, more=NEW_PODS)]
    for result in results:
        parts += [*_named(result), *_learnt(result.learnt)]
    parts += ["", _BUSY]
    for result in results:
        parts += [
            *_named(result),
            *_table(
                ("load", "derived", "NVML", "graphics engine"),
                [
                    (entry.load, *(_busy(percent) for percent in (entry.derived, entry.nvml, entry.graphics)))
                    for entry in result.busy
                ],
            ),
        ]
    return "\n".join(parts) + "\n"


def _named(result: RecordingResults) -> Sequence[str]:
    return ("", f"**{result.recording['gpu']}**", "")


def _busy(percent: float | None) -> str:
    return "-" if percent is None else f"{percent:.1f}"


def _learnt(errors: Sequence[Learnt]) -> Sequence[str]:
    head = (
        "load",
        "model",
        "after the warm-up",
        *(f"{at_s} s: mean batch" for at_s in COMPARED_AT_S[1:]),
        *(f"{at_s} s: largest" for at_s in COMPARED_AT_S[1:]),
        f"{NEW_PODS} more pods: largest",
        "most in the minute after",
    )
    lines = [
        (
            f"{error.share:g}",
            error.model,
            _percent(error.at_full[0]),
            *(_percent(error.at_mean[at_s]) for at_s in COMPARED_AT_S[1:]),
            *(_percent(error.at_full[at_s]) for at_s in COMPARED_AT_S[1:]),
            _percent(error.scaled),
            f"{error.worst_after:.0f}",
        )
        for error in errors
    ]
    return _table(head, lines)


def _law(law: Law) -> Sequence[str]:
    times = {rows: law.first_s[rows] / law.means_s[rows] for rows in law.first_s}
    others = [multiple for rows, multiple in times.items() if rows > 1]
    means = (f"{1e3 * law.means_s[rows]:.2f}" for rows in _SHOWN)
    return (*means, f"{times[1]:.0f}", f"{min(others):.0f} to {max(others):.0f}")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:+.0f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = (head, ["---"] * len(head), *rows)
    return ["| " + " | ".join(line) + " |" for line in lines]


if __name__ == "__main__":
    raise SystemExit(main())
