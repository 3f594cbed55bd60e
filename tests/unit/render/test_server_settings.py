"""Arguments of tritonserver and the overlay from the server settings."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from halcyon.api.spec.parse import parse
from halcyon.render import model_overlay, server_settings
from tests.unit.api.spec_cases import document


def arguments(**runtime: Any) -> list[str]:
    return server_settings.triton_args(parse("digits", document("runtime", runtime)).runtime)


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ({}, []),
        ({"logLevel": "Info"}, []),
        ({"logLevel": "Error"}, ["--log-warning=false", "--log-info=false"]),
        ({"logLevel": "Warning"}, ["--log-info=false"]),
        ({"logLevel": "Verbose"}, ["--log-verbose=1"]),
        ({"responseCache": {"size": "1.5Mi"}}, ["--cache-config=local,size=1572864"]),
        ({"pinnedMemoryPool": "0"}, ["--pinned-memory-pool-byte-size=0"]),
        (
            {"cudaMemoryPool": "64Mi"},
            ["--cuda-memory-pool-byte-size=0:67108864", "--cuda-memory-pool-byte-size=1:67108864"],
        ),
    ],
)
def test_each_setting_is_an_option_of_triton(server: dict[str, Any], expected: list[str]) -> None:
    assert arguments(gpu={"count": 2}, server=server) == expected


def test_a_spec_without_settings_adds_no_argument() -> None:
    assert arguments() == []


@pytest.mark.parametrize(
    ("header", "matches"),
    [("x-user", True), ("X-User", True), ("x-user-id", False), ("my-x-user", False), ("tenant_1", True)],
)
def test_forwarded_headers_match_whole_names_in_any_case(header: str, matches: bool) -> None:
    flags = arguments(server={"forwardedHeaders": ["X-user", "Tenant_1"]})
    assert [argument.partition("=")[0] for argument in flags] == [
        "--http-header-forward-pattern",
        "--grpc-header-forward-pattern",
    ]
    for argument in flags:
        assert bool(re.search(argument.partition("=")[2], header)) is matches


def test_the_last_priority_level_is_the_default() -> None:
    spec = parse("digits", document("batching", {"priorityLevels": 3, "queuePolicy": {"defaultTimeout": "5ms"}}))
    batching = json.loads(model_overlay.build("digits", spec).to_json())["dynamic_batching"]
    assert batching["priority_levels"] == batching["default_priority_level"] == 3
    assert batching["queue_policy"]["timeout_us"] == 5000


def test_an_overlay_without_new_fields_is_as_before() -> None:
    overlay = json.loads(model_overlay.build("digits", parse("digits", document("batching", {}))).to_json())
    assert not {"response_cache", "millicores"} & set(overlay)
    assert set(overlay["dynamic_batching"]) == {"max_queue_delay_us", "preferred_batch_sizes", "preserve_ordering"}


@pytest.mark.parametrize(
    ("runtime", "millicores"),
    [
        ({"resources": {"limits": {"cpu": "1500m"}}}, 1500),
        ({"resources": {"requests": {"cpu": "2"}}}, None),
        ({"resources": {"limits": {"cpu": "4"}}, "gpu": {"count": 1}}, None),
    ],
    ids=["limit", "request only", "GPU"],
)
def test_the_overlay_has_the_cpu_limit_of_a_model_without_gpus(
    runtime: dict[str, object], millicores: int | None
) -> None:
    spec = document("batching", {})
    spec["runtime"] = runtime
    assert json.loads(model_overlay.build("digits", parse("digits", spec)).to_json()).get("millicores") == millicores
