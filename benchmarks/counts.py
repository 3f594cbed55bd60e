"""Watches on models and their pods, which record the times of replica changes and the number of pods.

Times are of this process's monotonic clock, when the watch event arrives. Nothing is polled.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from benchmarks.errors import BenchError
from halcyon.control.objects import pods as pod_facts
from halcyon.kube import kinds, pod_times
from halcyon.kube.client import KubeClient, connect
from halcyon.kube.informers.informer import Informer
from halcyon.kube.kinds import Key
from halcyon.render import names

Object = dict[str, Any]
Change = tuple[float, int]
"""A change as (time, number)."""


class Counts:
    """The watches, which run while this context is open."""

    def __init__(self, kubeconfig: str, namespace_of: Callable[[str], str]) -> None:
        """Prepare the watches; no request is sent before the context is entered.

        `namespace_of` returns a model's namespace. Model names are unique.
        """
        self.namespace_of = namespace_of
        self.replicas: dict[str, list[Change]] = defaultdict(list)
        """Values of spec.replicas by model: the first observed value, then each change."""
        self.desired: dict[str, list[Change]] = defaultdict(list)
        """Values of the decision in the status (`scaling.desired`) by model, at the time they appear there."""
        self.servers: dict[str, list[Change]] = defaultdict(list)
        """Number of model pods by model, including those that start or terminate."""
        self._kubeconfig = kubeconfig
        self._changed = asyncio.Condition()
        self._notifications: set[asyncio.Task[None]] = set()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.client: KubeClient = await connect(self._kubeconfig)
        self._stack.push_async_callback(self.client.close)
        self.models = Informer(self.client, kinds.MODEL_DEPLOYMENT, listeners=[self._model_changed])
        self.pods = Informer(
            self.client,
            kinds.POD,
            selector=f"{names.MANAGER_LABEL}={names.MANAGER}",
            project=pod_facts.project,
            index=_owner,
            listeners=[self._pod_changed],
        )
        for informer in (self.models, self.pods):
            task = asyncio.create_task(informer.run())
            self._stack.push_async_callback(_ended, task)
            await informer.synced.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def count(self, name: str) -> int:
        """Return the current replicas."""
        changes = self.replicas.get(name)
        return changes[-1][1] if changes else 1

    def ready_servers(self, name: str) -> list[str]:
        """Return the names of a model's ready model pods."""
        pods = self.pods.find(self.namespace_of(name), f"server/{name}")
        return [pod["metadata"]["name"] for pod in pods if pod_facts.is_ready(pod)]

    def balancer(self, name: str) -> str | None:
        """Return the name of one of a model's ready balancer pods."""
        return next(iter(self.balancers(name)), None)

    def balancers(self, name: str) -> list[str]:
        """Return the names of a model's ready balancer pods."""
        pods = self.pods.find(self.namespace_of(name), f"balancer/{name}")
        return [pod["metadata"]["name"] for pod in pods if pod_facts.is_ready(pod)]

    def start_times_s(self, name: str) -> list[float]:
        """Return the seconds from creation to readiness of the model pods that are ready now."""
        times = []
        for pod in self.pods.find(self.namespace_of(name), f"server/{name}"):
            created, ready = pod_times.created_at(pod), pod_facts.ready_since(pod)
            if created is not None and ready is not None:
                times.append(ready - created)
        return times

    def actuator(self, name: str) -> str | None:
        """Return the actuator that writes the replicas, from the status."""
        model = self.models.get(Key(self.namespace_of(name), name)) or {}
        actuator = ((model.get("status") or {}).get("scaling") or {}).get("actuator")
        return None if actuator is None else str(actuator)

    def decisions(self, name: str) -> str:
        """Return the reasons for the last ten changes of the replicas, from the status, oldest first."""
        model = self.models.get(Key(self.namespace_of(name), name)) or {}
        decisions = ((model.get("status") or {}).get("scaling") or {}).get("decisions") or ()
        return " | ".join(str(decision["why"]) for decision in reversed(decisions))

    def is_served(self, name: str) -> bool:
        """Return True if the model's condition Ready is True."""
        model = self.models.get(Key(self.namespace_of(name), name)) or {}
        conditions = (model.get("status") or {}).get("conditions") or ()
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def raised_at(self, name: str, *, since_s: float) -> float | None:
        """Return the time of the first increase of the replicas after `since_s`."""
        before = 1
        for at, count in self.replicas.get(name, ()):
            if at >= since_s and count > before:
                return at
            before = count
        return None

    def most_at(self, name: str, *, since_s: float) -> tuple[float, int] | None:
        """Return (time, replicas) of the maximum after `since_s`, at the first time that it was reached."""
        changes = [change for change in self.replicas.get(name, ()) if change[0] >= since_s]
        return max(changes, key=lambda change: change[1], default=None)

    async def until(self, condition: Callable[[], bool], *, goal: str, limit_s: float) -> None:
        """Wait until `condition` returns True. It is evaluated after each event of these watches.

        Raises:
            BenchError: the time limit passed.
        """
        try:
            async with asyncio.timeout(limit_s), self._changed:
                await self._changed.wait_for(condition)
        except TimeoutError:
            raise BenchError(f"{goal}: not within {limit_s:g} s") from None

    async def until_served(self, models: Collection[str], *, limit_s: float) -> None:
        """Wait until each of these models is served and has a ready balancer.

        Raises:
            BenchError: the time limit passed; the message names one of the remaining models.
        """
        missing = set(models)

        def served() -> bool:
            missing.difference_update(
                [name for name in missing if self.is_served(name) and self.balancer(name) is not None]
            )
            return not missing

        try:
            await self.until(served, goal=f"{len(models)} models are served", limit_s=limit_s)
        except BenchError as error:
            name = min(missing)
            model = self.models.get(Key(self.namespace_of(name), name)) or {}
            conditions = (model.get("status") or {}).get("conditions") or ()
            state = "; ".join(f"{c['type']}={c['status']} {c['reason']}: {c['message']}" for c in conditions)
            raise BenchError(f"{error}; {len(missing)} are not, {name} among them: {state or 'no status'}") from None

    async def raised(self, models: Collection[str], *, since_s: float, limit_s: float) -> dict[str, float]:
        """Return the seconds from `since_s` until the replicas of each model increased.

        Models whose replicas didn't increase within the limit are missing from the result.
        """
        delays_s: dict[str, float] = {}

        def all_raised() -> bool:
            for name in models:
                if name not in delays_s and (at := self.raised_at(name, since_s=since_s)) is not None:
                    delays_s[name] = at - since_s
            return len(delays_s) == len(models)

        try:
            await self.until(all_raised, goal="counts rise", limit_s=limit_s)
        except BenchError:
            return delays_s
        return delays_s

    def _model_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        if after is None:
            self.replicas.pop(key.name, None)
            self.desired.pop(key.name, None)
        else:
            now = time.monotonic()
            count = int((after.get("spec") or {}).get("replicas", 1))
            changes = self.replicas[key.name]
            if before is None or not changes or changes[-1][1] != count:
                changes.append((now, count))
            desired = ((after.get("status") or {}).get("scaling") or {}).get("desired")
            decisions = self.desired[key.name]
            if desired is not None and (not decisions or decisions[-1][1] != desired):
                decisions.append((now, int(desired)))
        self._schedule_notification()

    def _pod_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        pod = after or before
        owner = next(iter(_owner(pod)), "") if pod is not None else ""
        kind, _, name = owner.partition("/")
        if kind == "server":
            count = len(self.pods.find(key.namespace, owner))
            changes = self.servers[name]
            if not changes or changes[-1][1] != count:
                changes.append((time.monotonic(), count))
        self._schedule_notification()

    def _schedule_notification(self) -> None:
        # Wake the waiting tasks one at a time, so that each of them evaluates a burst of events only once.
        if not self._notifications:
            task = asyncio.create_task(self._notify())
            self._notifications.add(task)
            task.add_done_callback(self._notifications.discard)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _owner(pod: Object) -> Iterable[str]:
    labels = pod["metadata"].get("labels") or {}
    owner = labels.get(names.OWNER_LABEL)
    if owner:
        yield f"{labels.get(names.COMPONENT_LABEL)}/{owner}"


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
