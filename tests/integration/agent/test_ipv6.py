"""A balancer on an IPv6-only network: HAProxy's ports, its connections to pods, and the agent's own, over ::1.

Triton on such a network is in tests/integration/render, the operator's ports in tests/integration/metricsapi, downloads in
tests/integration/fetch.
"""

from __future__ import annotations

from dataclasses import replace

import aiohttp
import grpc.aio  # type: ignore[import-untyped]  # grpcio has no types
import pytest

from halcyon.balancer.discovery import endpoint_slices
from halcyon.balancer.runtime.controller import HaproxyController
from halcyon.triton.client import TritonClient
from halcyon.triton.pod_sampler import PodSampler
from tests.integration.balanced import TIMEOUT, Balanced, infer
from tests.ports import free_ports
from tests.unit.balancer import real_haproxy
from tests.unit.balancer.stand_ins import Pod

pytestmark = pytest.mark.more

SLICE = {
    "metadata": {"labels": {"kubernetes.io/service-name": "m-server-a"}},
    "addressType": "IPv6",
    "endpoints": [{"addresses": ["::1"], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "name": "p"}}],
}


async def test_requests_pass_from_clients_to_pods_over_ipv6() -> None:
    with real_haproxy.haproxy() as haproxy:
        haproxy.listen = replace(haproxy.listen, dual_stack=True)
        balanced = Balanced(haproxy, HaproxyController(haproxy.runtime, haproxy.config, haproxy.listen), [])
        await balanced.begin()
        pod = await Pod("::1", haproxy.ports.server_http, haproxy.ports.server_grpc).start()
        try:
            endpoints = endpoint_slices.merge([endpoint_slices.of_slice(SLICE, slots={"m-server-a": "a"})])
            await balanced.pilot.run_pass(endpoints)
            url = f"http://[::1]:{haproxy.ports.http}/v2/models/m/infer"
            async with aiohttp.ClientSession(timeout=TIMEOUT) as session, session.post(url, json={}) as response:
                assert response.status == 200
            async with grpc.aio.insecure_channel(f"[::1]:{haproxy.ports.grpc}") as channel:
                await infer(channel)
            assert (pod.http_count, pod.grpc_count) == (1, 1)
        finally:
            await pod.stop()


async def test_the_agent_reads_pods_with_ipv6_addresses() -> None:
    http, metrics = free_ports(2)
    page = 'nv_inference_pending_request_count{model="m",version="1"} 7\n'
    pod = await Pod("::1", http, 0, metrics, page=page).start(with_grpc=False)
    try:
        (endpoint,) = endpoint_slices.of_slice(SLICE, slots={"m-server-a": "a"})
        async with aiohttp.ClientSession() as session:
            sampler = PodSampler(TritonClient(session, "m", http, metrics), lambda: 1000.0)
            seen = await sampler.sample([endpoint])
        assert seen["p"].metrics is not None
        assert seen["p"].metrics.pending == 7
    finally:
        await pod.stop()
