"""Answers of `halcyon bench` against a real Triton: capacity, comparison in turns, and a sweep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import HTTP_PORT, METRICS_PORT, Triton, Work
from halcyon.main import main

pytestmark = pytest.mark.more


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Triton]]:
    """Start two servers of one model, of which the second takes half as long again."""
    works = [Work("m", t0_ms=20, a_ms=1, max_batch=8), Work("m", t0_ms=30, a_ms=1.5, max_batch=8)]
    with tritons.running(works) as made:
        yield made


def bench(capsys: pytest.CaptureFixture[str], triton: Triton, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Return exit status and document of `halcyon bench` of a server."""
    page = f"http://{triton.address}:{METRICS_PORT}/metrics"
    capsys.readouterr()
    status = main(["bench", "--url", url(triton), "--model", "m", "--metrics-url", page, *arguments, "-o", "json"])
    return status, json.loads(capsys.readouterr().out)


def url(triton: Triton) -> str:
    return f"http://{triton.address}:{HTTP_PORT}"


def test_an_objective_below_one_execution_says_s1(servers: list[Triton], capsys: pytest.CaptureFixture[str]) -> None:
    _, document = bench(capsys, servers[0], "--objective", "5ms")
    capacity = document["capacity"]
    assert capacity["rate"]["value"] is None
    assert "below one execution: S(1)" in capacity["sentence"]
    assert capacity["single"]["value"] > 20


def test_a_slower_server_is_found_in_turns(servers: list[Triton], capsys: pytest.CaptureFixture[str]) -> None:
    fast, slow = servers
    load = ("--callers", "1", "--duration", "2s", "--rounds", "3", "--fail-if", "p50 > +10%")
    status, document = bench(capsys, slow, "--against", url(fast), *load)
    comparison = document["comparison"]
    p50 = next(one for one in comparison["differences"] if one["figure"] == "p50")
    assert status == 1
    assert comparison["order"] == "ABBAAB"
    assert p50["result"] == "higher"
    assert p50["change"]["value"] == pytest.approx(0.5, abs=0.15)
    assert comparison["bounds"][0]["failed"]


def test_a_sweep_has_a_point_for_each_load(servers: list[Triton], capsys: pytest.CaptureFixture[str]) -> None:
    _, document = bench(capsys, servers[0], "--sweep", "rows=1,4 x callers=2 x encoding=binary,raw", "--duration", "1s")
    points = document["sweep"]["points"]
    assert [(one["rows"], one["protocol"], one["callers"]) for one in points] == [
        ("1", "http", 2), ("1", "grpc", 2), ("4", "http", 2), ("4", "grpc", 2),
    ]  # fmt: skip
    assert all(one["failed"] == 0 and one["throughput"]["value"] > 20 for one in points)
    assert {one["form"] for one in document["sweep"]["payloads"]} == {
        "binary",
        "json",
        "raw",
        "typed",
        ".npy",
        "Arrow",
    }
