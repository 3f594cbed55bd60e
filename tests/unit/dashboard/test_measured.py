"""Results of `halcyon bench` beside a model: those that the command keeps, and no others."""

from __future__ import annotations

import json
from typing import Any

from halcyon.dashboard.measured import MAX_RESULT_CHARS, config_map_name, results
from halcyon_cli.bench.records import history
from tests.bench_documents import bench_document

MODEL: dict[str, Any] = {"metadata": {"namespace": "team", "name": "digits", "uid": "u-1"}}


def stored(*seeds: int) -> dict[str, Any]:
    """Return the ConfigMap after measurements, as the command writes it."""
    config_map = None
    for seed in seeds:
        before = (
            None if config_map is None else config_map | {"metadata": config_map["metadata"] | {"resourceVersion": "1"}}
        )
        config_map = history.extended(MODEL, before, bench_document(seed=seed, duration_s=5, sections=True))
    assert config_map is not None
    return config_map


def test_results_are_those_that_the_command_keeps() -> None:
    kept = stored(1, 2)
    assert kept["metadata"]["name"] == config_map_name("digits")
    entries = results(kept, MODEL)
    assert [entry["scenario"]["seed"] for entry in entries] == [2, 1]
    assert entries == history.entries(kept)


def test_a_model_that_was_never_measured_has_no_results() -> None:
    assert results(None, MODEL) == []


def test_a_config_map_of_another_owner_has_no_results() -> None:
    kept = stored(1)
    assert results(kept, {"metadata": MODEL["metadata"] | {"uid": "u-2"}}) == []
    del kept["metadata"]["ownerReferences"]
    assert results(kept, MODEL) == []


def test_text_that_isnt_a_result_is_omitted() -> None:
    kept = stored(1)
    large = json.dumps({"version": 1, "more": "x" * MAX_RESULT_CHARS})
    kept["data"] |= {"a.json": "{", "b.json": "[1]", "c.json": '{"version": 2}', "d.json": large}
    assert [entry["scenario"]["seed"] for entry in results(kept, MODEL)] == [1]
