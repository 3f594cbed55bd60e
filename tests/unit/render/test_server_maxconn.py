"""Connections from a balancer process to a server."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon.api.spec import Spec
from halcyon.api.spec.parse import parse
from halcyon.render import server_maxconn


def spec(**fields: Any) -> Spec:
    return parse("digits", {"model": {"source": {"persistentVolumeClaim": {"claimName": "m"}}}, **fields})


@pytest.mark.parametrize(("balancers", "connections"), [(1, 24), (2, 16), (10, 16)])
def test_balancers_keep_three_batches_at_a_server_and_each_at_least_two(balancers: int, connections: int) -> None:
    assert server_maxconn.server_connections(spec(traffic={"balancerReplicas": balancers})) == connections
