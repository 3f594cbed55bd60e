"""Memory of the store of observations. A measurement: traced allocations take a second, too long for a unit test."""

from __future__ import annotations

import gc
import tracemalloc

from halcyon.signals.observation_store import ObservationStore
from tests.unit.signals.records import record, triton


def memory(models: int) -> int:
    """Return the bytes that a store holds for this many models of two agents and ten pods, after 70 seconds."""
    agents, pods, seconds = 2, 10, 70
    gc.collect()
    tracemalloc.start()
    hub = ObservationStore()
    before = tracemalloc.get_traced_memory()[0]
    for second in range(seconds):
        for model in range(models):
            for agent in range(agents):
                at = second + 0.3 * agent
                samples = [triton(f"m{model}-a-{p}", at=at - 0.05 * p, rows=second * 100) for p in range(pods)]
                hub.receive(record(at, *samples, agent=f"m{model}-{agent}", name=f"m{model}"), at)
    gc.collect()  # what is held, and not what other tests and this one have left lying about
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return held


def test_a_thousand_models_fit() -> None:
    # What a further model takes: what the first one shares with all others counts once, not a thousand times.
    assert memory(2) - memory(1) < 60 * 1024
