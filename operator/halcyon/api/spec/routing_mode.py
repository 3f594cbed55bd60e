"""`spec.traffic.mode`: the routing mode, and the fields of a spec that each mode excludes."""

from __future__ import annotations

from typing import Any, Final, Literal

from halcyon.api.types import Rule, quantity

Mode = Literal["Balancer", "Direct", "Gateway"]

DIRECT: Final = ("Direct", "Gateway")
"""Routing modes without Halcyon's balancers: clients connect to the servers without a balancer in between."""

RULES: Final = (
    Rule(
        cel="self.traffic.mode == 'Balancer' || !has(self.scaling) || self.scaling.minReplicas > 0",
        check=lambda m: m.traffic.mode == "Balancer" or m.scaling is None or m.scaling.min_replicas > 0,
        message=(
            "spec.scaling.minReplicas is {scaling.minReplicas} but spec.traffic.mode is "
            "{traffic.mode}: only balancers hold requests while a model scales up from zero; "
            "set minReplicas: 1 or mode: Balancer"
        ),
    ),
    Rule(
        cel="self.traffic.mode != 'Direct' || self.rollout.strategy != 'Canary'",
        check=lambda m: m.traffic.mode != "Direct" or m.rollout.strategy != "Canary",
        message=(
            "spec.rollout.strategy is {rollout.strategy} but spec.traffic.mode is "
            "{traffic.mode}: a Service cannot split traffic between revisions; set strategy: Auto or "
            "mode: Balancer"
        ),
    ),
    Rule(
        cel="self.traffic.mode == 'Balancer' || !has(self.traffic.stickiness)",
        check=lambda m: m.traffic.mode == "Balancer" or m.traffic.stickiness is None,
        message=(
            "spec.traffic.stickiness is set but spec.traffic.mode is {traffic.mode}: only "
            "balancers route by header; set mode: Balancer or remove stickiness"
        ),
    ),
    Rule(
        cel="self.traffic.mode != 'Gateway' || has(self.traffic.gateway)",
        check=lambda m: m.traffic.mode != "Gateway" or m.traffic.gateway is not None,
        message=(
            "spec.traffic.mode is {traffic.mode} but spec.traffic.gateway is not set; set the "
            "Gateway, for example gateway: {{name: edge, namespace: infra}}"
        ),
    ),
    Rule(
        cel="self.traffic.mode != 'Direct' || !has(self.traffic.gateway)",
        check=lambda m: m.traffic.mode != "Direct" or m.traffic.gateway is None,
        message=(
            "spec.traffic.gateway is set but spec.traffic.mode is {traffic.mode}; set mode: "
            "Gateway, or mode: Balancer to keep balancers behind the Gateway"
        ),
    ),
)
"""Rules that involve several parts of the spec."""


def is_direct(spec: Any) -> bool:  # a Spec; that module imports this one
    """Return whether clients connect to the servers directly, without one of Halcyon's balancers."""
    return spec.traffic.mode in DIRECT


_IN_FORCE: Final = {
    "Direct": {"mode", "drain_timeout", "service"},
    "Gateway": {"mode", "drain_timeout", "service", "gateway", "response_timeout"},
}
"""Fields of spec.traffic that have an effect without a balancer."""
TRITON_BODY_BYTES: Final = 64 * 2**20
"""Maximum size of an HTTP body in Triton, since release 25.06. Earlier releases have no maximum. A larger
spec.traffic.maxRequestSize raises it in every routing mode."""


def ignored(traffic: Any) -> list[str]:  # a Traffic; that module imports this one
    """Return a sentence for each field of spec.traffic that is set but has no effect in the routing mode."""
    if (in_force := _IN_FORCE.get(traffic.mode)) is None:
        return []
    raises_limit = quantity(traffic.max_request_size) > TRITON_BODY_BYTES
    in_force = in_force | {"max_request_size"} if raises_limit else in_force
    return without_effect(traffic, "spec.traffic", in_force, needed="Balancer")


def without_effect(part: Any, path: str, in_force: set[str], *, needed: str) -> list[str]:  # a model with a mode
    """Return a sentence for each field of `part` that is set but has no effect in the part's current mode.

    `in_force` contains the fields that have an effect. `needed` is the mode in which all others have an effect.
    """
    fields = type(part).model_fields
    named = [
        fields[name].alias or name
        for name in fields
        if name not in in_force and getattr(part, name) != fields[name].get_default(call_default_factory=True)
    ]
    return [f"{path}.{name}: ignored with mode {part.mode}; set mode: {needed} to use it" for name in named]
