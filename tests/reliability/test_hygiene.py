"""R-26: status writes and Events of models while requests fail and specs change, on a real API server."""

from __future__ import annotations

import os
import random
import time
from collections import Counter

from halcyon.kube import kinds
from tests.faults.site import Site
from tests.integration.operator_space import deployment, files
from tests.integration.proxy import Answer, Break, Door, Fault, Request
from tests.reliability.trials import Trial, run

MINUTES = float(os.environ.get("HALCYON_HYGIENE_MINUTES", "10"))
MODELS = 3
SHARE = 0.2
"""Share of requests that fail."""
CHANGE_INTERVAL_S = 15.0
MAX_EVENTS, EVENTS_S = 10, 60.0
MAX_STATUS_WRITES, STATUS_S = 10, 10.0
FAULTS: tuple[Fault, ...] = (
    *(Answer(status) for status in (403, 409, 500, 503)),
    Answer(429, retry_after_s=1),
    Break(after=False),
    Break(after=True),
)


def most_within(times: list[float], window_s: float) -> int:
    """Return the largest number of times within a window."""
    ordered = sorted(times)
    return max((sum(at <= t < at + window_s for t in ordered[n:]) for n, at in enumerate(ordered)), default=0)


def test_most_within_counts_a_sliding_window() -> None:
    assert most_within([], 10) == 0
    assert most_within([0, 9, 10, 18.9, 30], 10) == 3
    assert most_within([0, 9, 9.5, 10, 18.9], 10) == 4


def writes_by_model(door: Door, namespace: str, resource: str) -> dict[str, list[float]]:
    """Return the times of the accepted writes of a resource, by the first part of the object's name, in seconds."""
    times: dict[str, list[float]] = {}
    for (request, status), at in zip(door.answered, door.answered_at, strict=False):
        if (
            request.write is not None
            and request.namespace == namespace
            and request.resource == resource
            and status < 300
        ):
            name = request.target.split("/")[1].partition(".")[0] if "/" in request.target else ""
            times.setdefault(name, []).append(at)
    return times


def test_status_writes_and_events_stay_few_under_faults(installation: Site) -> None:
    [space] = installation.spaces_for(1)
    space.apply(files())
    generator = random.Random(26)

    def fails(request: Request) -> Fault | None:
        if request.resource in {"leases", "tokenreviews"} or request.watching or generator.random() > SHARE:
            return None
        return generator.choice(FAULTS)

    def trial(_: int) -> Trial:
        operator, door = installation.start(fails, watch=space.namespace)
        names = [f"m{number}" for number in range(MODELS)]
        end, change = time.monotonic() + 60 * MINUTES, 0
        while time.monotonic() < end:
            for name in names:
                size = 8 + change % 4
                space.apply(
                    deployment(name, batching={"maxBatchSize": size}, traffic={"balancerReplicas": 1 + change % 2})
                )
            change += 1
            time.sleep(CHANGE_INTERVAL_S)
        problems = []
        events: Counter[str] = Counter()
        for event in space.every(kinds.EVENT):
            about = event.get("regarding") or {}
            if about.get("kind") == kinds.MODEL_DEPLOYMENT.kind:
                events[str(about["name"])] += 1
        posted = [at for times in writes_by_model(door, space.namespace, "events").values() for at in times]
        status = writes_by_model(door, space.namespace, kinds.MODEL_DEPLOYMENT.plural)
        most_status = max((most_within(times, STATUS_S) for times in status.values()), default=0)
        # The proxy sees no model in the request that creates an Event, so all models' Events count together.
        most_events = most_within(posted, EVENTS_S)
        if most_status > MAX_STATUS_WRITES:
            problems.append(f"{most_status} writes of one model's status within {STATUS_S:g} s")
        if most_events > MAX_EVENTS * MODELS:
            problems.append(f"{most_events} Events of {MODELS} models within {EVENTS_S:g} s")
        operator.stop()
        figures = {
            "minutes": MINUTES,
            "most_status_writes_in_10_s": most_status,
            "most_events_a_minute_of_3_models": most_events,
            "events": sum(events.values()),
            "changes": change,
        }
        return Trial(problems, figures, "20 % of requests fail")

    assert run("R-26", 1, [trial], share=0.2) == {}
