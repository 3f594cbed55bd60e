"""Recorder of Kubernetes Events. It writes in the background, and the same event at most once in ten minutes.

Out of scope: the choice of changes that get an event (`control/status/events.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from dataclasses import dataclass

from halcyon.api.timestamps import rfc3339
from halcyon.api.types import API_VERSION, KIND
from halcyon.kube import errors
from halcyon.kube.client import Kube, Object
from halcyon.kube.clock import Clock
from halcyon.kube.kinds import EVENT, Key

log = logging.getLogger(__name__)

QUIET_S = 600.0
"""Time within which the same event about an object is not written again, in seconds."""
MAX_MESSAGE_BYTES = 1024
"""Maximum length of a message, in bytes of UTF-8. The API server rejects an event with a longer one."""
REMEMBERED = 10_000
"""Maximum number of events whose time is remembered, so that they are not written again."""
PENDING = 1000
"""Maximum number of queued events. Each takes 1.5 KiB. The number is enough for 20 events for each of 50 models."""
WRITERS = 4
MAX_TRIES, RETRY_S = 12, 10.0
"""Maximum number of attempts to write an event, as in client-go, and the seconds between attempts in a namespace in
which the last one failed."""


@dataclass(frozen=True)
class NewEvent:
    """Kubernetes Event that will be written."""

    type: str
    """Type of the event, `Normal` or `Warning`."""
    reason: str
    message: str
    has_varying_message: bool = False
    """Whether events of this reason are the same event whatever their message. A webhook may put a time or an id into it."""


def status_rejected(error: errors.Refused) -> NewEvent:
    """Return the event for a rejected write of an object's status, which can't report this itself."""
    text = f"the API server rejected the status, so it is out of date; check admission policies and the CRD: {error}"
    return NewEvent("Warning", "StatusRejected", text, has_varying_message=True)


class EventRecorder:
    """Writer of events that works in the background, so that a slow API server does not delay scaling.

    After a failed write, for example because an admission webhook is down, the namespace is paused: only one event at a
    time is tried there, and only if no other namespace has one, because each attempt may take as long as its timeout.
    """

    def __init__(self, client: Kube, *, instance: str, clock: Clock) -> None:
        """Create the recorder. `instance` is the name of this replica of the operator."""
        self._client = client
        self._instance = instance
        self._clock = clock
        self._recorded_at: dict[tuple[str, str, str], float] = {}
        self._pending: deque[tuple[Object, int]] = deque()
        """Events that have not been written yet, oldest first, each with the number of failed attempts."""
        self._paused: dict[str, float] = {}
        """Monotonic time of the next attempt, by namespace in which the last attempt failed; infinite during it."""
        self._queued = asyncio.Event()
        self._suffix = 0

    def record(self, resource: Object, new: NewEvent, *, kind: str = KIND) -> bool:
        """Queue the event unless the same one was recorded within ten minutes; return True if it was queued."""
        meta = resource["metadata"]
        key = Key(meta["namespace"], meta["name"])
        identity = (meta["uid"], new.reason, "" if new.has_varying_message else new.message)
        now = self._clock.monotonic()
        if now - self._recorded_at.get(identity, -QUIET_S) < QUIET_S:
            return False
        self._recorded_at.pop(identity, None)
        if len(self._recorded_at) >= REMEMBERED:
            del self._recorded_at[next(iter(self._recorded_at))]
        self._recorded_at[identity] = now  # so that the oldest is the first
        event = {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            # The name of a model that was created before its length was limited may be too long for a suffix.
            "metadata": {"name": f"{key.name[:200].rstrip('-.')}.{self._next_suffix():x}", "namespace": key.namespace},
            "eventTime": rfc3339(self._clock.wall(), "microseconds"),
            "type": new.type,
            "reason": new.reason,
            "note": new.message.encode()[:MAX_MESSAGE_BYTES].decode(errors="ignore"),
            "action": "Reconcile",
            "reportingController": "serving.halcyon.dev/operator",
            "reportingInstance": self._instance[:128],
            "regarding": {
                "apiVersion": API_VERSION,
                "kind": kind,
                "namespace": key.namespace,
                "name": key.name,
                "uid": meta["uid"],
            },
        }
        if len(self._pending) >= PENDING:
            lost, _ = self._pending.popleft()
            log.warning(
                "too many queued events; the oldest is dropped",
                extra={"key": _subject(lost), "lost": lost["reason"], "limit": PENDING},
            )
        self._pending.append((event, 0))
        self._queued.set()
        return True

    def _next_suffix(self) -> int:
        """Return a unique number for the name of an event.

        It is the time in nanoseconds, or the last number plus one if that is greater.
        """
        self._suffix = max(self._suffix + 1, int(self._clock.wall() * 1e9))
        return self._suffix

    async def run(self) -> None:
        """Write queued events until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            for n in range(WRITERS):
                group.create_task(self._write(), name=f"events-{n}")

    async def flush(self, within_s: float) -> None:
        """Write the queued events for at most `within_s` seconds, those of paused namespaces last.

        Events that are still queued after this time are lost.
        """
        events = sorted((event for event, _ in self._pending), key=lambda event: _namespace(event) in self._paused)
        self._pending.clear()
        with contextlib.suppress(TimeoutError, errors.LeaseLost):
            async with asyncio.timeout(within_s):
                for event in events:
                    await self._write_event(event)

    async def _write(self) -> None:
        while True:
            due_at = ((self._paused.get(_namespace(event), 0.0), n) for n, (event, _) in enumerate(self._pending))
            first_at, first = min(due_at, default=(math.inf, 0))
            if (wait_s := first_at - self._clock.monotonic()) <= 0:
                event, tries = self._pending[first]
                del self._pending[first]
                await self._try(event, tries)
                continue
            self._queued.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if wait_s == math.inf else wait_s):
                    await self._queued.wait()

    async def _try(self, event: Object, tries: int) -> None:
        """Write the event, or queue it again. If this task is cancelled meanwhile, `flush` writes the event."""
        namespace = _namespace(event)
        if namespace in self._paused:
            self._paused[namespace] = math.inf
        try:
            is_done = await self._write_event(event)
        except asyncio.CancelledError:
            self._pending.appendleft((event, tries))
            raise
        if is_done:
            if self._paused.pop(namespace, None) is not None:
                self._queued.set()  # for the other writers
            return
        self._paused[namespace] = self._clock.monotonic() + RETRY_S
        if tries + 1 < MAX_TRIES and len(self._pending) < PENDING:
            self._pending.append((event, tries + 1))

    async def _write_event(self, event: Object) -> bool:
        """Write the event. Return False if a retry may succeed, for example because the API server was unavailable."""
        try:
            await self._client.create(EVENT, event, namespace=event["metadata"]["namespace"])
        except (errors.ApiError, errors.Unreachable) as error:
            # An event that exists was written before, and the response was lost. The other conflict is one of quotas.
            if isinstance(error, errors.Conflicted) and error.reason != "Conflict":
                return True
            log.warning("cannot write an event", extra={"key": _subject(event), "error": str(error)})
            return not isinstance(error, errors.Busy | errors.Conflicted | errors.Unreachable)
        return True


def _namespace(event: Object) -> str:
    return str(event["metadata"]["namespace"])


def _subject(event: Object) -> str:
    """Return the object that the event is about, as NAMESPACE/NAME."""
    return f"{event['regarding']['namespace']}/{event['regarding']['name']}"
