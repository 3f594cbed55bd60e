"""Endpoints of a real Triton that clients reach without a balancer: those that balancers forward, and no others that change anything."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import HTTP_PORT, Triton, Work
from halcyon.api import open_endpoints
from halcyon.api.spec.parse import parse
from halcyon.render import gateway_routes, names, server
from tests.unit.render.rendered import SITE, SUBJECT

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.more

SPEC = parse(
    "digits",
    {
        "model": {"source": {"persistentVolumeClaim": {"claimName": "models"}}},
        "traffic": {"mode": "Gateway", "gateway": {"name": "edge", "http": {}}},
    },
)


@pytest.fixture(scope="module")
def triton() -> Iterator[Triton]:
    """Start a server with the arguments of the pod template that concern its endpoints."""
    template = server.pod_template(SUBJECT, SPEC, SITE, revision="r", model="digits", overlay="o", snapshot=None)
    arguments = template["spec"]["containers"][0]["args"]
    closing = [argument for argument in arguments if "-restricted-" in argument or "model-control-mode" in argument]
    assert len(closing) == 3
    with tritons.running([Work("digits")], arguments=closing) as (running,):
        yield running


def status(triton: Triton, path: str, *, method: str = "GET") -> int:
    request = urllib.request.Request(f"http://{triton.address}:{HTTP_PORT}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_reads_of_the_list_are_open(triton: Triton) -> None:
    below = open_endpoints.model_path("digits")
    paths = [*open_endpoints.HTTP_SERVER_READS]
    paths += [at + end for at in (below, f"{below}/versions/1") for end in open_endpoints.HTTP_MODEL_READS]
    assert {path: status(triton, path) for path in paths} == dict.fromkeys(paths, 200)


def test_a_route_opens_nothing_beyond_the_list(triton: Triton) -> None:
    gateway = SPEC.traffic.gateway
    assert gateway is not None
    route = gateway_routes.http_route(SUBJECT, SPEC, gateway, [(names.SLOT_A, 100)], model="digits")
    (prefix,) = [
        match["path"]["value"]
        for rule in route["spec"]["rules"]
        for match in rule["matches"]
        if match["path"]["type"] == "PathPrefix"
    ]
    assert status(triton, f"{prefix}/1/ready") == 200
    for method in ("GET", "POST"):
        assert 400 <= status(triton, f"{prefix}/1/trace/setting", method=method) < 500
    for path in ("", "/1/load", "/1/unload", "/1/infer/x", "/1/../../../repository/index", "/x/config", "/2/config"):
        assert 400 <= status(triton, prefix + path, method="GET") < 500, path


def test_administrative_apis_are_closed_over_both_protocols(triton: Triton) -> None:
    closed = [
        "/v2/trace/setting",
        "/v2/models/digits/trace/setting",
        "/v2/logging",
        "/v2/systemsharedmemory/region/x/register",
        "/v2/cudasharedmemory/region/x/register",
        "/v2/repository/models/digits/unload",
        "/v2/repository/models/digits/load",
    ]
    assert [path for path in closed if status(triton, path, method="POST") < 400] == []
    with grpcclient.InferenceServerClient(triton.grpc) as client:
        for call, arguments in {
            client.update_trace_settings: ("digits", {"trace_level": ["OFF"]}),
            client.update_log_settings: ({"log_verbose_level": 1},),
            client.register_system_shared_memory: ("x", "/x", 16),
            client.unload_model: ("digits",),
        }.items():
            with pytest.raises(InferenceServerException):
                call(*arguments)
        assert client.is_model_ready("digits")
