"""Loop of the agent that adjusts the concurrency limits of the server pods to the loads of all the model's balancers.

The module also reads the number of instances and the type of batching from the model's configuration. It stores the
measured maximum concurrency of a pod in a file, so that the value survives a restart of the container.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import TYPE_CHECKING

from halcyon.balancer.discovery.peers import Peers
from halcyon.balancer.runtime.concurrency import Concurrency
from halcyon.balancer.runtime.haproxy_stats import HaproxyError
from halcyon.balancer.runtime.lower_room import LowerRoom
from halcyon.triton.errors import TritonError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from pathlib import Path

    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.agent.settings import AgentSettings
    from halcyon.balancer.runtime.class_load import ClassLoad
    from halcyon.balancer.runtime.controller import HaproxyController
    from halcyon.balancer.runtime.overload_limits import PodStatistics
    from halcyon.triton.client import Endpoint, TritonClient

INTERVAL_S = 0.25
"""Interval at which the loads of all balancers are read, in seconds. Moving a share of a pod's capacity from one
balancer to another takes up to three intervals."""
BALANCERS = "balancers"
"""Value of the field `slot` for endpoints of the client Service, which are balancers. Real slot names have one
letter."""


class PodShares:
    """Concurrency limits that one HAProxy applies to the server pods."""

    def __init__(self, settings: AgentSettings) -> None:
        """Load the maximum concurrencies that an earlier agent in this pod measured."""
        self._file = settings.run_dir / "bounds.json"
        self._peers = Peers(settings.pod, settings.port)
        self.concurrency = Concurrency(settings.pod, _read(self._file))
        self.balancers: tuple[Endpoint, ...] = ()
        """Balancer pods of the model, from the endpoints of its client Service."""
        self.lower = LowerRoom()

    async def run(self, controller: HaproxyController, limit_queue: Callable[[], Awaitable[None]]) -> None:
        """Read the loads of the other balancers and update this balancer's limits, until cancelled.

        Args:
            controller: controller of this balancer's HAProxy.
            limit_queue: writes the limits on the queue, which depend on the share of the pods.
        """
        clock, stored = asyncio.get_running_loop().time, dict(self.concurrency.measured)
        while True:
            if controller.shares_pods:
                self.concurrency.others = await self._peers.read(self.balancers, now=clock())
                # If HAProxy does not respond, the next pass of the controller logs it.
                with contextlib.suppress(HaproxyError):
                    await controller.share()
                await limit_queue()
            if stored != self.concurrency.measured:
                stored = dict(self.concurrency.measured)
                _write(self._file, stored)
            await asyncio.sleep(INTERVAL_S)

    def sample(self, plan: BalancerPlan, pods: Mapping[str, PodStatistics]) -> None:
        """Add a sample of the pods' statistics, by pod name.

        The capacity available for batch inference is computed from these samples.
        """
        if plan.has_lower_class:
            loads = (self.concurrency.own, *self.concurrency.others)
            self.lower.sample(plan, pods, idle=not any(load.lower for load in loads))

    def room(self, plan: BalancerPlan, classes: ClassLoad | None, *, servers: int) -> dict[str, int]:
        """Return the HAProxy variables that limit batch inference, by name.

        They include the limits on rows in progress at servers, and the mean number of rows in a user's request. The
        result is empty if the plan allows no batch inference. `servers` is the number of servers that take requests.
        """
        if not plan.has_lower_class or classes is None:
            self.concurrency.lower = (0.0, 0, 0)
            return {}
        now, concurrency = asyncio.get_running_loop().time(), self.concurrency
        self.lower.count(classes, now)
        concurrency.lower = (self.lower.users_rps, classes.present, classes.sent)
        at_once, batches = concurrency.at_once(plan)
        # All balancers have nearly the same wall clock.
        return self.lower.values(
            plan,
            concurrency.own,
            concurrency.others,
            at_once=at_once,
            batches=batches,
            pods=servers,
            turn=int(time.time()),
        )

    async def read_facts(self, client: TritonClient, endpoints: Iterable[Endpoint]) -> None:
        """Read the model's configuration for each revision whose configuration is not known yet.

        Pods that do not respond are skipped.
        """
        for revision, endpoint in self.concurrency.unknown_revisions(endpoints).items():
            with contextlib.suppress(TritonError):
                self.concurrency.facts[revision] = await client.facts(endpoint.address)


def _read(path: Path) -> dict[str, int]:
    """Return the stored maximum concurrency of a pod for each revision.

    Without a valid file, the result is empty, because the maximum can be measured again.
    """
    try:
        return {str(revision): int(bound) for revision, bound in json.loads(path.read_text()).items() if bound > 0}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _write(path: Path, bounds: Mapping[str, int]) -> None:
    new_path = path.with_suffix(".new")
    new_path.write_text(json.dumps(bounds))
    new_path.replace(path)
