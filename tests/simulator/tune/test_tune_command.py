"""`halcyon tune` with a simulated trial pod: the canary of --apply, what --teach writes, and the page of -o html."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import click
import numpy as np
import pytest

from benchmarks.tune.truth import Law, SimulatedTrial
from halcyon.api.documents.measured_capacity import read
from halcyon.api.spec.parse import parse
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon.main import main
from halcyon_cli.bench import tune_run
from halcyon_cli.bench.trial.trial_session import TrialServer
from halcyon_cli.bench.tune_run import MeasuredTune, run
from halcyon_cli.commands.measure import tune
from halcyon_cli.errors import InputError
from halcyon_measure.results.document_file import embedded
from halcyon_tune.criterion import Criterion
from halcyon_tune.prediction import Predictor
from halcyon_tune.results.tune_result import result
from halcyon_tune.search import Budget, Search
from halcyon_tune.space import space
from tests.unit.cli.bench.canary import canary_models
from tests.unit.cli.bench.canary.canary_models import SERVED, WORSE, ScriptedCluster, canary

SPEC = canary_models.SPEC | {"scaling": {"minReplicas": 1, "maxReplicas": 9, "targets": {"latency": "400ms"}}}


class Target:
    """The command that an error names."""

    command = "tune"


class CapacityCluster(ScriptedCluster):
    """A cluster that keeps ConfigMaps too."""

    target = Target()

    def __init__(self, *script: Any) -> None:
        super().__init__(*script, first=canary_models.model(**SPEC))
        self.created: list[Any] = []

    def find(self, *_: object) -> None:
        return None

    def create(self, kind: Kind, body: Any, **_: object) -> Any:
        assert kind == kinds.CONFIG_MAP
        self.created.append(body)
        return body


def measured(seconds: float) -> MeasuredTune:
    alone = 0.02 + 0.002 * np.arange(65, dtype=np.float64)
    law = Law("line", {count: alone * (1 + 0.5 * (count - 1)) for count in (1, 2, 4, 8)})
    known = space(parse("m", SPEC), {"max_batch_size": 8, "dynamic_batching": {}}, objective_s=0.4)
    begun = Search.begin(known, Criterion(predictor=Predictor(0.4)), Budget(seconds=seconds))
    search, end = run(begun, SimulatedTrial(law, 0.01, seed=2), lambda _: None)
    server = TrialServer(revision="m-1", image="localhost/triton:1", gpu_product="H200")
    return MeasuredTune(result=result("m", search, end, rate_rps=9000), search=search, server=server)


@pytest.fixture(scope="module")
def measured_tune() -> MeasuredTune:
    return measured(600)


Tuned = Callable[..., CapacityCluster]


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch, measured_tune: MeasuredTune) -> Tuned:
    def staged(*script: Any, of: MeasuredTune = measured_tune) -> CapacityCluster:
        cluster = CapacityCluster(*script)
        monkeypatch.setattr(tune, "ObjectWriter", lambda _: cluster)
        monkeypatch.setattr(tune_run, "measured", lambda *_, **__: of)
        monkeypatch.setattr("halcyon_cli.bench.canary.canary_session._POLL_S", 0.0)
        return cluster

    return staged


def test_gain_that_was_shown_is_promoted_as_a_canary(tuned: Tuned, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = tuned(canary(), SERVED)
    assert main(["tune", "m", "--apply", "--yes"]) == 0
    assert cluster.stored["spec"]["batching"]["maxBatchSize"] > 8
    assert "rollout" not in cluster.stored["spec"]
    out = capsys.readouterr().out
    assert out.index("kubectl patch") < out.index("canary    promoted: the analysis found")


def test_worse_canary_ends_with_status_1(tuned: Tuned, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = tuned(canary(), WORSE)
    assert main(["tune", "m", "--apply", "--yes", "-o", "json"]) == 1
    assert cluster.stored["spec"] == SPEC
    document = json.loads(capsys.readouterr().out)
    assert document["canary"]["end"] == "undone"
    assert "p95 9 s" in document["canary"]["why"]


def test_result_is_shown_if_the_model_is_gone_before_the_canary(
    tuned: Tuned, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = tuned()
    monkeypatch.setattr("halcyon_cli.bench.canary.canary_session.check", lambda *_: None)
    cluster.fails = 1
    assert main(["tune", "m", "--apply", "--yes", "-o", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["patch"]
    assert (document["canary"]["end"], document["canary"]["why"]) == ("failed", "the API server is gone")


def test_question_without_a_yes_changes_nothing(
    tuned: Tuned, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    questions: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda text, **_: questions.append(text))
    cluster = tuned(canary(), SERVED)
    assert main(["tune", "m", "--apply"]) == 1
    assert cluster.writes == []
    assert "5 % for 2m, 25 % for 5m, 50 % for 5m, 12 min or longer" in questions[0]
    assert "canary    declined" in capsys.readouterr().out


def test_gain_that_was_not_shown_is_not_applied(tuned: Tuned, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = tuned(canary(), SERVED, of=measured(200))
    main(["tune", "m", "--apply", "--yes"])
    assert cluster.writes == []
    error = capsys.readouterr().err
    assert (
        "nothing is applied: the rest of --budget 200s is for the comparison of the best with today's settings, and no"
        in error
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--apply"], "add --yes"),
        (["--yes"], "which is missing"),
        (["--apply", "--yes", "--from-traffic"], "--apply needs measurements"),
        (["--teach", "--from-traffic"], "--teach needs measurements"),
        (["--from-traffic", "--budget", "5m"], "--budget is for points in a pod, and --from-traffic measures none"),
        (["--from-traffic", "--rows", "8"], "--rows is for points in a pod"),
        (["--canary-timeout", "2h"], "--canary-timeout limits the canary of --apply"),
        (["--rate", "nan"], "--rate nan must be a number"),
        (["--rate", "inf"], "--rate inf must be a number"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    arguments: list[str], words: str, tuned: Tuned, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = tuned()
    assert main(["tune", "m", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert cluster.writes == []


def test_model_in_a_rollout_is_refused_before_the_measurement(
    tuned: Tuned, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = tuned()
    cluster.stored["status"] = canary() | {"observedGeneration": 3}
    monkeypatch.setattr(tune_run, "measured", lambda *_, **__: pytest.fail("measured"))
    assert main(["tune", "m", "--apply", "--yes"]) == 2
    assert "a canary at step 1 already" in capsys.readouterr().err


def test_taught_capacity_is_that_of_the_revision_that_serves(tuned: Tuned, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = tuned()
    assert main(["tune", "m", "--teach"]) == 0
    document = read(cluster.created[0])
    assert (document.source, document.revision, document.gpu_product) == ("tune", "m-1", "H200")
    assert document.lines[0].instances == 1
    assert document.lines[0].constant_milliseconds == pytest.approx(20, rel=0.1)
    assert document.lines[0].per_row_milliseconds == pytest.approx(2, rel=0.1)
    assert len(document.lines) > 1
    assert "m-capacity" in capsys.readouterr().err


def test_taught_capacity_after_a_promotion_is_that_of_the_canary(tuned: Tuned, measured_tune: MeasuredTune) -> None:
    cluster = tuned(canary(), SERVED)
    assert main(["tune", "m", "--apply", "--yes", "--teach"]) == 0
    document = read(cluster.created[0])
    assert document.revision == "m-2"
    assert measured_tune.result.best is not None
    assert document.lines[0].instances == measured_tune.result.best.instances


def test_page_has_the_answer_the_points_and_the_data(
    tuned: Tuned, measured_tune: MeasuredTune, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned()
    assert main(["tune", "m", "-o", "html"]) == 0
    html = capsys.readouterr().out
    assert html.startswith("<!doctype html>")
    assert "Shown to be better" in html
    assert "kubectl patch modeldeployment m -n team" in html
    assert html.count("<tr>") > len(measured_tune.result.measured)
    [(name, document)] = embedded(html)
    assert name == "m-tune.json"
    assert document == json.loads(json.dumps(measured_tune.result.document()))


def test_rate_that_needs_more_replicas_than_allowed_is_noted() -> None:
    model = {"metadata": {"name": "m"}, "spec": SPEC, "status": {"capacity": {"lines": [
        {"instances": 1, "constantMilliseconds": "20", "perRowMilliseconds": "2", "maxBatchSize": 8}
    ]}}}  # fmt: skip
    predicted = tune_run.from_traffic(model, tune_run.TuneRequest(name="m", rate_rps=9000))
    assert any(note.startswith("spec.scaling.maxReplicas is 9, and 9000 requests/s need") for note in predicted.notes)


def test_energy_of_a_model_on_cpus_is_refused_at_once() -> None:
    spec = parse("m", {"model": {"source": {"uri": "s3://models/m"}}, "scaling": SPEC["scaling"]})
    with pytest.raises(InputError, match="runs on CPUs"):
        tune_run.TuneRequest(name="m", minimise="energy").criterion(spec, 1.0)


def test_values_that_the_site_rejects_leave_the_search() -> None:
    known = space(parse("m", SPEC), {"max_batch_size": 8, "dynamic_batching": {}}, objective_s=0.4)

    def rejection(change: Any) -> str:
        return "at most 1 instance" if change["spec"].get("runtime", {}).get("instancesPerGPU", 1) > 1 else ""

    permitted = tune_run.permitted(known, rejection)
    assert {configuration.instances for configuration in permitted.configurations} == {1}
    assert permitted.tuned == ("batching",)
    reasons = {excluded.field: excluded.why for excluded in permitted.left_out}
    assert reasons["runtime.instancesPerGPU"] == "the site rejects 2, 4, 8: at most 1 instance"
