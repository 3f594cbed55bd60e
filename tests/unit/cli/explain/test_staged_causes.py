"""Why there are as many replicas as there are: for each staged situation `halcyon explain` names the true cause, and no other.

How many of them it names goes to build/explain.json.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest

from halcyon_cli.explain.build import report
from halcyon_cli.output.report_text import render
from tests.unit.cli.staged_causes import STAGES

WEIGHT_BYTES = 55_000
"""Each cause is staged in a simulated operator."""

FILE = Path(__file__).parents[4] / "build/explain.json"
SAYS = {
    "at-the-most": r"3 replicas, .*needs 5;.* maxReplicas is 3, and 5 are needed",
    "at-the-least": r"3 replicas, .*needs 1; minReplicas is 3",
    "schedule-raises": r"4 replicas, .*the schedule office-hours sets at least 4",
    "schedule-caps": r"2 replicas, .*the schedule night sets at most 2, and 5 are needed",
    "metric-missing": "2 replicas; nothing was decided yet: no balancer agent has reported yet",
    "metric-stale": r"2 replicas, held: .*digits-balancer-0 reported last \d+ s ago.*; the last valid number of replicas is kept",
    "other-autoscaler": r"5 replicas, external autoscaler: HorizontalPodAutoscaler keda-hpa-digits of ScaledObject digits",
    "other-writer": r"2 replicas, external writer; 5 desired.*field manager argocd-controller has changed spec.replicas 3 times",
    "no-gpu": r"3 of 5 ready, 2 unschedulable.*3 Insufficient nvidia.com/gpu",
    "paused": r"2 replicas, paused \(load test until noon\); 5 desired",
    "recommend": r"2 replicas; 5 recommended: 400 req/s",
    "idle-at-zero": r"0 replicas, .*no request for \d+ s; idleTimeout is 60 s",
    "waking": r"1 replica, .*waking from zero: 1 pulling.*0 -> 1",
    "backlog": r"\d replicas, as desired: \d+ waiting to drain in 10 s needs \d.*\* backlog",
    "forecast": r"4 replicas, as desired: rising to 28\d(\.\d)? req/s in 60 s needs 4.*\* trend",
    "held-before-going-down": r"5 replicas, .*needs 4; 5 were needed within the last 60 s.*limited by hold",
    "gpu-veto": r"5 replicas, .*GPUs are 99 % busy, although \d+ % was expected.*limited by veto",
    "quota": r"3 replicas, although 5 replicas are desired: ResourceQuota gpus allows 3: requests.nvidia.com/gpu is 8 of 8 used",
    "gpu-budget": r"2 replicas, although 5 replicas are desired: .*granted 2: the site's budget of 2 GPUs",
    "rollout-blocked": r"Reconciling is True \(RolloutBlocked\): revision \w+ is waiting for capacity: .*1 Insufficient nvidia.com/gpu",
    "load-failed": r"0 of 1 ready.*ModelLoaded is False \(LoadFailed\): failed to load 'digits' version 1: Internal: onnx runtime error 7",
    "image-not-pulled": r'0 of 1 ready.*ImagePullFailed.*ImagePullBackOff: Back-off pulling image "localhost/triton:25.01"',
    "starting": r"2 of 5 ready, 3 starting 3 loading; the last start took 41 s \(1 s scheduling, 9 s pulling, 4 s fetching, 27 s loading\)",
    "learning": r"2 replicas, .*the capacity of a replica is not known yet, so queue depth and GPU utilisation decide",
    "fixed": r"3 replicas, fixed \(three nodes\): spec.scaling is not set",
    "refused": r"Accepted is False \(Invalid\): spec.batching.maxBatchSize is 0: .*the last accepted spec stays in effect",
}
"""What a reader has to find, spaces and line ends being equal."""
MARKS = {
    "limited by max": {"at-the-most", "schedule-caps"},
    "limited by min": {"at-the-least", "schedule-raises"},
    "limited by hold": {"held-before-going-down"},
    "veto (": {"gpu-veto"},
    "ResourceQuota": {"quota"},
    "GPU budget": {"gpu-budget"},
    "idle (": {"idle-at-zero"},
    "unknown (": {"metric-stale"},
    "paused": {"paused"},
    "recommended": {"recommend"},
    "external writer": {"other-writer"},
    "external autoscaler": {"other-autoscaler"},
    "schedule ": {"schedule-raises", "schedule-caps"},
    "waking": {"waking"},
    "Insufficient": {"no-gpu", "rollout-blocked"},
    "RolloutBlocked": {"rollout-blocked"},
    "LoadFailed": {"load-failed"},
    "ImagePull": {"image-not-pulled"},
    "is not known yet, so": {"learning"},
    "Accepted is": {"refused"},
    "* trend": {"forecast"},
    "* backlog": {"backlog"},
    "fixed": {"fixed", "rollout-blocked"},
    "no limit applies": {"other-writer", "no-gpu", "paused", "recommend", "waking", "backlog", "forecast", "starting", "refused"},
}  # fmt: skip
"""Words that tell a cause, and the situations that have it: elsewhere they would mislead."""


@cache
def explained(name: str) -> str:
    """The page of a situation, on one line."""
    staged = STAGES[name]()
    page = render(report(staged.resource, staged.now), staged.now, width=140)
    # What was so before is no cause of what is.
    now, _, past = page.partition("\nCHANGED")
    return " ".join(now.split()) + (" CHANGED " + " ".join(past.split()[2:7]) if past else "")


@pytest.mark.parametrize("name", STAGES)
def test_the_true_cause_is_named(name: str) -> None:
    assert re.search(SAYS[name], explained(name)), explained(name)


@pytest.mark.parametrize("name", STAGES)
def test_no_other_cause_is_named(name: str) -> None:
    page = explained(name).partition(" CHANGED ")[0]
    assert {mark for mark in MARKS if mark in page} == {mark for mark, names in MARKS.items() if name in names}, page


def test_how_many_are_named_is_kept_with_the_other_figures() -> None:
    named = [name for name in STAGES if re.search(SAYS[name], explained(name))]
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps({"situations": len(STAGES), "named": len(named), "which": named}, indent=2) + "\n")

    assert len(STAGES) == len(SAYS) >= 20
    assert len(named) == len(STAGES)
