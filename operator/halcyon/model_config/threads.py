"""Threads of a model's instances, which share the CPU limit of their pod. Pure.

By default, backends start one thread per core of the node. If a container has used up its CPU limit, the kernel
throttles it: all its threads stop until the next period of 100 ms. With more threads than the limit allows, each
request therefore waits for stopped threads. Sources: kserve/kserve#1031, huggingface/text-embeddings-inference#170.
"""

from __future__ import annotations

from halcyon.api.thread_parameters import THREAD_PARAMETERS
from halcyon.model_config import ensemble
from halcyon.model_config.model_config_proto import ModelConfig

_TWO_BY_DEFAULT = frozenset({"onnxruntime", "tensorflow"})
"""Backends for which Triton starts two instances on CPUs if the configuration has no count. Source: Triton's
model_configuration.md, "CPU Model Instance"."""


def instances(config: ModelConfig, backend: str) -> int:
    """Return the number of instances of a model in a pod without GPUs. If it is not set, Triton's default applies."""
    if ensemble.is_ensemble(config):
        return 0
    default = 2 if backend in _TWO_BY_DEFAULT else 1
    return sum(group.count or default for group in config.instance_group) or default


def share(config: ModelConfig, backend: str, cores: float) -> None:
    """Set the number of threads of an instance to its share of `cores`, if the backend has a parameter for it.

    A number that the configuration sets is kept.
    """
    parameter = None if ensemble.is_ensemble(config) else THREAD_PARAMETERS.get(backend)
    if parameter is not None and parameter not in config.parameters:
        threads = max(int(cores / instances(config, backend)), 1)
        config.parameters[parameter].string_value = str(threads)
