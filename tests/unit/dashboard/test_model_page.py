import json
from typing import Any

import pytest
import yaml

from halcyon.dashboard import model_page
from halcyon.dashboard.history import ChartHistory, ReplicaCounts, Series
from halcyon.dashboard.model_page import HIDDEN
from halcyon.dashboard.ports import UNKNOWN, ModelNumbers, Past, StoredRevision
from halcyon_cli.manifest_loader import documents
from tests.unit.dashboard.objects import READY, condition, model, name

NOTHING = Series(0.0, ())


def test_conditions_that_need_a_person_come_first() -> None:
    good, unknown, bad = (
        condition("BalancerReady", "True"),
        condition("ModelLoaded", "Unknown"),
        condition("Accepted", "False"),
    )
    page = model_page.page(
        model(conditions=(READY, good, unknown, bad)), servers=(), balancers=(), numbers=UNKNOWN, newest=NOTHING
    )
    assert [c["type"] for c in page["conditions"]] == ["Accepted", "ModelLoaded", "Ready", "BalancerReady"]


def test_decisions_are_documents_of_their_own() -> None:
    decision = {"time": "2026-01-01T12:00:00Z", "before": 1, "after": 3, "why": "queue 96"}
    page = model_page.page(
        model(status={"scaling": {"mode": "Active", "decisions": [decision]}}),
        servers=(),
        balancers=(),
        numbers=ModelNumbers(rate=10.0, rejected=1.0),
        newest=NOTHING,
    )
    assert page["decisions"] == [decision]
    assert page["scaling"] == {"mode": "Active"}
    assert page["now"]["errors"] == 0.1


def test_advice_is_shown_as_in_the_status() -> None:
    advice = {
        "rule": "GPUIdle",
        "field": "spec.runtime.instancesPerGPU",
        "value": "2",
        "evidence": "33 %",
        "gain": "up to 100 %",
    }

    def shown(status: dict[str, Any]) -> Any:
        page = model_page.page(model(status=status), servers=(), balancers=(), numbers=UNKNOWN, newest=NOTHING)
        return page["advice"]

    assert shown({"advice": [advice]}) == [advice]
    assert shown({}) == []


def test_environment_values_are_hidden_and_the_object_stays_unchanged() -> None:
    env = [{"name": "KEY", "value": "s3cret"}, {"name": "FROM", "secretKey": {"name": "s", "key": "k"}}]
    deployment = model(spec={"runtime": {"env": env}})
    shown = model_page.spec(deployment, '{"max_batch_size":8}')
    assert yaml.safe_load(shown["spec"])["runtime"]["env"] == [{"name": "KEY", "value": model_page.HIDDEN}, env[1]]
    assert deployment["spec"]["runtime"]["env"][0]["value"] == "s3cret"
    assert json.loads(shown["overlay"]) == {"max_batch_size": 8}
    assert model_page.spec(deployment, "")["overlay"] == ""


def test_the_spec_as_yaml_keeps_its_types_for_kubectl() -> None:
    texts = [
        "y",
        "N",
        "yes",
        "null",
        "~",
        "1e3",
        ".5e3",
        "1_000",
        "0x10",
        "0o17",
        "017",
        "0b1",
        "-5",
        "2026-11-30",
        "1.0",
    ]
    plain = ["16Gi", "500ms", "a", "1.2.3", "nvidia.com/gpu", "s3://models/digits"]
    spec = {"env": [*texts, *plain], "count": 3, "share": 0.5, "on": True}
    shown = model_page.spec({"spec": spec}, "")["spec"]

    assert list(documents(shown)) == [spec]  # as kubectl reads it
    assert [line for line in shown.splitlines() if line in {f"- {text}" for text in plain}] == [f"- {t}" for t in plain]


def test_a_series_is_shown_by_field() -> None:
    history = ChartHistory()
    for step in range(2):
        history.add(name(), step * 10.0, ReplicaCounts(replicas=step, ready=None, desired=None), UNKNOWN)
    series = model_page.series(history.series(name()))
    assert (series["end"], series["step"], series["replicas"], series["ready"]) == (10.0, 10, [0, 1], [None, None])


def test_the_planners_memory_is_shown_if_there_is_a_planner() -> None:
    assert model_page.past(None) is None
    assert model_page.past(Past(300.0, 900.0, (1.0, None))) == {"end": 900.0, "step": 300.0, "rate": [1.0, None]}


BAD = [
    {"status": {"conditions": [{"status": "True"}]}},
    {"status": {"conditions": "none"}},
    {"status": {"readyReplicas": 1, "cost": {"gpus": "many"}, "summary": 7}},
    {"spec": {"replicas": "two"}},
    {"spec": {"scaling": {"targets": {"latency": "soon"}}}},
    {"spec": {"runtime": {"gpu": {"count": "x"}}}},
    {"spec": {"batching": [8]}},
    {"spec": 5, "status": "good"},
]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_a_malformed_object_has_a_page(bad: dict[str, Any]) -> None:
    stored = {**model(), **bad}
    page = model_page.page(stored, servers=(), balancers=(), numbers=ModelNumbers(rate=10.0), newest=NOTHING)
    assert page["now"]["rate"] == 10.0
    assert page["model"]["name"] == stored["metadata"]["name"]
    assert json.loads(json.dumps(page)) is not None


def test_a_malformed_spec_shows_no_values() -> None:
    env = [{"name": "KEY", "value": "s3cret"}, "TOKEN=s3cret"]
    assert "s3cret" not in model_page.spec(model(spec={"runtime": {"env": env}}), "")["spec"]
    assert "s3cret" not in model_page.spec({**model(), "spec": "s3cret"}, "")["spec"]


def stored(number: int, image: str, password: str) -> StoredRevision:
    env = [{"name": "PASSWORD", "value": password}]
    template = {"spec": {"containers": [{"name": "triton", "image": image, "env": env}]}}
    return StoredRevision(f"m-{number}", number, template, '{"model_name": "m"}')


def test_the_key_of_tritons_restricted_apis_is_no_line_of_a_revision() -> None:
    """Users of the page may read ModelDeployments, but not necessarily the pods in which the key is an argument."""
    kept = [stored(1, "i:1", "same"), stored(2, "i:2", "same")]
    for revision, limit in zip(kept, ("1", "2"), strict=True):
        revision.template["spec"]["containers"][0]["args"] = [
            "--http-restricted-api=shared-memory,trace,logging:halcyon=0123456789abcdef",
            f"--http-max-input-size={limit}",
            "--grpc-restricted-protocol=shared-memory,trace,logging:halcyon=0123456789abcdef",
        ]
    newest = model_page.revisions(kept, "m-2", "m-2")["revisions"][0]
    assert "0123456789abcdef" not in str(newest)
    assert f"--http-restricted-api=shared-memory,trace,logging:halcyon={HIDDEN}" in str(newest)


def test_revisions_differ_by_lines_and_hidden_values_by_their_numbers() -> None:
    kept = [stored(3, "i:2", "other"), stored(1, "i:1", "secret"), stored(2, "i:2", "secret")]
    third, second, first = model_page.revisions(kept, "m-2", "m-3")["revisions"]
    assert [revision["role"] for revision in (third, second, first)] == ["target", "current", ""]
    assert (first["first"], first["diff"]) == (True, [])
    assert {kind + text.strip(" -") for kind, text in second["diff"] if kind != " "} == {"-image: i:1", "+image: i:2"}
    changed = {kind + text.strip() for kind, text in third["diff"] if kind != " "}
    assert changed == {f"-value: {HIDDEN}, value 1", f"+value: {HIDDEN}, value 2"}
    assert "secret" not in str([third, second, first])
    assert kept[0].template["spec"]["containers"][0]["env"][0]["value"] == "other"
