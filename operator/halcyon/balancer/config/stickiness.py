"""Requests that name what they belong to in a header (a sequence, say) go to the pod that the first of them went to. Pure.

    the header's value is          | its pod
    not there                      | whichever comes next
    known here, its pod serves     | that one, also while it drains
    else                           | by a hash of the value, among those that take requests

The hash is the same in each balancer, whatever lines the pods have there: two of them agree on every value, but for those that began
before pods came or went and that the other one has not seen. What is known here ends with the process: a reload asks the hash.

A slot with a table that knows the value comes first; else the hash chooses the slot too, so a canary's share is one of values.

Statistics are the counters of one pod, and clients subtract two readings of them (perf_analyzer fails if nothing was counted in between).
So all statistics come from the pod that answered the first such request, as long as it serves: of one balancer, and of one slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan, Slot
    from halcyon.balancer.config.error_responses import Protocol
    from halcyon.balancer.config.writer import Writer

_VALUE = "req.fhdr($header),xxh32"
"""32 bits in place of a text of any length: two values that share them share a pod, and nothing else."""
_STATISTICS = "txn.statistics"
"""Set if the request asks for statistics."""


def tables(out: Writer, plan: BalancerPlan) -> None:
    """Sections for what is known: of a slot, and of both protocols, whose servers have the same names."""
    for slot in plan.slots:
        out.section("backend statistics_$slot", slot=slot.name)
        out.add("stick-table type integer size 1")
    for slot in plan.slots if plan.sticky_header else ():
        out.section("backend sticky_$slot", slot=slot.name)
        # A value that is not seen for so long is forgotten, and the oldest one where there are more.
        out.add("stick-table type integer size 50k expire 30m")


def balance(out: Writer, plan: BalancerPlan, slot: Slot) -> None:
    """How a slot's back end chooses."""
    # Before the header's rule: the first one that knows the request chooses.
    out.add(f"stick on int(1) table statistics_$slot if {{ var({_STATISTICS}) -m found }}", slot=slot.name)
    if not plan.sticky_header:
        out.add("balance leastconn")
        return
    out.add("balance hash req.fhdr($header)", header=plan.sticky_header)
    out.add("hash-type consistent")
    # Of two balancers the same pod has different lines. And a pod has 16 places on the hash's circle for each unit of weight: of 300 values on
    # three pods, the fullest had up to 1.6 times as many as the emptiest with one unit, and up to 1.25 times with these.
    out.add("default-server hash-key addr weight 16")
    out.add(f"stick on {_VALUE} table sticky_$slot", header=plan.sticky_header, slot=slot.name)


def statistics_if(out: Writer, condition: str) -> None:
    """Rule of a client's front end: the request asks for statistics if `condition` is true."""
    out.add(f"http-request set-var({_STATISTICS}) bool(true) if {condition}")


def known(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """Rules of a front end from which requests go to slots, before those that choose one by its weight."""
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


def lots(plan: BalancerPlan) -> tuple[str, ...]:
    """Conditions in `$left`, `$weight` and `$header`, any of which gives a slot its share: `weight` of `left`."""
    drawn = "{ rand($left) lt $weight }"
    if not plan.sticky_header:
        return (drawn,)
    return f"{{ {_VALUE},mod($left) lt $weight }}", f"!{{ req.fhdr($header) -m found }} {drawn}"
