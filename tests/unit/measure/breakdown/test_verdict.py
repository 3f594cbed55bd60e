"""The verdict: staged bottlenecks are named, and two that explain a run as well make it unsure."""

from __future__ import annotations

import pytest

from halcyon_measure.breakdown import verdict
from halcyon_measure.breakdown.limits import FIGURES, RULES
from halcyon_measure.results.figure import Figure
from halcyon_measure.results.sections.phases import Phase
from tests.bench_documents import bench_document

IDLE = {
    "client_limits": 0, "hooks_limit": 0, "client_cores": 0.2, "late_ms": 0.4, "rejected": 0, "answered": 1, "failed": 0,
    "memory_failures": 0, "prepare_share": 0.0, "transmission_share": 0.02, "transmission_ms": 0.3, "rest_share": 0.05,
    "rest_ms": 0.8, "balancer_share": 0.02, "balancer_ms": 0.4, "balancer_unknown": 0, "queue_share": 0.05,
    "queue_ms": 1.0, "model_share": 0.85, "busy": 0.4, "fill": 0.3, "cpu_share": 0.3, "throttled": 0.0,
    "gpu_utilization": 0.3, "gpu_at_80": 0.0, "gpu_memory_share": 0.5, "waiting_share": 0.07,
}  # fmt: skip
FULL = {"busy": 0.99, "waiting_share": 0.6, "queue_share": 0.6, "queue_ms": 400.0}
STAGED = {
    "a slow function": ({"hooks_limit": 1, "prepare_share": 0.9}, "preparing"),
    "a function longer than the model": ({"prepare_share": 0.7, "model_share": 0.2}, "preparing"),
    "one full process of the client": ({"client_limits": 1, "client_cores": 1.0, "late_ms": 80}, "client"),
    "a link of 100 Mbit/s": ({"transmission_share": 0.7, "transmission_ms": 90}, "transmission"),
    "maxConcurrency of 1": ({"balancer_share": 0.6, "balancer_ms": 70, "busy": 0.5, "waiting_share": 0.6}, "balancer"),
    "a long maxQueueDelay": ({"queue_share": 0.5, "queue_ms": 48, "delay_ms": 50, "busy": 0.3, "waiting_share": 0.5}, "waiting for batches"),
    "a sleeping model": (FULL, "instances busy"),
    "a full machine": (FULL | {"cpu_share": 0.97}, "server CPU"),
    "neighbours on its machine": (FULL | {"cpu_share": 0.2, "core_wait": 1.4, "machine_cpu": 0.99}, "server CPU"),
    "a CPU limit of 500m": (FULL | {"cpu_share": 0.98, "throttled": 0.7}, "throttled"),
    "a full GPU": (FULL | {"gpu_at_80": 0.95, "gpu_utilization": 0.93}, "GPU"),
    "a GPU without free memory": ({"memory_failures": 0.2, "failed": 0.2, "answered": 0.8}, "GPU memory"),
    "one throttled pod of three": (FULL | {"slowest_pod": 2.8, "pod_share": 0.2}, "another pod slower"),
    "a queueLimit of 1": ({"rejected": 0.3, "answered": 0.7, "busy": 0.5}, "refusals by configuration"),
    "one caller": ({}, "nothing"),
}  # fmt: skip


def figures(**values: float) -> dict[str, Figure]:
    return {name: Figure(value=value, unit="ratio", n=1, source="staged") for name, value in values.items()}


@pytest.mark.parametrize("name", STAGED)
def test_staged_bottlenecks_are_named(name: str) -> None:
    values, expected = STAGED[name]
    judgement = verdict.judge(figures(**{**IDLE, **values}))
    assert (judgement.limit, judgement.unsure) == (expected, False)
    assert len(judgement.evidence) == 2
    assert judgement.change
    assert judgement.sentence.endswith(".")


def test_staged_bottlenecks_cover_all_rules() -> None:
    assert {expected for _, expected in STAGED.values()} == {rule.limit for rule in RULES}


def test_one_caller_that_keeps_an_instance_busy_is_no_limit() -> None:
    assert verdict.judge(figures(**{**IDLE, "busy": 0.97})).limit == "nothing"


def test_rejections_of_a_full_server_without_a_queue_are_its_limit() -> None:
    judgement = verdict.judge(figures(**{**IDLE, "busy": 0.97, "rejected": 0.3, "answered": 0.7}))
    assert (judgement.limit, judgement.unsure) == ("instances busy", False)


def test_wait_of_a_full_server_in_an_unread_balancer_is_its_consequence() -> None:
    judgement = verdict.judge(
        figures(**{**IDLE, "busy": 0.97, "rest_share": 0.8, "rest_ms": 90, "balancer_unknown": 1})
    )
    assert (judgement.limit, judgement.unsure) == ("instances busy", False)


def test_client_and_full_server_together_are_unsure() -> None:
    judgement = verdict.judge(figures(**{**IDLE, **FULL, "client_limits": 1}))
    assert (judgement.limit, judgement.unsure, judgement.others) == ("client", True, ("instances busy",))
    assert "unsure" in judgement.sentence


def test_client_that_sends_late_does_not_hide_a_full_server() -> None:
    document = bench_document(sections=True)
    assert document.phases is not None
    wait, end_to_end = document.phases.parts[3].mean, document.phases.end_to_end
    late = Phase(name="late", side="client", mean=wait.model_copy(update={"value": 3000.0}), p99=wait)
    longer = end_to_end.model_copy(update={"value": (end_to_end.value or 0) + 3000})
    phases = document.phases.model_copy(update={"parts": (late, *document.phases.parts), "end_to_end": longer})
    in_time, delayed = (
        verdict.figures_of(result)["waiting_share"].value
        for result in (document, document.model_copy(update={"phases": phases}))
    )
    assert delayed == pytest.approx(in_time)
    assert delayed == pytest.approx(8.4 / 28, rel=0.02)


def test_limit_of_a_run_without_answers_is_unknown() -> None:
    judgement = verdict.judge(figures(**{**IDLE, "client_limits": 1, "answered": 0, "failed": 1}))
    assert (judgement.limit, judgement.unsure) == ("unknown", True)
    assert judgement.sentence == "What limits is unknown: no request was answered, and the failures above say why."


def test_rest_without_a_readable_balancer_is_unsure() -> None:
    judgement = verdict.judge(figures(**{**IDLE, "rest_share": 0.8, "rest_ms": 60, "balancer_unknown": 1}))
    assert (judgement.limit, judgement.unsure, judgement.others) == ("transmission", True, ("balancer",))


def test_waiting_in_the_balancer_of_a_full_server_is_its_consequence() -> None:
    judgement = verdict.judge(figures(**{**IDLE, **FULL, "balancer_share": 0.5, "rejected": 0.4, "answered": 0.6}))
    assert (judgement.limit, judgement.unsure) == ("instances busy", False)


def test_limit_without_statistics_is_unknown() -> None:
    busy = Figure(value=None, unit="ratio", n=0, source="", reason="http://m:8000 responds with 404")
    judgement = verdict.judge(figures(answered=1.0) | {"busy": busy})
    assert (judgement.limit, judgement.unsure) == ("unknown", True)
    assert "responds with 404" in judgement.sentence


def test_figures_of_the_rules_are_described() -> None:
    used = {bound.figure for rule in RULES for bound in (*rule.bounds, *rule.unless)}
    used |= {name for rule in RULES for name in rule.evidence}
    assert used - set(FIGURES) == set()


def test_consequences_of_a_limit_do_not_cause_it() -> None:
    causes = {rule.limit: set(rule.causes) for rule in RULES}
    for limit, caused in causes.items():
        assert all(limit not in causes[other] for other in caused)
