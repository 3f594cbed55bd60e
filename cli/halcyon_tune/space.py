"""Search space of a model: the configurations to try, and the fields that can't be tuned, each with a reason. Pure."""

# | model | batching | instances | threads |
# | --- | --- | --- | --- |
# | with batches | yes | yes | on CPU, if its backend has a parameter for them |
# | without (`max_batch_size: 0`) | no | yes | as above |
# | with sequences | no: a model has one scheduler | yes | as above |
# | an ensemble | no | no: its steps have instances | no |

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from halcyon.api.spec import Spec
from halcyon.api.thread_parameters import THREAD_PARAMETERS
from halcyon.api.types import duration_s
from halcyon_tune.errors import TuneError
from halcyon_tune.points import Configuration

BATCHING, INSTANCES, THREADS = "batching", "runtime.instancesPerGPU", "model.parameters"
_COUNTS = (1, 2, 4, 8, 16)
_MAX_INSTANCES = 8
_MAX_BATCH, _MAX_MAX_BATCH = 32, 256
"""Limits of the largest batch size to try: twice the current size, but at least 32 and at most 256. If the current size
is above 256, it is the largest."""
_DELAY_SHARES = (1 / 20, 1 / 8)
"""Queue delays to try, as fractions of the latency objective."""


@dataclass(frozen=True)
class LeftOut:
    """Field of the spec that can't be tuned, with the reason."""

    field: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Space:
    """Search space of a model: the configurations to try, and the fields that can't be tuned."""

    today: Configuration
    configurations: tuple[Configuration, ...]
    """All configurations to try, including the current one."""
    tuned: tuple[str, ...]
    """Fields of the spec whose values differ between the configurations."""
    left_out: tuple[LeftOut, ...]
    thread_parameter: str = ""
    max_replicas: int = 1000
    rows_per_request: float = 1.0
    """Mean number of rows in a request."""

    @property
    def batches(self) -> tuple[int, ...]:
        """Values of `max_batch` in the search space, in ascending order."""
        return tuple(sorted({configuration.max_batch for configuration in self.configurations}))

    @property
    def families(self) -> tuple[tuple[int, int | None], ...]:
        """Pairs of a number of instances and a number of threads, in the order in which they are measured.

        Pairs with the current number of threads come first, by rising number of instances. Pairs with other numbers of
        threads follow.
        """
        current_threads = self.today.threads
        families = {configuration.family for configuration in self.configurations}
        return tuple(sorted(families, key=lambda family: (family[1] != current_threads, family[1] or 0, family[0])))


def space(
    spec: Spec,
    config: Mapping[str, Any],
    *,
    objective_s: float,
    cores: float | None = None,
    max_replicas: int | None = None,
    rows: tuple[int, int] = (1, 1),
) -> Space:
    """Return the search space of a model.

    Args:
        spec: the model's spec.
        config: the model's configuration in Triton, from `/v2/models/NAME/config`, merged with the spec; empty if it is
            unknown.
        objective_s: the latency objective in seconds. The delays to try are fractions of it.
        cores: number of CPU cores of a pod; None if it has no CPU limit.
        max_replicas: the site's limit on the number of replicas of a model.
        rows: numbers of rows in the smallest and in the largest request, which must fit into a batch.

    Raises:
        TuneError: the objective isn't above 0.
    """
    if objective_s <= 0:
        raise TuneError(f"the objective is {objective_s:g} s; it must be more than 0, for example --objective 60ms")
    left_out: list[LeftOut] = []
    max_rows = rows[1]
    today = _today(spec, config, max_rows)
    batches, delays, preferred = _batching(spec, config, today, left_out, objective_s=objective_s, max_rows=max_rows)
    instances = _instances(spec, config, today, cores, left_out)
    parameter, threads = _threads(spec, config, today, left_out, cores=cores, instances=instances)
    configurations = {today}
    is_batched = spec.batching is not None or "dynamic_batching" in config
    for count, batch, delay, sizes, thread in itertools.product(instances, batches, delays, preferred, threads):
        if thread is not None and thread != today.threads and cores and count * thread > max(cores, 1):
            continue  # more threads than cores only wait for each other
        if sizes and sizes[-1] > batch:
            continue
        if not is_batched and batch == today.max_batch and delay != today.delay_s:
            continue  # it would start the dynamic batcher, with the largest batch of config.pbtxt
        configurations.add(
            Configuration(instances=count, max_batch=batch, delay_s=delay, preferred=sizes, threads=thread)
        )
    tuned = [
        name for name, values in ((BATCHING, batches), (INSTANCES, instances), (THREADS, threads)) if len(values) > 1
    ]
    if max_replicas is not None:
        left_out.append(LeftOut("replicas", f"the site's policy allows {max_replicas} at most"))
    return Space(
        today=today,
        configurations=tuple(sorted(configurations, key=_order)),
        tuned=tuple(tuned),
        left_out=tuple(left_out),
        thread_parameter=parameter,
        max_replicas=max_replicas or 1000,
        rows_per_request=sum(rows) / 2,
    )  # fmt: skip


def _order(configuration: Configuration) -> tuple[object, ...]:
    """Return the sort key of a configuration. The number of threads may be None."""
    settings = configuration.instances, configuration.max_batch, configuration.delay_s, configuration.preferred
    return *settings, configuration.threads or 0


def _today(spec: Spec, config: Mapping[str, Any], max_rows: int) -> Configuration:
    batching, batcher = spec.batching, _mapping(config.get("dynamic_batching"))
    is_batched = batching is not None or "dynamic_batching" in config
    batch = (batching.max_batch_size if batching else None) or _number(config.get("max_batch_size"))
    delay = batching.max_queue_delay if batching else None
    sizes = (batching.preferred_batch_sizes if batching else None) or batcher.get("preferred_batch_size") or ()
    groups = [group for group in config.get("instance_group") or () if isinstance(group, Mapping)]
    instances = spec.runtime.instances_per_gpu or max((_number(group.get("count")) for group in groups), default=1)
    parameter = _thread_parameter(spec, config)
    threads = _parameters(spec, config).get(parameter) if parameter else None
    return Configuration(
        instances=max(instances, 1),
        # Without the dynamic batcher, Triton executes each request alone.
        max_batch=max(batch if is_batched else max_rows, max_rows, 1),
        delay_s=duration_s(delay) if delay else _number(batcher.get("max_queue_delay_microseconds")) / 1e6,
        preferred=tuple(sorted(int(size) for size in sizes)) if is_batched else (),
        threads=int(threads) if threads and threads.isdigit() and int(threads) > 0 else None,
    )


def _batching(
    spec: Spec,
    config: Mapping[str, Any],
    today: Configuration,
    left_out: list[LeftOut],
    *,
    objective_s: float,
    max_rows: int,
) -> tuple[Sequence[int], Sequence[float], Sequence[tuple[int, ...]]]:
    """Return the largest batch sizes, the queue delays and the preferred batch sizes to try."""
    current = [today.max_batch], [today.delay_s], [today.preferred]
    why = ""
    if _is_ensemble(config):
        why = f"config.pbtxt describes an ensemble, which only passes requests on; tune its steps{_steps(config)} as models of their own"
    elif "sequence_batching" in config:
        why = "config.pbtxt has sequence_batching, and a model has one scheduler"
    elif "max_batch_size" in config and _number(config["max_batch_size"]) < 1:
        why = (
            "max_batch_size is 0 in config.pbtxt, so the model takes one request at a time; set spec.batching.maxBatchSize if the "
            "first dimension of its tensors is the batch"
        )
    elif _is_decoupled(config):
        why = "the model is decoupled: it answers a request several times, and its batches don't show what it does"
    elif "max_batch_size" not in config and (spec.batching is None or spec.batching.max_batch_size is None):
        why = "the model's configuration is unknown: no pod was read, and spec.batching.maxBatchSize isn't set"
    if why:
        left_out.append(LeftOut(BATCHING, why))
        return current
    max_batch = max(2 * today.max_batch, _MAX_BATCH)
    max_batch = min(max_batch, max(_MAX_MAX_BATCH, today.max_batch))
    if _backend(spec, config) == "tensorrt":
        # A TensorRT plan is built for a largest batch.
        max_batch = _number(config.get("max_batch_size")) or today.max_batch
        left_out.append(
            LeftOut("batching.maxBatchSize", f"above {max_batch}: the TensorRT plan is built for batches up to that")
        )
    batches = sorted({size for size in _powers(max_batch) if size >= max_rows} | {today.max_batch})
    if place := _priorities(spec, config):
        left_out.append(LeftOut("batching.maxQueueDelay", f"{place} is set, with which Triton can stop for 0.5 s"))
        return batches, [today.delay_s], [today.preferred]
    delays = sorted({0.0, today.delay_s, *(_rounded(share * objective_s) for share in _DELAY_SHARES)})
    return batches, delays, sorted({(), today.preferred})  # fmt: skip


def _instances(
    spec: Spec, config: Mapping[str, Any], today: Configuration, cores: float | None, left_out: list[LeftOut]
) -> Sequence[int]:
    groups = [group for group in config.get("instance_group") or () if isinstance(group, Mapping)]
    why = ""
    if _is_ensemble(config):
        why = "an ensemble has no instances of its own"
    elif groups and all(group.get("kind") == "KIND_MODEL" for group in groups):
        why = "every instance_group in config.pbtxt is of KIND_MODEL, where the model itself places its instances"
    elif _is_decoupled(config):
        why = "the model is decoupled: how many requests it executes at once is its own decision"
    elif len(counts := {_number(group.get("count")) or 1 for group in groups if group.get("kind") != "KIND_MODEL"}) > 1:
        counts_text = " and ".join(map(str, sorted(counts)))
        why = f"the instance groups in config.pbtxt have {counts_text} instances, and the field would give each the same number"
    if why:
        left_out.append(LeftOut(INSTANCES, why))
        return [today.instances]
    max_instances = _MAX_INSTANCES
    if not spec.runtime.gpus and cores is not None:
        max_instances = min(max_instances, max(int(cores), 1))
    return sorted({count for count in _COUNTS if count <= max_instances} | {today.instances})


def _threads(
    spec: Spec,
    config: Mapping[str, Any],
    today: Configuration,
    left_out: list[LeftOut],
    *,
    cores: float | None,
    instances: Sequence[int],
) -> tuple[str, Sequence[int | None]]:
    """Return the name of the parameter for threads, and the numbers of threads to try.

    With these numbers, the instances share the cores of a pod evenly.
    """
    parameter = _thread_parameter(spec, config)
    why = ""
    if spec.runtime.gpus:
        why = "the model runs on GPUs"
    elif _is_ensemble(config):
        why = "an ensemble has no threads of its own"
    elif not parameter:
        why = (
            f"the backend {_backend(spec, config) or 'is unknown, so it'} has no known parameter for threads; a model of the Python "
            "backend can have one of its own, whose name ends with threads, in spec.model.parameters"
        )
    elif cores is None:
        why = "spec.runtime.resources.limits.cpu isn't set, so the cores that instances share are unknown"
    if why or cores is None:
        left_out.append(LeftOut(THREADS, why))
        return "", [today.threads]
    shares = {max(int(cores) // count, 1) for count in instances}
    return parameter, [today.threads, *sorted(shares - {today.threads})]


def _thread_parameter(spec: Spec, config: Mapping[str, Any]) -> str:
    parameter = THREAD_PARAMETERS.get(_backend(spec, config), "")
    names = [
        name
        for name, value in (spec.model.parameters or {}).items()
        if name.lower().endswith("threads") and value.isdigit()
    ]
    return parameter or (names[0] if names else "")  # fmt: skip


def _parameters(spec: Spec, config: Mapping[str, Any]) -> dict[str, str]:
    parameters = {
        name: str(_mapping(value).get("string_value", "")) for name, value in _mapping(config.get("parameters")).items()
    }
    return parameters | dict(spec.model.parameters or {})  # fmt: skip


def _backend(spec: Spec, config: Mapping[str, Any]) -> str:
    platform = str(config.get("platform") or "").partition("_")[0]
    return str(config.get("backend") or platform or spec.model.backend or "")


def _steps(config: Mapping[str, Any]) -> str:
    """Return the names of an ensemble's steps in brackets; empty if the steps are unknown."""
    steps = _mapping(config.get("ensemble_scheduling")).get("step") or ()
    names = [str(_mapping(step).get("model_name") or "") for step in steps]
    return f" ({', '.join(filter(None, names))})" if any(names) else ""


def _priorities(spec: Spec, config: Mapping[str, Any]) -> str:
    """Return the part of the configuration that sets priority levels of Triton's queue; empty if no part does."""
    if spec.batching is not None and spec.batching.priority_levels:
        return "spec.batching.priorityLevels"
    levels = _number(_mapping(config.get("dynamic_batching")).get("priority_levels"))
    return "priority_levels in config.pbtxt" if levels > 1 else ""


def _is_ensemble(config: Mapping[str, Any]) -> bool:
    return "ensemble_scheduling" in config or config.get("platform") == "ensemble"


def _is_decoupled(config: Mapping[str, Any]) -> bool:
    return bool(_mapping(config.get("model_transaction_policy")).get("decoupled"))


def _powers(most: int) -> set[int]:
    return {2**exponent for exponent in range(most.bit_length()) if 2**exponent <= most}


def _rounded(seconds: float) -> float:
    """Return a duration rounded to one significant digit, in whole microseconds."""
    return max(round(float(f"{seconds:.1g}"), 6), 1e-6)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> int:
    """Return an integer from a JSON document of Triton, which writes 64-bit integers as strings."""
    try:
        return int(value or 0)
    except (TypeError, ValueError):
        return 0
