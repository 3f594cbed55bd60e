"""Replicas for batch inference, added to the replicas that users' requests need.

Out of scope: the number of these replicas (`scaling.policy.batch_demand`), and which batches run (`batch.controller`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from halcyon.api.spec import Spec
from halcyon.control.autoscaling.decider import Decider
from halcyon.kube.kinds import Key
from halcyon.scaling.planner.capacity import start_time
from halcyon.scaling.planner.capacity.queueing import Replica
from halcyon.scaling.planner.objectives import START_S
from halcyon.scaling.policy.batch_demand import BatchDemand, Supply, with_batches
from halcyon.scaling.policy.decision import Decision, counted


@dataclass(frozen=True)
class BatchReplicas:
    """Component that adds replicas for running BatchInferences to scaling decisions."""

    decider: Decider
    demands: Callable[[Key], tuple[BatchDemand, ...] | None]
    """Function that returns the demand of each running BatchInference of a model; None until they have been read."""

    def with_batch_replicas(self, key: Key, spec: Spec, decision: Decision) -> Decision:
        """Return the decision with the replicas for batch inference added; return it unchanged if there are none.

        Until the BatchInferences have been read, no replicas are removed, because batches may need them.
        """
        demands = self.demands(key)
        if demands is None and decision.desired is not None and decision.desired < decision.current:
            text = (
                f"{counted(decision.current)} stay until the BatchInferences have been read. For users: {decision.why}"
            )
            return replace(decision, desired=decision.current, text=text)
        if not demands or spec.scaling is None:
            return decision
        high = self.decider.max_replicas(key, spec)
        return with_batches(decision, demands, self._supply(key, spec), high=high)

    def _supply(self, key: Key, spec: Spec) -> Supply:
        memory, knowledge = self.decider.memory(key), self.decider.knowledge(key, spec)
        if memory is None or knowledge is None:
            return Supply(None, 0.0, START_S)
        line, aims, rate = memory.capacity.line, knowledge.objectives, memory.arrivals.rate() or 0.0
        start_s = start_time.start_s(memory.capacity, start_time.PLANNED_SHARE, aims.start_s)
        replica_rps = knowledge.replica.peak_rps
        if line is None:
            return Supply(replica_rps, rate, start_s)
        rows_s = Replica(line, aims.max_batch, aims.instances).peak_rps
        return Supply(rows_s, rate * rows_s / replica_rps if replica_rps else 0.0, start_s)
