"""Recorder of Kubernetes Events. It writes in the background, and the same event at most once in ten minutes.

Out of scope: the choice of changes that get an event (`control/status/events.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
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
"""Maximum number of attempts to write an event while the API server is unavailable, and the seconds between them, as in
client-go."""


@dataclass(frozen=True)
class NewEvent:
    """Kubernetes Event that will be written."""

    type: str
    """Type of the event, `Normal` or `Warning`."""
    reason: str
    message: str


class EventRecorder:
    """Writer of events that works in the background, so that a slow API server does not delay scaling."""

    def __init__(self, client: Kube, *, instance: str, clock: Clock) -> None:
        """Create the recorder. `instance` is the name of this replica of the operator."""
        self._client = client
        self._instance = instance
        self._clock = clock
        self._recorded_at: dict[tuple[str, str, str], float] = {}
        self._pending: deque[Object] = deque()
        """Events that have not been written yet, oldest first."""
        self._queued = asyncio.Event()
        self._suffix = 0

    def record(self, resource: Object, new: NewEvent, *, kind: str = KIND) -> bool:
        """Queue the event unless the same one was recorded within ten minutes; return True if it was queued."""
        meta = resource["metadata"]
        key = Key(meta["namespace"], meta["name"])
        identity = (meta["uid"], new.reason, new.message)
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
            lost = self._pending.popleft()
            log.warning(
                "too many queued events; the oldest is dropped",
                extra={"key": _subject(lost), "lost": lost["reason"], "limit": PENDING},
            )
        self._pending.append(event)
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
        """Write the queued events for at most `within_s` seconds.

        Events that are still queued after this time are lost.
        """
        with contextlib.suppress(TimeoutError, errors.LeaseLost):
            async with asyncio.timeout(within_s):
                while self._pending:
                    await self._write_event(self._pending.popleft())

    async def _write(self) -> None:
        while True:
            while self._pending:
                event = self._pending.popleft()
                for _ in range(MAX_TRIES):
                    if await self._write_event(event):
                        break
                    await asyncio.sleep(RETRY_S)
            self._queued.clear()
            await self._queued.wait()

    async def _write_event(self, event: Object) -> bool:
        """Write the event. Return False if the API server was unavailable, so that a retry may succeed."""
        try:
            await self._client.create(EVENT, event, namespace=event["metadata"]["namespace"])
        except errors.Conflicted:  # it was written before, and the response was lost
            return True
        except (errors.ApiError, errors.Unreachable) as error:
            log.warning("cannot write an event", extra={"key": _subject(event), "error": str(error)})
            return not isinstance(error, errors.Busy | errors.Unreachable)
        return True


def _subject(event: Object) -> str:
    """Return the object that the event is about, as NAMESPACE/NAME."""
    return f"{event['regarding']['namespace']}/{event['regarding']['name']}"
