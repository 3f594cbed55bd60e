"""Recorder of batch durations and GPU utilization on this machine: `python3 benchmarks/gpu/record.py FILE`, 4 minutes.

The script needs PyTorch, torchvision, transformers and nvidia-ml-py, but nothing from Halcyon, because GPU machines
rarely have this repository set up. The weights are random, which doesn't affect the durations. A batch is measured as
in Triton: input to the GPU, inference, output to the host.

The recording contains:

    laws    per model: the durations of the first executions, and of all later batches by size, in seconds
    loads   per load: counters of batches by size, as in `batch_stats`, once a second; NVML's utilization, power and energy five
    times a second
            (the source of DCGM_FI_DEV_GPU_UTIL) and GPM's graphics engine activity once a second (as
            DCGM_FI_PROF_GR_ENGINE_ACTIVE)
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import torch
import torchvision
import transformers

SIZES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64)
REPEATS = 25
MAX_BATCH = 32
LOAD_S = 16.0
SHARES = (0.1, 0.3, 0.6, 0.9, 1.2)
"""Loads as a share of one instance's throughput at its largest batch size."""
GRAPHICS_UTIL, SM_UTIL = 1, 2
"""Numbers of the GPM metrics in nvml.h."""

Batch = Callable[[int], float]
"""Function that runs a batch with this number of rows, and returns the duration in seconds."""


def main() -> int:
    """Record, write FILE, and return the exit code."""
    parser = argparse.ArgumentParser(description="Record what batches take on this machine's GPU.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--sample", action="store_true", help="what the recording starts beside itself")
    options = parser.parse_args()
    if options.sample:
        _sample(options.file)
        return 0
    torch.set_grad_enabled(mode=False)
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    recording: dict[str, Any] = {
        "gpu": pynvml.nvmlDeviceGetName(device),
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "torch": torch.__version__,
        "laws": {},
        "loads": [],
    }
    for name in _MODELS:
        for graphs in (False, True):
            law = _law(_batch(name, graphs=graphs))
            recording["laws"][f"{name}, {'graph' if graphs else 'layer by layer'}"] = law
            means = {size: round(1e3 * sum(took) / len(took), 2) for size, took in law["seconds"].items()}
            print(name, graphs, means, "first", list(law["first_s"].values())[:2], flush=True)
    options.file.write_text(json.dumps(recording) + "\n")
    samples = options.file.with_suffix(".samples")
    sampler = subprocess.Popen([sys.executable, __file__, "--sample", str(samples)])
    try:
        time.sleep(2.0)  # samples of the idle GPU come first
        for load in _loads():
            recording["loads"].append(load)
            print(load["name"], load["rate"], load["batches"][-1][-1:], flush=True)
            options.file.write_text(json.dumps(recording) + "\n")
        time.sleep(2.0)  # the last samples of the last load
    finally:
        sampler.terminate()
        sampler.wait()
    records = [json.loads(line) for line in samples.read_text().splitlines() if line.endswith("}")]
    for load in recording["loads"]:
        begin, end = load["at"][0], load["at"][-1]
        load["samples"] = [
            {**sample, "at": round(sample["at"] - begin, 3)}
            for sample in records
            if begin - 1 <= sample["at"] <= end + 1
        ]
        load["at"] = [round(at - begin, 3) for at in load["at"]]
        print(load["name"], _mean(load, "util"), _mean(load, "graphics"), flush=True)
    options.file.write_text(json.dumps(recording, separators=(",", ":")) + "\n")
    return 0


def _mean(load: dict[str, Any], metric: str) -> float | None:
    """Return the mean of the samples in a load without its first 3 s, in percent."""
    values = [sample[metric] for sample in load["samples"] if metric in sample and sample["at"] >= 3]
    return round(sum(values) / len(values), 1) if values else None


def _images(side: int) -> Callable[[int], torch.Tensor]:
    return lambda rows: torch.randn(rows, 3, side, side, dtype=torch.float16).pin_memory()


def _words(length: int) -> Callable[[int], torch.Tensor]:
    return lambda rows: torch.randint(0, 30000, (rows, length)).pin_memory()


def _bert() -> torch.nn.Module:
    return transformers.BertModel(transformers.BertConfig(attn_implementation="sdpa"))


def _small() -> torch.nn.Module:
    layers: list[torch.nn.Module] = []
    for _ in range(24):
        layers += [torch.nn.Linear(1024, 1024), torch.nn.GELU()]
    return torch.nn.Sequential(*layers)


_MODELS: dict[str, tuple[Callable[[], torch.nn.Module], Callable[[int], torch.Tensor]]] = {
    "resnet50": (torchvision.models.resnet50, _images(224)),
    "vit_b_16": (torchvision.models.vit_b_16, _images(224)),
    "vit_l_16": (torchvision.models.vit_l_16, _images(224)),
    "convnext_large": (torchvision.models.convnext_large, _images(224)),
    "bert_base_128": (_bert, _words(128)),
    "mlp_24": (_small, lambda rows: torch.randn(rows, 1024, dtype=torch.float16).pin_memory()),
}


def _batch(name: str, *, graphs: bool) -> Batch:
    """Create the model with this name on the GPU, without running it.

    With `graphs`, the first execution of each batch size captures a CUDA graph, and later executions launch it as a
    whole, as a compiled engine does. Without `graphs`, each layer is launched separately, as in a framework.
    """
    make, rows_of = _MODELS[name]
    model = make().half().cuda().eval()
    inputs: dict[int, torch.Tensor] = {}
    captured: dict[int, tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor]] = {}

    def infer(tensor: torch.Tensor) -> torch.Tensor:
        output = model(tensor)
        return output if isinstance(output, torch.Tensor) else output.last_hidden_state[:, 0]

    def run(rows: int) -> float:
        if rows not in inputs:
            inputs[rows] = rows_of(rows)
        begin_s = time.perf_counter()
        if rows in captured:
            graph, tensor, output = captured[rows]
            tensor.copy_(inputs[rows], non_blocking=True)
            graph.replay()
            output.cpu()
            return time.perf_counter() - begin_s
        tensor = inputs[rows].cuda(non_blocking=True)
        infer(tensor).cpu()
        if graphs:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                infer(tensor)
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                output = infer(tensor)
            captured[rows] = (graph, tensor, output)
            graph.replay()
            output.cpu()
        return time.perf_counter() - begin_s

    return run


def _law(batch: Batch) -> dict[str, Any]:
    """Measure the first execution of each batch size, and later executions, in seconds."""
    first = {size: round(batch(size), 6) for size in SIZES}
    # Alternate between the sizes, so that a clock that rises as the GPU warms up doesn't look like a slope.
    seconds: dict[int, list[float]] = {size: [] for size in SIZES}
    for _ in range(REPEATS):
        for size in SIZES:
            seconds[size].append(round(batch(size), 6))
    return {"first_s": first, "seconds": seconds}


def _loads() -> Iterator[dict[str, Any]]:
    engine, framework = _batch("vit_l_16", graphs=True), _batch("vit_l_16", graphs=False)
    seconds = 0.0
    for batch in (engine, framework):
        for size in range(1, MAX_BATCH + 1):
            batch(size)
            seconds = batch(size)

    def half(rows: int) -> float:
        """Spend half of a full batch's duration on the host, as a Python backend that prepares its input."""
        begin_s = time.perf_counter()
        framework(rows)
        time.sleep(seconds)
        return time.perf_counter() - begin_s

    for share in SHARES:
        yield _load(f"graph at {share}", engine, share)
    yield _load("idle", engine, 0.0)
    yield _load("layer by layer at 0.6", framework, 0.6)
    yield _load("layer by layer at 1.2", framework, 1.2)
    yield _load("half the host's at 0.6", half, 0.6)


def _load(name: str, batch: Batch, share: float) -> dict[str, Any]:
    """Run a load with Poisson arrivals, in batches of all waiting rows, up to `MAX_BATCH`.

    A batch starts as soon as the previous one ends. The arrival rate is `share` times the throughput of one instance at
    its largest batch size.
    """
    rate = share * MAX_BATCH / sorted(batch(MAX_BATCH) for _ in range(9))[4]
    source = random.Random(1)
    counters: dict[int, tuple[int, int]] = {}
    begin = time.monotonic()
    due = begin + source.expovariate(rate) if rate else float("inf")
    waiting, tick = 0, begin
    at: list[float] = []
    readings: list[list[list[int]]] = []
    while (now := time.monotonic()) < begin + LOAD_S:
        while due <= now:
            waiting, due = waiting + 1, due + source.expovariate(rate)
        if now >= tick:
            at.append(now)
            readings.append([[rows, count, us] for rows, (count, us) in sorted(counters.items())])
            tick += 1.0
        if waiting:
            rows = min(waiting, MAX_BATCH)
            waiting = min(waiting - rows, 4 * MAX_BATCH)
            count, us = counters.get(rows, (0, 0))
            counters[rows] = (count + 1, us + round(batch(rows) * 1e6))
        else:
            time.sleep(max(min(due, tick) - time.monotonic(), 0.0))
    return {"name": name, "instances": 1, "rate": round(rate, 3), "at": at, "batches": readings}


def _sample(file: Path) -> None:
    """Write NVML's samples to a file, until this process is ended."""
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    before, after = None, None
    try:
        if pynvml.nvmlGpmQueryDeviceSupport(device).isSupportedDevice:
            before, after = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
            pynvml.nvmlGpmSampleGet(device, before)
    except pynvml.NVMLError as error:
        print("no GPM:", error, flush=True)
        before = None
    with file.open("w") as out:
        for number in range(1, 10_000):
            time.sleep(0.2)
            sample: dict[str, float] = {
                "at": time.monotonic(),
                "util": pynvml.nvmlDeviceGetUtilizationRates(device).gpu,
                "power_mw": pynvml.nvmlDeviceGetPowerUsage(device),
                "energy_mj": pynvml.nvmlDeviceGetTotalEnergyConsumption(device),
            }
            if before is not None and number % 5 == 0:
                pynvml.nvmlGpmSampleGet(device, after)
                query = pynvml.c_nvmlGpmMetricsGet_t()
                query.version, query.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, 2
                query.sample1, query.sample2 = before, after
                query.metrics[0].metricId, query.metrics[1].metricId = GRAPHICS_UTIL, SM_UTIL
                pynvml.nvmlGpmMetricsGet(query)
                sample["graphics"], sample["sm"] = (round(query.metrics[i].value, 2) for i in (0, 1))
                before, after = after, before
            out.write(json.dumps(sample) + "\n")
            out.flush()


if __name__ == "__main__":
    raise SystemExit(main())
