"""The laws of row 6.2: four kinds, each drawn from its own numbers."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.tune.truth import Floats, Law

COUNTS = (1, 2, 4, 8)
MAX_ROWS = 64
KINDS = ("line", "floor", "shared", "cliff")


def drawn(number: int) -> Law:
    """Return the law with this number; its kind is that of the number.

    line: instances hardly cost each other anything. floor: small batches take as long as launches do. shared: instances share
    a device, so that more of them gain little or lose. cliff: batches above a size take longer, and memory ends.
    """
    kind = KINDS[number % len(KINDS)]
    random = np.random.default_rng([6, 2, number])
    constant, row = random.uniform(2, 60) / 1000, math.exp(random.uniform(math.log(0.1), math.log(8))) / 1000
    rows = np.arange(MAX_ROWS + 1, dtype=np.float64)
    alone = constant + row * rows
    cost = random.uniform(0.0, 0.15)
    memory = 10**9
    if kind == "floor":
        alone = np.maximum(constant, row * rows)
    elif kind == "shared":
        cost = random.uniform(0.5, 1.3)
    elif kind == "cliff":
        edge = int(random.choice([6, 8, 12, 16, 24]))
        alone = np.where(rows > edge, alone * random.uniform(1.3, 2.0), alone)
        cost, memory = random.uniform(0.1, 0.9), 32 if random.random() < 0.5 else 64
    return Law(f"{kind} {number}", {count: alone * (1 + cost * (count - 1)) for count in COUNTS}, memory)


def objectives(law: Law) -> tuple[float, float, float]:
    """Return a tight, a middle and a loose objective, in seconds."""
    alone: Floats = law.seconds[1]
    return float(2.5 * alone[1]), float(1.5 * alone[16] + alone[1]), float(3 * alone[32])
