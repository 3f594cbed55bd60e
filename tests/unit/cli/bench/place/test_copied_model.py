"""The copy of a served model: what it has in common with the original, and what can't be copied."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from halcyon.api.spec.parse import parse
from halcyon.render import names
from halcyon_cli.bench.place.copied_model import COPY_LABEL, copied, copy_name, keeps_state
from halcyon_cli.errors import InputError
from halcyon_cli.rollout.revisions import PastRevision
from tests.unit.cli.bench.place.served_models import served


def revision(state: str, spec: dict[str, Any] | None, number: int = 1) -> PastRevision:
    return PastRevision(number, f"digits-{number}", state, "", None, "", spec)


def test_copy_never_scales_and_keeps_the_objective_of_its_balancers() -> None:
    spec = copied(served(), [], replicas=2).document["spec"]
    assert spec["replicas"] == 2
    scaling = parse("digits-bench", spec).scaling
    assert scaling is not None
    assert (scaling.min_replicas, scaling.max_replicas, scaling.mode, scaling.actuator) == (2, 2, "Paused", "Direct")
    assert scaling.targets.latency == "300ms"


@pytest.mark.parametrize(
    "scaling",
    [None, {"maxReplicas": 4}, {"maxReplicas": 4, "policy": "Rules", "targets": {"queueDepth": 4}}],
)
def test_copy_without_an_objective_has_no_scaling(scaling: dict[str, Any] | None) -> None:
    model = served()
    del model["spec"]["scaling"]
    if scaling is not None:
        model["spec"]["scaling"] = scaling
    assert "scaling" not in copied(model, []).document["spec"]


def test_copy_has_the_originals_queue_and_keys_without_its_tls() -> None:
    copy = copied(served(), [])
    traffic = copy.document["spec"]["traffic"]
    assert traffic == {
        "queueLimit": 50,
        "drainTimeout": "5s",
        "apiKeys": {"secretName": "keys"},
        "overload": {"mode": "Wait"},
    }
    assert "rollout" not in copy.document["spec"]
    assert copy.api_keys == "keys"
    assert any("no TLS" in note for note in copy.traffic_notes)


def test_copy_serves_by_the_name_of_the_original() -> None:
    copy = copied(served(status={"model": {"name": "mnist"}}), [])
    assert (copy.name, copy.model, copy.document["spec"]["model"]["name"]) == ("digits-bench", "mnist", "mnist")


def test_copy_is_outside_of_every_selector_of_the_original() -> None:
    copy = copied(served(), [])
    assert copy.document["metadata"]["labels"][COPY_LABEL] == "digits"
    for component in (names.SERVER, names.BALANCER):
        original, other = names.selector("digits", component), names.labels(copy.name, component)
        assert not original.items() <= other.items()


def test_original_is_not_changed() -> None:
    model = served()
    before = deepcopy(model)
    copied(
        model,
        [revision("serving", {"model": model["spec"]["model"], "runtime": {"gpu": {"count": 2}}})],
        priority_class="low",
    )
    assert model == before


def test_copy_during_a_canary_is_of_the_serving_revision() -> None:
    model = served()
    stable: dict[str, Any] = {
        "model": {"source": {"persistentVolumeClaim": {"claimName": "models-1"}}},
        "runtime": {"gpu": {"count": 2}},
    }
    copy = copied(model, [revision("canary", None, 2), revision("serving", stable, 1)])
    assert copy.document["spec"]["model"]["source"] == stable["model"]["source"]
    assert parse("digits-bench", copy.document["spec"]).runtime.gpus == 2
    assert "revision 1, which serves" in copy.notes[0]


def test_copy_of_a_gateway_model_has_no_route() -> None:
    model = served(spec={"traffic": {"mode": "Gateway", "gateway": {"name": "edge", "hostnames": ["a.example.com"]}}})
    copy = copied(model, [])
    assert copy.document["spec"]["traffic"] == {"mode": "Direct", "drainTimeout": "5s"}
    assert copy.is_direct
    assert any("no balancer" in note for note in copy.traffic_notes)


def test_model_at_zero_stays_there() -> None:
    copy = copied(served(spec={"replicas": 0, "scaling": {"minReplicas": 0, "maxReplicas": 8}}), [])
    assert copy.document["spec"]["replicas"] == 1
    assert any("at zero" in note for note in copy.notes)


def test_copy_has_the_lowest_priority() -> None:
    placement = copied(served(), [], priority_class="halcyon-bench").document["spec"]["runtime"]["placement"]
    assert placement == {"priorityClassName": "halcyon-bench"}


def test_copy_is_owned_by_the_job() -> None:
    (owner,) = copied(served(), []).owned_by({"metadata": {"name": "digits-bench", "uid": "j-1"}})["metadata"][
        "ownerReferences"
    ]
    assert owner == {"apiVersion": "batch/v1", "kind": "Job", "name": "digits-bench", "uid": "j-1"}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (served(status={"conditions": [{"type": "Accepted", "status": "False", "message": "no such field"}]}), "isn't accepted: no such field"),
        (served(status={"conditions": []}), "isn't accepted: the operator hasn't handled it yet"),
        (served(status={"revision": {"target": "x"}}), "was never loaded"),
        (served("a" * 47), "has 47 characters, and that of its copy, " + "a" * 47 + "-bench, may have 52 at most"),
    ],
)  # fmt: skip
def test_models_without_a_copy_are_refused(model: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        copied(model, [])
    assert message in str(caught.value)


def test_copy_of_a_copy_is_refused() -> None:
    model = served("digits-bench")
    model["metadata"]["labels"] = {COPY_LABEL: "digits"}
    with pytest.raises(InputError, match="halcyon bench digits"):
        copied(model, [])


def test_longest_name_with_a_copy_is_valid() -> None:
    assert len(copy_name("a" * 46)) == 52


def test_model_of_sequences_is_known_by_its_pods() -> None:
    ended = {"state": {"terminated": {"message": '{"sequences":true}'}}}
    assert keeps_state([{"status": {}}, {"status": {"initContainerStatuses": [ended]}}])
    assert not keeps_state([{"status": {"initContainerStatuses": [{"state": {"terminated": {"message": ""}}}]}}])
