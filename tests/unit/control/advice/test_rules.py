"""Each rule of the advice applies to the evidence of its fault, and to none without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from generators.advice_reference import page
from halcyon.api.spec import Spec
from halcyon.api.spec.parse import parse
from halcyon.control.advice.evidence import ModelEvidence
from halcyon.control.advice.rules import RULES, AdviceFinding, opinions, value_of
from halcyon.scaling.planner.capacity.queueing import ServiceLine

ROOT = Path(__file__).parents[4]
LINE = ServiceLine(0.080, 0.006)


def spec_of(**sections: Any) -> Spec:
    scaling = {"minReplicas": 1, "maxReplicas": 8} | sections.pop("scaling", {})
    runtime = {"gpu": {"count": 1}} | sections.pop("runtime", {})
    source = {"source": {"persistentVolumeClaim": {"claimName": "models"}}}
    return parse("digits", {"model": source, "runtime": runtime, "scaling": scaling, **sections})


def findings(evidence: ModelEvidence, *shown: str) -> dict[str, AdviceFinding]:
    return {name: finding for name, finding in opinions(evidence, frozenset(shown)).items() if finding is not None}


SATURATED = ModelEvidence(
    spec_of(batching={"maxBatchSize": 8}),
    replicas=1.0,
    rate=62.0,
    request_rows=1.0,
    batch_rows=7.9,
    busy=0.99,
    wait_s=0.1,
    waiting=20.0,
    gpu=0.95,
    line=LINE,
    largest_rows=8,
    peak_replicas=1,
    start_s=20.0,
)


def test_full_batches_are_advised_to_be_twice_as_large() -> None:
    (rule, finding), *more = findings(SATURATED).items()
    assert (rule, finding.value, more) == ("BatchAlwaysFull", "16", [])
    # 16 rows in 176 ms instead of 7.9 in 127.4 ms.
    assert finding.gain.startswith("47 % more rows per second")
    assert finding.share == pytest.approx(1 - (7.9 / 0.1274) / (16 / 0.176))


def test_larger_batches_are_not_advised_beyond_the_objective() -> None:
    objective = {"targets": {"latency": "340ms"}}
    tight = replace(SATURATED, spec=spec_of(batching={"maxBatchSize": 8}, scaling=objective))
    assert not findings(tight)


@pytest.mark.parametrize(
    "change",
    [{"batch_rows": 6.0}, {"busy": 0.5}, {"waiting": 0.0}, {"line": ServiceLine(0.002, 0.02)}, {"busy": 1.5}],
    ids=["batches with room", "idle instances", "nothing waits", "no gain by the line", "unknown number of instances"],
)
def test_batches_that_would_not_gain_give_no_advice(change: dict[str, Any]) -> None:
    assert not findings(replace(SATURATED, **change))


def test_a_missing_batch_size_starves_the_batcher() -> None:
    starved = replace(SATURATED, spec=spec_of(), batch_rows=16.0, largest_rows=30, line=ServiceLine(0.080, 0.002))
    ((rule, finding),) = findings(starved).items()
    assert (rule, finding.value) == ("BatchSizeMissing", "64")
    assert finding.evidence.startswith(
        "the balancers send at most 32 rows at once for each instance, and batches have 16.0 rows"
    )


def test_full_batches_of_the_models_own_size_are_not_starved() -> None:
    assert not findings(replace(SATURATED, spec=spec_of(), batch_rows=16.0, largest_rows=16))
    assert not findings(replace(SATURATED, spec=spec_of(), batch_rows=1.0, largest_rows=1))


def test_an_idle_gpu_takes_more_instances() -> None:
    idle = replace(SATURATED, spec=spec_of(batching={"maxBatchSize": 1}), batch_rows=1.0, gpu=0.33)
    ((rule, finding),) = findings(idle).items()
    assert (rule, finding.value, finding.share) == ("GPUIdle", "2", 0.5)
    assert not findings(replace(idle, gpu=0.7))
    assert not findings(replace(idle, gpu=None)), "a missing utilisation is not an idle GPU"
    assert not findings(replace(idle, spec=spec_of(batching={"maxBatchSize": 1}, runtime={"gpu": {"count": 0}})))


def test_several_replicas_with_idle_gpus_take_more_instances() -> None:
    spec = spec_of(batching={"maxBatchSize": 1})
    fleet = replace(SATURATED, spec=spec, batch_rows=1.0, replicas=6.0, busy=0.7, waiting=0.0, gpu=0.2)
    assert findings(fleet)["GPUIdle"].value == "2"
    assert not findings(replace(fleet, replicas=1.0))
    assert not findings(replace(fleet, gpu=0.65)), "the GPU is used while the instances are"


def test_a_low_cpu_limit_is_advised_to_be_raised_first() -> None:
    limited = spec_of(batching={"maxBatchSize": 1}, runtime={"resources": {"limits": {"cpu": "1500m"}}})
    host = replace(SATURATED, spec=limited, batch_rows=1.0, gpu=0.3)
    ((rule, finding),) = findings(host).items()
    assert (rule, finding.value) == ("CPULimited", "3")
    assert "a limit of 1.5 CPU" in finding.evidence
    enough = spec_of(batching={"maxBatchSize": 1}, runtime={"resources": {"limits": {"cpu": "2"}}})
    assert list(findings(replace(host, spec=enough))) == ["GPUIdle"]


LIGHT = replace(
    SATURATED,
    spec=spec_of(batching={"maxBatchSize": 32, "maxQueueDelay": "50ms"}),
    rate=8.0,
    batch_rows=1.4,
    busy=0.13,
    wait_s=0.042,
    waiting=0.3,
    line=ServiceLine(0.020, 0.002),
)


def test_a_delay_that_fills_no_batch_only_costs() -> None:
    ((rule, finding),) = findings(LIGHT).items()
    assert (rule, finding.value) == ("DelayOnlyCosts", "0us")
    assert finding.gain == "the mean time in the server falls from 64.8 ms to 24.7 ms"
    assert "execute 100 % of the time" in findings(replace(LIGHT, busy=1.04))["DelayOnlyCosts"].evidence


@pytest.mark.parametrize(
    "change",
    [
        {"wait_s": 0.004},
        {"rate": 600.0},
        {"spec": spec_of(batching={"maxBatchSize": 32})},
        {"spec": spec_of(batching={"maxBatchSize": 32, "maxQueueDelay": "2ms"})},
        {"wait_s": None},
        {"busy": 1.8},
    ],
    ids=["a short wait", "too much load for no delay", "no delay", "another wait", "unknown wait", "more instances"],
)
def test_a_delay_that_costs_little_gives_no_advice(change: dict[str, Any]) -> None:
    assert not findings(replace(LIGHT, **change))


def objective(latency: str, **change: Any) -> ModelEvidence:
    spec = spec_of(batching={"maxBatchSize": 32}, scaling={"targets": {"latency": latency}})
    fleet = replace(SATURATED, spec=spec, line=ServiceLine(0.020, 0.002), batch_rows=3.3, rate=125.0, replicas=12.0)
    return replace(fleet, **change)


def test_an_objective_below_two_full_batches_costs_replicas() -> None:
    ((rule, finding),) = findings(objective("60ms")).items()
    assert (rule, finding.value, finding.gain) == (
        "ObjectiveBelowBatch",
        "260ms",
        "5 instead of 11 replicas for the same requests",
    )
    assert not findings(objective("170ms"))
    assert not findings(objective("60ms", rate=5.0, replicas=1.0)), "one replica is enough"


def test_an_objective_below_one_request_can_not_be_met() -> None:
    ((_, finding),) = findings(objective("25ms", rate=5.0, replicas=1.0)).items()
    assert finding.gain == "an objective that can be met; no number of replicas meets this one"
    assert finding.share == 1.0


def test_replicas_that_a_day_did_not_need_are_advised_away() -> None:
    idle = replace(SATURATED, spec=spec_of(scaling={"minReplicas": 4}), busy=0.1, batch_rows=1.0, wait_s=0.0)
    ((rule, finding),) = findings(idle).items()
    assert (rule, finding.value, finding.share) == ("MinReplicasIdle", "2", 0.5)
    pair = spec_of(scaling={"minReplicas": 2})
    assert not findings(replace(idle, spec=pair)), "the second replica is there for a failure of the first"
    assert not findings(replace(idle, peak_replicas=4))
    assert not findings(replace(idle, peak_replicas=None)), "less than a day is known"
    asleep = findings(replace(idle, peak_replicas=0))["MinReplicasIdle"]
    assert (asleep.value, asleep.evidence) == ("0", "no request arrived in the last day")
    assert asleep.gain.endswith("the first request then waits for a start")


def test_a_model_that_can_not_wake_keeps_one_replica() -> None:
    idle = replace(SATURATED, busy=0.0, batch_rows=None, peak_replicas=0)
    for change in ({"traffic": {"mode": "Direct"}}, {"scaling": {"policy": "Rules"}}):
        scaling = {"minReplicas": 3} | change.get("scaling", {})
        assert findings(replace(idle, spec=spec_of(**change | {"scaling": scaling})))["MinReplicasIdle"].value == "1"
        scaling["minReplicas"] = 1
        assert not findings(replace(idle, spec=spec_of(**change | {"scaling": scaling})))


def test_no_advice_breaks_a_rule_of_the_spec() -> None:
    narrow = spec_of(batching={"maxBatchSize": 8}, traffic={"maxConcurrency": 12})
    assert not findings(replace(SATURATED, spec=narrow)), "maxConcurrency has to be at least maxBatchSize"
    wide = spec_of(batching={"maxBatchSize": 8}, traffic={"maxConcurrency": 16})
    assert findings(replace(SATURATED, spec=wide))["BatchAlwaysFull"].value == "16"


def test_a_queue_timeout_below_a_start_is_advised_to_be_longer() -> None:
    spec = spec_of(scaling={"minReplicas": 0}, traffic={"queueTimeout": "20s"})
    short = ModelEvidence(spec, start_s=60.0)
    ((rule, finding),) = findings(short).items()
    assert (rule, finding.value, finding.share) == ("QueueTimeoutTooShort", "90s", 1.0)
    assert not findings(replace(short, start_s=15.0))
    assert not findings(replace(short, start_s=None))
    assert not findings(ModelEvidence(spec_of(traffic={"queueTimeout": "20s"}), start_s=60.0)), "never at zero replicas"


def test_no_rule_has_an_opinion_without_signals() -> None:
    assert opinions(ModelEvidence(spec_of()), frozenset()) == {}


def test_bounds_are_lower_for_advice_that_is_shown() -> None:
    near = replace(SATURATED, busy=0.7)
    assert not findings(near)
    assert list(findings(near, "BatchAlwaysFull")) == ["BatchAlwaysFull"]


def test_the_value_of_a_field_is_read_from_the_stored_spec() -> None:
    stored = {"batching": {"maxBatchSize": 8}, "scaling": {"minReplicas": 0}}
    assert value_of(stored, "spec.batching.maxBatchSize") == "8"
    assert value_of(stored, "spec.scaling.minReplicas") == "0"
    assert value_of(stored, "spec.scaling.targets.latency") is None
    assert value_of(None, "spec.scaling.minReplicas") is None


def test_each_rule_names_a_field_of_the_resource() -> None:
    for rule in RULES:
        model: Any = Spec
        for name in rule.field.split(".")[1:]:
            names = {field.alias or name_: field for name_, field in model.model_fields.items()}
            assert name in names, rule.field
            kinds = [names[name].annotation, *getattr(names[name].annotation, "__args__", ())]
            model = next((kind for kind in kinds if hasattr(kind, "model_fields")), None)


def test_the_reference_is_generated_from_the_rules() -> None:
    assert (ROOT / "docs" / "reference" / "advice.md").read_text() == page()
