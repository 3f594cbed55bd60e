from __future__ import annotations

from typing import Any

import pytest

from halcyon.api.spec import Spec
from halcyon.api.spec.parse import parse
from halcyon_tune.errors import TuneError
from halcyon_tune.points import Configuration
from halcyon_tune.space import Space, space

BATCHED: dict[str, Any] = {
    "backend": "onnxruntime",
    "max_batch_size": 8,
    "dynamic_batching": {"max_queue_delay_microseconds": "500"},
    "instance_group": [{"kind": "KIND_GPU", "count": 2}],
}


def spec(**parts: Any) -> Spec:
    return parse("m", {"model": {"source": {"uri": "s3://models/m"}}} | parts)


def made(config: dict[str, Any], **parts: Any) -> Space:
    return space(spec(**parts), config, objective_s=0.06)


def reasons(found: Space) -> dict[str, str]:
    return {one.field: one.why for one in found.left_out}


def test_batched_model_on_a_gpu_has_at_least_36_configurations() -> None:
    found = made(BATCHED, runtime={"gpu": {"count": 1}})
    assert len(found.configurations) >= 36
    assert found.today == Configuration(instances=2, max_batch=8, delay_s=0.0005)
    assert found.today in found.configurations
    assert found.tuned == ("batching", "runtime.instancesPerGPU")
    assert found.batches == (1, 2, 4, 8, 16, 32)


def test_spec_outweighs_the_models_own_configuration() -> None:
    found = made(
        BATCHED,
        runtime={"gpu": {"count": 1}, "instancesPerGPU": 4},
        batching={"maxBatchSize": 24, "maxQueueDelay": "2ms", "preferredBatchSizes": [8, 24]},
    )
    assert found.today == Configuration(instances=4, max_batch=24, delay_s=0.002, preferred=(8, 24))
    assert 24 in found.batches
    assert max(found.batches) == 32


def test_model_without_batches_has_instances_alone() -> None:
    found = made({"max_batch_size": 0}, runtime={"gpu": {"count": 1}})
    assert found.tuned == ("runtime.instancesPerGPU",)
    assert {one.max_batch for one in found.configurations} == {1}
    assert "max_batch_size is 0" in reasons(found)["batching"]


def test_a_model_without_the_batcher_has_no_delay_alone() -> None:
    config = {"max_batch_size": 4, "backend": "onnxruntime"}
    found = made(config)
    assert found.today.max_batch == 1
    assert {one.delay_s for one in found.configurations if one.max_batch == 1} == {0.0}
    assert len({one.delay_s for one in found.configurations if one.max_batch == 4}) == 3


def test_sequences_leave_batching_out_and_name_the_scheduler() -> None:
    found = made({"max_batch_size": 8, "sequence_batching": {}}, runtime={"gpu": {"count": 1}})
    assert found.tuned == ("runtime.instancesPerGPU",)
    assert "one scheduler" in reasons(found)["batching"]


def test_ensemble_has_no_field_to_tune_and_names_its_steps() -> None:
    found = made({"platform": "ensemble", "ensemble_scheduling": {"step": []}, "max_batch_size": 8})
    assert found.tuned == ()
    assert found.configurations == (found.today,)
    assert "its steps" in reasons(found)["batching"]


def test_instances_that_the_model_places_itself_stay() -> None:
    found = made(BATCHED | {"instance_group": [{"kind": "KIND_MODEL"}]}, runtime={"gpu": {"count": 1}})
    assert found.tuned == ("batching",)
    assert "KIND_MODEL" in reasons(found)["runtime.instancesPerGPU"]


def test_tensorrt_plan_limits_the_largest_batch() -> None:
    found = made(BATCHED | {"backend": "tensorrt"}, runtime={"gpu": {"count": 1}})
    assert max(found.batches) == 8
    assert "above 8" in reasons(found)["batching.maxBatchSize"]


def test_threads_share_the_cores_among_instances() -> None:
    found = space(spec(), BATCHED, objective_s=0.06, cores=4)
    assert found.thread_parameter == "intra_op_thread_count"
    assert {one.instances for one in found.configurations} == {1, 2, 4}
    assert all(one.threads is None or one.instances * one.threads <= 4 for one in found.configurations)
    assert {one.threads for one in found.configurations} == {None, 1, 2, 4}


def test_python_model_has_threads_if_its_own_parameter_names_them() -> None:
    parts = {"model": {"source": {"uri": "s3://models/m"}, "parameters": {"torch_threads": "2"}}}
    found = space(parse("m", parts), {"backend": "python", "max_batch_size": 0}, objective_s=1, cores=4)
    assert found.thread_parameter == "torch_threads"
    assert found.today.threads == 2
    assert "python" in reasons(space(spec(), {"backend": "python"}, objective_s=1, cores=4))["model.parameters"]


def test_requests_of_several_rows_fit_into_each_batch() -> None:
    found = space(spec(), BATCHED, objective_s=0.06, rows=(2, 4))
    assert min(found.batches) == 4
    assert found.rows_per_request == 3


def test_policy_of_the_site_limits_replicas_and_is_named() -> None:
    found = space(spec(), BATCHED, objective_s=0.06, max_replicas=5)
    assert found.max_replicas == 5
    assert "5 at most" in reasons(found)["replicas"]


def test_unknown_configuration_leaves_batching_out_unless_the_spec_has_it() -> None:
    assert "unknown" in reasons(made({}))["batching"]
    assert "batching" not in reasons(made({}, batching={"maxBatchSize": 8}))


def test_objective_of_zero_is_refused() -> None:
    with pytest.raises(TuneError, match="more than 0"):
        space(spec(), BATCHED, objective_s=0)


def test_ensemble_names_its_steps() -> None:
    steps = [{"model_name": "resize"}, {"model_name": "classify"}]
    found = made({"platform": "ensemble", "ensemble_scheduling": {"step": steps}})
    assert "its steps (resize, classify) as models of their own" in reasons(found)["batching"]


def test_priorities_of_the_model_itself_keep_the_delay() -> None:
    batching = {"dynamic_batching": {"priority_levels": "3"}}
    found = made(BATCHED | batching, runtime={"gpu": {"count": 1}})
    assert {one.delay_s for one in found.configurations} == {0.0}
    assert "priority_levels in config.pbtxt" in reasons(found)["batching.maxQueueDelay"]
    ours = made(BATCHED, batching={"maxBatchSize": 8, "priorityLevels": 2}, runtime={"gpu": {"count": 1}})
    assert "spec.batching.priorityLevels" in reasons(ours)["batching.maxQueueDelay"]


def test_instance_groups_of_different_counts_stay() -> None:
    groups = [{"kind": "KIND_GPU", "count": 2}, {"kind": "KIND_CPU", "count": 1}, {"kind": "KIND_MODEL"}]
    found = made(BATCHED | {"instance_group": groups}, runtime={"gpu": {"count": 1}})
    assert found.tuned == ("batching",)
    assert "have 1 and 2 instances" in reasons(found)["runtime.instancesPerGPU"]
