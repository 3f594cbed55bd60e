"""The section of a sweep, and the facts of its document."""

from __future__ import annotations

from halcyon_measure.sweep import section
from tests.bench_documents import answers, bench_document


def test_a_sweep_is_valid_only_if_all_its_points_are() -> None:
    sweep = answers()["sweep"]
    last = bench_document(duration_s=5).run
    assert section.facts(last, sweep).valid
    wrong = sweep.points[0].model_copy(update={"valid": False, "invalid_because": ("the client limits",)})
    facts = section.facts(last, sweep.model_copy(update={"points": (wrong, *sweep.points[1:]), "partial": True}))
    assert (facts.valid, facts.partial) == (False, True)
    assert facts.invalid_because == (
        "the sweep was interrupted",
        "1 of 6 points aren't valid; the table has the reasons",
    )
