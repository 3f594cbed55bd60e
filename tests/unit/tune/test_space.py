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


def space_of(config: dict[str, Any], **parts: Any) -> Space:
    return space(spec(**parts), config, objective_s=0.06)


def reasons(search_space: Space) -> dict[str, str]:
    return {field.field: field.why for field in search_space.left_out}


def test_batched_model_on_a_gpu_has_at_least_36_configurations() -> None:
    search_space = space_of(BATCHED, runtime={"gpu": {"count": 1}})
    assert len(search_space.configurations) >= 36
    assert search_space.today == Configuration(instances=2, max_batch=8, delay_s=0.0005)
    assert search_space.today in search_space.configurations
    assert search_space.tuned == ("batching", "runtime.instancesPerGPU")
    assert search_space.batches == (1, 2, 4, 8, 16, 32)


def test_spec_outweighs_the_models_own_configuration() -> None:
    search_space = space_of(
        BATCHED,
        runtime={"gpu": {"count": 1}, "instancesPerGPU": 4},
        batching={"maxBatchSize": 24, "maxQueueDelay": "2ms", "preferredBatchSizes": [8, 24]},
    )
    assert search_space.today == Configuration(instances=4, max_batch=24, delay_s=0.002, preferred=(8, 24))
    assert 24 in search_space.batches
    assert max(search_space.batches) == 32


def test_model_without_batches_has_instances_alone() -> None:
    search_space = space_of({"max_batch_size": 0}, runtime={"gpu": {"count": 1}})
    assert search_space.tuned == ("runtime.instancesPerGPU",)
    assert {configuration.max_batch for configuration in search_space.configurations} == {1}
    assert "max_batch_size is 0" in reasons(search_space)["batching"]


def test_a_model_without_the_batcher_has_no_delay_alone() -> None:
    config = {"max_batch_size": 4, "backend": "onnxruntime"}
    search_space = space_of(config)
    assert search_space.today.max_batch == 1
    assert {configuration.delay_s for configuration in search_space.configurations if configuration.max_batch == 1} == {
        0.0
    }
    assert (
        len({configuration.delay_s for configuration in search_space.configurations if configuration.max_batch == 4})
        == 3
    )


def test_sequences_leave_batching_out_and_name_the_scheduler() -> None:
    search_space = space_of({"max_batch_size": 8, "sequence_batching": {}}, runtime={"gpu": {"count": 1}})
    assert search_space.tuned == ("runtime.instancesPerGPU",)
    assert "one scheduler" in reasons(search_space)["batching"]


def test_ensemble_has_no_field_to_tune_and_names_its_steps() -> None:
    search_space = space_of({"platform": "ensemble", "ensemble_scheduling": {"step": []}, "max_batch_size": 8})
    assert search_space.tuned == ()
    assert search_space.configurations == (search_space.today,)
    assert "its steps" in reasons(search_space)["batching"]


def test_instances_that_the_model_places_itself_stay() -> None:
    search_space = space_of(BATCHED | {"instance_group": [{"kind": "KIND_MODEL"}]}, runtime={"gpu": {"count": 1}})
    assert search_space.tuned == ("batching",)
    assert "KIND_MODEL" in reasons(search_space)["runtime.instancesPerGPU"]


def test_tensorrt_plan_limits_the_largest_batch() -> None:
    search_space = space_of(BATCHED | {"backend": "tensorrt"}, runtime={"gpu": {"count": 1}})
    assert max(search_space.batches) == 8
    assert "above 8" in reasons(search_space)["batching.maxBatchSize"]


def test_threads_share_the_cores_among_instances() -> None:
    search_space = space(spec(), BATCHED, objective_s=0.06, cores=4)
    assert search_space.thread_parameter == "intra_op_thread_count"
    assert {configuration.instances for configuration in search_space.configurations} == {1, 2, 4}
    assert all(
        configuration.threads is None or configuration.instances * configuration.threads <= 4
        for configuration in search_space.configurations
    )
    assert {configuration.threads for configuration in search_space.configurations} == {None, 1, 2, 4}


def test_python_model_has_threads_if_its_own_parameter_names_them() -> None:
    parts = {"model": {"source": {"uri": "s3://models/m"}, "parameters": {"torch_threads": "2"}}}
    search_space = space(parse("m", parts), {"backend": "python", "max_batch_size": 0}, objective_s=1, cores=4)
    assert search_space.thread_parameter == "torch_threads"
    assert search_space.today.threads == 2
    assert "python" in reasons(space(spec(), {"backend": "python"}, objective_s=1, cores=4))["model.parameters"]


def test_requests_of_several_rows_fit_into_each_batch() -> None:
    search_space = space(spec(), BATCHED, objective_s=0.06, rows=(2, 4))
    assert min(search_space.batches) == 4
    assert search_space.rows_per_request == 3


def test_policy_of_the_site_limits_replicas_and_is_named() -> None:
    search_space = space(spec(), BATCHED, objective_s=0.06, max_replicas=5)
    assert search_space.max_replicas == 5
    assert "5 at most" in reasons(search_space)["replicas"]


def test_unknown_configuration_leaves_batching_out_unless_the_spec_has_it() -> None:
    assert "unknown" in reasons(space_of({}))["batching"]
    assert "batching" not in reasons(space_of({}, batching={"maxBatchSize": 8}))


def test_objective_of_zero_is_refused() -> None:
    with pytest.raises(TuneError, match="more than 0"):
        space(spec(), BATCHED, objective_s=0)


def test_ensemble_names_its_steps() -> None:
    steps = [{"model_name": "resize"}, {"model_name": "classify"}]
    search_space = space_of({"platform": "ensemble", "ensemble_scheduling": {"step": steps}})
    assert "its steps (resize, classify) as models of their own" in reasons(search_space)["batching"]


def test_priorities_of_the_model_itself_keep_the_delay() -> None:
    batching = {"dynamic_batching": {"priority_levels": "3"}}
    search_space = space_of(BATCHED | batching, runtime={"gpu": {"count": 1}})
    assert {configuration.delay_s for configuration in search_space.configurations} == {0.0}
    assert "priority_levels in config.pbtxt" in reasons(search_space)["batching.maxQueueDelay"]
    ours = space_of(BATCHED, batching={"maxBatchSize": 8, "priorityLevels": 2}, runtime={"gpu": {"count": 1}})
    assert "spec.batching.priorityLevels" in reasons(ours)["batching.maxQueueDelay"]


def test_instance_groups_of_different_counts_stay() -> None:
    groups = [{"kind": "KIND_GPU", "count": 2}, {"kind": "KIND_CPU", "count": 1}, {"kind": "KIND_MODEL"}]
    search_space = space_of(BATCHED | {"instance_group": groups}, runtime={"gpu": {"count": 1}})
    assert search_space.tuned == ("batching",)
    assert "have 1 and 2 instances" in reasons(search_space)["runtime.instancesPerGPU"]
