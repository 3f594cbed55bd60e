"""Checks of a measurement before its load, with servers of the KServe v2 protocol that aren't Triton."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halcyon_measure.errors import TargetError, TensorError
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols import connect
from halcyon_measure.protocols.target import Target, parse
from halcyon_measure.schedule.scenario import Scenario

INPUT = {"name": "x", "datatype": "FP32", "shape": [-1, 4]}


def prepared(metadata: Any, monkeypatch: pytest.MonkeyPatch, *, expect: str = "") -> Target:
    """Return the target of a prepared measurement of a server with this metadata and no configuration."""

    def exchange(_: Target, __: str, path: str, ___: Any = None) -> tuple[int, bytes]:
        return (200, json.dumps(metadata).encode()) if path == "/v2/models/m" else (404, b"Not Found")

    monkeypatch.setattr(connect, "exchange", exchange)
    target = parse("http://h:8080", api="kserve", transport=None, encoding=None, model="m")
    return Measurement(target=target, scenario=Scenario(), expect=expect).prepare().target


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


def test_expected_outputs_that_the_model_lacks_are_found_before_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = {"name": "m", "inputs": [INPUT], "outputs": [INPUT | {"name": "y"}]}
    file = tmp_path / "expected.npz"
    np.savez(file, y=np.zeros(4))
    prepared(metadata, monkeypatch, expect=str(file))

    np.savez(file, y=np.zeros(4), z=np.zeros(4))
    with pytest.raises(TensorError, match=r"expected\.npz: m has no output z; it has y, for example numpy\.savez"):
        prepared(metadata, monkeypatch, expect=str(file))
    prepared({"name": "m", "inputs": [INPUT], "outputs": None}, monkeypatch, expect=str(file))
