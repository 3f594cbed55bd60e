"""Models that keep a state between requests: how they are found, and what is refused."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from halcyon.api.conditions import Reason
from halcyon.api.sequence_batching import REPORT
from halcyon.control.desired.plan import ReconcilePlan, make
from halcyon.control.rollout.rollout_record import RolloutRecord
from halcyon.control.state.scope import Scope, SourceState
from halcyon.kube import kinds
from halcyon.render.revision import Content
from tests.unit.control.scope_builders import applied_children, pod, scope_of

KEPT = "sequence_batching { direct {} }"
ITEMS = {"configMap": {"name": "m", "items": [{"key": "config", "path": "config.pbtxt"}]}}
STICKY = {"stickiness": {"header": "X-Sequence-ID"}}


def of_config_map(text: str = KEPT, *, binary: bool = False, **spec: Any) -> Scope:
    data = {} if binary else {"config": text}
    content = Content(data=data, binary={"config": base64.b64encode(text.encode()).decode()} if binary else {})
    return scope_of({"model": {"source": ITEMS}, "replicas": 2} | spec, source=SourceState(content=content))


def balancers_plan(planned: ReconcilePlan) -> dict[str, Any]:
    (config_map,) = (o for o in planned.then if (o["kind"], o["metadata"]["name"]) == ("ConfigMap", "digits-balancer"))
    plan: dict[str, Any] = json.loads(config_map["data"]["plan.json"])
    return plan


def after(before: Scope, planned: ReconcilePlan, **fields: Any) -> Scope:
    assert planned.target is not None
    return replace(before, children=applied_children(before, planned), revisions=(planned.target,), **fields)


@pytest.mark.parametrize("binary", [False, True])
def test_sequences_over_several_replicas_are_rejected_without_binding_to_a_pod(*, binary: bool) -> None:
    planned = make(of_config_map(binary=binary))

    assert (planned.acceptance.accepted, planned.acceptance.reason) == (False, Reason.INVALID)
    assert "config.pbtxt has sequence_batching, but spec.replicas is 2" in planned.acceptance.message
    assert planned.then == ()


@pytest.mark.parametrize(
    "spec",
    [
        {"replicas": 1},
        {"traffic": STICKY},
        {"scaling": {"maxReplicas": 5}, "traffic": STICKY},
    ],
)
def test_sequences_with_one_replica_or_header_are_served_without_repeated_work(spec: dict[str, Any]) -> None:
    planned = make(of_config_map(**spec))

    assert planned.acceptance.accepted
    assert balancers_plan(planned)["sequences"] is True
    assert balancers_plan(planned).get("sticky_header", "") == ("x-sequence-id" if "traffic" in spec else "")


def test_a_model_without_sequences_needs_no_header() -> None:
    planned = make(of_config_map("dynamic_batching {}"))

    assert planned.acceptance.accepted
    assert "sequences" not in balancers_plan(planned)


def test_requests_with_a_sticky_header_are_not_repeated_for_any_model() -> None:
    planned = make(of_config_map("dynamic_batching {}", traffic=STICKY))

    assert planned.acceptance.accepted
    assert balancers_plan(planned)["sequences"] is True


def test_rejected_replicas_are_not_followed() -> None:
    first = of_config_map(replicas=1)
    grown = after(first, make(first), resource=of_config_map(replicas=3).resource)
    planned = make(grown)

    assert not planned.acceptance.accepted
    (servers,) = (o for o in planned.then if o["kind"] == "Deployment" and o["metadata"]["name"] == "digits-a")
    assert servers["spec"]["replicas"] == 1


def test_a_content_that_is_refused_changes_nothing_of_what_serves() -> None:
    first = of_config_map("dynamic_batching {}", replicas=3)
    changed = after(first, make(first), source=of_config_map(replicas=3).source)
    planned = make(changed)

    assert not planned.acceptance.accepted
    assert planned.replicas == 3
    assert "sequences" not in balancers_plan(planned)


def fetcher_pod(key: str, message: str, code: int = 0) -> Any:
    state = {"terminated": {"exitCode": code, "message": message}}
    return pod("p", ready=True, revision=key, init=[{"name": "fetch", "restartCount": 0, "state": state}])


def test_the_first_pod_reports_a_volumes_sequences_and_the_record_keeps_them() -> None:
    first = scope_of({"replicas": 1})
    planned = make(first)
    assert planned.target is not None
    seen = after(first, planned, pods=(fetcher_pod(planned.target.key, REPORT),))
    noted = make(seen)
    assert balancers_plan(noted)["sequences"] is True
    assert noted.target is not None
    assert RolloutRecord.of(noted.target).sequences

    grown = after(seen, noted, pods=(), resource=scope_of({"replicas": 2}).resource)
    assert "spec.replicas is 2" in make(grown).acceptance.message
    assert kinds.DEPLOYMENT.kind in {o["kind"] for o in make(grown).then}


@pytest.mark.parametrize(("message", "code"), [("", 0), (REPORT, 1), ("{}", 0)])
def test_a_pod_that_says_anything_else_says_nothing_of_sequences(message: str, code: int) -> None:
    first = scope_of({"replicas": 2})
    planned = make(first)
    assert planned.target is not None

    assert make(after(first, planned, pods=(fetcher_pod(planned.target.key, message, code),))).acceptance.accepted


def test_a_stateful_volume_stays_at_one_replica_whatever_its_scaling_allows() -> None:
    spec: dict[str, Any] = {"replicas": 3, "scaling": {"minReplicas": 2, "maxReplicas": 5}}
    first = scope_of(spec)
    planned = make(first)
    assert planned.target is not None
    detected = make(after(first, planned, pods=(fetcher_pod(planned.target.key, REPORT),)))

    assert "spec.scaling.maxReplicas is 5" in detected.acceptance.message
    assert detected.spec is not None
    assert detected.spec.scaling is not None
    assert (detected.replicas, detected.spec.scaling.min_replicas, detected.spec.scaling.max_replicas) == (1, 1, 1)
    (servers,) = (o for o in detected.then if o["kind"] == "Deployment" and o["metadata"]["name"] == "digits-a")
    assert servers["spec"]["replicas"] == 1
    (config_map,) = (
        o for o in detected.then if o["metadata"]["name"] == "digits-balancer" and o["kind"] == "ConfigMap"
    )
    assert '"maxReplicas":1' in config_map["data"]["accepted.json"], "the autoscaler follows it"


def test_requests_are_not_repeated_while_pods_of_a_stateful_revision_serve() -> None:
    first = of_config_map(replicas=1)
    planned = make(first)
    assert planned.target is not None
    served = RolloutRecord(began="b", ended="e", served="s", result="Served", sequences=True).on(planned.target)
    pods = (pod("p", ready=True, revision=served.key),)
    stateless = of_config_map("dynamic_batching {}", replicas=1)
    changed = replace(stateless, children=applied_children(first, planned), revisions=(served,), pods=pods)

    assert make(changed).target != served
    assert balancers_plan(make(changed))["sequences"] is True


@pytest.mark.parametrize(("others", "sequences", "count"), [(3, False, 3), (3, True, 1), (0, False, 1)])
def test_stateless_pods_stay_while_a_stateful_revision_is_rolled_out(others: int, sequences: bool, count: int) -> None:
    first = scope_of({"replicas": 3})
    planned = make(first)
    assert planned.target is not None
    earlier = RolloutRecord(served="s", sequences=sequences).on(replace(planned.target, key="earlier"))
    ready = tuple(pod(f"p{n}", ready=True, revision="earlier") for n in range(others))
    seen = after(first, planned, pods=(*ready, fetcher_pod(planned.target.key, REPORT)))
    seen = replace(seen, revisions=(*seen.revisions, replace(earlier, number=0)))

    assert not make(seen).acceptance.accepted
    assert make(seen).replicas == count
