"""Leader election with a Lease: one replica writes, the others stand by with filled caches.

A leader that cannot renew the Lease in time exits, because another replica may write from then on. The asynchronous
elector of the `kubernetes` package is not used, because it keeps the Lease after its work has crashed
(docs/decisions/0005-lease.md). The next step of a replica depends on the holder of the Lease:

- If no replica holds the Lease, acquire it.
- If this replica holds it, renew it.
- If another replica holds it and has changed it within the lease duration, wait.
- If another replica holds it and changed it longer ago, acquire it. Only one replica succeeds, because of
  resourceVersion.
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
"""Time without a renewal, in seconds, after which the leader exits. A write that begins just before still has the rest
of the lease duration to complete (`LeaseFence.left_s`)."""


class ElectionStep(Enum):
    """Next step of a replica in the election."""

    ACQUIRE = "acquire"
    RENEW = "renew"
    WAIT = "wait"


def decide(holder: str, identity: str, *, unchanged_s: float, duration_s: float) -> ElectionStep:
    """Return the next step in the election, from the list in the module's docstring.

    `unchanged_s` is the time since this replica last saw the Lease change, measured with its own monotonic clock.
    """
    if holder == identity:
        return ElectionStep.RENEW
    if not holder or unchanged_s > duration_s:
        return ElectionStep.ACQUIRE
    return ElectionStep.WAIT


class Leadership(Protocol):
    """Interface to the state of the election, for other parts of the operator."""

    @property
    def is_leader(self) -> bool:
        """Whether this replica is the leader."""

    @property
    def has_leader(self) -> bool:
        """Whether any replica is the leader, according to the Lease as this replica last read it."""


@dataclass
class LeaderElector:
    """Participant in the election. It acquires the Lease, renews it, and releases it at the end."""

    client: Kube
    namespace: str
    name: str
    identity: str
    clock: Clock
    fence: LeaseFence
    """Fence for the writes of this process, which is updated at each renewal."""

    def __post_init__(self) -> None:
        """Create a participant that is a standby replica at first."""
        self.leading = asyncio.Event()
        self.holder = ""
        """Identity of the leader, as last read from the Lease; empty if unknown."""
        self._seen: tuple[str, float] | None = None
        self._ours: dict[str, Any] | None = None
        """Lease as this replica last wrote it; None if the Lease may have been changed since then."""

    @property
    def has_leader(self) -> bool:
        """Whether a replica holds the Lease and has renewed it in time, according to this replica's last read of it."""
        if self.leading.is_set():
            return True
        return bool(self.holder) and self._seen is not None and self.clock.monotonic() - self._seen[1] <= DURATION_S

    async def run(self, stop: asyncio.Event) -> None:
        """Take part in the election until `stop` is set; then release the Lease.

        Raises:
            LeaseLost: this replica was the leader, and could not renew the Lease in time, or another replica has
                acquired it.
        """
        renewed_at = self.clock.monotonic()
        while not stop.is_set():
            # Measure the age of a renewal from before it is sent: for other replicas it starts when the API server stores it, which is
            # before this replica receives the response.
            began = self.clock.monotonic()
            end = renewed_at + RENEW_DEADLINE_S if self.leading.is_set() else began + RENEW_DEADLINE_S
            try:
                async with asyncio.timeout(min(RENEW_DEADLINE_S / 2, end - began)):
                    is_leader = await self._run_round()
            except (errors.ApiError, errors.Unreachable, TimeoutError) as error:
                log.warning("cannot reach the lease", extra={"error": str(error) or repr(error)})
                is_leader = None
            if is_leader:
                renewed_at = began
                self.fence.renew(began)
                end = began + RENEW_DEADLINE_S
                if not self.leading.is_set():
                    log.info("leading", extra={"identity": self.identity})
                    self.leading.set()
            elif self.leading.is_set() and (is_leader is False or self.clock.monotonic() >= end):
                raise errors.LeaseLost(
                    f"lease {self.namespace}/{self.name} is held by '{self.holder}' or cannot be reached"
                )
            every_s = RENEW_INTERVAL_S if self.leading.is_set() else RENEW_INTERVAL_S / 2
            # The interval starts at the beginning of this round, so that its duration counts towards the deadline.
            await pause(max(min(began + every_s, end) - self.clock.monotonic(), 0.0), stop)
        if self.leading.is_set():
            await self._release()

    async def _run_round(self) -> bool | None:
        """Run one round of the election.

        Return True if this replica holds the Lease, False if another one does, None if the Lease changed while this
        replica wrote it.
        """
        if self._ours is not None:
            # Write without reading first: if a request takes seconds, a second one could cost the Lease.
            try:
                self._ours = await self._renewed(self._ours)
            except (errors.Conflicted, errors.NotFound):
                # Another replica changed the Lease, or the response to this replica's last renewal was lost: read it.
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
        """Write the Lease with this replica as its holder and the current time as its renewal, and return it.

        Raises:
            Conflicted, NotFound: the Lease has been changed or deleted since.
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
