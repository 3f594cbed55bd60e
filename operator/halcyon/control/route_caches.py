"""The caches of a Gateway's routes: a cluster may not know such objects, and may learn of them at any time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from halcyon.control import errors
from halcyon.control.client import Kube
from halcyon.control.informer import Informer
from halcyon.control.kinds import Kind

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
"""How often the API server is asked, while it doesn't know them."""


@dataclass
class RouteCaches:
    """Informers that begin once all of their kinds are known."""

    client: Kube
    informers: Mapping[Kind, Informer]
    on_found: Callable[[], None]
    """Called once, when they are filled."""

    @property
    def found(self) -> bool:
        """Whether they hold what there is."""
        return all(informer.synced.is_set() for informer in self.informers.values())

    async def run(self) -> None:
        """Look, and then keep them filled, until cancelled."""
        while not await self._are_known():  # noqa: ASYNC110  # the API server tells nobody of a new kind
            await asyncio.sleep(LOOK_EVERY_S)
        log.info("the cluster knows routes of the Gateway API")
        async with asyncio.TaskGroup() as group:
            for informer in self.informers.values():
                group.create_task(informer.run(), name=f"informer-{informer.kind.plural}")
            for informer in self.informers.values():
                await informer.synced.wait()
            self.on_found()

    async def _are_known(self) -> bool:
        try:
            for kind, informer in self.informers.items():
                for namespace in informer.namespaces or ("",):
                    await self.client.list(kind, namespace=namespace, selector=informer.selector, metadata_only=True)
        except errors.NotFound:
            return False
        except (errors.ApiError, errors.Unreachable) as error:
            log.warning("whether the cluster knows routes isn't known", extra={"error": str(error)})
            return False
        return True
