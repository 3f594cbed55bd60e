"""Advice is shown once it has held for minutes, changes seldom, and survives the operator."""

from __future__ import annotations

from dataclasses import replace

from halcyon.control.advice.rules import RULES, AdviceFinding
from halcyon.control.advice.selection import MAX_ADVICE, AdviceSelection, read, write

FULL = AdviceFinding("16", "batches have 7.9 of at most 8 rows", "45 % more rows per second", 0.31)
DELAY = AdviceFinding("0us", "a request waits 42 ms", "the mean time falls", 0.62)
BEGIN = 1_790_000_000.0


def after(selection: AdviceSelection, minutes: float, **findings: AdviceFinding | None) -> AdviceSelection:
    return selection.updated(BEGIN + 60 * minutes, findings)


def rules(selection: AdviceSelection) -> list[str]:
    return [advice.rule for advice in selection.shown]


def test_advice_is_shown_after_ten_minutes_and_from_the_first_one_on() -> None:
    selection = AdviceSelection()
    for minutes in (0, 5):
        selection = after(selection, minutes, BatchAlwaysFull=FULL)
        assert not selection.shown
    selection = after(selection, 10, BatchAlwaysFull=FULL)
    assert [(advice.rule, advice.since) for advice in selection.shown] == [("BatchAlwaysFull", BEGIN)]


def test_a_rule_that_applies_now_and_then_is_not_shown() -> None:
    selection = AdviceSelection()
    for minutes in range(0, 120, 5):
        selection = after(selection, minutes, BatchAlwaysFull=FULL if minutes % 10 else None)
        assert not selection.shown


def shown() -> AdviceSelection:
    selection = AdviceSelection()
    for minutes in (0, 5, 10):
        selection = after(selection, minutes, BatchAlwaysFull=FULL)
    return selection


def test_advice_is_removed_once_its_rule_has_not_applied_for_as_long() -> None:
    selection = after(shown(), 15, BatchAlwaysFull=None)
    assert rules(selection) == ["BatchAlwaysFull"]
    selection = after(after(selection, 20, BatchAlwaysFull=None), 25, BatchAlwaysFull=None)
    assert not selection.shown


def test_a_rule_without_an_opinion_changes_nothing() -> None:
    selection = shown()
    for minutes in range(15, 200, 5):
        selection = after(selection, minutes)
    assert selection.shown == shown().shown


def test_other_figures_are_no_other_advice() -> None:
    selection = shown()
    for minutes in range(15, 90, 5):
        selection = after(selection, minutes, BatchAlwaysFull=replace(FULL, evidence=f"{minutes}", value="18"))
    assert selection.shown == shown().shown
    selection = after(selection, 95, BatchAlwaysFull=replace(FULL, value="32"))
    assert [(advice.finding.value, advice.since) for advice in selection.shown] == [("32", BEGIN)]


def test_the_list_changes_every_ten_minutes_at_most() -> None:
    selection = after(shown(), 11, DelayOnlyCosts=DELAY, BatchAlwaysFull=FULL)
    changes = []
    for minutes in range(12, 40):
        before = selection.shown
        selection = after(selection, minutes, DelayOnlyCosts=DELAY, BatchAlwaysFull=None)
        if selection.shown != before:
            changes.append(minutes)
    assert rules(selection) == ["DelayOnlyCosts"]
    assert changes == [20, 30]


def test_the_largest_gains_come_first_and_five_at_most() -> None:
    findings = {rule.name: replace(FULL, share=number / 10) for number, rule in enumerate(RULES)}
    selection = AdviceSelection()
    for minutes in (0, 5, 10):
        selection = after(selection, minutes, **findings)
    assert rules(selection) == [rule.name for rule in reversed(RULES)][:MAX_ADVICE]


def test_a_new_leader_continues_with_the_advice_of_the_status() -> None:
    (advice,) = shown().shown
    entry = write(advice, "8")
    assert (entry["field"], entry["currentValue"], entry["gainPercent"]) == ("spec.batching.maxBatchSize", "8", 31)
    restored = read([entry, {"rule": "Unknown"}, {"rule": "GPUIdle", "value": 3}, "x", {}])
    assert restored.shown == (advice,)
    assert after(restored, 60, BatchAlwaysFull=FULL).shown == (advice,), "nothing new to write"
    assert read(None) == read({}) == AdviceSelection()
    assert "currentValue" not in write(advice, None)
