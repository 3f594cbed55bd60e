"""The document NAME-capacity: what is read, what is refused, and for what it applies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from halcyon.api.documents.measured_capacity import (
    KEY,
    MAX_BYTES,
    MeasuredCapacity,
    MeasuredCapacityError,
    MeasuredLine,
    Served,
    encoded,
    line_for,
    read,
)

SERVED = Served("digits-5d7c", "localhost/tritonserver:24.10", "NVIDIA-H200", 1)
LINE = {"instances": 1, "constantMilliseconds": 80, "perRowMilliseconds": 6, "maxBatchSize": 8}
DOCUMENT: dict[str, Any] = {
    "version": 1,
    "source": "bench",
    "measuredAt": "2026-11-28T03:15:00Z",
    "revision": SERVED.revision,
    "image": SERVED.image,
    "gpuProduct": SERVED.gpu_product,
    "lines": [LINE],
}


def config_map(**changes: Any) -> dict[str, Any]:
    return {"data": {KEY: json.dumps({**DOCUMENT, **changes})}}


def line(**changes: Any) -> dict[str, Any]:
    return config_map(lines=[{**LINE, **changes}])


UNREADABLE = {
    "no key": ({"data": {"other": "{}"}}, "it has no key capacity.json"),
    "no data": ({}, "it has no key capacity.json"),
    "not JSON": ({"data": {KEY: "{"}}, "capacity.json: Invalid JSON"),
    "a list": ({"data": {KEY: "[1]"}}, "capacity.json: Input should be an object"),
    "another version": (config_map(version=2, more=1), "version is '2': Input should be 1"),
    "above 4 KiB": (config_map(image="i" * MAX_BYTES), "the limit is 4096"),
    "negative": (line(constantMilliseconds=-80), "lines.0.constantMilliseconds is '-80'"),
    "infinite": (line(perRowMilliseconds=float("inf")), "lines.0.perRowMilliseconds is 'inf'"),
    "not a number": (line(perRowMilliseconds=float("nan")), "lines.0.perRowMilliseconds is 'nan'"),
    "no time at all": (line(constantMilliseconds=0, perRowMilliseconds=0), "less than 0.001 ms"),
    "days for a batch": (line(constantMilliseconds=1e9), "lines.0.constantMilliseconds is '1000000000"),
    "no instance": (line(instances=0), "lines.0.instances is '0'"),
    "an unknown field": (config_map(replicas=7), "replicas is '7'"),
    "no lines": (config_map(lines=[]), "lines is '[]'"),
    "two lines of a kind": (config_map(lines=[LINE, LINE]), "two entries for 1 instances"),
    "no time of measurement": (config_map(measuredAt="yesterday"), "measuredAt is 'yesterday'"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_an_invalid_document_is_refused_with_its_reason(kind: str) -> None:
    content, reason = UNREADABLE[kind]
    with pytest.raises(MeasuredCapacityError) as refused:
        read(content)
    assert reason in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("served", "reason"),
    [
        (Served("digits-77aa", SERVED.image, SERVED.gpu_product, 1), "with revision digits-5d7c, and the model serves with digits-77aa"),
        (Served(SERVED.revision, "localhost/tritonserver:25.01", SERVED.gpu_product, 1), "with image"),
        (Served(SERVED.revision, SERVED.image, "NVIDIA-L4", 1), "with GPU product NVIDIA-H200"),
        (Served(SERVED.revision, SERVED.image, SERVED.gpu_product, 2), "1 instances in a replica"),
    ],
)  # fmt: skip
def test_a_measurement_of_something_else_does_not_apply(served: Served, reason: str) -> None:
    with pytest.raises(MeasuredCapacityError, match=reason):
        line_for(read(config_map()), served)


def test_a_spec_without_a_gpu_product_takes_the_measured_one() -> None:
    assert line_for(read(config_map()), Served(SERVED.revision, SERVED.image, "", 1)).max_batch_size == 8


def test_a_measurement_on_cpu_does_not_apply_to_a_gpu() -> None:
    with pytest.raises(MeasuredCapacityError, match="GPU product none"):
        line_for(read(config_map(gpuProduct=None)), SERVED)


def test_the_line_of_the_same_instances_applies() -> None:
    found = read(config_map(lines=[LINE, {**LINE, "instances": 2, "constantMilliseconds": 95}]))
    assert line_for(found, Served(SERVED.revision, SERVED.image, "", 2)).constant_milliseconds == 95


def test_batch_times_are_those_of_the_smallest_and_largest_batch() -> None:
    found = line_for(read(config_map()), SERVED)
    assert found.batch_times() == {1: pytest.approx(0.086), 8: pytest.approx(0.128)}
    assert found.answers() is None


def test_requests_at_once_replace_batch_times() -> None:
    found = line_for(read(line(constantMilliseconds=16000, perRowMilliseconds=0, maxBatchSize=1, atOnce=32)), SERVED)
    assert found.batch_times() is None
    assert found.answers() == (32.0, 16.0)


def test_an_encoded_document_is_read_again() -> None:
    lines = tuple(
        MeasuredLine(instances=n, constant_milliseconds=80.5, per_row_milliseconds=6.25, max_batch_size=64)
        for n in range(1, 9)
    )
    made = MeasuredCapacity(
        source="tune", measured_at="2026-11-28T03:15:00Z", revision="r" * 63, image="i" * 512, lines=lines
    )
    assert read({"data": {KEY: encoded(made)}}) == made
