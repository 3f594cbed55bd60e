"""Gauges of engines on pages as the documentation of Triton's backends for TensorRT-LLM and vLLM gives them. No engine runs here."""

from __future__ import annotations

from pathlib import Path

import pytest

from halcyon.triton.client import Metrics, parse_metrics

GOLDEN = Path(__file__).parent / "golden"


def read(page: str, model: str) -> Metrics:
    return parse_metrics((GOLDEN / f"{page}.txt").read_text(), model)


def test_requests_in_the_engines_queue_wait_like_those_in_tritons() -> None:
    assert read("tensorrt-llm", "ensemble").pending == 2 + 9
    assert read("vllm", "llm").pending == 5


def test_an_engine_is_as_full_as_its_fullest_room() -> None:
    assert read("tensorrt-llm", "ensemble").engine_used == pytest.approx(6120 / 6239)
    assert read("vllm", "llm").engine_used == pytest.approx(0.97)


@pytest.mark.parametrize(
    ("page", "used", "pending"),
    [
        ("", None, None),
        ('nv_trt_llm_request_metrics{request_type="active"} 3', None, None),
        (
            'nv_trt_llm_request_metrics{request_type="active"} 3\nnv_trt_llm_request_metrics{request_type="max"} 4',
            0.75,
            None,
        ),
        (
            'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used"} 3\nnv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max"} 0',
            None,
            None,
        ),
        ('vllm:kv_cache_usage_perc{model="m"} 1.2', 1.0, None),
        ('vllm:num_requests_waiting{model="m"} 0', None, 0),
        ('vllm:num_requests_waiting{model="m"} NaN', None, None),
    ],
)
def test_values_that_no_engine_reports_are_unknown(page: str, used: float | None, pending: int | None) -> None:
    metrics = parse_metrics(page, "m")
    assert (metrics.engine_used, metrics.pending) == (used, pending)


def test_two_half_full_engines_of_a_pod_are_half_full() -> None:
    page = "\n".join(
        f'{gauge}{{model="m",version="1",engine="{engine}"}} {value}'
        for gauge, values in {"vllm:kv_cache_usage_perc": (0.6, 0.4), "vllm:num_requests_waiting": (2, 3)}.items()
        for engine, value in enumerate(values)
    )
    metrics = parse_metrics(page, "m")
    assert (metrics.engine_used, metrics.pending) == (0.5, 5)


def test_the_blocks_of_two_engines_are_counted_together() -> None:
    name = "nv_trt_llm_kv_cache_block_metrics"
    page = "\n".join(
        f'{name}{{kv_cache_block_type="{part}",model="tensorrt_llm",version="{version}"}} {value}'
        for part, values in {"used": (90, 10), "max": (100, 300)}.items()
        for version, value in enumerate(values, 1)
    )
    assert parse_metrics(page, "ensemble").engine_used == 0.25
