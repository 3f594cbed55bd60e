"""Checks of a measurement before its load, with servers of the KServe v2 protocol that aren't Triton."""

from __future__ import annotations

import json
from typing import Any

import pytest

from halcyon_measure.errors import TargetError
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols import connect
from halcyon_measure.protocols.target import Target, parse
from halcyon_measure.schedule.scenario import Scenario

INPUT = {"name": "x", "datatype": "FP32", "shape": [-1, 4]}


def prepared(metadata: Any, monkeypatch: pytest.MonkeyPatch) -> Target:
    """Return the target of a prepared measurement of a server with this metadata and no configuration."""

    def exchange(_: Target, __: str, path: str, ___: Any = None) -> tuple[int, bytes]:
        return (200, json.dumps(metadata).encode()) if path == "/v2/models/m" else (404, b"Not Found")

    monkeypatch.setattr(connect, "exchange", exchange)
    target = parse("http://h:8080", api="kserve", transport=None, encoding=None, model="m")
    return Measurement(target=target, scenario=Scenario()).prepare().target


def test_outputs_of_a_model_may_be_null(monkeypatch: pytest.MonkeyPatch) -> None:
    target = prepared({"name": "m", "inputs": [INPUT], "outputs": None}, monkeypatch)
    assert [model_input.name for model_input in target.inputs] == ["x"]
    assert target.outputs == ()


@pytest.mark.parametrize("inputs", [[], None])
def test_a_model_without_inputs_in_its_metadata_is_refused(inputs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        TargetError, match=r"http://h:8080 publishes no inputs of m.*--url http://h:8080/v2/models/m/infer"
    ):
        prepared({"name": "m", "inputs": inputs, "outputs": []}, monkeypatch)
