"""What each process loads: memory is a budget, and heavy packages stay out of processes that have no use for them."""

import subprocess
import sys

import pytest

HEAVY = ("pandas", "numpy", "grpc", "prometheus_api_client")
CONTROLLER = ("kopf", "kubernetes", "pydantic", "prometheus_client", "requests")
SYNCHRONOUS = ("requests", "requests_oauthlib", "oauthlib", "websocket", "kubernetes.config")
"""Imports of the synchronous half of the package `kubernetes`."""
LACKS = {
    "halcyon.control.runtime.app": (*HEAVY, *SYNCHRONOUS, "opentelemetry"),
    "halcyon.balancer.agent.main": (*HEAVY, *CONTROLLER, "google.protobuf", "cryptography"),
    "halcyon.fetch.main": (*HEAVY, *CONTROLLER, "aiohttp", "cryptography"),
}


@pytest.mark.parametrize("module", LACKS)
def test_a_process_loads_nothing_that_it_has_no_use_for(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({set(LACKS[module])!r} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": "operator"}
    )
    assert done.stdout.split() == []
