"""Feedback loop that reads HAProxy's counters once per second, and sets variables that its rules use.

It sets the servers' rate (`service_rate`), with which HAProxy rejects requests that would be late, and the limits on
the queue (`overload_limits`). It also sets whether requests may be retried (`retry_budget`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halcyon.balancer.config.queueing import RATE, SERVICE
from halcyon.balancer.config.retries import ONCE
from halcyon.balancer.runtime.overload_limits import OverloadLimits
from halcyon.balancer.runtime.retry_budget import MAX_SHARE, RetryBudget
from halcyon.balancer.runtime.service_rate import ServiceRateMeter
from halcyon.triton.json_log import log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.runtime.haproxy_stats import HaproxyStats
    from halcyon.balancer.runtime.overload_limits import PodStatistics
    from halcyon.balancer.runtime.process_variables import Variables


class RateFeedback:
    """Feedback loop from the counters of one HAProxy process to its variables."""

    def __init__(self, variables: Variables) -> None:
        """Create the loop without measurements."""
        self._variables = variables
        self._meter = ServiceRateMeter()
        self._budget = RetryBudget()
        self._forbids_retries = False
        self.limits = OverloadLimits()

    async def update(
        self,
        plan: BalancerPlan,
        reading: HaproxyStats | None,
        pods: Mapping[str, PodStatistics],
        *,
        servers: int,
        now: float,
        share: float = 1.0,
        instances: int | None = None,
    ) -> None:
        """Update the measurements, and write changed values to HAProxy. Call it once per second.

        Args:
            plan: the balancer's plan.
            reading: HAProxy's current statistics; None if HAProxy does not respond.
            pods: statistics of the pods, by name.
            servers: number of servers that take requests now.
            now: monotonic time, in seconds.
            share: this balancer's share of the demand, from 0 to 1.
            instances: number of instances of the model in a pod. Default: the number in the plan.
        """
        if reading is None:
            return
        service_rate = self._meter.add(reading, servers=servers, now=now)
        rate_mrps, service_ms = (
            (round(service_rate.rate_rps * 1000), round(service_rate.service_s * 1000)) if service_rate else (0, 0)
        )
        forbids_retries = not self._budget.allows(reading, now=now)
        if forbids_retries != self._forbids_retries:
            many = f"{MAX_SHARE:.0%} of the requests lost their connection to a server"
            if forbids_retries:
                log("warning", f"more than {many}; they are no longer retried on another server")
            else:
                log("info", f"no more than {many}; they are retried on another server again")
        self._forbids_retries = forbids_retries
        self.limits.update(
            plan, reading, pods, service_rate, servers=servers, now=now, share=share, instances=instances
        )
        self._variables.set({RATE: rate_mrps, SERVICE: service_ms, ONCE: int(forbids_retries)})
        await self._variables.write(reading.identity)
