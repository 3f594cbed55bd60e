"""Layout of tensors in shared memory, and what it doesn't fit to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from halcyon_measure.errors import TargetError
from halcyon_measure.inputs.payloads import Payload
from halcyon_measure.inputs.tensors import ModelInput
from halcyon_measure.protocols import shared_memory, target
from halcyon_measure.protocols.target import Target

TARGET = replace(
    target.parse("http://127.0.0.1:8000", api="kserve", transport=None, encoding=None, model="m"),
    inputs=(ModelInput("x", "FP32", (-1, 3)), ModelInput("s", "BYTES", (-1, 1))),
    outputs=(
        ModelInput("y", "FP16", (-1, 5)),
        ModelInput("text", "BYTES", (-1, 1)),
        ModelInput("boxes", "FP32", (-1, -1, 4)),
    ),
    shared_memory="system",
)


def payload(rows: int) -> Payload:
    strings = np.array([[b"ab"]] * rows, dtype=np.object_)
    return Payload({"x": np.zeros((rows, 3), np.float32), "s": strings}, rows)


def test_slots_of_a_region_do_not_overlap() -> None:
    slots, size = shared_memory.layout(TARGET, [payload(1), payload(7)])
    places = [place for slot in slots for place in (*slot.inputs.values(), *slot.outputs.values())]
    assert [slot.inputs["x"].size for slot in slots] == [12, 84]
    assert [slot.inputs["s"].size for slot in slots] == [6, 42]  # a string has a length of four bytes in front
    assert [slot.outputs["y"].size for slot in slots] == [10, 70]
    ends = [place.offset + place.size for place in places]
    assert all(end <= place.offset for end, place in zip(ends, places[1:], strict=False))
    assert all(place.offset % 64 == 0 for place in places)
    assert ends[-1] <= size


def test_outputs_of_unknown_size_come_in_the_answer() -> None:
    slots, _ = shared_memory.layout(TARGET, [payload(2)])
    assert set(slots[0].outputs) == {"y"}
    assert shared_memory.output_size(ModelInput("y", "BF16", (4, 2)), 1, has_rows=False) == 16
    assert shared_memory.output_size(ModelInput("y", "FP32", (-1,)), 3, has_rows=True) == 12
    assert shared_memory.output_size(ModelInput("y", "FP32", (-1,)), 3, has_rows=False) is None


@pytest.mark.parametrize(
    ("changed", "has_functions", "message"),
    [
        ({"api": "tfserving"}, False, "api tfserving has no shared memory"),
        ({"encoding": "json"}, False, "encoding json puts the values into each request"),
        ({"transport": "grpc", "encoding": "typed"}, False, "encoding typed puts the values into each request"),
        ({}, True, "functions of --prepare, --finish and --decode run in other processes"),
    ],
)
def test_protocols_and_functions_without_shared_memory_are_refused(
    changed: dict[str, str], has_functions: bool, message: str
) -> None:
    with pytest.raises(TargetError, match=message):
        shared_memory.check(Target.from_dict(TARGET.to_dict() | changed), has_functions=has_functions)
    shared_memory.check(TARGET, has_functions=False)


def test_target_with_shared_memory_is_passed_to_workers_as_it_is() -> None:
    assert Target.from_dict(TARGET.to_dict()) == TARGET
