"""Repositories with several models on real Triton servers: brought by the fetcher, behind HAProxy and its agent.

The planner's part is the one of benchmarks/right/capacity.py; benchmarks/right/backend_pods.py says what stands in for the
kubelet and the API server.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import os
import signal
import tarfile
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from benchmarks.dataplane import tritons, ways
from benchmarks.dataplane.tritons import HTTP_PORT, METRICS_PORT, Triton
from benchmarks.right import backend_pods
from benchmarks.right.capacity import Autoscaler
from halcyon.api.documents.model_overlay import Overlay, OverlayWarmup
from halcyon.api.documents.observation_report import AgentReport
from halcyon.api.documents.repository_marker import COMPLETE
from halcyon.fetch.main import main as fetch
from halcyon.triton.client import Endpoint, TritonClient
from halcyon.triton.pod_sampler import PodSampler, report
from halcyon_cli.lint.checks import check
from tests.integration.waiting import PATIENCE

pytestmark = pytest.mark.more

_TENSORS = """input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
_PYTHON = f'backend: "python"\nmax_batch_size: 8\n{_TENSORS}instance_group [ {{ kind: KIND_CPU }} ]\n'
_ADDS = """import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.02)
        tensors = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", values + 1)]) for values in tensors]
"""
_CALLS = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        made = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x")
            for _ in range(2):
                called = pb_utils.InferenceRequest(model_name="pre", requested_output_names=["y"], inputs=[x]).exec()
                if called.has_error():
                    break
                x = pb_utils.Tensor("x", pb_utils.get_output_tensor_by_name(called, "y").as_numpy())
            y = pb_utils.Tensor("y", x.as_numpy())
            error = called.error() if called.has_error() else None
            made.append(pb_utils.InferenceResponse([] if error else [y], error))
        return made
"""


def ensemble(*steps: str) -> str:
    tensors = ["x", *(f"after_{step}" for step in steps[:-1]), "y"]
    listed = ",\n".join(
        f'{{ model_name: "{step}" model_version: -1 input_map {{ key: "x" value: "{source}" }} '
        f'output_map {{ key: "y" value: "{target}" }} }}'
        for step, (source, target) in zip(steps, itertools.pairwise(tensors), strict=True)
    )
    return f'platform: "ensemble"\nmax_batch_size: 8\n{_TENSORS}ensemble_scheduling {{ step [ {listed} ] }}\n'


_PRE = {"pre/config.pbtxt": _PYTHON, "pre/1/model.py": _ADDS}
_BATCHES = {"main/config.pbtxt": f"{_PYTHON}dynamic_batching {{ }}\n", "main/1/model.py": _ADDS}
SOURCES = {
    "ensemble": {"m/config.pbtxt": ensemble("pre", "main"), **_PRE, **_BATCHES},
    "BLS": {"m/config.pbtxt": _PYTHON, "m/1/model.py": _CALLS, **_PRE},
}


@dataclass(frozen=True)
class Fetched:
    """Model repository as the fetcher makes it from a source."""

    files: Mapping[str, str]
    """Content of each file, by its path below the folder of the served model."""
    is_complete: bool
    name: str = "m"


def fetched(folder: Path, source: Mapping[str, str], name: str = "m", **settings: Any) -> Fetched:
    """Bring a source into a repository with the fetcher. `name` is that of the served model."""
    for path, content in source.items():
        file = folder / "source" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    (folder / "overlay.json").write_text(Overlay(name, **settings).to_json())
    repository = folder / "repository"
    options = {"source": folder / "source", "overlay": folder / "overlay.json", "repository": repository}
    log = folder / "termination-log"
    assert fetch([*(f"--{option}={path}" for option, path in options.items()), f"--termination-log={log}"]) == 0
    paths = [Path(top) / name for top, _, names in os.walk(repository, followlinks=True) for name in names]
    files = {f"../{path.relative_to(repository)}": path.read_text() for path in paths if path.name != COMPLETE}
    return Fetched(files, (repository / COMPLETE).exists(), name)


async def infer(
    session: aiohttp.ClientSession, address: str, value: float, model: str = "m"
) -> tuple[int, float | None]:
    """Send a request to a model, and return the status and the result."""
    body = {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [value]}]}
    async with session.post(f"http://{address}/v2/models/{model}/infer", json=body) as response:
        answer = await response.json()
        return response.status, answer["outputs"][0]["data"][0] if response.status == 200 else None


async def newest(balancer: ways.Balancer, succeeded: int) -> AgentReport:
    """Return the first report with this counter of successful requests, and with the balancer's sample."""
    async with asyncio.timeout(20 * PATIENCE):
        while True:
            for _, record in reversed(balancer.agent.collectors[0].records):
                report = AgentReport.from_json(record) if isinstance(record, str | bytes) else record
                if report.balancer is not None and [pod.succeeded for pod in report.pods] == [succeeded]:
                    return report
            await asyncio.sleep(0.1)


_SEQUENCES = """sequence_batching {
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] },
    { name: "ID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] }
  ]
  state [ { input_name: "STATE" output_name: "NEXT" data_type: TYPE_FP32 dims: [ -1 ] } ]
}
"""
_READS_CONTROLS = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        made = []
        for request in requests:
            tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            y, following = pb_utils.Tensor("y", tensors["x"] + tensors["START"]), pb_utils.Tensor("NEXT", tensors["STATE"])
            made.append(pb_utils.InferenceResponse([y, following]))
        return made
"""


@pytest.mark.parametrize("is_random", [False, True])
def test_a_model_with_sequences_loads_with_a_warm_up(tmp_path: Path, *, is_random: bool) -> None:
    source = {"config.pbtxt": _PYTHON + _SEQUENCES, "1/model.py": _READS_CONTROLS, "2_old/notes.txt": "not a version"}
    brought = fetched(tmp_path, source, warmup=OverlayWarmup(data="random" if is_random else "zero"))
    with (
        tritons.running([brought], arguments=["--disable-auto-complete-config"]) as (server,),
        urllib.request.urlopen(f"http://{server.address}:{HTTP_PORT}/v2/models/m/config", timeout=5) as answer,
    ):
        names = set(json.load(answer)["model_warmup"][0]["inputs"])
    assert names == {"x", "START", "ID", "STATE"}


@pytest.mark.parametrize("kind", SOURCES)
async def test_a_repository_is_served_and_counted_as_one_model(kind: str, tmp_path: Path) -> None:
    brought = fetched(tmp_path, SOURCES[kind])
    assert brought.is_complete
    with tritons.running([brought], arguments=["--disable-auto-complete-config"]) as (server,):
        async with (
            ways.balancers(1, ways.plan("m"), [server.address]) as (balancer,),
            aiohttp.ClientSession() as session,
        ):
            answers = await asyncio.gather(*(infer(session, balancer.http, float(n)) for n in range(24)))
            assert answers == [(200, n + 2.0) for n in range(24)]
            for path in ("pre/ready", "pre/infer", "main/config"):
                async with session.get(f"http://{balancer.http}/v2/models/{path}") as response:
                    assert response.status == 404, path

            report = await newest(balancer, 24)
            [pod] = report.pods
            assert report.balancer is not None
            assert report.balancer.requests == 24
            assert (pod.state, pod.versions, pod.load_error) == ("ready", ("1",), None)
            assert (pod.failed, pod.backend_failed, pod.rows) == (0, 0, 24)
            assert (pod.batches is None) is (kind == "ensemble"), pod.batches


def example() -> tuple[str, str]:
    """Return the manifests of the guide, and the Python model that calls others."""
    page = Path("docs/guides/ensembles.md").read_text()
    text, called = (page.partition(f"```{language}\n")[2].partition("```")[0] for language in ("yaml", "python"))
    return text, called


@pytest.mark.parametrize(("kind", "result"), [("ensemble", 7.0), ("BLS", 6.0)])
async def test_the_guide_s_example_is_served(kind: str, result: float, tmp_path: Path) -> None:
    text, called = example()
    assert check(text, "pipeline.yaml").findings == ()
    files, model = yaml.safe_load_all(text)
    source = {
        item["path"]: files["data"][item["key"]] for item in model["spec"]["model"]["source"]["configMap"]["items"]
    }
    if kind == "BLS":
        source |= {"pipeline/config.pbtxt": source["scale/config.pbtxt"], "pipeline/1/model.py": called}
    with tritons.running([fetched(tmp_path, source, "pipeline")]) as (server,):
        async with aiohttp.ClientSession() as session:
            assert await infer(session, f"{server.address}:{HTTP_PORT}", 3.0, "pipeline") == (200, result)


async def test_an_ensemble_s_capacity_is_that_of_its_answers(tmp_path: Path) -> None:
    with tritons.running([fetched(tmp_path, SOURCES["ensemble"])]) as (server,):
        async with (
            ways.balancers(1, ways.plan("m", max_connections=4), [server.address]) as (balancer,),
            aiohttp.ClientSession() as session,
        ):
            scaler = Autoscaler([balancer], [server.address], time.monotonic())
            until_s = time.monotonic() + 40

            async def call() -> None:
                while time.monotonic() < until_s:
                    assert (await infer(session, balancer.http, 1.0))[0] == 200

            calls = [asyncio.create_task(call()) for _ in range(16)]  # so that some wait
            while time.monotonic() < until_s:
                scaler.decide()
                await asyncio.sleep(1.0)
            await asyncio.gather(*calls)
            assert "Batches" not in {name for _, name in scaler.sources}
            assert scaler.sources[-1][1] in {"TimeInPods", "Answers"}, (scaler.sources, scaler.why)


async def sampled(server: Triton, *, serving: bool) -> AgentReport:
    endpoints = [Endpoint("a", "m-a-1", server.address, serving=serving, terminating=False)]
    async with aiohttp.ClientSession() as session:
        samples = await PodSampler(TritonClient(session, "m", HTTP_PORT, METRICS_PORT), time.time).sample(endpoints)
    return report(
        namespace="default", name="m", agent="x", at=0.0, endpoints=endpoints, samples=samples, maintenance=set()
    )


async def test_a_pod_whose_called_model_does_not_load_never_starts(tmp_path: Path) -> None:
    source = SOURCES["BLS"] | {"pre/1/model.py": "import not_installed\n"}
    probe = backend_pods.rendered()["startupProbe"]["httpGet"]["path"]
    with tritons.running([fetched(tmp_path, source)], arguments=["--exit-on-error=false"]) as (server,):
        async with aiohttp.ClientSession() as session:
            url = f"http://{server.address}:{HTTP_PORT}"
            async with session.get(f"{url}/v2/models/m/ready") as response:
                assert response.status == 200, "Triton's readiness of m alone"
            async with session.get(url + probe) as response:
                assert response.status == 400
        [pod] = (await sampled(server, serving=False)).pods
        assert pod.load_error is not None
        assert pod.load_error.startswith("model pre of the repository: Internal: ModuleNotFoundError: No module named")


_READS_MARK = """import os

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        mark = np.array([[os.environ["MARK"]]], np.float32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", mark)]) for _ in requests]
"""


async def test_models_share_an_environment_beside_their_folders(tmp_path: Path) -> None:
    packed, activate = io.BytesIO(), b"export MARK=7\n"
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("bin/activate")
        member.size = len(activate)
        archive.addfile(member, io.BytesIO(activate))
    value = '"$$TRITON_MODEL_DIRECTORY/../env.tar"'
    config = f'{_PYTHON}parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: {value} }} }}'
    source = {"env.tar": packed.getvalue().decode(), "m/config.pbtxt": config, "m/1/model.py": _READS_MARK, **_PRE}
    with tritons.running([fetched(tmp_path, source)]) as (server,):
        async with aiohttp.ClientSession() as session:
            assert await infer(session, f"{server.address}:{HTTP_PORT}", 1.0) == (200, 7.0)


@pytest.mark.parametrize("kind", SOURCES)
async def test_a_dead_stub_of_another_model_restarts_the_pod(kind: str, tmp_path: Path) -> None:
    files = {f"../{path}": content for path, content in SOURCES[kind].items()} | {"1/.keep": ""}
    async with backend_pods.running(tmp_path, 1, files) as (fleet, session):
        [pod] = fleet.pods.values()
        for _ in range(4):
            assert await fleet.infer(session, 1.0) == 200
            await asyncio.sleep(0.5)
        [stub] = pod.pids("/mnt/pre/1/model.py")
        os.kill(stub, signal.SIGKILL)
        async with asyncio.timeout(60 * PATIENCE):
            while not pod.restarts:
                await fleet.send(session, pod, 1.0)
                await asyncio.sleep(0.1)
            while not fleet.candidates():  # noqa: ASYNC110 - pods change in several places
                await asyncio.sleep(0.1)
        assert await fleet.infer(session, 1.0) == 200
        assert "a Python stub process was ended by signal 9" in fleet.events.recorded[0].message
