from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any, cast

import pytest

from halcyon.triton import backend_probe
from halcyon.triton.backend_probe import BackendProbes
from halcyon.triton.client import Answer, Endpoint, Metrics, TritonClient
from halcyon.triton.dead_backend import DeadBackends, Suspicion
from halcyon.triton.pod_sampler import ScrapedPod
from halcyon.triton.probe_request import MAX_PROBE_BYTES, Probe, build, may_share_batches
from halcyon.triton.repository_index import RepositoryIndex

IMAGE = {"name": "image", "data_type": "TYPE_FP32", "dims": [3, 4, -1]}


def config(**changes: Any) -> dict[str, Any]:
    """Return a configuration as Triton returns it."""
    return {"max_batch_size": 8, "input": [IMAGE], "dynamic_batching": {}, "instance_group": [{"count": 2}]} | changes


def document(probe: Probe | None) -> tuple[dict[str, Any], int]:
    """Return the JSON part of a probe and the number of bytes after it."""
    assert probe is not None
    length = int(probe.headers["Inference-Header-Content-Length"])
    return json.loads(probe.body[:length]), len(probe.body) - length


def test_a_probe_fills_a_whole_batch_with_zeros() -> None:
    probe = build(config())
    request, size = document(probe)
    assert request["inputs"][0]["shape"] == [8, 3, 4, 1]
    assert size == request["inputs"][0]["parameters"]["binary_data_size"] == 8 * 12 * 4
    assert probe is not None
    assert (probe.path, probe.is_alone, probe.instances) == ("infer", True, 2)


@pytest.mark.parametrize(
    ("changes", "rows", "is_alone", "shape"),
    [
        ({}, 1, False, [1, 3, 4, 1]),
        ({"max_batch_size": 0}, None, True, [3, 4, 1]),
        ({"max_batch_size": 1}, None, True, [1, 3, 4, 1]),
        ({"sequence_batching": {}}, None, False, [1, 3, 4, 1]),
        ({"max_batch_size": MAX_PROBE_BYTES // 48}, None, True, [MAX_PROBE_BYTES // 48, 3, 4, 1]),
        ({"max_batch_size": MAX_PROBE_BYTES // 48 + 1}, None, False, [1, 3, 4, 1]),
    ],
)
def test_only_a_probe_without_other_requests_in_its_batch_is_alone(
    changes: dict[str, Any], rows: int | None, *, is_alone: bool, shape: list[int]
) -> None:
    probe = build(config(**changes), rows=rows)
    assert document(probe)[0]["inputs"][0]["shape"] == shape
    assert probe is not None
    assert probe.is_alone == is_alone


def test_without_a_batcher_requests_are_executed_alone() -> None:
    model_config = config()
    del model_config["dynamic_batching"]
    probe = build(model_config, rows=1)
    assert probe is not None
    assert probe.is_alone


def test_the_first_warm_up_request_gives_shapes_and_inputs() -> None:
    warm = {"inputs": {"text": {"data_type": "TYPE_STRING", "dims": ["2"], "zero_data": True}}}
    own = [{"name": "text", "data_type": "TYPE_STRING", "dims": ["-1"]}]
    request, size = document(build(config(max_batch_size=0, input=own, model_warmup=[{"name": "x"}, warm])))
    assert [(t["name"], t["datatype"], t["shape"]) for t in request["inputs"]] == [("text", "BYTES", [2])]
    assert size == 8, "two empty strings, each with its length"


def test_controls_in_a_warm_up_are_no_inputs_of_the_probe() -> None:
    warm = {"inputs": {name: {"data_type": "TYPE_FP32", "dims": ["1"]} for name in ("START", "image")}}
    request, _ = document(build(config(sequence_batching={}, model_warmup=[warm])))
    assert [tensor["name"] for tensor in request["inputs"]] == ["image"], "Triton rejects a request with a control"


def test_optional_inputs_are_left_out() -> None:
    request, _ = document(build(config(input=[IMAGE, {**IMAGE, "name": "mask", "optional": True}])))
    assert [tensor["name"] for tensor in request["inputs"]] == ["image"]


def test_a_sequence_model_gets_a_sequence_of_one_request() -> None:
    parameters = document(build(config(sequence_batching={})))[0]["parameters"]
    assert parameters["sequence_start"] is True
    assert parameters["sequence_end"] is True
    assert parameters["sequence_id"] >= 2**62


def test_a_text_as_sequence_id_has_all_characters_that_triton_reads() -> None:
    controls = [
        {"name": "START", "control": [{"kind": "CONTROL_SEQUENCE_START", "data_type": "TYPE_INVALID"}]},
        {"name": "ID", "control": [{"kind": "CONTROL_SEQUENCE_CORRID", "data_type": "TYPE_STRING"}]},
    ]
    number = document(build(config(sequence_batching={"control_input": controls})))[0]["parameters"]["sequence_id"]
    assert (len(number), number.isdecimal()) == (128, True)


@pytest.mark.parametrize(
    ("dims", "body", "rows", "is_alone"),
    [
        ([1], {"x": [0, 0, 0, 0]}, 4, True),
        ([1, 2], {"x": [0] * 8}, 4, True),
        ([-1], {"x": 0}, 1, False),
    ],
)
def test_the_stream_to_a_decoupled_model_fills_its_batch(
    dims: list[int], body: dict[str, Any], rows: int, *, is_alone: bool
) -> None:
    tensor = {"name": "x", "data_type": "TYPE_INT32", "dims": dims}
    probe = build(config(max_batch_size=4, input=[tensor], model_transaction_policy={"decoupled": True}))
    assert probe is not None
    assert (json.loads(probe.body), probe.rows, probe.is_alone) == (body, rows, is_alone)


def test_a_decoupled_model_with_sequences_has_no_probe() -> None:
    policy = {"decoupled": True}
    assert build(config(sequence_batching={}, model_transaction_policy=policy)) is None


def test_a_decoupled_model_is_probed_by_a_stream() -> None:
    inputs = [
        {"name": "n", "data_type": "TYPE_INT32", "dims": [1]},
        {"name": "t", "data_type": "TYPE_STRING", "dims": [1]},
    ]
    probe = build(config(max_batch_size=0, input=inputs, model_transaction_policy={"decoupled": True}))
    assert probe is not None
    assert (probe.path, json.loads(probe.body)) == ("generate_stream", {"n": 0, "t": ""})


@pytest.mark.parametrize(
    "inputs", [[], [{"name": "x", "data_type": "TYPE_INVALID", "dims": [1]}], [{**IMAGE, "dims": [2**30]}]]
)
def test_a_model_of_unknown_or_huge_inputs_has_no_probe(inputs: list[dict[str, Any]]) -> None:
    assert build(config(input=inputs)) is None


class Responder:
    """A pod that answers each request with this status."""

    def __init__(self, status: int) -> None:
        self.status = status

    async def config(self, _: str) -> dict[str, Any]:
        return config()

    async def post(self, *_: object, **__: object) -> Answer:
        return Answer(self.status, "")


@pytest.mark.parametrize(("status", "tried", "succeeded"), [(200, True, True), (400, True, False), (503, False, False)])
def test_a_probe_that_a_full_queue_rejects_is_sent_again(status: int, *, tried: bool, succeeded: bool) -> None:
    async def examined() -> DeadBackends:
        dead = DeadBackends()
        probes = BackendProbes(cast("TritonClient", Responder(status)), dead, lambda: 0.0)
        pod = Endpoint("a", "r-a", "10.0.0.1", serving=True, terminating=False)
        probes.examine([pod], {"r-a": "idle"})
        for _ in range(10):
            await asyncio.sleep(0)
        await probes.close()
        return dead

    known = asyncio.run(examined()).revisions["r"]
    assert (known.tried, known.succeeded) == (tried, succeeded)


class PodWithoutZeros:
    """A pod whose model fails on zeros, as one that decodes images does."""

    def __init__(self) -> None:
        self.metrics = Metrics(pending=0, succeeded=0, failed=0, backend_failed=0)

    async def config(self, _: str) -> dict[str, Any]:
        return {"max_batch_size": 0, "input": [{"name": "image", "data_type": "TYPE_STRING", "dims": [1]}]}

    async def index(self, *_: object, **__: object) -> RepositoryIndex:
        return RepositoryIndex(("1",))

    async def post(self, *_: object, **__: object) -> Answer:
        failed = (self.metrics.backend_failed or 0) + 1
        self.metrics = replace(self.metrics, failed=failed, backend_failed=failed)
        return Answer(500, "cannot identify image file")


@pytest.mark.parametrize("agents", [1, 2])
def test_probes_that_fail_are_not_reported_as_failing_requests(agents: int) -> None:
    """A client's request succeeds, and the pod is idle from then on."""

    async def watched() -> list[dict[str, str]]:
        pod, second = PodWithoutZeros(), 0.0
        listed = [Endpoint("a", "r-a", "10.0.0.1", serving=True, terminating=False)]
        states = [DeadBackends() for _ in range(agents)]
        probes = [BackendProbes(cast("TritonClient", pod), dead, lambda: second) for dead in states]
        for step in range(4 * 120):
            second = step / 4
            if second == 3:
                pod.metrics = replace(pod.metrics, succeeded=1)
            # Each agent samples once a second, at a time of its own.
            number = step % 4
            if number < agents:
                sample = {"r-a": ScrapedPod(second, pod.metrics)}
                probes[number].examine(listed, states[number].update(listed, sample, second))
            for _ in range(10):
                await asyncio.sleep(0)
        assert (pod.metrics.backend_failed or 0) >= agents
        return [dead.failures for dead in states]

    assert asyncio.run(watched()) == [{}] * agents


class EndedStub(Responder):
    """A pod whose start script has found the end of a stub process."""

    async def index(self, *_: object, **__: object) -> RepositoryIndex:
        return RepositoryIndex(stub_exit="a Python stub process was ended by signal 9")


def test_a_repeated_proof_is_announced_only_if_the_whole_backend_is_dead() -> None:
    async def announcements() -> list[int]:
        dead, announced = DeadBackends(), []
        probes = BackendProbes(
            cast("TritonClient", EndedStub(500)), dead, lambda: 0.0, on_dead=lambda: announced.append(len(dead.partial))
        )
        pod = Endpoint("a", "r-a", "10.0.0.1", serving=True, terminating=False)
        for suspicion in ("partly", "partly", "failing", "failing"):
            probes.examine([pod], {"r-a": cast("Suspicion", suspicion)})
            for _ in range(10):
                await asyncio.sleep(0)
        await probes.close()
        return announced

    assert asyncio.run(announcements()) == [1, 0]


STEPS = {"ensemble_scheduling": {"step": [{"model_name": "pre"}]}, "max_batch_size": 8}
BATCHES = {"dynamic_batching": {}, "max_batch_size": 8}


@pytest.mark.parametrize(
    ("served", "others", "rows", "may"),
    [
        (STEPS, {"pre": {"max_batch_size": 8}}, 8, False),
        (STEPS, {"pre": BATCHES}, 8, False),
        (STEPS, {"pre": BATCHES}, 1, True),
        (STEPS, {"pre": {**BATCHES, "max_batch_size": 1}}, 1, False),
        (STEPS, {"pre": {"sequence_batching": {}}}, 8, True),
        (STEPS, {"pre": {}, "below": BATCHES}, 8, True),  # a model that the step calls
        ({"max_batch_size": 8}, {"pre": BATCHES}, 8, True),  # BLS
        ({"max_batch_size": 8}, {"pre": {"max_batch_size": 8}}, 8, False),
    ],
)
def test_a_probe_may_share_a_batch_in_another_model(
    served: dict[str, Any], others: dict[str, dict[str, Any]], rows: int, *, may: bool
) -> None:
    assert may_share_batches(served, others, rows) is may


class EnsemblePod:
    """A pod whose ensemble answers a first probe, and then fails in a step that forms batches of this size."""

    def __init__(self, most: int) -> None:
        self.answers = [200]
        self.step = {"dynamic_batching": {}, "max_batch_size": most}

    async def config(self, _: str, model: str | None = None) -> dict[str, Any]:
        return self.step if model == "pre" else {**config(max_batch_size=8), **STEPS}

    async def index(self, *_: object, **__: object) -> RepositoryIndex:
        return RepositoryIndex(("1",), companions=("pre",))

    async def post(self, *_: object, **__: object) -> Answer:
        return Answer(self.answers.pop() if self.answers else 500, "CUDA error")


@pytest.mark.parametrize(("most", "is_dead"), [(8, True), (16, False)])
def test_a_failed_probe_proves_nothing_if_a_step_may_mix_it(
    most: int, monkeypatch: pytest.MonkeyPatch, *, is_dead: bool
) -> None:
    monkeypatch.setattr(backend_probe, "_PAUSE_S", 0.0)

    async def examined() -> DeadBackends:
        dead, second = DeadBackends(), 0.0
        probes = BackendProbes(cast("TritonClient", EnsemblePod(most)), dead, lambda: second)
        pod = Endpoint("a", "r-a", "10.0.0.1", serving=True, terminating=False)
        for suspicion in ("idle", "failing"):
            probes.examine([pod], {"r-a": suspicion})
            for _ in range(40):
                await asyncio.sleep(0)
        await probes.close()
        return dead

    assert bool(asyncio.run(examined()).dead) is is_dead


async def test_a_pod_that_is_probed_for_hours_keeps_the_longest_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pod:
        async def config(self, _address: str) -> dict[str, Any]:
            return config()

    async def no_proof(*_: object) -> None: ...

    probes, pod = BackendProbes(cast("TritonClient", Pod()), DeadBackends(), lambda: 0.0), "digits-a-6d5f-x2x4z"
    monkeypatch.setattr(probes, "_probe_repeatedly", no_proof)
    probes._next[pod, "idle"] = -1.0, 1100
    assert await probes._proof(Endpoint("a", pod, "10.0.0.1", serving=True, terminating=False), "idle") is None
    assert probes._next[pod, "idle"] == (backend_probe.MAX_PROBE_INTERVAL_S, 1101)
