"""Step 6 of a search: the number of replicas for a given rate, calculated as by the planner. Pure."""

from __future__ import annotations

from halcyon.scaling.planner.capacity.queueing import Replica
from halcyon.scaling.planner.parts import replicas_for_rate
from halcyon.scaling.planner.reading import Objectives


def replica_count(rate_rps: float, replica: Replica, *, objective_s: float, most: int) -> int | None:
    """Return the number of replicas that serve a rate of random arrivals within the objective; None if above `most`.

    The planner allows only a tenth of the late requests that a P99 objective allows. Therefore it needs more replicas
    than the measured rate alone would require.
    """
    objectives = Objectives(
        low=1, high=most, max_batch=replica.max_batch, instances=replica.instances, latency_s=objective_s
    )
    count = replicas_for_rate(rate_rps, objectives, replica, dispersion=1.0, most=most + 1)
    return count if count <= most else None
