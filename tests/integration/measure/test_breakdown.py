"""Phases, batches, energy and verdict of runs against a real Triton whose times and energy are known."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import GRPC_PORT, HTTP_PORT, METRICS_PORT, Triton, Work
from benchmarks.measure.staged import Staged
from halcyon_measure.breakdown.energy import Prices
from halcyon_measure.engine.hooks import HookSettings
from halcyon_measure.engine.job import PayloadSettings
from halcyon_measure.engine.pool import WarmUp
from halcyon_measure.errors import ScenarioError
from halcyon_measure.inputs.payloads import Rows
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols import target
from halcyon_measure.results import text
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.sections.phases import Phase
from halcyon_measure.sampling.sampler import SamplingSettings, Source
from halcyon_measure.schedule.scenario import Scenario

pytestmark = pytest.mark.more

NO_WARM_UP = WarmUp(0.0, fixed=True)


def measured(triton: Triton, protocol: str, scenario: Scenario, **others: Any) -> BenchDocument:
    port = GRPC_PORT if protocol == "grpc" else HTTP_PORT
    measurement = Measurement(
        target=target.parse(
            f"{protocol}://{triton.address}:{port}", api="kserve", transport=None, encoding=None, model=triton.model
        ),
        scenario=scenario,
        **{"warm_up": NO_WARM_UP, "sampling": SamplingSettings(idle_s=0), **others},
    ).prepare()
    return measurement.document(measurement.run(), made_by="test")


def parts(document: BenchDocument) -> dict[str, Phase]:
    assert document.phases is not None
    return {part.name: part for part in document.phases.parts}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_phases_add_up_and_the_model_has_its_own_time(protocol: str, tmp_path: Path) -> None:
    hook = tmp_path / "hook.py"
    hook.write_text(
        "import time\nimport numpy as np\n\n"
        "def prepare(number):\n    time.sleep(0.01)\n    return np.ones((1, 1), np.float32)\n\n"
        "def finish(outputs):\n    time.sleep(0.01)\n"
    )
    hooks = HookSettings(prepare=f"{hook}:prepare", finish=f"{hook}:finish", processes=2)
    with tritons.running([Staged(constant_ms=20, per_row_ms=2)]) as (triton,):
        document = measured(triton, protocol, Scenario(requests=60), hooks=hooks)
    means = {name: part.mean.value for name, part in parts(document).items()}
    assert document.phases is not None
    assert document.phases.adds_up
    assert document.phases.reason == ""
    for name, expected in (("prepare", 10), ("finish", 10), ("model", 22)):
        # A machine that others use makes them longer, but not shorter.
        assert expected <= means[name] < 2 * expected  # type: ignore[operator]  # measured
    assert (means["send"] is None) == (protocol == "grpc")
    assert document.batches is not None
    assert document.batches.executions.value == 60
    assert document.batches.largest.value == 8


def test_line_of_the_batches_is_that_of_the_model() -> None:
    with tritons.running([Staged(constant_ms=60, per_row_ms=20)]) as (triton,):
        document = measured(
            triton, "http", Scenario(requests=32, callers=1), payload=PayloadSettings(rows=Rows.parse("1..8"))
        )
    assert document.batches is not None
    # A sleep ends some milliseconds late on a machine with other work, so the model's times are long.
    assert document.batches.constant.value == pytest.approx(60, abs=20)
    assert document.batches.per_row.value == pytest.approx(20, abs=5)


@dataclass(frozen=True)
class Pipeline:
    """An ensemble of one step, which is another model of the same server."""

    name: str = "pipeline"

    @property
    def files(self) -> dict[str, str]:
        config = """platform: "ensemble"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]
ensemble_scheduling {
  step [ {
    model_name: "step" model_version: -1
    input_map { key: "x" value: "x" } output_map { key: "y" value: "y" }
  } ]
}
"""
        step = {f"../step/{path}": content for path, content in Work("step", t0_ms=20, max_batch=8).files.items()}
        return step | {"config.pbtxt": config, "1/.keep": ""}


@dataclass(frozen=True)
class Stateful:
    """A model whose requests must form sequences."""

    name: str = "m"

    @property
    def files(self) -> dict[str, str]:
        plain = Work("m", max_batch=8).files
        return plain | {"config.pbtxt": plain["config.pbtxt"].replace("dynamic_batching", "sequence_batching")}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_an_ensemble_is_measured_as_a_whole(protocol: str) -> None:
    with tritons.running([Pipeline()]) as (triton,):
        document = measured(triton, protocol, Scenario(requests=30))
    assert document.requests.answered == 30
    assert document.latency.p50.value == pytest.approx(20, rel=0.8)
    for figure in (
        parts(document)["queue"].mean,
        parts(document)["model"].mean,
        document.batches and document.batches.executions,
    ):
        assert figure is not None
        assert figure.value is None
        assert figure.reason.startswith("pipeline is an ensemble, which executes nothing itself")
        assert figure.reason.endswith("--model step")


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_model_of_sequences_is_refused_with_what_can_be_measured(protocol: str) -> None:
    with (
        tritons.running([Stateful()]) as (triton,),
        pytest.raises(
            ScenarioError, match=r"m keeps state between requests.*What can be measured: models without state"
        ),
    ):
        measured(triton, protocol, Scenario(requests=1))


def test_energy_is_that_of_the_published_law() -> None:
    idle = SamplingSettings(idle_s=2)
    with tritons.running([Staged(constant_ms=10, energy="counter", joules_per_row=3.0, idle_w=40)]) as (triton,):
        time.sleep(1.5)  # the model publishes from its first second on
        document = measured(
            triton, "grpc", Scenario(callers=4, duration_s=3), sampling=idle, prices=Prices(g_per_kwh=360, per_hour=3.6)
        )
    energy = document.energy
    assert energy is not None
    assert energy.idle_power.value == pytest.approx(40, rel=0.05)
    assert energy.net_per_inference.value == pytest.approx(3.0, rel=0.04)
    assert energy.carbon_per_inference.value == pytest.approx(energy.per_inference.value * 0.1)  # type: ignore[operator]
    assert energy.cost_per_thousand.value is not None
    assert "energy    " in text.page(document)
    assert "mg CO2" in text.page(document)


@pytest.mark.parametrize(
    ("energy", "sampling", "reason"),
    [
        ("none", {}, "neither energy nor power"),
        ("still", {}, "nv_energy_consumption stands still at 1234: not believed"),
        ("none", {"servers": (Source(pod="a", url="http://127.0.0.1:9/metrics"),)}, "doesn't answer"),
        ("none", {"prometheus": "http://127.0.0.1:9", "pods": "m-.*"}, "http://127.0.0.1:9 doesn't answer"),
    ],
)
def test_absent_energy_has_its_reason_in_text_and_json(energy: str, sampling: dict[str, Any], reason: str) -> None:
    with tritons.running([Staged(constant_ms=2, energy=energy)]) as (triton,):
        time.sleep(1.5)  # the model publishes from its first second on
        document = measured(
            triton, "http", Scenario(duration_s=2), sampling=replace(SamplingSettings(idle_s=0), **sampling)
        )
    assert document.energy is not None
    assert document.energy.per_inference.value is None
    assert reason in document.energy.per_inference.reason
    assert '"value":null,"unit":"J"' in document.energy.model_dump_json()
    assert "energy    not measured: " in text.page(document)


def test_the_last_sentence_names_what_limits() -> None:
    limits = {}
    with tritons.running(
        [
            Staged("sleeps", constant_ms=40, per_row_ms=1, max_batch=4),
            Staged("waits", constant_ms=5, delay_ms=60),
            Staged("gpu", constant_ms=40, energy="busy", max_batch=4),
            Staged("memory", fails=True),
        ]
    ) as (sleeps, waits, gpu, memory):
        for name, triton, scenario in (
            ("one caller", sleeps, Scenario(duration_s=2)),
            ("full", sleeps, Scenario(callers=16, duration_s=2)),
            ("delay", waits, Scenario(duration_s=2)),
            ("GPU", gpu, Scenario(callers=16, duration_s=3)),
            ("memory", memory, Scenario(requests=20, duration_s=2)),
        ):
            document = measured(triton, "http", scenario)
            assert document.verdict is not None
            assert text.page(document).replace("\n", " ").endswith(document.verdict.sentence.replace("\n", " "))
            limits[name] = document.verdict.limit
    assert limits == {
        "one caller": "nothing",
        "full": "instances busy",
        "delay": "waiting for batches",
        "GPU": "GPU",
        "memory": "GPU memory",
    }


def test_sampling_takes_little_of_a_core() -> None:
    with tritons.running([Staged(constant_ms=2)]) as (triton,):
        document = measured(
            triton,
            "http",
            Scenario(duration_s=3),
            sampling=SamplingSettings(
                servers=(Source(pod="a", url=f"http://{triton.address}:{METRICS_PORT}/metrics"),), idle_s=0
            ),
        )
    assert document.hardware is not None
    assert document.hardware.samples >= 3
    assert document.hardware.server_cpu.mean.value is not None
    assert document.hardware.sampling_cpu.value is not None
    assert document.hardware.sampling_cpu.value < 0.05
    assert np.isfinite(document.hardware.machine_cpu.mean.value)  # type: ignore[arg-type]  # measured
