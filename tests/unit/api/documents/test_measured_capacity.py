"""The document NAME-capacity: what is read, what is refused, and for what it applies."""

from __future__ import annotations

import pytest

from halcyon.api.documents.measured_capacity import (
    KEY,
    MeasuredCapacity,
    MeasuredCapacityError,
    MeasuredLine,
    Served,
    encoded,
    line_for,
    read,
)
from tests.unit.api.documents.capacity_documents import LINE, SERVED, UNREADABLE, config_map, line


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
        (Served("digits-77aa", SERVED.image, SERVED.gpu_product, 1), "with revision digits-5d7c, but the model serves with digits-77aa"),
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
    capacity = read(config_map(lines=[LINE, {**LINE, "instances": 2, "constantMilliseconds": 95}]))
    assert line_for(capacity, Served(SERVED.revision, SERVED.image, "", 2)).constant_milliseconds == 95


def test_batch_times_are_those_of_the_smallest_and_largest_batch() -> None:
    measured = line_for(read(config_map()), SERVED)
    assert measured.batch_times() == {1: pytest.approx(0.086), 8: pytest.approx(0.128)}
    assert measured.answers() is None


def test_requests_at_once_replace_batch_times() -> None:
    measured = line_for(read(line(constantMilliseconds=16000, perRowMilliseconds=0, maxBatchSize=1, atOnce=32)), SERVED)
    assert measured.batch_times() is None
    assert measured.answers() == (32.0, 16.0)


def test_an_encoded_document_is_read_again() -> None:
    lines = tuple(
        MeasuredLine(instances=n, constant_milliseconds=80.5, per_row_milliseconds=6.25, max_batch_size=64)
        for n in range(1, 9)
    )
    capacity = MeasuredCapacity(
        source="tune", measured_at="2026-11-28T03:15:00Z", revision="r" * 63, image="i" * 512, lines=lines
    )
    assert read({"data": {KEY: encoded(capacity)}}) == capacity
