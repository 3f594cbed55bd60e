"""Overlap of Halcyon releases. If two operators manage the same namespace, only one may write the objects of a model.

status.operator of a ModelDeployment names the release that manages it, by its Lease. status.conflictingOperator names
the release that reports the overlap. Any service account may read their Leases.
"""

# status.operator                               this release
# none, or this release                         manages the model
# a release whose Lease is renewed              writes only the condition `OperatorConflict`
# a release whose Lease is released, missing    manages the model from now on
# or expired

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from halcyon.api.conditions import Condition, Reason, Type, keep
from halcyon.api.timestamps import rfc3339
from halcyon.kube import errors, kinds
from halcyon.kube.client import Kube, Object
from halcyon.kube.clock import Clock
from halcyon.kube.kinds import Key
from halcyon.kube.leader_election import DURATION_S

log = logging.getLogger(__name__)

FIELD_MANAGER = "halcyon-overlap"
"""Field manager of the `OperatorConflict` condition. It isn't the field manager of the status, because the status
belongs to the other release."""
CHECK_INTERVAL_S = 5.0
"""Minimum time between two reads of the same Lease, in seconds."""


@dataclass(slots=True)
class _Lease:
    version: str
    changed_at: float
    """Monotonic time at which this process first read the present version of the Lease, in seconds."""
    checked_at: float
    live: bool


@dataclass
class ReleaseOverlap:
    """Detector of other Halcyon releases that manage a model of this release."""

    client: Kube
    clock: Clock
    release: str
    """Name of this release, which is NAMESPACE/NAME of its Lease, for example `halcyon-system/halcyon`."""

    _leases: dict[str, _Lease] = field(default_factory=dict)
    _logged: dict[Key, str] = field(default_factory=dict)

    async def manager(self, resource: Object) -> str:
        """Return the name of the other release that manages a ModelDeployment; empty if this release manages it.

        Another release is reported in the `OperatorConflict` condition.

        Raises:
            ApiError, Unreachable: a request failed that may succeed later.
        """
        key = Key(resource["metadata"]["namespace"], resource["metadata"]["name"])
        status = resource.get("status") or {}
        reported = next((c for c in status.get("conditions") or () if c["type"] == Type.OPERATOR_CONFLICT), None)
        manager = str(status.get("operator") or "")
        if manager not in {"", self.release} and await self._is_live(manager):
            await self._report(key, resource, manager, reported)
            return manager
        self._logged.pop(key, None)
        # An older CRD or release has no such field, but the message begins with the name, too.
        reporter = status.get("conflictingOperator") or (reported or {}).get("message", "").partition(" ")[0]
        if reported is not None and not await self._is_live(str(reporter)):
            await self._write(resource, [])
        return ""

    def forget(self, key: Key) -> None:
        """Drop the state of a model that was deleted."""
        self._logged.pop(key, None)

    async def _is_live(self, release: str) -> bool:
        """Return whether a replica of another release holds the release's Lease and renews it.

        A held Lease counts as renewed until this process has watched it for the lease duration.
        """
        if release == self.release:
            return False
        now = self.clock.monotonic()
        cached = self._leases.get(release)
        if cached is not None and now - cached.checked_at < CHECK_INTERVAL_S:
            return cached.live
        namespace, _, name = release.partition("/")
        try:
            lease = await self.client.get(kinds.LEASE, namespace, name) if namespace and name else None
        except errors.Refused as error:
            # Uninstalling a release also removes the permission to read its Lease.
            log.info("cannot read the Lease of another Helm release", extra={"release": release, "error": str(error)})
            lease = None
        version = "" if lease is None else str(lease["metadata"]["resourceVersion"])
        changed_at = now if cached is None or cached.version != version else cached.changed_at
        is_held = lease is not None and bool((lease.get("spec") or {}).get("holderIdentity"))
        live = is_held and now - changed_at <= DURATION_S
        self._leases[release] = _Lease(version, changed_at, now, live)
        return live

    async def _report(self, key: Key, resource: Object, manager: str, reported: Object | None) -> None:
        message = (
            f"{self.release} also watches this namespace, but {manager} manages the model. Only one Helm release may "
            "watch a namespace: uninstall one of the releases, or change the chart value watchNamespaces of one"
        )
        if self._logged.get(key) != manager:
            self._logged[key] = manager
            extra = {"key": str(key), "release": manager}
            log.warning("another Helm release of Halcyon manages this model", extra=extra)
        if reported is not None and reported["message"] == message:
            return
        condition = Condition(Type.OPERATOR_CONFLICT, status=True, reason=Reason.RELEASE_OVERLAP, message=message)
        generation, now = int(resource["metadata"].get("generation") or 0), rfc3339(self.clock.wall())
        await self._write(resource, keep([condition], (), generation=generation, now=now))

    async def _write(self, resource: Object, conditions: list[Object]) -> None:
        """Write the `OperatorConflict` condition of a model. Remove it if `conditions` is empty."""
        meta = resource["metadata"]
        body = {
            "apiVersion": kinds.MODEL_DEPLOYMENT.api_version,
            "kind": kinds.MODEL_DEPLOYMENT.kind,
            "metadata": {field: meta[field] for field in ("namespace", "name", "uid")},
            "status": {"conditions": conditions, "conflictingOperator": self.release} if conditions else {},
        }
        try:
            await self.client.apply(kinds.MODEL_DEPLOYMENT, body, subresource="status", manager=FIELD_MANAGER)
        except errors.NotFound:
            return  # it was deleted
