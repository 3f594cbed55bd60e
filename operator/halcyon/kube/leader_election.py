"""Leader election by a Lease: one replica writes, the others stand by with warm caches.

A leader that can't renew in time ends its process, because after that another replica may write. The `kubernetes` package has an
elector, but the asynchronous one keeps the lease after its work has crashed (docs/decisions/0005-lease.md).

    held by     record changed   we decide
    no replica  any              acquire
    us          any              renew
    another     within duration  wait
    another     longer ago       acquire (the API server lets one replica win: resourceVersion)
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from halcyon.api.timestamps import rfc3339
from halcyon.kube import errors
from halcyon.kube.client import Kube, pause
from halcyon.kube.clock import Clock
from halcyon.kube.kinds import LEASE
from halcyon.kube.lease_fence import LeaseFence

log = logging.getLogger(__name__)

DURATION_S = 10
RENEW_INTERVAL_S = 2.0
RENEW_DEADLINE_S = 7.0
"""Time without a renewal after which a leader ends. It is less than the duration by more than the time-out of a request."""


class ElectionStep(Enum):
    """The next step of the election."""

    ACQUIRE = "acquire"
    RENEW = "renew"
    WAIT = "wait"


def decide(holder: str, identity: str, *, unchanged_s: float, duration_s: float) -> ElectionStep:
    """Return the step by the table above. `unchanged_s`: time since the record last changed, by our own monotonic clock."""
    if holder == identity:
        return ElectionStep.RENEW
    if not holder or unchanged_s > duration_s:
        return ElectionStep.ACQUIRE
    return ElectionStep.WAIT


class Leadership(Protocol):
    """Which replica leads, as the parts of this one need to know it."""

    @property
    def is_leader(self) -> bool:
        """Whether this replica does the leader's work."""

    @property
    def has_leader(self) -> bool:
        """Whether, as far as known, any replica leads."""


@dataclass
class LeaderElector:
    """A participant in the election, which holds the lease once it has won."""

    client: Kube
    namespace: str
    name: str
    identity: str
    clock: Clock
    fence: LeaseFence
    """Fence of this process's writes, which learns of each renewal."""

    def __post_init__(self) -> None:
        """Start as a standby."""
        self.leading = asyncio.Event()
        self.holder = ""
        """Identity of the leader, as far as known."""
        self._seen: tuple[str, float] | None = None
        self._ours: dict[str, Any] | None = None
        """The lease as we last wrote it; None if another replica may have written it since."""

    @property
    def has_leader(self) -> bool:
        """Whether, as far as known, a replica holds the lease and has renewed it in time."""
        if self.leading.is_set():
            return True
        return bool(self.holder) and self._seen is not None and self.clock.monotonic() - self._seen[1] <= DURATION_S

    async def run(self, stop: asyncio.Event) -> None:
        """Take part in the election until `stop` is set; then release the lease.

        Raises:
            LeaseLost: if it was held and couldn't be renewed in time, or another replica took it.
        """
        renewed_at = self.clock.monotonic()
        while not stop.is_set():
            # A renewal counts from before it is sent: the others' clocks start when it arrives, not when we get the response.
            began = self.clock.monotonic()
            end = renewed_at + RENEW_DEADLINE_S if self.leading.is_set() else began + RENEW_DEADLINE_S
            try:
                async with asyncio.timeout(min(RENEW_DEADLINE_S / 2, end - began)):
                    held = await self._once()
            except (errors.ApiError, errors.Unreachable, TimeoutError) as error:
                log.warning("cannot reach the lease", extra={"error": str(error) or repr(error)})
                held = None
            if held:
                renewed_at = began
                self.fence.renew(began)
                end = began + RENEW_DEADLINE_S
                if not self.leading.is_set():
                    log.info("leading", extra={"identity": self.identity})
                    self.leading.set()
            elif self.leading.is_set() and (held is False or self.clock.monotonic() >= end):
                raise errors.LeaseLost(
                    f"lease {self.namespace}/{self.name} is held by '{self.holder}' or cannot be reached"
                )
            every_s = RENEW_INTERVAL_S if self.leading.is_set() else RENEW_INTERVAL_S / 2
            # Counted from the start of this round: its duration counts towards the deadline, too.
            await pause(max(min(began + every_s, end) - self.clock.monotonic(), 0.0), stop)
        if self.leading.is_set():
            await self._release()

    async def _once(self) -> bool | None:
        """Run one round; return True if we hold the lease, False if another replica does, None if we lost the race for it."""
        if self._ours is not None:
            # One request, not two: if each takes seconds, that is the difference between holding and losing it.
            try:
                self._ours = await self._renewed(self._ours)
            except (errors.Conflicted, errors.NotFound):
                # Changed by another replica, or by a renewal of ours whose response was lost: read it.
                self._ours = None
            else:
                return True
        lease = await self.client.get(LEASE, self.namespace, self.name)
        if lease is None:
            try:
                self._ours = await self.client.create(LEASE, self._lease({}), namespace=self.namespace)
            except errors.Conflicted:
                return None
            self.holder = self.identity
            return True
        spec: dict[str, Any] = lease.get("spec") or {}
        self.holder = str(spec.get("holderIdentity") or "")
        version = lease["metadata"]["resourceVersion"]
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, self.clock.monotonic())
        step = decide(
            self.holder,
            self.identity,
            unchanged_s=self.clock.monotonic() - self._seen[1],
            duration_s=float(spec.get("leaseDurationSeconds") or DURATION_S),
        )
        if step is ElectionStep.WAIT:
            return False
        try:
            self._ours = await self._renewed(lease)
        except errors.Conflicted:
            return None
        self.holder = self.identity
        return True

    async def _renewed(self, lease: dict[str, Any]) -> dict[str, Any]:
        """Write the lease as held by us from now on, if it hasn't changed; return it.

        Raises:
            Conflicted, NotFound: if it has changed.
        """
        body = self._lease(lease.get("spec") or {})
        body["metadata"]["resourceVersion"] = lease["metadata"]["resourceVersion"]
        return dict(await self.client.patch(LEASE, self.namespace, self.name, body))

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(2):
                lease = await self.client.get(LEASE, self.namespace, self.name)
                if lease is not None and (lease.get("spec") or {}).get("holderIdentity") == self.identity:
                    body = {"metadata": {"resourceVersion": lease["metadata"]["resourceVersion"]}}
                    await self.client.patch(
                        LEASE,
                        self.namespace,
                        self.name,
                        body | {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}},
                    )
                    log.info("released the lease")
        except (errors.ApiError, errors.Unreachable, TimeoutError) as error:
            log.warning("cannot release the lease", extra={"error": str(error) or repr(error)})

    def _lease(self, before: dict[str, Any]) -> dict[str, Any]:
        now = rfc3339(self.clock.wall(), "microseconds")
        ours = before.get("holderIdentity") == self.identity
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {"namespace": self.namespace, "name": self.name},
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": DURATION_S,
                "acquireTime": before.get("acquireTime", now) if ours else now,
                "renewTime": now,
                "leaseTransitions": int(before.get("leaseTransitions") or 0) + (not ours),
            },
        }
