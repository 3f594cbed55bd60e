"""Events about a ModelDeployment: few, on changes of conditions only, the same one not twice in ten minutes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from halcyon.api.types import API_VERSION, KIND
from halcyon.control import errors
from halcyon.control.client import Kube, Object
from halcyon.control.kinds import EVENT, Key

log = logging.getLogger(__name__)

QUIET_S = 600.0
MESSAGE_LIMIT = 1024
REMEMBERED = 10_000
PENDING = 1000
"""Events that wait to be written, 1.5 KiB each: twenty for each of fifty models."""
WRITERS = 4


@dataclass(frozen=True)
class Happening:
    """An event to be written."""

    type: str
    """Normal or Warning."""
    reason: str
    message: str


# condition      before          after        event
# Accepted       any             False        Warning, its reason
# Stalled        absent, other   True         Warning, its reason (where Accepted isn't the cause)
# Ready          not True        True         Normal
# Ready          True            not True     Warning, its reason
# BalancerReady  other        any, and      Warning, BalancerTrouble
#                reason       BalancerTrouble
# a decision     not there       there        Normal, ScaledUp or ScaledDown (Recommended where nothing is done)
# rollout        no reason to    a reason     Normal, ReplacingPods
#                replace pods
# rollout        not Blocked     Blocked      Warning, RolloutBlocked (where Stalled hasn't said so)
def happenings(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Happening]:
    """What a change of status is worth telling."""
    old = {c["type"]: c for c in before.get("conditions") or ()}
    new = {c["type"]: c for c in after.get("conditions") or ()}

    def changed(kind: str) -> bool:
        a, b = old.get(kind, {}), new.get(kind, {})
        return bool((a.get("status"), a.get("reason")) != (b.get("status"), b.get("reason")))

    found = []
    accepted, stalled, ready = new.get("Accepted", {}), new.get("Stalled", {}), new.get("Ready", {})
    if accepted.get("status") == "False" and changed("Accepted"):
        found.append(Happening("Warning", accepted["reason"], accepted["message"]))
    elif stalled and changed("Stalled"):
        found.append(Happening("Warning", stalled["reason"], stalled["message"]))
    was_ready = old.get("Ready", {}).get("status") == "True"
    if ready.get("status") == "True" and not was_ready:
        found.append(Happening("Normal", ready["reason"], ready["message"]))
    elif was_ready and ready.get("status") != "True" and not found:
        found.append(Happening("Warning", ready["reason"], ready["message"]))
    balancer = new.get("BalancerReady", {})
    # Where it makes the whole not Ready, that has been told.
    told = {happening.reason for happening in found}
    if balancer.get("reason") == "BalancerTrouble" not in told and changed("BalancerReady"):
        found.append(Happening("Warning", balancer["reason"], balancer["message"]))
    found += _rollout(before.get("rollout") or {}, after.get("rollout") or {}, told={f.reason for f in found})
    return [*found, *_decisions(before.get("scaling") or {}, after.get("scaling") or {})]


def _rollout(before: Mapping[str, Any], after: Mapping[str, Any], *, told: set[str]) -> list[Happening]:
    """What a rollout does that nobody asked for in so many words."""
    found = []
    why = after.get("strategyReason")
    if why and why.startswith("no room") and not before.get("strategyReason"):
        text = f"pods of the old revision go before those of the new are ready, one at a time: {why}"
        found.append(Happening("Normal", "ReplacingPods", text))
    blocked = after.get("phase") == "Blocked" != before.get("phase")
    if blocked and "RolloutBlocked" not in told:
        found.append(Happening("Warning", "RolloutBlocked", after.get("message", "")))
    return found


def _decisions(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Happening]:
    """New changes of the count asked for, the oldest first."""
    told = {json.dumps(decision, sort_keys=True) for decision in before.get("decisions") or ()}
    new = [d for d in reversed(after.get("decisions") or ()) if json.dumps(d, sort_keys=True) not in told]
    found = []
    for decision in new:
        reason = "ScaledUp" if decision["after"] > decision["before"] else "ScaledDown"
        if after.get("mode") != "Active":
            reason = "Recommended"
        text = f"from {decision['before']} to {decision['after']}: {decision['why']}"
        found.append(Happening("Normal", reason, text))
    return found


class Recorder:
    """Writes events, beside the work that they tell of: where the API server is slow, a count must not wait for them."""

    def __init__(self, client: Kube, *, instance: str, clock: Callable[[], float]) -> None:
        """`instance` is this replica's name; `clock` is monotonic, in seconds."""
        self._client = client
        self._instance = instance
        self._clock = clock
        self._told: dict[tuple[Key, str, str], float] = {}
        self._pending: deque[Object] = deque()
        """The oldest first."""
        self._news = asyncio.Event()

    def tell(self, resource: Object, happening: Happening) -> bool:
        """Have the event written soon, unless the same was told lately; whether it is news."""
        meta = resource["metadata"]
        key = Key(meta["namespace"], meta["name"])
        this = (key, happening.reason, happening.message)
        now = self._clock()
        if now - self._told.get(this, -QUIET_S) < QUIET_S:
            return False
        if len(self._told) >= REMEMBERED:
            self._told = {k: t for k, t in self._told.items() if now - t < QUIET_S}
        self._told[this] = now
        event = {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            # A name that was stored before there was a rule for it leaves no room for more.
            "metadata": {"name": f"{key.name[:200].rstrip('-.')}.{time.time_ns():x}", "namespace": key.namespace},
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": happening.type,
            "reason": happening.reason,
            "note": happening.message[:MESSAGE_LIMIT],
            "action": "Reconcile",
            "reportingController": "serving.halcyon.dev/operator",
            "reportingInstance": self._instance[:128],
            "regarding": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "namespace": key.namespace,
                "name": key.name,
                "uid": meta["uid"],
            },
        }
        if len(self._pending) >= PENDING:
            lost = self._pending.popleft()
            log.warning("too many events to write", extra={"key": str(key), "lost": lost["reason"], "limit": PENDING})
        self._pending.append(event)
        self._news.set()
        return True

    async def run(self) -> None:
        """Write what is told, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for n in range(WRITERS):
                group.create_task(self._write(), name=f"events-{n}")

    async def flush(self, within_s: float) -> None:
        """Write what is left, as far as that is done in time."""
        with contextlib.suppress(TimeoutError, errors.LeaseLost):
            async with asyncio.timeout(within_s):
                while self._pending:
                    await self._one(self._pending.popleft())

    async def _write(self) -> None:
        while True:
            while self._pending:
                await self._one(self._pending.popleft())
            self._news.clear()
            await self._news.wait()

    async def _one(self, event: Object) -> None:
        try:
            await self._client.create(EVENT, event, namespace=event["metadata"]["namespace"])
        except (errors.ApiError, errors.Unreachable) as error:
            about = event["regarding"]
            key = f"{about['namespace']}/{about['name']}"
            log.warning("cannot write an event", extra={"key": key, "error": str(error)})
