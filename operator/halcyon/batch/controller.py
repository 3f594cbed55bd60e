"""Controller of BatchInferences, which creates, pauses and replaces their Jobs and writes their statuses.

It runs in the leader. If a BatchInference is deleted, Kubernetes deletes its Job, but not the written output.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from halcyon.api.batch_inference import BatchInferenceSpec, BatchReason
from halcyon.api.documents.batch_documents import PORT, BatchProgress
from halcyon.api.spec.parse import parse_batch
from halcyon.batch import job as objects
from halcyon.batch import runner_pod, status
from halcyon.batch.bucket_access import api_keys_refusal, refusal
from halcyon.batch.job import LABEL, BatchSite, ServedModel, job_name
from halcyon.batch.runner_end import RunnerEnd
from halcyon.batch.runner_pod import POD_TIMEOUT_S
from halcyon.batch.running_batch import WITHOUT_RUNNER, RunningBatch, final_conditions, remaining
from halcyon.batch.status import Observed, Obstacle
from halcyon.kube import errors, kinds
from halcyon.kube.client import Kube, Object
from halcyon.kube.clock import Clock
from halcyon.kube.encoding import changing, creating
from halcyon.kube.event_recorder import NewEvent, status_rejected
from halcyon.kube.informers.informer import Informer
from halcyon.kube.kinds import BATCH_INFERENCE, JOB, Key
from halcyon.kube.work_queue import WorkQueue

log = logging.getLogger(__name__)

DISCOVERY_INTERVAL_S = 10.0
"""Interval at which the operator checks whether the API server has the BatchInference kind, in seconds. Its CRD may be
installed after the operator has started."""
POLL_INTERVAL_S = 5.0
"""Interval at which the controller polls a runner for its progress, in seconds."""
CONFLICT_INTERVAL_S = 30.0
"""Interval at which the controller checks whether a conflicting object is gone, in seconds. No watch reports this,
because only Jobs with Halcyon's label are watched, and no NetworkPolicies."""
STATUS_INTERVAL_S = 10.0
"""Minimum time between two writes of a status in which only numbers have changed, in seconds."""
SILENCE_S = 60.0
"""Time without a response after which a runner counts as pending, in seconds, for example because its node is lost."""
WORKERS = 4


@dataclass
class BatchController:
    """Controller of BatchInferences: informers of BatchInferences, Jobs and pods, and workers that reconcile."""

    client: Kube
    clock: Clock
    site: BatchSite
    model: Callable[[Key], Object | None]
    """Function that returns the ModelDeployment with the given key, or None if it does not exist."""
    namespaces: tuple[str, ...] = ()
    """Namespaces that the controller watches. If empty, it watches all namespaces."""
    changed: Callable[[Key], None] = lambda _: None
    """Function that is called with the key of a ModelDeployment when one of its BatchInferences has changed."""
    record: Callable[[Object, NewEvent], object] = lambda _batch, _event: None
    """Function that records an event of a BatchInference."""
    _progress: dict[Key, BatchProgress] = field(default_factory=dict)
    _written_at: dict[Key, float] = field(default_factory=dict)
    _is_absent: bool = False
    _responded_at: dict[Key, float] = field(default_factory=dict)
    """Monotonic time at which a runner last responded, or at which its pod didn't run yet, in seconds."""

    def __post_init__(self) -> None:
        """Create the informers. They are started by `run`."""
        self.queue = WorkQueue(self.clock)
        self.batches = self._informer(BATCH_INFERENCE, "", index=_model_name, optional=True)
        self.jobs = self._informer(JOB, LABEL)
        self.pods = self._informer(kinds.POD, LABEL, index=_batch_name, project=runner_pod.project)
        self.batches.listeners.append(self._batch_changed)
        for informer in (self.jobs, self.pods):
            informer.listeners.append(self._child_changed)

    def _informer(self, kind: kinds.Kind, selector: str, **others: Any) -> Informer:
        return Informer(self.client, kind, selector=selector, namespaces=self.namespaces, **others)

    def model_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        """Queue the BatchInferences of a changed ModelDeployment.

        If neither its spec nor its managing release has changed, BatchInferences that already have a Job aren't queued.
        """
        is_new = before is None or after is None or _generation(before) != _generation(after)
        is_moved = _manager(before) != _manager(after)
        for batch in self.batches.find(key.namespace, key.name):
            batch_key = Key(key.namespace, batch["metadata"]["name"])
            if is_new or is_moved or self.jobs.get(Key(batch_key.namespace, job_name(batch_key.name))) is None:
                self.queue.add(batch_key)

    @property
    def is_known(self) -> bool:
        """Whether the BatchInferences have been read, or the API server doesn't have their kind."""
        return self._is_absent or self.batches.synced.is_set()

    def known(self) -> Iterator[Object]:
        """Yield all BatchInferences in the cache. Only the leader's cache has any."""
        for key in self.batches.all_keys():
            if (batch := self.batches.get(key)) is not None:
                yield batch

    def running(self, model: Key) -> tuple[RunningBatch, ...]:
        """Return the BatchInferences of a model that are neither paused nor complete nor failed."""
        batches = {Key(model.namespace, b["metadata"]["name"]): b for b in self.batches.find(*model)}
        run = {key for key in batches if not self.pods.synced.is_set() or runner_pod.address(self._pod(key))}
        return tuple(filter(None, (remaining(batch, has_runner=key in run) for key, batch in batches.items())))

    async def run(self) -> None:
        """Wait until the API server serves the BatchInference kind, then reconcile until cancelled."""
        while not (is_served := await self.batches.is_served()):
            self._is_absent = is_served is False
            await asyncio.sleep(DISCOVERY_INTERVAL_S)  # the API server sends no event for a new kind
        informers = (self.batches, self.jobs, self.pods)
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session, asyncio.TaskGroup() as group:
            for informer in informers:
                group.create_task(informer.run(), name=f"informer-{informer.kind.plural}")
            for informer in informers:
                await informer.synced.wait()
            for number in range(WORKERS):
                group.create_task(self._work(session), name=f"batch-worker-{number}")

    def _batch_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        if after is None or before is None or _version(before) != _version(after):
            self.queue.add(key)
        if before is not None and (after is None or _version(before)[0] != _version(after)[0]):
            # A new BatchInference of the same name has other rows.
            self._forget(key)
        for batch in (before, after):
            if name := batch and next(iter(_model_name(batch)), ""):
                self.changed(Key(key.namespace, name))

    def _forget(self, key: Key) -> None:
        for state in (self._progress, self._written_at, self._responded_at):
            state.pop(key, None)

    def _child_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        for obj in (before, after):
            if name := obj and (obj["metadata"].get("labels") or {}).get(LABEL):
                self.queue.add(Key(key.namespace, name))
                return

    async def _work(self, session: aiohttp.ClientSession) -> None:
        while True:
            key = await self.queue.get()
            try:
                requeue_s = await self._reconcile(key, session)
            except errors.LeaseLost:
                raise
            except (errors.ApiError, errors.Unreachable) as error:
                delay_s = self.queue.fail(key)
                context = {"batch": str(key), "error": str(error), "retry_s": round(delay_s, 1)}
                level = logging.INFO if isinstance(error, errors.Conflicted) else logging.WARNING
                log.log(level, "reconcile of a BatchInference failed", extra=context)
            except Exception:
                # An unforeseen object must not end the worker.
                self.queue.fail(key)
                log.exception("unexpected error in the reconcile of a BatchInference", extra={"batch": str(key)})
            else:
                self.queue.succeed(key)
                if requeue_s is not None:
                    self.queue.add_after(key, requeue_s)
            finally:
                self.queue.done(key)

    async def _reconcile(self, key: Key, session: aiohttp.ClientSession) -> float | None:
        """Make the Job match the spec, write the status, and return the seconds until the next reconcile.

        Return None if the next reconcile is due only when an object changes.
        """
        batch = self.batches.get(key)
        if batch is None or batch["metadata"].get("deletionTimestamp"):
            self._forget(key)
            return None
        spec: BatchInferenceSpec | None = None
        try:
            spec = parse_batch(batch.get("spec"))
            model = self.model(Key(key.namespace, spec.model_deployment))
            if self.site.release and _manager(model) not in {"", self.site.release}:
                return None  # another release manages the model, and runs its batches
            observed = await self._observe(key, batch, spec, self._served(key, spec, model), session)
        except ValueError as error:
            observed = Observed(Obstacle(BatchReason.INVALID, str(error), is_final=True))
        wait_s = await self._write(key, batch, spec, observed)
        if observed.is_done or observed.is_failed or spec is None:
            return wait_s
        if observed.obstacle is not None and observed.obstacle.reason == BatchReason.NAME_CONFLICT:
            return CONFLICT_INTERVAL_S
        host = runner_pod.address(self._pod(key))
        if host is None and not spec.suspend:
            # No event says that the model's accepted spec has changed, which may be what the runner waits for.
            return POD_TIMEOUT_S if wait_s is None else min(wait_s, POD_TIMEOUT_S)
        return POLL_INTERVAL_S if host is not None else wait_s

    def _served(self, key: Key, spec: BatchInferenceSpec, stored: Object | None) -> ServedModel | Obstacle:
        """Return the properties of the model that a runner needs, or the obstacle that prevents a runner."""
        if message := refusal(spec, key.namespace, self.site.policy, self.site.own_secret):
            return Obstacle(BatchReason.POLICY_DENIED, message)
        name = spec.model_deployment
        model = status.served_model(stored, name, key.namespace)
        if isinstance(model, Obstacle) or not model.api_keys:
            return model
        message = api_keys_refusal(model.api_keys, name, key.namespace, self.site.policy, self.site.own_secret)
        return Obstacle(BatchReason.POLICY_DENIED, message) if message else model

    async def _observe(
        self,
        key: Key,
        batch: Object,
        spec: BatchInferenceSpec,
        model: ServedModel | Obstacle,
        session: aiohttp.ClientSession,
    ) -> Observed:
        """Create, change or replace the Job if needed, and return the state of the Job and its runner."""
        job = self._job(key)
        if job is not None and not _is_owned(job, batch):
            return _conflict(JOB, key.name)
        end = RunnerEnd.of(batch, job, self._pod(key))
        if end.is_complete:
            # This deletes a pod that never ends by itself.
            await self._suspend(job if end.has_succeeded_in_kept_pod else None, is_suspended=True)
            return Observed(is_done=True, progress=runner_pod.last_progress(self._pod(key)))
        if end.has_failed and spec.suspend:  # without the Job, the batch can be resumed, also once its model is back
            return await self._replace(key, job)
        if isinstance(model, Obstacle):
            return await self._obstructed(key, spec, job, end, model)
        if not self.site.image:
            text = "no runner image is configured (operator option --bench-image); set the chart value images.bench.registry"
            return Observed(Obstacle(BatchReason.RUNNER_UNKNOWN, text))
        desired = objects.job(batch, spec, objects.used_by(job, model), self.site)
        if job is None:
            return await self._create(key, batch, spec, desired)
        # Containers of others that end by themselves have done so after `POD_TIMEOUT_S`.
        is_stuck = not end.has_failed and end.kept_s(self.clock.wall()) >= POD_TIMEOUT_S
        if is_stuck or objects.spec_digest(job) != objects.spec_digest(desired):
            return await self._replace(key, job)
        if end.has_failed:
            return self._failed(key)
        await self._suspend(job, is_suspended=spec.suspend)
        return await self._observe_pod(key, session)

    async def _obstructed(
        self, key: Key, spec: BatchInferenceSpec, job: Object | None, end: RunnerEnd, obstacle: Obstacle
    ) -> Observed:
        """Pause the Job if the obstacle requires it, and return the state of the BatchInference."""
        self._responded_at.pop(key, None)  # it isn't polled meanwhile
        if end.has_failed:
            return self._failed(key)
        await self._suspend(job, is_suspended=spec.suspend or obstacle.reason in WITHOUT_RUNNER)
        return Observed(obstacle, progress=self._progress.get(key))

    async def _replace(self, key: Key, job: Object | None) -> Observed:
        """Delete a Job, whose pod template can't be changed. A new one continues after the parts that are already written."""
        await self.client.delete(JOB, key.namespace, job_name(key.name), seen=job)
        return Observed(pending="the runner's pod is being replaced", progress=self._progress.get(key))

    async def _create(self, key: Key, batch: Object, spec: BatchInferenceSpec, job: Object) -> Observed:
        """Create the runner's NetworkPolicy, if the site uses them, and the Job; return the state of the Job.

        An object of another owner that already has one of the names stays unchanged.
        """
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        try:
            if self.site.network is not None:
                policy = objects.network_policy(batch, spec, self.site, self.site.network)
                present = await self.client.get(kinds.NETWORK_POLICY, namespace, name)
                if present is not None and not _is_owned(present, batch):
                    return _conflict(kinds.NETWORK_POLICY, key.name)
                body = creating(policy) if present is None else changing(policy, present, versioned=False)
                await self.client.apply(kinds.NETWORK_POLICY, body)
            if not await self._create_job(batch, job):
                return _conflict(JOB, key.name)
        except (errors.Refused, errors.Busy) as error:  # for example by a ResourceQuota or an admission webhook
            return Observed(pending=f"the runner's Job can't be created: {error}", progress=self._progress.get(key))
        return Observed(pending="the runner's pod is being created", progress=self._progress.get(key))

    async def _create_job(self, batch: Object, job: Object) -> bool:
        """Create the Job; return False if a Job of another owner already has its name."""
        try:
            await self.client.apply(JOB, creating(job))
        except errors.Conflicted:
            # The cache has only Jobs with Halcyon's label, and may not have this BatchInference's own Job yet.
            jobs, _ = await self.client.list(JOB, namespace=job["metadata"]["namespace"], metadata_only=True)
            name = job["metadata"]["name"]
            return all(other["metadata"]["name"] != name or _is_owned(other, batch) for other in jobs)
        return True

    async def _observe_pod(self, key: Key, session: aiohttp.ClientSession) -> Observed:
        pod = self._pod(key)
        host = runner_pod.address(pod)
        progress = runner_pod.last_progress(pod) if host is None else await runner_pod.poll(session, host)
        if progress is not None:
            self._progress[key] = progress
        now = self.clock.monotonic()
        if progress is not None or host is None:
            self._responded_at[key] = now
        pending = runner_pod.pending_of_job(self._job(key), pod, self.clock.wall())
        if not pending and now - self._responded_at.setdefault(key, now) >= SILENCE_S:
            pending = f"the runner has not responded for more than {SILENCE_S:.0f} s, at port {PORT} of its pod"
        return Observed(pending=pending, progress=self._progress.get(key))

    def _job(self, key: Key) -> Object | None:
        return self.jobs.get(Key(key.namespace, job_name(key.name)))

    def _pod(self, key: Key) -> Object | None:
        return runner_pod.current(self.pods.find(key.namespace, key.name))

    def _failed(self, key: Key) -> Observed:
        pod = self._pod(key)
        return Observed(is_failed=True, pending=runner_pod.pending(pod), progress=runner_pod.last_progress(pod))

    async def _suspend(self, job: Object | None, *, is_suspended: bool) -> None:
        """Suspend or resume a Job that has not ended. A Job that others have suspended is not resumed."""
        if job is None or final_conditions(job) or bool(job["spec"].get("suspend")) == is_suspended:
            return
        if objects.is_suspended_by_others(job):
            return
        meta, annotations = job["metadata"], {objects.SUSPENDED: str(is_suspended).lower()}
        body = {"metadata": {"uid": meta["uid"], "annotations": annotations}, "spec": {"suspend": is_suspended}}
        await self.client.patch(JOB, meta["namespace"], meta["name"], body)

    async def _write(self, key: Key, batch: Object, spec: BatchInferenceSpec | None, state: Observed) -> float | None:
        """Write the status if it has changed.

        Returns:
            The seconds until the status may be written, if `STATUS_INTERVAL_S` delays the write; otherwise None.
        """
        before: Mapping[str, Any] = batch.get("status") or {}
        after = status.make(before, spec, state, generation=_generation(batch), now=self.clock.wall())
        if after == {name: value for name, value in before.items() if value is not None}:
            return None
        since_s = self.clock.monotonic() - self._written_at.get(key, -STATUS_INTERVAL_S)
        if _states(after) == _states(before) and since_s < STATUS_INTERVAL_S:
            return STATUS_INTERVAL_S - since_s
        body = {
            "apiVersion": BATCH_INFERENCE.api_version,
            "kind": BATCH_INFERENCE.kind,
            "metadata": {"namespace": key.namespace, "name": key.name, "uid": batch["metadata"]["uid"]},
            "status": after,
        }
        try:
            await self.client.apply(BATCH_INFERENCE, body, subresource="status")
        except errors.NotFound:
            return None  # it was deleted
        except errors.Refused as error:
            self.record(batch, status_rejected(error))
            raise
        self._written_at[key] = self.clock.monotonic()
        for event in status.events(before, after):
            self.record(batch, event)
        return None


def _model_name(batch: Object) -> Iterable[str]:
    name = (batch.get("spec") or {}).get("modelDeployment")
    return (name,) if isinstance(name, str) and name else ()


def _manager(model: Object | None) -> str:
    """Return NAMESPACE/NAME of the Lease of the Halcyon release that manages a model; empty if it is unknown."""
    return str(((model or {}).get("status") or {}).get("operator") or "")


def _batch_name(pod: Object) -> Iterable[str]:
    name = (pod["metadata"].get("labels") or {}).get(LABEL)
    return (name,) if name else ()


def _version(obj: Object | None) -> tuple[str, int]:
    """Return the uid and the generation of a BatchInference; an empty text and 0 if it does not exist."""
    return ("", 0) if obj is None else (str(obj["metadata"]["uid"]), _generation(obj))


def _generation(obj: Object) -> int:
    return int(obj["metadata"].get("generation") or 0)


def _is_owned(obj: Object, batch: Object) -> bool:
    return any(owner.get("uid") == batch["metadata"]["uid"] for owner in obj["metadata"].get("ownerReferences") or ())


def _conflict(kind: kinds.Kind, name: str) -> Observed:
    text = f"{kind.kind} {job_name(name)} does not belong to this BatchInference; delete it, or rename the batch"
    return Observed(Obstacle(BatchReason.NAME_CONFLICT, text))


def _states(written: Mapping[str, Any]) -> Any:  # compared only
    """Return the parts of a status that are written at once when they change."""
    conditions = [(c.get("type"), c.get("status"), c.get("reason")) for c in written.get("conditions") or ()]
    return written.get("observedGeneration"), conditions
