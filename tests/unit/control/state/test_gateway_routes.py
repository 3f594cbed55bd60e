"""Whether a cluster has the Gateway API is known only once the API server has answered."""

from __future__ import annotations

from typing import Any

import pytest
from typing_extensions import override

from halcyon.control.state.gateway_routes import GatewayRoutes
from halcyon.kube import errors, kinds
from halcyon.kube.client import Object
from halcyon.kube.informers.informer import Informer
from tests.unit.kube.memory_kube import MemoryKube


class Answering(MemoryKube):
    """An API server that answers each list with one of these errors."""

    def __init__(self, *answers: errors.ApiError) -> None:
        super().__init__()
        self.answers = list(answers)

    @override
    async def list(self, *args: Any, **options: Any) -> tuple[list[Object], str]:
        raise self.answers.pop(0)


@pytest.mark.parametrize(
    ("answers", "checked"),
    [
        ([errors.Busy(503, "restarting")], [False]),
        ([errors.Busy(503, "restarting"), errors.NotFound(404, "no such kind")], [False, True]),
        ([errors.Refused(403, "forbidden"), errors.Busy(429, "slow down")], [True, True]),
    ],
)
async def test_a_busy_api_server_proves_no_missing_gateway_api(
    answers: list[errors.ApiError], checked: list[bool]
) -> None:
    client = Answering(*answers)
    informers = {kind: Informer(client, kind) for kind in [*kinds.ROUTES][:1]}
    routes = GatewayRoutes(informers, on_synced=lambda: None, enqueue=lambda _: None)
    for expected in checked:
        assert not await routes._are_served()
        assert routes.is_checked is expected
