"""Sticky routing: requests with the same value in a header (of a sequence, say) go to the pod that got the first of them. Pure.

    the header's value is          | its pod
    missing                        | the next one
    known here, its pod serves     | that one, also while it drains
    else                           | by a hash of the value, among those that take requests

The hash is the same in each balancer, whatever servers the pods have there. So two balancers agree on every value, except those that
the other one hasn't seen and that began before pods came or went. The table ends with the process: after a reload the hash decides.

A slot whose table has the value comes first; else the hash chooses the slot too, so a canary's share is one of values.

Statistics are the counters of one pod, and clients subtract two readings of them (perf_analyzer fails if nothing was counted in
between). So all statistics come from the pod that answered the first such request, as long as it serves: per balancer, and per slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan, Slot
    from halcyon.balancer.config.error_responses import Protocol
    from halcyon.balancer.config.writer import Writer

_VALUE = "req.fhdr($header),xxh32"
"""A 32-bit hash in place of a text of any length: two values with the same hash share a pod, and nothing else."""
_STATISTICS = "txn.statistics"
"""Variable that is set if the request asks for statistics."""


def tables(out: Writer, plan: BalancerPlan) -> None:
    """Add the tables: one per slot, for both protocols, whose servers have the same names."""
    for slot in plan.slots:
        out.section("backend statistics_$slot", slot=slot.name)
        out.add("stick-table type integer size 1")
    for slot in plan.slots if plan.sticky_header else ():
        out.section("backend sticky_$slot", slot=slot.name)
        # A value that is not seen for this long is forgotten, and the oldest one if there are more.
        out.add("stick-table type integer size 50k expire 30m")


def balance(out: Writer, plan: BalancerPlan, slot: Slot) -> None:
    """Add how a slot's back end chooses a server."""
    # Before the header's rule: the first rule that matches the request decides.
    out.add(f"stick on int(1) table statistics_$slot if {{ var({_STATISTICS}) -m found }}", slot=slot.name)
    if not plan.sticky_header:
        out.add("balance leastconn")
        return
    out.add("balance hash req.fhdr($header)", header=plan.sticky_header)
    out.add("hash-type consistent")
    # Two balancers have the same pod on different servers. And a pod has 16 points on the hash ring for each unit of weight: of 300
    # values on three pods, the fullest had up to 1.6 times as many as the emptiest with one unit, and up to 1.25 times with these.
    out.add("default-server hash-key addr weight 16")
    out.add(f"stick on {_VALUE} table sticky_$slot", header=plan.sticky_header, slot=slot.name)


def statistics_rule(out: Writer, condition: str) -> None:
    """Add the rule of a client-facing front end that marks a request for statistics if `condition` is true."""
    out.add(f"http-request set-var({_STATISTICS}) bool(true) if {condition}")


def known_value_rules(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """Add the rules of a front end from which requests go to slots, before those that choose one by its weight."""
    if not plan.sticky_header or len(plan.slots) < 2:
        return
    for slot in plan.slots:
        if not slot.weight:
            continue
        out.add(
            f"use_backend {protocol}_$slot if {{ {_VALUE},in_table(sticky_$slot) -m bool }} {{ nbsrv({protocol}_$slot) gt 0 }}",
            header=plan.sticky_header,
            slot=slot.name,
        )


def share_conditions(plan: BalancerPlan) -> tuple[str, ...]:
    """Return conditions in `$left`, `$weight` and `$header`, any of which gives a slot its share: `weight` of `left`."""
    drawn = "{ rand($left) lt $weight }"
    if not plan.sticky_header:
        return (drawn,)
    return f"{{ {_VALUE},mod($left) lt $weight }}", f"!{{ req.fhdr($header) -m found }} {drawn}"
