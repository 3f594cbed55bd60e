"""Triton's statistics and configuration, as JSON and as protobuf's JSON."""

from __future__ import annotations

import pytest

from halcyon_measure.errors import TargetError
from halcyon_measure.results.observations import ServerConfig, SizeCounters
from halcyon_measure.sampling import server_statistics


def time(count: int, ms: float) -> dict[str, object]:
    # Protobuf's JSON has 64-bit numbers as texts.
    return {"count": str(count), "ns": str(int(ms * 1e6))}


STATISTICS = {
    "name": "m",
    "version": "1",
    "inference_count": 12,
    "execution_count": 3,
    "inference_stats": {
        "success": time(12, 1200), "fail": {}, "queue": time(12, 600), "compute_input": time(12, 12),
        "compute_infer": time(12, 480), "compute_output": {},
    },
    "batch_stats": [{"batch_size": 4, "compute_input": time(3, 3), "compute_infer": time(3, 120), "compute_output": {}}],
}  # fmt: skip


def test_statistics_of_versions_are_added() -> None:
    statistics = server_statistics.parse({"model_stats": [STATISTICS, STATISTICS]})
    assert (statistics.counters.requests, statistics.counters.rows, statistics.counters.executions) == (24, 24, 6)
    assert statistics.counters.queue_s == pytest.approx(1.2)
    assert statistics.counters.output_s == 0
    assert statistics.sizes[4].executions == 6
    assert statistics.sizes == {4: SizeCounters(6, *(pytest.approx(value) for value in (0.006, 0.24, 0)))}


@pytest.mark.parametrize("document", [[], {"error": "closed"}, {"model_stats": [{"name": "m"}]}])
def test_another_document_is_refused(document: object) -> None:
    with pytest.raises(TargetError, match="aren't those of Triton"):
        server_statistics.parse(document)


def test_configuration_has_instances_over_groups_and_gpus() -> None:
    config = server_statistics.parse_config(
        {
            "max_batch_size": 16,
            "instance_group": [{"count": 2, "gpus": [0, 1]}, {"kind": "KIND_CPU"}],
            "dynamic_batching": {"max_queue_delay_microseconds": "5000"},
        }
    )
    assert config == ServerConfig(largest_batch=16, instances=5, max_queue_delay_s=0.005, most_rows=16)


def test_configuration_names_the_inputs_that_may_be_left_out() -> None:
    config = server_statistics.parse_config({"input": [{"name": "x"}, {"name": "seed", "optional": True}]})
    assert config.optional == {"seed"}


def test_a_model_without_batching_has_batches_of_one_row() -> None:
    config = server_statistics.parse_config({"max_batch_size": 0, "instance_group": [{"count": 1}]})
    assert (config.largest_batch, config.instances, config.most_rows) == (1, 1, None)
    assert server_statistics.parse_config(None) == ServerConfig()


def test_steps_of_an_ensemble_and_sequences_are_known() -> None:
    steps = [{"model_name": "tokenize"}, {"model_name": "bert"}, {"model_name": "tokenize"}]
    config = server_statistics.parse_config({"ensemble_scheduling": {"step": steps}})
    assert (config.steps, config.keeps_state) == (("tokenize", "bert"), False)
    # Protobuf's JSON has a field without values as an empty object.
    config = server_statistics.parse_config({"sequence_batching": {}})
    assert (config.steps, config.keeps_state, config.is_decoupled) == ((), True, False)
    config = server_statistics.parse_config({"model_transaction_policy": {"decoupled": True}})
    assert (config.keeps_state, config.is_decoupled) == (False, True)
