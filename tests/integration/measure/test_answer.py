"""Answers of `halcyon bench` against a real Triton: capacity, comparison in turns, and a sweep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import HTTP_PORT, METRICS_PORT, Triton, Work
from halcyon.main import main
from halcyon_cli.bench.place import log_result
from halcyon_cli.bench.turns.sides import Side

pytestmark = pytest.mark.more


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Triton]]:
    """Start two servers of one model, of which the second takes half as long again."""
    works = [Work("m", t0_ms=20, a_ms=1, max_batch=8), Work("m", t0_ms=30, a_ms=1.5, max_batch=8)]
    with tritons.running(works) as pair:
        yield pair


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
    p50 = next(difference for difference in comparison["differences"] if difference["figure"] == "p50")
    assert status == 1
    assert comparison["order"] == "ABBAAB"
    assert p50["result"] == "higher"
    assert p50["change"]["value"] == pytest.approx(0.5, abs=0.15)
    assert comparison["bounds"][0]["failed"]


def in_turns(capsys: pytest.CaptureFixture[str], servers: list[Triton], *arguments: str) -> list[dict[str, Any]]:
    """Return the documents in the log of a client that measures both servers in turns."""
    pages = [f"http://{server.address}:{METRICS_PORT}/metrics" for server in servers]
    sides = [
        Side(name=name, url=url(server), model="m", metrics_urls=(page,))
        for name, server, page in zip(("fast", "slow"), servers, pages, strict=True)
    ]
    options = [text for side in sides for text in ("--side", side.to_json())]
    capsys.readouterr()
    assert main(["bench", *options, *arguments, "--wait", "10s", "--to-log"]) in {0, 1}
    lines = capsys.readouterr().out.splitlines()
    documents = (log_result.content(lines, log_result.document_name(number)) for number in range(2))
    return [json.loads(document) for document in documents if document is not None]


def test_one_client_compares_two_models_in_turns(servers: list[Triton], capsys: pytest.CaptureFixture[str]) -> None:
    load = ("--callers", "1", "--duration", "2s", "--rounds", "3", "--against", "fast", "--fail-if", "p50 > +10%")
    (document,) = in_turns(capsys, servers, *load)
    comparison = document["comparison"]
    assert (comparison["baseline"]["name"], comparison["candidate"]["name"]) == ("fast", "slow")
    assert comparison["order"] == "ABBAAB"
    assert (
        next(difference for difference in comparison["differences"] if difference["figure"] == "p50")["result"]
        == "higher"
    )
    assert comparison["bounds"][0]["failed"]
    # Each side has its own metrics.
    assert document["batches"]["executions"]["value"] == pytest.approx(document["requests"]["answered"], abs=2)


def test_one_client_searches_for_both_in_turns(servers: list[Triton], capsys: pytest.CaptureFixture[str]) -> None:
    fast, slow = in_turns(capsys, servers, "--objective", "5ms")
    for document in (fast, slow):
        assert "below one execution: S(1)" in document["capacity"]["sentence"]
    assert fast["capacity"]["single"]["value"] < slow["capacity"]["single"]["value"]


def test_a_sweep_has_a_point_for_each_load(servers: list[Triton], capsys: pytest.CaptureFixture[str]) -> None:
    _, document = bench(capsys, servers[0], "--sweep", "rows=1,4 x callers=2 x encoding=binary,raw", "--duration", "1s")
    points = document["sweep"]["points"]
    assert [(point["rows"], point["protocol"], point["callers"]) for point in points] == [
        ("1", "http", 2), ("1", "grpc", 2), ("4", "http", 2), ("4", "grpc", 2),
    ]  # fmt: skip
    assert all(point["failed"] == 0 and point["throughput"]["value"] > 20 for point in points)
    assert {payload["form"] for payload in document["sweep"]["payloads"]} == {
        "binary",
        "json",
        "raw",
        "typed",
        ".npy",
        "Arrow",
    }
