"""A canary on real Triton, under load: one that fails is found by its failures and goes; a good one takes over without loss."""

from typing import Any

import pytest

from demo import models
from demo.coldstart import ColdStart
from demo.kube import Kube, wait_for
from e2e.scenarios.test_rollout import document, files, load, revision, rollout, serve, wait_phase
from halcyon_cli.bench.canary.canary_session import CanarySession
from halcyon_cli.kube.client import Target
from halcyon_cli.kube.object_writer import ObjectWriter

pytestmark = pytest.mark.more

_STEPS = [{"weight": 30, "pause": {"duration": "5s"}}]


def _slot(kube: Kube, name: str, slot: str) -> set[str]:
    """Return the names of a slot's pods that aren't terminating: those of an earlier canary may still be."""
    pods = [p["metadata"] for p in kube.pods(name, "server") if not p["metadata"].get("deletionTimestamp")]
    return {meta["name"] for meta in pods if meta["labels"].get("serving.halcyon.dev/slot") == slot}


def _is_observed(kube: Kube, name: str) -> bool:
    """Return True if the operator has observed the current spec."""
    model = kube.model(name) or {}
    return bool((model.get("status") or {}).get("observedGeneration") == model["metadata"]["generation"])


def _canary(name: str, mode: str) -> dict[str, Any]:
    return document(name, gpus=0, strategy="Canary", canary={"steps": _STEPS, "analysis": {"mode": mode}})


def test_a_canary_that_fails_goes_by_itself_and_a_good_one_takes_over_without_loss(
    kube: Kube,
    digits: ColdStart,  # noqa: ARG001  # it comes first
) -> None:
    name = "canaried"
    try:
        first = serve(kube, _canary(name, "Enabled"))
        with load(kube, name) as reports:
            kube.apply(files(name, factor=3, failing_below=8))
            # Half of what it is asked fails.
            wait_phase(kube, name, "RolledBack", target=first, limit_s=90)
            assert rollout(kube, name)["failed"]["reason"] == "CanaryAnalysisFailed"
            assert revision(kube, name)["current"] == first
        # Half of three in ten, for as long as it took to see it.
        failed, answered = sum(r.failed for r in reports), sum(r.answered for r in reports)
        assert 0 < failed < 0.2 * answered, reports

        kube.apply(files(name, factor=4), _canary(name, "Disabled"))
        with load(kube, name) as reports:
            wait_for(lambda: "canary" in rollout(kube, name) and models.ready_servers(kube, name) == 2,
                     goal="the count is split", limit_s=60)  # fmt: skip
            wait_for(lambda: bool(_slot(kube, name, "b")), goal="the canary's pods", limit_s=60)
            canaries = _slot(kube, name, "b")
            wait_phase(kube, name, "Complete", target=first, limit_s=120)
            wait_for(lambda: not _slot(kube, name, "a"), goal="the old pods go", limit_s=60)
            # Promotion has restarted no pod.
            assert canaries <= _slot(kube, name, "b")
        assert [r.failed for r in reports] == [0, 0], reports
    finally:
        models.delete(kube, name, wait=False)


def test_change_of_a_tuning_stays_if_it_is_as_good_and_goes_if_it_is_worse(
    kube: Kube,
    digits: ColdStart,  # noqa: ARG001  # it comes first
) -> None:
    name = "tuned"
    cluster = ObjectWriter(Target("tune", kubeconfig=kube.kubeconfig, namespace="default"))
    steps = [{"weight": 50, "pause": {"duration": "5s"}}]
    try:
        first = serve(kube, document(name, gpus=0, strategy="Surge", canary={"steps": steps}))
        before = (kube.model(name) or {})["spec"]["rollout"]
        with load(kube, name) as reports:
            good = CanarySession(cluster, name, limit_s=300, start_s=60, show=print).run(
                {"runtime": {"instancesPerGPU": 2}}
            )
            assert (good.end, good.revision != first) == ("promoted", True), good
            assert "analysis" in good.why
            spec = (kube.model(name) or {})["spec"]
            assert (spec["runtime"]["instancesPerGPU"], spec["rollout"]) == (2, before)
            wait_for(lambda: _is_observed(kube, name), goal=f"the operator observes {name}", limit_s=30)
            # Each request waits for a fuller batch that never comes.
            worse = CanarySession(cluster, name, limit_s=300, start_s=60, show=print).run(
                {"batching": {"maxBatchSize": 4, "maxQueueDelay": "300ms"}}
            )
            assert worse.end == "undone", worse
            assert "worse" in worse.why
            assert worse.why.endswith("the previous settings serve all requests")
            assert (kube.model(name) or {})["spec"] == spec
            assert revision(kube, name) == {"current": good.revision, "target": good.revision}
        assert [r.failed for r in reports] == [0, 0], reports
    finally:
        models.delete(kube, name, wait=False)
