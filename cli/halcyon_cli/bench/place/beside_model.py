"""Measurement in the cluster: creates its objects, watches the pods, reads the result, and removes all objects.

The Job of the client is created first, and owns everything else. Kubernetes therefore removes everything when the
command ends, even if it is killed. Either the command deletes the Job, or the Job's lease expires (`client_job`).
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon.render import names
from halcyon_cli.bench.place import client_job, copied_model, log_result, metrics_access, trial_pod
from halcyon_cli.bench.place.client_job import JOB, ClientSettings
from halcyon_cli.bench.place.copied_model import CopiedModel
from halcyon_cli.bench.place.job_lease import JobLease, PlaceError
from halcyon_cli.bench.place.site import push_hint
from halcyon_cli.bench.place.trial_pod import TrialPod
from halcyon_cli.bench.readings.pod_usage import UsageLog
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube import fields
from halcyon_cli.kube.object_writer import ObjectWriter
from halcyon_cli.kube.pod_stage import Stage, stage

Json = Mapping[str, Any]
Result = TypeVar("Result")

_POLL_S = 1.0
_REMOVAL_S = 60.0
"""Maximum time for Kubernetes to delete the objects of an earlier measurement, in seconds."""
_LOG_LINES = 1_000_000
_LOG_ATTEMPTS = 5


@dataclass(frozen=True)
class PlacedResult:
    """Result of a client in the cluster, and the pods that took part."""

    document: bytes
    """Content of the file bench.json."""
    requests: bytes | None
    """Content of the file requests.npz; None if it was too large for a log."""
    servers: tuple[Json, ...]
    """Measured server pods, in their state when the client ended."""
    client: Json
    """Pod of the client."""
    usage: UsageLog
    """CPU and memory of the measured pods during the measurement."""
    ready: int = 0
    """Number of measured pods that were ready when the client was started."""
    others: tuple[bytes, ...] = ()
    """Documents of the other measured models, in the order of the models."""


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """Times after which the command gives up on a measurement, in seconds."""

    start_s: float
    """Maximum time until the copy's pods run. After that, the client's container has the same time to start."""
    run_s: float
    """Maximum time from the start of the client to its end."""


class BesideModel:
    """Measurement in the cluster.

    As a context manager, it creates the Job, and at the end it removes all objects that it created.
    """

    def __init__(
        self,
        cluster: ObjectWriter,
        client: ClientSettings,
        copy: CopiedModel | None,
        limits: Deadlines,
        progress: Callable[[str], None],
        *,
        trial: TrialPod | None = None,
        on_copy: Callable[[Callable[[], None]], None] | None = None,
        others: Sequence[CopiedModel] = (),
    ) -> None:
        """Store the settings.

        `trial`, if given, is measured instead of a copy or the served model. `on_copy` is called after the copies are
        created, with a function that extends the Job's lease. `others` are copies of further models for the same
        client.
        """
        self._cluster, self._client, self._limits, self._progress = cluster, client, limits, progress
        self._copies = (*([] if copy is None else [copy]), *others)
        self._trial, self._on_copy = trial, on_copy
        self._job: Json = {}
        self._usage = UsageLog()

    def __enter__(self) -> Self:
        template = None if self._trial is None else self._trial.template
        job = self._cluster.create(JOB, client_job.job(self._client, template=template))
        if job is None:
            raise PlaceError(
                f"{self._client.model} is being measured: Job {client_job.job_name(self._client.model)} exists; wait until it has ended"
            )
        self._job = job
        longest_s = 2 * self._limits.start_s + self._limits.run_s + client_job.LEASE_S
        self._lease = JobLease(self._cluster, job, longest_s=longest_s, progress=self._progress)
        return self

    def __exit__(self, *_: object) -> None:
        self._lease.delete()

    def run(self, *, network_policy: bool) -> PlacedResult:
        """Create the copy and the client's pod, wait for the result, and return it.

        On Ctrl-C, return the result so far.

        Raises:
            ClusterError: the user lacks a permission, or the API server is unreachable.
            PlaceError: a pod can't start, the client failed, or a deadline has passed.
        """
        servers = self._create_objects(network_policy=network_policy)
        ready, pod = sum(stage(server).state == "ready" for server in servers), self._wait_for_start()
        if self._trial is not None:
            servers = (pod,)
        try:
            pod = self._wait_for_end(pod)
            # The pods' status has the image's digest by now. A served model's pods may be gone after a scale-down.
            servers = (self._measured_at_end() or servers) if self._trial is None else (pod,)
            self._check_trial(pod)
            text = self._log(str(pod["metadata"]["name"]))
        except KeyboardInterrupt:
            text = self._stop(pod)
        return replace(self._result(text, servers, pod), ready=ready)

    def start(self, *, network_policy: bool) -> Json:
        """Create the client's pod with all objects that it needs, wait until its container runs, and return the pod.

        Raises:
            ClusterError: the user lacks a permission, or the API server is unreachable.
            PlaceError: the pod can't start in time.
        """
        self._create_objects(network_policy=network_policy)
        return self._wait_for_start()

    def keep(self, pod: str) -> None:
        """Extend the Job's lease if it is due, and check that the client's pod still runs.

        Raises:
            PlaceError: the Job was deleted, or the client's pod has ended or no longer exists.
        """
        self._lease.extend()
        try:
            client_pod = self._cluster.find(kinds.POD, pod)
        except ClusterError as error:
            self._lease.record_failure(error)
            return
        self._lease.record_response()
        if client_pod is None:
            raise PlaceError("the client's pod was deleted, for example with its node")
        if fields.mapping(client_pod.get("status")).get("phase") in {"Succeeded", "Failed"}:
            self._check_trial(client_pod)
            raise PlaceError(f"the client has ended: {self._last_line(pod)}")

    def _create_objects(self, *, network_policy: bool) -> tuple[Json, ...]:
        """Create all objects, let the Job create the client's pod, and return the measured pods.

        The result is empty for a trial pod, which is itself the client's pod.
        """
        if self._client.files:
            self._create(kinds.CONFIG_MAP, client_job.config_map(self._client, self._job))
        if network_policy:
            try:
                self._create(kinds.NETWORK_POLICY, self._network_policy())
            except ClusterError as error:
                print(f"halcyon bench: without a NetworkPolicy of its own for the client: {error}", file=sys.stderr)
        self._open_metrics(network_policy=network_policy)
        for copy in self._copies:
            if self._cluster.create(kinds.MODEL_DEPLOYMENT, copy.owned_by(self._job)) is None:
                raise PlaceError(f"ModelDeployment {copy.name} exists; try again when Kubernetes has deleted it")
        for config_map in () if self._trial is None else self._trial.config_maps:
            self._create(kinds.CONFIG_MAP, trial_pod.owned(config_map, self._job))
        if self._on_copy is not None:
            self._on_copy(self._lease.extend)
        servers = self._servers() if self._trial is None else ()
        self._cluster.change(JOB, self._job["metadata"]["name"], {"spec": {"parallelism": 1}})
        return servers

    def _create(self, kind: Kind, obj: Json) -> None:
        """Create an object.

        If an object of the same name is left from an earlier measurement, wait for Kubernetes to delete it.
        """
        end = time.monotonic() + _REMOVAL_S
        while self._cluster.create(kind, obj) is None:
            name = obj["metadata"]["name"]
            if time.monotonic() > end:
                raise PlaceError(
                    f"{kind.plural} {name} exists, and isn't of this measurement; if you don't need it: "
                    f"kubectl delete {kind.plural} {name} -n {self._cluster.namespace}"
                )
            self._progress(f"waiting until {kind.plural} {name} of an earlier measurement is deleted")
            self._pause()

    def _network_policy(self) -> dict[str, Any]:
        if self._trial is None:
            return client_job.network_policy(self._client, self._job)
        return trial_pod.network_policy(self._trial, self._client, self._job)

    def _check_trial(self, pod: Json) -> None:
        """Raise an error if the trial pod can't measure, and print a note if its server has restarted."""
        if self._trial is None:
            return
        if why := trial_pod.problem(pod):
            raise PlaceError(f"the trial pod of {self._client.model} has no result: {why}")
        if why := trial_pod.restarts(pod):
            print(f"halcyon bench: {why}", file=sys.stderr)

    def _open_metrics(self, *, network_policy: bool) -> None:
        """Create the objects that let the client read the metrics of the measured pods.

        If this fails, the result has a note that the metrics weren't read.
        """
        try:
            for pair in self._client.metrics:
                self._cluster.create(kinds.SERVICE, metrics_access.service(self._client, self._job, *pair))
                if network_policy:
                    policy = metrics_access.network_policy(self._client, self._job, *pair)
                    self._cluster.create(kinds.NETWORK_POLICY, policy)
        except ClusterError as error:
            print(f"halcyon bench: without metrics of servers and balancers: {error}", file=sys.stderr)

    def _servers(self) -> tuple[Json, ...]:
        """Return the measured pods once they are assigned to nodes. If there are several, wait until all are ready."""
        count = sum(int(copy.document["spec"]["replicas"]) for copy in self._copies) or 1
        end = time.monotonic() + self._limits.start_s
        while True:
            pods = self._retried(self._measured_pods)
            stages = [stage(pod) for pod in pods]
            placed = [pod for pod in pods if fields.mapping(pod.get("spec")).get("nodeName")]
            ready = [pod_stage for pod_stage in stages if pod_stage.state == "ready"]
            if len(placed) >= count and (count == 1 or len(ready) >= count):
                return tuple(placed)
            measured = " and ".join(self._client.all_measured)
            waiting = f" ({self._stage_text(stages)})" if stages and len(placed) < count else ""
            self._progress(f"{measured}: {len(ready)} of {count} pods ready{waiting}")
            self._retried(self._check_copies)
            if time.monotonic() > end:
                raise PlaceError(
                    f"{measured}: {len(ready)} of {count} pods are ready after {self._limits.start_s:.0f} s: "
                    f"{self._stage_text(stages)}; wait longer with --start-timeout, for example --start-timeout 30m"
                )
            self._pause()

    def _measured_pods(self) -> Sequence[Json]:
        pods: list[Json] = []
        for measured in self._client.all_measured:
            selected = names.selector(measured, names.SERVER).items()
            pods += self._cluster.items(kinds.POD, selector=",".join(f"{key}={value}" for key, value in selected)) or []
        return pods

    def _measured_at_end(self) -> tuple[Json, ...]:
        try:
            return tuple(self._measured_pods())
        except ClusterError:  # the pods from the start describe them well enough
            return ()

    def _check_copies(self) -> None:
        """Raise an error if the operator has rejected a copy, or can't serve a copy without a change of its spec."""
        for copy in self._copies:
            model = self._cluster.find(kinds.MODEL_DEPLOYMENT, copy.name) or {}
            for condition in fields.mappings(fields.mapping(model.get("status")).get("conditions")):
                if (condition.get("type"), condition.get("status")) in {("Accepted", "False"), ("Stalled", "True")}:
                    original = copy.name.removesuffix(copied_model.SUFFIX)
                    raise PlaceError(
                        f"the copy of {original} can't be served ({condition.get('reason')}): {condition.get('message')}"
                    )

    @staticmethod
    def _stage_text(stages: Sequence[Stage]) -> str:
        descriptions = (
            " ".join(filter(None, (pod_stage.state, pod_stage.reason, pod_stage.message))) for pod_stage in stages
        )
        return "; ".join(dict.fromkeys(descriptions)) or "no pod was created"

    def _wait_for_start(self) -> Json:
        """Wait until the client's container is running or has ended, and return the client's pod."""
        end = time.monotonic() + self._limits.start_s
        selector = client_job.pod_selector(self._job)
        while True:
            pods = self._retried(lambda: self._cluster.items(kinds.POD, selector=selector) or [])
            for pod in pods:
                if fields.mapping(pod.get("status")).get("phase") in {"Running", "Succeeded", "Failed"}:
                    return pod
                self._check_pull(pod)
            why = self._stage_text([stage(pod) for pod in pods])
            self._progress(f"client: {why}")
            if time.monotonic() > end:
                raise PlaceError(
                    f"the client's pod has not started within {self._limits.start_s:.0f} s: {why}; it requests "
                    f"{self._client.cpu} CPU and {self._client.memory} of memory; see kubectl describe job "
                    f"{client_job.job_name(self._client.model)} -n {self._cluster.namespace}"
                )
            self._retried(self._check_copies)
            self._pause()

    def _check_pull(self, pod: Json) -> None:
        self._check_trial(pod)
        for status in fields.mappings(fields.mapping(pod.get("status")).get("containerStatuses")):
            waiting = fields.mapping(fields.mapping(status.get("state")).get("waiting"))
            if waiting.get("reason") in client_job.NO_IMAGE:
                raise PlaceError(f"{push_hint(self._client.image)} ({waiting.get('reason')}: {waiting.get('message')})")

    def _wait_for_end(self, pod: Json) -> Json:
        """Wait until the client has ended, and return its pod."""
        name, end = str(pod["metadata"]["name"]), time.monotonic() + self._limits.start_s + self._limits.run_s
        while fields.mapping(pod.get("status")).get("phase") not in {"Succeeded", "Failed"}:
            if time.monotonic() > end:
                raise PlaceError(
                    f"the client has not ended within {self._limits.start_s + self._limits.run_s:.0f} s: {self._last_line(name)}"
                )
            self._progress(self._last_line(name))
            self._pause()
            try:
                self._check_copies()
                self._usage.read(self._cluster, self._client.all_measured, time.monotonic())
                current = self._cluster.find(kinds.POD, name)
            except ClusterError as error:
                self._lease.record_failure(error)
                continue
            self._lease.record_response()
            if current is None:
                raise PlaceError("the client's pod was deleted before it had a result, for example with its node")
            pod = current
        return pod

    def _last_line(self, pod: str) -> str:
        log = ""
        with contextlib.suppress(ClusterError):  # the node may be out of reach for a moment
            log = (self._cluster.log(pod, client_job.CONTAINER, lines=1) or "").strip()
        return log if log and not log.startswith("-----") and len(log) < 200 else "client: running"

    def _log(self, pod: str) -> str:
        for attempt in range(_LOG_ATTEMPTS):
            try:
                return self._cluster.log(pod, client_job.CONTAINER, lines=_LOG_LINES) or ""
            except ClusterError as error:
                if attempt == _LOG_ATTEMPTS - 1:
                    raise PlaceError(f"the result can't be read from the client's log: {error}") from None
            self._pause()
        return ""

    def _stop(self, pod: Json) -> str:
        """Stop the client, and return its log, which ends with the result so far."""
        text, name = list[str](), str(pod["metadata"]["name"])

        def follow() -> None:
            # If the connection breaks, the lines so far may have the result.
            with contextlib.suppress(ClusterError):
                text.extend(self._cluster.follow_log(name, client_job.CONTAINER, {"tailLines": "100000"}))

        reader = threading.Thread(target=follow, daemon=True)
        reader.start()
        time.sleep(_POLL_S)
        self.__exit__()
        reader.join(30.0)
        return "\n".join(text)

    def _result(self, text: str, servers: tuple[Json, ...], pod: Json) -> PlacedResult:
        lines = text.splitlines()
        document = log_result.content(lines, log_result.DOCUMENT)
        if document is None:
            raise PlaceError(f"the client ended without a result: {' '.join(lines[-3:]) or 'its log is empty'}")
        requests = log_result.content(lines, log_result.REQUESTS)
        further = (log_result.content(lines, log_result.document_name(n)) for n in range(1, len(self._copies)))
        return PlacedResult(document, requests, servers, pod, self._usage, others=tuple(filter(None, further)))

    def _retried(self, read: Callable[[], Result]) -> Result:
        """Return the result of a read. It is retried while requests to the API server fail.

        Raises:
            ClusterError: requests have failed for longer than a measurement allows.
        """
        while True:
            try:
                result = read()
            except ClusterError as error:
                self._lease.record_failure(error)
                self._pause()
            else:
                self._lease.record_response()
                return result

    def _pause(self) -> None:
        time.sleep(_POLL_S)
        self._lease.extend()
