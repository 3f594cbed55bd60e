"""Caches of Gateway API routes (HTTPRoute, GRPCRoute), which start as soon as the cluster has these kinds."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from halcyon.control.state import route_conflicts
from halcyon.kube.client import Object
from halcyon.kube.informers.informer import Informer
from halcyon.kube.kinds import Key, Kind

log = logging.getLogger(__name__)

DISCOVERY_INTERVAL_S = 5.0
"""Interval at which the operator checks whether the API server has the kinds of Gateway API routes, in seconds."""


@dataclass
class GatewayRoutes:
    """Informers of Gateway API routes. They start once the API server has the kinds of all these routes."""

    informers: Mapping[Kind, Informer]
    on_synced: Callable[[], None]
    """Function that is called once, when the caches of routes have been filled."""
    enqueue: Callable[[Key], None]
    """Function that is called with the key of each ModelDeployment whose route conflicts may have changed."""
    is_checked: bool = field(default=False, init=False)
    """Whether it is known if the cluster has Gateway API routes: it lacks their kinds, or the caches are filled."""

    def __post_init__(self) -> None:
        """Subscribe to changes of routes in every informer."""
        self._routes_at: dict[Key, dict[tuple[Kind, Key], Object]] = defaultdict(dict)
        for kind, informer in self.informers.items():
            informer.listeners.append(partial(self._changed, kind))

    @property
    def is_synced(self) -> bool:
        """Whether all caches of Gateway API routes have been filled."""
        return all(informer.synced.is_set() for informer in self.informers.values())

    def other_routes(self, owner: Key) -> tuple[Object, ...]:
        """Return the routes of other ModelDeployments that belong to the same Gateways as the routes of `owner`."""
        own_routes = [obj for i in self.informers.values() for obj in i.find(owner.namespace, owner.name)]
        gateways = set().union(*map(route_conflicts.gateways, own_routes))
        routes = (route for gateway in gateways for route in self._routes_at.get(gateway, {}).values())
        return tuple(route for route in routes if route_conflicts.key(route) != owner)

    async def run(self) -> None:
        """Wait until the API server has the kinds of the routes, then keep the caches up to date until cancelled."""
        while not await self._are_served():  # noqa: ASYNC110  # no event says that a kind is new
            await asyncio.sleep(DISCOVERY_INTERVAL_S)
        log.info("the cluster has the Gateway API")
        async with asyncio.TaskGroup() as group:
            for informer in self.informers.values():
                group.create_task(informer.run(), name=f"informer-{informer.kind.plural}")
            for informer in self.informers.values():
                await informer.synced.wait()
            self.is_checked = True
            self.on_synced()

    async def _are_served(self) -> bool:
        served = [await informer.is_served() for informer in self.informers.values()]
        self.is_checked |= False in served
        return all(served)

    def _changed(self, kind: Kind, key: Key, before: Object | None, after: Object | None) -> None:
        for gateway in route_conflicts.gateways(before) if before else ():
            self._routes_at[gateway].pop((kind, key), None)
            if not self._routes_at[gateway]:
                del self._routes_at[gateway]
        for gateway in route_conflicts.gateways(after) if after else ():
            self._routes_at[gateway][kind, key] = after  # type: ignore[assignment]  # not None if it has gateways
        effective = [None if route is None else route_conflicts.admitted(route) for route in (before, after)]
        if all(effective) and effective[0]["spec"] == effective[1]["spec"]:  # type: ignore[index]  # neither is None
            return
        for route in effective:
            for gateway in route_conflicts.gateways(route) if route else ():
                for other in self._routes_at.get(gateway, {}).values():
                    if route is not None and other is not after and route_conflicts.shared_requests(route, other):
                        self.enqueue(route_conflicts.key(other))
