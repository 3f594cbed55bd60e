"""Watch of the endpoints of a model: its server pods, and the balancers behind its client Service.

Out of scope: the conversion of an EndpointSlice (`discovery.endpoint_slices`), and how the operator's notices update
the slices (`discovery.pod_notices`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halcyon.balancer.agent.pod_shares import BALANCERS
from halcyon.balancer.discovery import endpoint_slices
from halcyon.balancer.discovery.kube_watch import ApiServerAccess, Watch
from halcyon.balancer.discovery.pod_notices import NoticedEndpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import aiohttp

    from halcyon.api.documents.pod_notice import Notice
    from halcyon.triton.client import Endpoint


class EndpointWatch:
    """Watch of a model's EndpointSlices, updated with the operator's newer notices about pods."""

    def __init__(self, access: ApiServerAccess, on_change: Callable[[tuple[Endpoint, ...]], None]) -> None:
        """Create the watch without starting it.

        Args:
            access: address and credentials of the API server.
            on_change: called with the balancer pods of the model after each change of a slice.
        """
        self._access, self._on_change = access, on_change
        self._listed: tuple[Endpoint, ...] | None = None
        self._noticed = NoticedEndpoints()

    def endpoints(self, now: float) -> tuple[Endpoint, ...] | None:
        """Return the server pods of all slots; None while unknown. `now` is the monotonic time, in seconds."""
        return self._noticed.amend(self._listed, now)

    def add(self, notice: Notice, now: float) -> None:
        """Add the operator's notice about a pod. `now` is the monotonic time, in seconds."""
        self._noticed.add(notice, now)

    async def run(
        self,
        session: aiohttp.ClientSession,
        namespace: str,
        services: Mapping[str, str],
        denied: Callable[[str], None],
    ) -> None:
        """Watch the EndpointSlices of Services until cancelled.

        Args:
            session: HTTP client.
            namespace: namespace of the model.
            services: names of the Services, each with the slot of its endpoints.
            denied: called with the reason if the API server denies the watch.
        """

        def take(slices: Mapping[str, tuple[Endpoint, ...]]) -> None:
            listed = endpoint_slices.merge(slices.values())
            self._listed = tuple(endpoint for endpoint in listed if endpoint.slot != BALANCERS)
            self._on_change(tuple(endpoint for endpoint in listed if endpoint.slot == BALANCERS))

        await Watch(
            session,
            self._access,
            f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
            params={"labelSelector": f"{endpoint_slices.SERVICE_LABEL} in ({','.join(sorted(services))})"},
            project=lambda item: endpoint_slices.of_slice(item, slots=services),
            on_change=take,
            on_denied=denied,
        ).run()
