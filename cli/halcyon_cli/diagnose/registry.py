"""Ordered list of the rules of `halcyon diagnose`, and the function that applies them. Pure.

Each cause has its evidence and a next step, so that users can judge whether it applies. Out of scope: reading the
objects (`commands.diagnose`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from halcyon_cli.diagnose import batch_rules, condition_rules, model_rules, pod_rules
from halcyon_cli.diagnose.facts import Cause, ConditionIndex, Facts

Rule = Callable[[Facts, ConditionIndex], Iterator[Cause]]
RULES: tuple[Rule, ...] = (
    model_rules.spec_rejected,
    model_rules.spec_not_observed,
    model_rules.model_not_loaded,
    model_rules.pods_rejected,
    model_rules.balancer_not_ready,
    model_rules.rollout_failed,
    model_rules.autoscaler_conflict,
    model_rules.signals_missing,
    model_rules.scaling_limited,
    model_rules.paused,
    condition_rules.abnormal_conditions,
    model_rules.recent_warnings,
    pod_rules.image_not_pulled,
    pod_rules.model_not_available,
    pod_rules.containers_crashing,
    pod_rules.start_blocked,
    pod_rules.unschedulable,
    pod_rules.pods_not_ready,
    pod_rules.slow_start,
    pod_rules.evicted,
    pod_rules.restarted,
    batch_rules.batch_failed,
)


def causes(facts: Facts) -> list[Cause]:
    """Return the causes that the rules detect, likeliest first. Equally likely causes keep the order of the rules."""
    index = ConditionIndex.from_inventory(facts.inventory)
    likely = [cause for rule in RULES for cause in rule(facts, index)]
    return sorted(likely, key=lambda cause: -cause.weight)
