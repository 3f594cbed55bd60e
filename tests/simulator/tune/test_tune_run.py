"""`halcyon tune`: its loop over a search, and the command with what the planner has learnt."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import yaml

from benchmarks.tune.truth import Law, SimulatedTrial
from halcyon.api.spec.parse import parse
from halcyon.main import main
from halcyon_cli.bench.place.job_lease import PlaceError
from halcyon_cli.bench.tune_run import TuneRequest, from_traffic, run
from halcyon_cli.commands.measure import tune
from halcyon_cli.errors import InputError
from halcyon_cli.lint.checks import check
from halcyon_tune.criterion import Criterion
from halcyon_tune.patch import merged
from halcyon_tune.points import Configuration, Load, Point
from halcyon_tune.prediction import Predictor
from halcyon_tune.results.text_page import page
from halcyon_tune.results.tune_result import result
from halcyon_tune.search import Search
from halcyon_tune.space import BATCHING, space

SPEC: dict[str, Any] = {
    "model": {"source": {"uri": "s3://models/m"}},
    "runtime": {"gpu": {"count": 1}, "instancesPerGPU": 1},
    "batching": {"maxBatchSize": 8},
    "scaling": {"minReplicas": 1, "maxReplicas": 50, "targets": {"latency": "400ms"}},
}
LINES = [{"instances": 1, "constantMilliseconds": "20", "perRowMilliseconds": "2", "maxBatchSize": 8}]


def model(lines: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "m"}, "spec": SPEC | spec, "status": {"capacity": {"lines": lines or []}}}


class Interrupted(SimulatedTrial):
    """A trial that the user ends at its twelfth point."""

    def measure(self, configuration: Configuration, load: Load) -> Point:
        if self.points == 11:
            raise KeyboardInterrupt
        return super().measure(configuration, load)


class Lost(SimulatedTrial):
    """A trial whose pod is gone after a number of points."""

    after = 11

    def measure(self, configuration: Configuration, load: Load) -> Point:
        if self.points == self.after:
            raise PlaceError("the client's pod was deleted, for example with its node")
        return super().measure(configuration, load)


def law() -> Law:
    alone = 0.02 + 0.002 * np.arange(65, dtype=np.float64)
    return Law("line", {count: alone * (1 + 0.5 * (count - 1)) for count in (1, 2, 4, 8)})


def started() -> Search:
    known = space(parse("m", SPEC), {"max_batch_size": 8, "dynamic_batching": {}}, objective_s=0.4)
    return Search.begin(known, Criterion(predictor=Predictor(0.4)))


def test_steps_and_points_are_shown_as_they_are_measured() -> None:
    shown: list[str] = []
    search, end = run(started(), SimulatedTrial(law(), 0.01, seed=2), shown.append)
    assert end.reason == "decided"
    assert [line for line in shown if line.startswith("step")] == [
        "step 1 of 6: one instance, callers rising",
        "step 2 of 6: more instances, while they gain",
        "step 4 of 6: those that could be best, measured",
        "step 5 of 6: the best and today's settings in turns",
    ]
    text = page(result("m", search, end, rate_rps=1500), "team")
    assert "kubectl patch modeldeployment m -n team --type merge -p" in text
    assert "95 % interval" in text
    assert "for 1500 requests/s" in text


def test_interrupted_tuning_shows_the_best_so_far() -> None:
    search, end = run(started(), Interrupted(law(), 0.01, seed=2), lambda _: None)
    assert end.reason == "interrupted"
    tuned = result("m", search, end)
    assert tuned.best is not None
    assert tuned.points == 11
    assert "interrupted" in page(tuned, "team")


def test_page_says_that_settings_of_today_keep_the_objective_at_no_rate() -> None:
    # With 8 instances, one row takes 99 ms, and the objective is 80 ms.
    spec = SPEC | {"runtime": {"gpu": {"count": 1}, "instancesPerGPU": 8}}
    known = space(parse("m", spec), {"max_batch_size": 8, "dynamic_batching": {}}, objective_s=0.08)
    search = Search.begin(known, Criterion(predictor=Predictor(0.08)))
    search, end = run(search, SimulatedTrial(law(), 0.0, seed=2), lambda _: None)
    assert end.why == "today's settings keep the objective at no rate"
    tuned = result("m", search, end)
    assert "8 instances, batch 8: keeps the objective at no rate" in page(tuned, "team")
    assert tuned.document()["capacity_today_rps"] == 0.0


def test_tuning_whose_pod_is_gone_shows_the_best_so_far() -> None:
    search, end = run(started(), Lost(law(), 0.01, seed=2), lambda _: None)
    tuned = result("m", search, end)
    assert (end.reason, tuned.points) == ("interrupted", 11)
    assert end.why.startswith("no more points can be measured: the client's pod was deleted")
    assert tuned.best is not None
    assert not tuned.is_shown


def test_tuning_whose_pod_is_gone_at_the_beginning_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lost, "after", 1)
    with pytest.raises(PlaceError, match="pod was deleted"):
        run(started(), Lost(law(), 0.01, seed=2), lambda _: None)


def test_result_is_a_json_document_with_a_patch_that_passes_lint() -> None:
    search, end = run(started(), SimulatedTrial(law(), 0.01, seed=2), lambda _: None)
    document = json.loads(json.dumps(result("m", search, end, rate_rps=1500).document()))
    assert document["gain"] > 0.1
    low, high = document["gain_interval"]
    assert low <= document["gain"] <= high
    assert document["replicas"] < document["replicas_today"]
    patched = {
        "apiVersion": "serving.halcyon.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "m"},
        "spec": merged(SPEC, document["patch"]["spec"]),
    }
    findings = check(yaml.safe_dump(patched), "m.yaml").findings
    assert [finding.message for finding in findings if finding.level == "error"] == []


def test_traffic_gives_a_patch_without_a_pod() -> None:
    predicted = from_traffic(model(LINES), TuneRequest(name="m", rate_rps=2000))
    assert predicted.change == {"spec": {"batching": {"maxBatchSize": 16}}}
    assert predicted.end == "predicted"
    assert predicted.replicas is not None
    assert predicted.replicas_today is not None
    assert predicted.replicas < predicted.replicas_today
    assert any("not measured" in note for note in predicted.notes)


def test_traffic_without_batches_tunes_a_model_whose_spec_sets_batching() -> None:
    predicted = from_traffic(model([LINES[0] | {"maxBatchSize": 1}]), TuneRequest(name="m", rate_rps=2000))
    assert not any(item.field == BATCHING for item in predicted.space.left_out)
    assert {1, 8, 16} <= {configuration.max_batch for configuration in predicted.space.configurations}


def test_traffic_without_batches_says_nothing_about_a_configuration_that_is_unknown() -> None:
    predicted = from_traffic(model([LINES[0] | {"maxBatchSize": 1}], batching=None), TuneRequest(name="m", rate_rps=20))
    (why,) = [item.why for item in predicted.space.left_out if item.field == BATCHING]
    assert why == "the model's configuration is unknown: no pod was read, and spec.batching.maxBatchSize isn't set"


def test_objective_is_needed_if_the_model_has_no_target() -> None:
    with pytest.raises(InputError, match="--objective 60ms"):
        from_traffic(model(LINES, scaling=None), TuneRequest(name="m"))


def test_least_latency_needs_a_rate() -> None:
    with pytest.raises(InputError, match="--rate 2000"):
        TuneRequest(name="m", minimise="latency").criterion(parse("m", SPEC), 1.0)


def test_rate_of_a_replica_counts_the_replicas_in_force() -> None:
    spec = parse("m", SPEC | {"replicas": 1, "scaling": SPEC["scaling"] | {"minReplicas": 4}})
    assert TuneRequest(name="m", minimise="latency", rate_rps=2000).criterion(spec, 1.0).rate_each_rps == 500


class OneModel:
    """A cluster with one model."""

    namespace = "team"

    def __init__(self, _: object) -> None:
        pass

    def model(self, _: str) -> dict[str, Any]:
        return model(LINES)


def test_command_shows_the_prediction_from_traffic(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tune, "ObjectWriter", OneModel)
    assert main(["tune", "m", "--from-traffic", "--rate", "2000"]) == 0
    out = capsys.readouterr().out
    assert "m: least cost within 400 ms" in out
    assert "best      1 instance, batch 16" in out
    assert "kubectl patch modeldeployment m -n team" in out


def test_command_names_an_objective_below_one_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tune, "ObjectWriter", OneModel)
    assert main(["tune", "m", "--from-traffic", "--objective", "10ms"]) == 2
    assert "S(1)" in capsys.readouterr().err
