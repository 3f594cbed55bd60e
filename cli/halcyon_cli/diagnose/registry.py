"""What was read of a model -> likely causes of its trouble, the likeliest first. Pure.

Whether a cause is one is for the reader: a rule tells what speaks for it, and what to do next. Not here: where the objects come from
(`diagnose`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from halcyon_cli.diagnose import model_rules, pod_rules
from halcyon_cli.diagnose.facts import Cause, ConditionIndex, Facts

Rule = Callable[[Facts, ConditionIndex], Iterator[Cause]]
RULES: tuple[Rule, ...] = (
    model_rules.not_accepted,
    model_rules.unheard,
    model_rules.not_loaded,
    model_rules.refused,
    model_rules.no_balancer,
    model_rules.rolled,
    model_rules.fought_over,
    model_rules.blind,
    model_rules.held_down,
    model_rules.paused,
    model_rules.without_effect,
    model_rules.warned,
    pod_rules.no_image,
    pod_rules.no_model,
    pod_rules.falling,
    pod_rules.no_room,
    pod_rules.unready,
    pod_rules.slow,
    pod_rules.evicted,
    pod_rules.restarts,
)


def causes(facts: Facts) -> list[Cause]:
    """Every cause that a rule finds, the likeliest first; those of equal weight in the order of the rules."""
    told = ConditionIndex.of(facts.seen)
    found = [cause for rule in RULES for cause in rule(facts, told)]
    return sorted(found, key=lambda cause: -cause.weight)
