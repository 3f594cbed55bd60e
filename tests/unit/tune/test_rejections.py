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
    tried = list(tried_values(SPACE))
    assert [(setting.attribute, setting.value) for setting in tried] == [
        ("max_batch", 1),
        ("max_batch", 16),
        ("delay_s", 0.002),
        ("instances", 2),
    ]
    assert tried[1].configuration == Configuration(max_batch=16)


def test_rejected_value_leaves_with_all_its_configurations() -> None:
    batch = next(setting for setting in tried_values(SPACE) if setting.value == 16)
    remaining = without(SPACE, [(batch, "policy small-batches: at most 8")])
    assert {configuration.max_batch for configuration in remaining.configurations} == {1, 4}
    assert remaining.tuned == SPACE.tuned
    [left_out] = remaining.left_out
    assert left_out.field == "batching.maxBatchSize"
    assert left_out.why == "the site rejects 16: policy small-batches: at most 8"


def test_field_without_other_values_is_no_longer_tuned() -> None:
    rejected = [(setting, "no") for setting in tried_values(SPACE) if setting.attribute in {"max_batch", "delay_s"}]
    remaining = without(SPACE, rejected)
    assert remaining.tuned == ("runtime.instancesPerGPU",)
    assert "the site rejects 2 ms: no" in [field.why for field in remaining.left_out]
    assert without(SPACE, []) == SPACE
