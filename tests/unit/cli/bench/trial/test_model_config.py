"""The model's configuration in Triton with other settings."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon_cli.bench.trial.model_config import changed, is_about_memory
from halcyon_tune.points import Configuration

CONFIG: dict[str, Any] = {
    "name": "m",
    "max_batch_size": 8,
    "dynamic_batching": {"preferred_batch_size": [8], "max_queue_delay_microseconds": "500", "preserve_ordering": True},
    "instance_group": [
        {"name": "m_0", "count": 1, "kind": "KIND_GPU", "gpus": [0]},
        {"name": "m_1", "count": 1, "kind": "KIND_MODEL"},
    ],
    "parameters": {"a_ms": {"string_value": "5"}},
    "model_warmup": [{"name": "full", "batch_size": 8}],
}


def test_settings_replace_those_of_the_configuration_and_others_stay() -> None:
    settings = Configuration(instances=2, max_batch=16, delay_s=0.002, preferred=(4, 16), threads=3)
    config = changed(CONFIG, settings, threads_parameter="threads")
    assert config["max_batch_size"] == 16
    assert config["dynamic_batching"] == {
        "preferred_batch_size": [4, 16], "max_queue_delay_microseconds": 2000, "preserve_ordering": True,
    }  # fmt: skip
    assert [group["count"] for group in config["instance_group"]] == [2, 1]
    assert config["parameters"] == {"a_ms": {"string_value": "5"}, "threads": {"string_value": "3"}}
    assert config["model_warmup"] == CONFIG["model_warmup"]
    assert CONFIG["max_batch_size"] == 8


def test_single_rows_have_neither_a_delay_nor_preferred_sizes() -> None:
    config = changed(CONFIG, Configuration(max_batch=1), threads_parameter="")
    assert config["max_batch_size"] == 1
    assert config["dynamic_batching"]["preferred_batch_size"] == []
    assert config["dynamic_batching"]["max_queue_delay_microseconds"] == 0


def test_model_without_rows_stays_without_batching() -> None:
    config = changed({"name": "m", "max_batch_size": 0}, Configuration(instances=3, threads=2), threads_parameter="")
    assert config == {"name": "m", "max_batch_size": 0, "instance_group": [{"count": 3}]}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("CUDA out of memory. Tried to allocate 2 GiB", True),
        ("std::bad_alloc", True),
        ("MemoryError: cannot allocate", True),
        ("Failed to increase the shared memory pool size for key", True),
        ("model bloom has no room in its queue", False),
        ("preferred_batch_size must be <= max batch size", False),
    ],
)
def test_lack_of_memory_is_known_by_its_message(message: str, expected: bool) -> None:  # a parameter
    assert is_about_memory(message) is expected
