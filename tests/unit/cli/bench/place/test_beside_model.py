"""A measurement in the cluster keeps its result while the API server is away for a moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, cast

import pytest

from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon_cli.bench.place import beside_model, client_job, copied_model, log_result, placed_document
from halcyon_cli.bench.place.beside_model import BesideModel, Deadlines
from halcyon_cli.bench.place.client_job import JOB
from halcyon_cli.bench.place.job_lease import PlaceError
from halcyon_cli.bench.place.log_result import DOCUMENT
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube.object_writer import ObjectWriter
from tests.bench_documents import bench_document
from tests.unit.cli.bench.place.served_models import served
from tests.unit.cli.bench.place.test_client_job import SETTINGS

Json = Mapping[str, Any]


class Client:
    """A cluster with a served model and the client of a measurement, which fails at the given requests."""

    namespace = "team"

    def __init__(self, *failing: str) -> None:
        self.failing, self.requests = [*failing], list[str]()

    def create(self, kind: Kind, body: Json) -> Json | None:
        self._request(f"create {kind.plural}")
        return {**body, "metadata": {**body["metadata"], "uid": "j-1"}}

    def change(self, kind: Kind, _name: str, body: Json) -> Json | None:
        self._request(f"change {kind.plural}")
        return body

    def items(self, kind: Kind, *, selector: str = "") -> list[Json]:
        self._request(f"items {kind.plural}")
        name = "client" if "controller-uid" in selector else "server"
        return [{"metadata": {"name": name}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}]

    def find(self, kind: Kind, name: str) -> Json | None:
        self._request(f"find {kind.plural}")
        return {"metadata": {"name": name}, "status": {"phase": "Succeeded"}}

    def log(self, _pod: str, _container: str, *, lines: int) -> str:
        self._request("log")
        return "\n".join(log_result.lines(DOCUMENT, b"{}")) if lines > 1 else ""

    def delete(self, kind: Kind, _name: str, _uid: str) -> None:
        self._request(f"delete {kind.plural}")

    def _request(self, request: str) -> None:
        self.requests.append(request)
        if request in self.failing:
            self.failing.remove(request)
            raise ClusterError("https://api can't be reached")


@pytest.mark.parametrize("failing", [("find pods",), ("log",), ("delete jobs", "delete jobs", "delete jobs")])
def test_result_is_kept_when_requests_fail_for_a_moment(
    failing: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, shown = Client(*failing), list[str]()
    settings = replace(SETTINGS, files={}, measured="digits")
    beside = BesideModel(cluster, settings, None, Deadlines(start_s=30, run_s=30), shown.append)  # type: ignore[arg-type]
    with beside:
        result = beside.run(network_policy=False)
    assert result.document == b"{}"
    assert not cluster.failing
    stderr = capsys.readouterr().err
    assert ("Job digits-bench couldn't be deleted: https://api can't be reached. Within 180 s" in stderr) == (
        "delete jobs" in failing
    )
    assert ("https://api can't be reached; trying again" in shown) == ("find pods" in failing)


class LostLists(Client):
    """A cluster whose first list of the server pods, and of the client's pod, fails."""

    def items(self, kind: Kind, *, selector: str = "") -> list[Json]:
        pods = "client" if "controller-uid" in selector else "server"
        if f"list {pods}" not in self.requests:
            self.requests.append(f"list {pods}")
            raise ClusterError("https://api can't be reached")
        return super().items(kind, selector=selector)


def test_measurement_begins_when_lists_of_its_pods_fail_for_a_moment() -> None:
    cluster, shown = LostLists(), list[str]()
    settings = replace(SETTINGS, files={}, measured="digits")
    beside = BesideModel(cluster, settings, None, Deadlines(start_s=30, run_s=30), shown.append)  # type: ignore[arg-type]
    with beside:
        assert beside.start(network_policy=False)["metadata"]["name"] == "client"
    assert shown == ["https://api can't be reached; trying again"] * 2


class EndingPod(Client):
    """A cluster in which a pod of the model's previous measurement is still ending."""

    def items(self, kind: Kind, *, selector: str = "") -> list[Json]:
        self._request(f"items {kind.plural}")
        *_, uid = selector.partition(f"{client_job.BENCH_LABEL},batch.kubernetes.io/controller-uid=")
        return [self._pod(name) for name, of_job in (("previous", "j-0"), ("client", "j-1")) if uid in ("", of_job)]

    @staticmethod
    def _pod(name: str) -> Json:
        return {"metadata": {"name": name}, "spec": {}, "status": {"phase": "Running"}}


def test_pod_of_the_previous_measurement_is_not_taken_for_the_client() -> None:
    settings = replace(SETTINGS, files={}, measured="")
    beside = BesideModel(EndingPod(), settings, None, Deadlines(start_s=30, run_s=30), lambda _: None)  # type: ignore[arg-type]
    with beside:
        assert beside._wait_for_start()["metadata"]["name"] == "client"


def test_trial_pod_stays_when_a_reading_of_it_fails() -> None:
    cluster, shown = Client(f"find {kinds.POD.plural}"), list[str]()
    beside = BesideModel(cluster, SETTINGS, None, Deadlines(start_s=30, run_s=30), shown.append)  # type: ignore[arg-type]
    with beside:
        beside.keep("client")
    assert shown == ["https://api can't be reached; trying again"]
    assert cluster.requests[-1] == f"delete {JOB.plural}"


class FullNode(Client):
    """A cluster whose only node has no CPU left for the client's pod."""

    def items(self, kind: Kind, *, selector: str = "") -> list[Json]:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient cpu.",
        }
        if "controller-uid" not in selector:
            return super().items(kind, selector=selector)
        return [{"metadata": {"name": "client"}, "status": {"phase": "Pending", "conditions": [condition]}}]


def test_client_without_a_node_is_explained() -> None:
    cluster, shown = FullNode(), list[str]()
    settings = replace(SETTINGS, measured="digits")
    beside = BesideModel(cluster, settings, None, Deadlines(start_s=0, run_s=30), shown.append)  # type: ignore[arg-type]
    with beside, pytest.raises(PlaceError) as error:
        beside.start(network_policy=False)
    why = "pending Unschedulable 0/1 nodes are available: 1 Insufficient cpu."
    assert shown[-1] == f"client: {why}"
    assert str(error.value) == (
        f"the client's pod has not started within 0 s: {why}; it requests 1 CPU and 1Gi of memory; "
        "see kubectl describe job digits-bench -n team"
    )


class Interrupted(Client):
    """A cluster in which Ctrl-C ends a measurement, and the connection to the client's log breaks after the result."""

    def find(self, kind: Kind, name: str) -> Json | None:
        if kind == kinds.POD:
            raise KeyboardInterrupt
        return super().find(kind, name)

    def follow_log(self, *_: object) -> Iterator[str]:
        yield from log_result.lines(DOCUMENT, b"{}")
        raise ClusterError("https://api can't be reached")


def test_interrupted_measurement_keeps_the_result_before_the_connection_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside_model, "_POLL_S", 0.01)
    settings = replace(SETTINGS, files={}, measured="digits")
    beside = BesideModel(Interrupted(), settings, None, Deadlines(start_s=30, run_s=30), lambda _: None)  # type: ignore[arg-type]
    with beside:
        assert beside.run(network_policy=False).document == b"{}"


class Growing(Client):
    """A cluster whose autoscaler adds a pod to the served model during its measurement."""

    def items(self, _: Kind, *, selector: str = "") -> list[Json]:
        is_client = "controller-uid" in selector
        count = 1 if is_client or "log" not in self.requests else 2
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        names = ["client"] if is_client else [f"server-{number}" for number in range(count)]
        return [{"metadata": {"name": name}, "spec": {"nodeName": "n1"}, "status": ready} for name in names]


def test_replicas_of_a_served_model_are_those_before_its_load() -> None:
    settings = replace(SETTINGS, files={}, measured="digits")
    beside = BesideModel(Growing(), settings, None, Deadlines(start_s=30, run_s=30), lambda _: None)  # type: ignore[arg-type]
    with beside:
        result = beside.run(network_policy=False)
    assert (result.ready, len(result.servers)) == (1, 2)
    result = replace(result, document=bench_document().model_dump_json().encode())
    cluster, measured = cast(ObjectWriter, Growing()), copied_model.copied(served("digits"), [])
    for kind, replicas in (("live", 1), ("copy", 2)):
        document = placed_document.placed(
            cluster, result, measured, name="digits", arguments=(), kind=cast(Literal["copy", "live"], kind)
        )
        assert document.place is not None
        assert document.place.replicas == replicas
