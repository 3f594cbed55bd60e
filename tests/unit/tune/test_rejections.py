from __future__ import annotations

from halcyon_tune.points import Configuration
from halcyon_tune.rejections import tried_values, without
from halcyon_tune.space import Space

TODAY = Configuration(max_batch=4)
CONFIGURATIONS = tuple(
    Configuration(instances=count, max_batch=batch, delay_s=delay)
    for count in (1, 2)
    for batch in (1, 4, 16)
    for delay in (0.0, 0.002)
)
SPACE = Space(today=TODAY, configurations=CONFIGURATIONS, tuned=("batching", "runtime.instancesPerGPU"), left_out=())


def test_each_other_value_is_tried_alone() -> None:
    found = list(tried_values(SPACE))
    assert [(one.attribute, one.value) for one in found] == [
        ("max_batch", 1),
        ("max_batch", 16),
        ("delay_s", 0.002),
        ("instances", 2),
    ]
    assert found[1].configuration == Configuration(max_batch=16)


def test_rejected_value_leaves_with_all_its_configurations() -> None:
    batch = next(one for one in tried_values(SPACE) if one.value == 16)
    found = without(SPACE, [(batch, "policy small-batches: at most 8")])
    assert {one.max_batch for one in found.configurations} == {1, 4}
    assert found.tuned == SPACE.tuned
    [left_out] = found.left_out
    assert left_out.field == "batching.maxBatchSize"
    assert left_out.why == "the site rejects 16: policy small-batches: at most 8"


def test_field_without_other_values_is_no_longer_tuned() -> None:
    rejected = [(one, "no") for one in tried_values(SPACE) if one.attribute in {"max_batch", "delay_s"}]
    found = without(SPACE, rejected)
    assert found.tuned == ("runtime.instancesPerGPU",)
    assert "the site rejects 2 ms: no" in [one.why for one in found.left_out]
    assert without(SPACE, []) == SPACE
