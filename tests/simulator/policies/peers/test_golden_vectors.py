"""Every peer against its golden vector; golden/README.md tells where each comes from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from halcyon_simulator.engine.policy_view import SampleColumn
from halcyon_simulator.policies.peers import PEERS, build
from tests.simulator.policies.peers.open_loop import case, replay, steps

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "golden" / "vectors.json").read_text())["vectors"]


def _replayed(vector: dict[str, Any]) -> list[tuple[float, int]]:
    low, first = vector.get("low", 1), vector.get("first", 1)
    policy = build(vector["policy"], vector["params"], case(low=low))
    signals = {SampleColumn[name]: steps(points) for name, points in vector["signals"].items()}
    return replay(policy, signals, until_s=vector["until_s"], first=first, low=low)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_peer_sets_the_replicas_of_its_golden_vector(vector: dict[str, Any]) -> None:
    assert _replayed(vector) == [tuple(change) for change in vector["counts"]]


def test_every_peer_has_a_golden_vector() -> None:
    # `static` never moves, and the sketch is nobody's published rule.
    assert {vector["policy"] for vector in VECTORS} == PEERS.keys() - {"static", "sketch"}


@pytest.mark.parametrize("name", ["hpa", "keda", "keda-http", "kpa", "kubeai", "wva-hpa", "ray", "aibrix", "cortex"])
def test_the_target_is_by_default_what_a_replica_computes_at_once(name: str) -> None:
    load = {SampleColumn.INFLIGHT: steps([(0, 10), (30, 100)])}
    explicit = replay(build(name, {"target": "10"}, case(max_batch=4)), load, until_s=400)
    assert explicit
    assert replay(build(name, {}, case(max_batch=10)), load, until_s=400) == explicit


def test_aibrix_swings_between_one_and_the_maximum_on_a_step() -> None:
    load = {SampleColumn.INFLIGHT: steps([(0, 10), (300, 100), (1200, 10)])}
    changes = dict(replay(build("aibrix", {}, case()), load, until_s=1300))
    assert [changes[t] for t in (570, 680, 770, 880, 970, 1080, 1170)] == [100, 1, 100, 1, 100, 1, 100]
