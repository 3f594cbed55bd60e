"""Rules of haproxy.cfg for sticky routing: all requests with the same value in a header go to the same pod. Pure.

A value in the stick table selects its pod, even while this pod drains. For any other value, a hash chooses the pod. A
request without the header goes to the next pod.

The table names the server of a pod. When a server gets another pod, the agent removes the values of its former pod from
the table (`runtime_api`), so that the hash chooses their new pods, as in all other balancers.

The hash depends on the pods' addresses only, so all balancers choose the same pod for a value. They can differ only for a value that
one balancer has in its table and another does not, if pods were added or removed since. The table is lost when the process ends, so
after a reload the hash decides.

If the table of a slot has the value, the request goes to that slot. Otherwise the hash also chooses the slot, so a canary receives
its share of the values, not of the requests.

Requests for statistics are sticky, too. Clients compute the difference between two readings, which must come from the
same pod (perf_analyzer fails if nothing was counted in between). Each balancer sends these requests to one pod per slot
for as long as this pod serves.
"""

# the header's value                    | the request goes to
# missing                               | the next pod
# in the stick table, its pod serves    | that pod, even while it drains
# otherwise                             | a pod that takes requests, chosen by a hash of the value

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan, Slot
    from halcyon.balancer.config.error_responses import Protocol
    from halcyon.balancer.config.writer import Writer

_VALUE = "req.fhdr($header),xxh32"
"""HAProxy expression for a 32-bit hash of the sticky header's value. Two values with the same hash go to the same
pod."""
_STATISTICS = "txn.statistics"
"""HAProxy variable that is set if the request reads statistics of the model."""


def table(slot: str) -> str:
    """Return the name of the stick table with a slot's sticky values."""
    return f"sticky_{slot}"


def tables(out: Writer, plan: BalancerPlan) -> None:
    """Add a stick table for sticky routing to each slot.

    Both protocols share it, because their servers have the same names.
    """
    for slot in plan.slots:
        out.section("backend statistics_$slot", slot=slot.name)
        out.add("stick-table type integer size 1")
    for slot in plan.slots if plan.sticky_header else ():
        out.section(f"backend {table('$slot')}", slot=slot.name)
        # An entry expires after 30 minutes without a request. If the table is full, the oldest entry is removed.
        out.add("stick-table type integer size 50k expire 30m")


def balance(out: Writer, plan: BalancerPlan, slot: Slot) -> None:
    """Add the lines of a slot's back end that choose a server by the sticky header."""
    # This rule must come before the rule for the header, because the first matching rule decides.
    out.add(f"stick on int(1) table statistics_$slot if {{ var({_STATISTICS}) -m found }}", slot=slot.name)
    if not plan.sticky_header:
        out.add("balance leastconn")
        return
    out.add("balance hash req.fhdr($header)", header=plan.sticky_header)
    out.add("hash-type consistent")
    # Hash by address, because a pod can be a different server in each balancer. Each unit of weight is 16 points on the hash ring. With
    # 300 values on three pods, the fullest pod had up to 1.6 times as many values as the emptiest with weight 1, and up to 1.25 times
    # with weight 16.
    out.add("default-server hash-key addr weight 16")
    out.add(f"stick on {_VALUE} table {table('$slot')}", header=plan.sticky_header, slot=slot.name)


def statistics_rule(out: Writer, condition: str) -> None:
    """Add the rule of a client-facing front end that marks requests that read statistics.

    `condition` is the HAProxy condition for such requests.
    """
    out.add(f"http-request set-var({_STATISTICS}) bool(true) if {condition}")


def known_value_rules(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """Add the rules of a front end that send a request to the slot that already serves its header value.

    They come before the rules that choose a slot by weight.
    """
    if not plan.sticky_header or len(plan.slots) < 2:
        return
    for slot in plan.slots:
        if not slot.weight:
            continue
        out.add(
            f"use_backend {protocol}_$slot if {{ {_VALUE},in_table({table('$slot')}) -m bool }} {{ nbsrv({protocol}_$slot) gt 0 }}",
            header=plan.sticky_header,
            slot=slot.name,
        )


def share_conditions(plan: BalancerPlan) -> tuple[str, ...]:
    """Return HAProxy conditions that select a slot for `$weight` out of `$left` requests.

    The slot is chosen if any condition is true. `$left`, `$weight` and `$header` are placeholders in the conditions.
    """
    drawn = "{ rand($left) lt $weight }"
    if not plan.sticky_header:
        return (drawn,)
    return f"{{ {_VALUE},mod($left) lt $weight }}", f"!{{ req.fhdr($header) -m found }} {drawn}"
