"""A Triton with explicit model control: its configuration changes in place, and its tensors can be in shared memory."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import GRPC_PORT, HTTP_PORT, METRICS_PORT, Triton, Work
from halcyon_cli.bench.trial import point_server
from halcyon_cli.bench.trial.point_client import PointClient
from halcyon_cli.bench.trial.trial_runner import TrialRunner
from halcyon_measure.engine.job import PayloadSettings
from halcyon_measure.engine.pool import WarmUp
from halcyon_measure.errors import TargetError
from halcyon_measure.inputs.payloads import Rows
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols import connect, target
from halcyon_measure.protocols.reply import Reply
from halcyon_measure.protocols.repository import LoadError, Repository
from halcyon_measure.protocols.shared_memory import SharedRegion
from halcyon_measure.sampling.sampler import SamplingSettings, Source
from halcyon_measure.schedule.scenario import Scenario
from halcyon_tune.errors import TuneError
from halcyon_tune.points import Callers, Configuration, Point, Rate
from tests.ports import free_ports

pytestmark = pytest.mark.more

EXPLICIT = ("--model-control-mode=explicit", "--load-model=m", "--exit-on-error=false")
NO_WARM_UP = WarmUp(0.0, fixed=True)
LACKING = """import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        threads = json.loads(args["model_config"])["parameters"].get("threads", {}).get("string_value", "1")
        if int(threads) > 8:
            raise MemoryError(f"out of memory: {threads} threads")

    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        if sum(len(values) for values in inputs) > 4:
            raise MemoryError("out of memory: a batch above 4 rows needs more than there is")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", values)]) for values in inputs]
"""


@dataclass(frozen=True)
class Lacking:
    """A model without enough memory for batches of more than four rows, or for more than eight threads."""

    name: str = "m"

    @property
    def files(self) -> dict[str, str]:
        return Work("m", max_batch=4).files | {"1/model.py": LACKING}


MIXED = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            values = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            texts = np.array([[str(value).encode()] for value in values[:, 0]], dtype=np.object_)
            outputs = [pb_utils.Tensor("text", texts), pb_utils.Tensor("y", 2 * values)]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
"""


@dataclass(frozen=True)
class Mixed:
    """A model with an output of strings, whose size its metadata doesn't say, before one of numbers."""

    name: str = "m"

    @property
    def files(self) -> dict[str, str]:
        config = Work("m", max_batch=4).files["config.pbtxt"]
        return {
            "config.pbtxt": config + 'output [ { name: "text" data_type: TYPE_STRING dims: [ 1 ] } ]\n',
            "1/model.py": MIXED,
        }


@pytest.fixture(scope="module")
def triton() -> Iterator[Triton]:
    """Start a model of 20 ms + 1 ms a row."""
    with tritons.running([Work("m", t0_ms=20, a_ms=1, max_batch=8)], arguments=EXPLICIT, shares_memory=True) as (
        server,
    ):
        yield server


def to(triton: Triton, protocol: str = "grpc", **others: Any) -> target.Target:
    port = GRPC_PORT if protocol == "grpc" else HTTP_PORT
    url = f"{protocol}://{triton.address}:{port}"
    return target.parse(url, api="kserve", transport=None, encoding=None, model="m", **others)


def prepared(triton: Triton, **others: Any) -> Measurement:
    page = Source(pod="m", url=f"http://{triton.address}:{METRICS_PORT}/metrics")
    sampling = SamplingSettings(servers=(page,), idle_s=0)
    return Measurement(target=to(triton), scenario=Scenario(), sampling=sampling, **others).prepare()


@contextmanager
def measuring(triton: Triton, threads_parameter: str = "") -> Iterator[TrialRunner]:
    """A runner, after which the model has its own configuration again."""
    repository = Repository(to(triton))
    config = repository.config()
    try:
        yield TrialRunner(prepared(triton), config, threads_parameter=threads_parameter, restart_within_s=1)
    finally:
        repository.load(config)


def test_a_configuration_changes_in_place_within_two_seconds(triton: Triton) -> None:
    repository = Repository(to(triton))
    config = repository.config()
    began = time.monotonic()
    repository.load(config | {"max_batch_size": 4, "dynamic_batching": {}})
    assert time.monotonic() - began < 6  # 1 s on an idle machine: a Python model starts a process
    assert repository.config()["max_batch_size"] == 4
    assert repository.is_ready()
    repository.load(config)
    assert repository.config()["max_batch_size"] == 8


def test_a_model_that_does_not_load_has_the_reason_of_triton() -> None:
    with tritons.running([Lacking()], arguments=EXPLICIT) as (server,):
        repository = Repository(to(server))
        config = repository.config()
        with pytest.raises(LoadError, match="rejects the configuration, and the server's log has the reason"):
            repository.load(config | {"dynamic_batching": {"preferred_batch_size": [64]}})
        assert not repository.is_ready()
        with pytest.raises(LoadError, match="out of memory: 9 threads"):
            repository.load(config | {"parameters": {"threads": {"string_value": "9"}}})
        assert not repository.is_ready()
        assert "out of memory: 9 threads" in repository.failure()
        repository.load(config)
        assert repository.is_ready()
        assert repository.failure() == ""


def test_points_show_what_batches_and_instances_gain(triton: Triton) -> None:
    with measuring(triton) as runner:
        single = runner.measure(Configuration(max_batch=1), Callers(callers=8))
        batched = runner.measure(Configuration(max_batch=8), Callers(callers=24))
        two = runner.measure(Configuration(instances=2, max_batch=8), Callers(callers=48))
        again, other = (runner.measure(Configuration(instances=2, max_batch=8), Rate(rate_rps=60)) for _ in range(2))
    trials = (single, batched, two, again, other)
    assert [point.failure for point in trials] == [None] * 5, trials
    assert set(single.batches) == {1}
    assert max(batched.batches) == 8
    assert batched.throughput_rps > 3 * single.throughput_rps
    assert two.throughput_rps > 1.4 * batched.throughput_rps
    executions, seconds = batched.batches[8]
    assert 0.028 <= seconds / executions < 0.06
    assert again.throughput_rps == pytest.approx(60, rel=0.3)
    assert 0.02 < again.mean_s <= again.p99_s
    # Arrivals are random, and other ones in each load.
    assert again.requests != other.requests
    assert again.offered_rps == pytest.approx(again.throughput_rps, rel=0.02)
    assert all(point.memory_bytes for point in (single, batched, two))


def test_a_configuration_that_does_not_load_is_left_out(triton: Triton) -> None:
    with measuring(triton) as runner:
        failed = runner.measure(Configuration(max_batch=4, preferred=(8,)), Callers(callers=1))
        good = runner.measure(Configuration(max_batch=4), Callers(callers=4))
    assert (failed.failure, failed.requests) == ("Load", 0)
    assert "rejects the configuration" in failed.why
    assert good.failure is None
    assert good.requests > 20


def test_a_batch_without_enough_memory_is_left_out() -> None:
    with tritons.running([Lacking()], arguments=EXPLICIT) as (server,), measuring(server, "threads") as runner:
        large = runner.measure(Configuration(max_batch=16), Callers(callers=32))
        threads = runner.measure(Configuration(max_batch=4, threads=9), Callers(callers=8))
        small = runner.measure(Configuration(max_batch=4, threads=2), Callers(callers=8))
    assert (large.failure, threads.failure, small.failure) == ("Memory", "Memory", None), (large, threads, small)
    assert "a batch above 4 rows needs more" in large.why
    assert "9 threads" in threads.why


def test_a_server_that_ends_and_stays_away_ends_the_tuning() -> None:
    with tritons.running([Work("m", t0_ms=20, a_ms=1)], arguments=EXPLICIT) as (server,):
        runner = TrialRunner(prepared(server), Repository(to(server)).config(), restart_within_s=1)
        assert runner.measure(Configuration(max_batch=2), Callers(callers=1)).failure is None
        threading.Timer(2.0, server.kill).start()
        with pytest.raises(TuneError, match=r"the server has ended .* hasn't loaded the model again within 1 s"):
            runner.measure(Configuration(max_batch=4), Callers(callers=2))


def test_points_are_measured_through_the_client_in_the_pod(triton: Triton) -> None:
    (port,) = free_ports(1)
    statuses: list[int] = []
    lines: list[str] = []
    config = Repository(to(triton)).config()
    thread = threading.Thread(
        target=lambda: statuses.append(point_server.serve(lambda: prepared(triton), lines.append, port=port))
    )
    thread.start()
    points = PointClient(lambda: HTTPConnection("127.0.0.1", port, timeout=10), threads_parameter="threads")
    try:
        assert points.config(30)["max_batch_size"] == 8
        point: Point = points.measure(Configuration(max_batch=4, threads=2), Callers(callers=4))
        assert Repository(to(triton)).config()["parameters"]["threads"] == {"string_value": "2"}
    finally:
        points.end()
        thread.join(30)
        Repository(to(triton)).load(config)
    assert statuses == [0]
    assert point.failure is None
    assert point.configuration == Configuration(max_batch=4, threads=2)
    assert point.requests > 20
    assert any("loading" in line for line in lines)


def test_a_client_of_a_model_that_does_not_load_says_why() -> None:
    def not_loaded() -> Measurement:
        raise TargetError("m doesn't load: no such file")

    (port,) = free_ports(1)
    statuses: list[int] = []
    thread = threading.Thread(target=lambda: statuses.append(point_server.serve(not_loaded, lambda _: None, port=port)))
    thread.start()
    points = PointClient(lambda: HTTPConnection("127.0.0.1", port, timeout=5), unreachable_s=5)
    for ask in (lambda: points.config(5), lambda: points.measure(Configuration(), Callers(callers=1))):
        with pytest.raises(TuneError, match="m doesn't load: no such file"):
            ask()
    points.end()
    thread.join(10)
    assert statuses == [1]
    nowhere = PointClient(lambda: HTTPConnection("127.0.0.1", port, timeout=1), unreachable_s=0)
    with pytest.raises(TuneError, match="can't be reached for 0 s"):
        nowhere.config(1)


def left() -> list[str]:
    return [path.name for path in Path("/dev/shm").glob("halcyon-bench-*")]


def regions(triton: Triton) -> Any:
    url = f"http://{triton.address}:{HTTP_PORT}/v2/systemsharedmemory/status"
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.loads(answer.read())


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_tensors_in_shared_memory_are_those_of_the_model(triton: Triton, protocol: str, tmp_path: Path) -> None:
    sample, expected, wrong = tmp_path / "x.npy", tmp_path / "y.npz", tmp_path / "wrong.npz"
    values = np.arange(3, dtype=np.float32).reshape(3, 1)
    np.save(sample, values)
    np.savez(expected, y=values)
    np.savez(wrong, y=values + 1)
    counts = []
    for file in (expected, wrong):
        before = triton.answered()
        measurement = Measurement(
            target=to(triton, protocol, shared_memory="system"),
            scenario=Scenario(callers=4, requests=80),
            payload=PayloadSettings(samples=((("x", str(sample)),),)),
            warm_up=NO_WARM_UP,
            expect=str(file),
            sampling=None,
        ).prepare()
        run = measurement.run()
        document = measurement.document(run, made_by="test")
        assert triton.answered() - before == document.requests.due == 80
        assert document.target.shared_memory == "system"
        assert document.requests.rows in {0, 240}
        counts.append((document.requests.answered, document.requests.wrong))
    assert counts == [(80, 0), (0, 80)]
    assert left() == []
    assert regions(triton) == []


def test_outputs_of_strings_stay_in_the_answer(tmp_path: Path) -> None:
    sample, expected = tmp_path / "x.npy", tmp_path / "y.npz"
    values = np.array([[1.5], [2.0]], np.float32)
    np.save(sample, values)
    np.savez(expected, y=2 * values)
    with tritons.running([Mixed()], shares_memory=True) as (mixed,):
        for protocol in ("http", "grpc"):
            measurement = Measurement(
                target=to(mixed, protocol, shared_memory="system"),
                scenario=Scenario(requests=20),
                payload=PayloadSettings(samples=((("x", str(sample)),),)),
                warm_up=NO_WARM_UP,
                expect=str(expected),
                sampling=None,
            ).prepare()
            payloads = measurement.payload.payloads(measurement.target)
            region = SharedRegion(measurement.target, payloads)
            try:
                answered = measurement.document(measurement.run(), made_by="test").requests.answered
                outputs = region.outputs(asyncio.run(answer(measurement.target, region)))
            finally:
                region.close()
            assert answered == 20
            assert outputs["text"].tolist() == [[b"1.5"], [b"2.0"]]
            assert outputs["y"].tolist() == [[3.0], [4.0]]


async def answer(to_target: target.Target, region: SharedRegion) -> Reply:
    """Return the answer to the first request of a region."""
    client = connect.client(to_target)
    try:
        return await client.send(region.requests[0], 0)
    finally:
        await client.close()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_requests_with_shared_memory_contain_no_tensors(triton: Triton, protocol: str) -> None:
    sizes = []
    for shared in ("none", "system"):
        measurement = Measurement(
            target=to(triton, protocol, shared_memory=shared),
            scenario=Scenario(requests=20),
            payload=PayloadSettings(rows=Rows(8, 8)),
            warm_up=NO_WARM_UP,
            sampling=None,
        ).prepare()
        columns = measurement.run().columns
        assert np.all(columns.outcome == 0)
        sizes.append(int(columns.sent_bytes.max()))
    assert sizes[1] < 700
    assert sizes[0] != sizes[1]


def test_a_server_with_another_dev_shm_refuses_shared_memory() -> None:
    with tritons.running([Work("m", max_batch=8)]) as (elsewhere,):
        for protocol in ("http", "grpc"):
            measurement = Measurement(
                target=to(elsewhere, protocol, shared_memory="system"), scenario=Scenario(requests=5), sampling=None
            ).prepare()
            with pytest.raises(
                TargetError, match=r"refuses shared memory: .*client and server must have the same /dev/shm"
            ):
                measurement.run()
    assert left() == []
