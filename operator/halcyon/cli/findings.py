"""What was read of a model -> likely causes of its trouble, the likeliest first. Pure.

Whether a cause is one is for the reader: a rule tells what speaks for it, and what to do next. Not here: where the objects come from
(`diagnose`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from halcyon.cli import rules_model, rules_pods
from halcyon.cli.evidence import Cause, Facts, Told

Rule = Callable[[Facts, Told], Iterator[Cause]]
RULES: tuple[Rule, ...] = (
    rules_model.not_accepted,
    rules_model.unheard,
    rules_model.not_loaded,
    rules_model.refused,
    rules_model.no_balancer,
    rules_model.rolled,
    rules_model.fought_over,
    rules_model.blind,
    rules_model.held_down,
    rules_model.paused,
    rules_model.without_effect,
    rules_model.warned,
    rules_pods.no_image,
    rules_pods.no_model,
    rules_pods.falling,
    rules_pods.no_room,
    rules_pods.unready,
    rules_pods.slow,
    rules_pods.evicted,
    rules_pods.restarts,
)


def causes(facts: Facts) -> list[Cause]:
    """Every cause that a rule finds, the likeliest first; those of equal weight in the order of the rules."""
    told = Told.of(facts.seen)
    found = [cause for rule in RULES for cause in rule(facts, told)]
    return sorted(found, key=lambda cause: -cause.weight)
