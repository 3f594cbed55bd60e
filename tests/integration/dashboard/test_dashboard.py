"""The dashboard of real operators: who may see what, by the API server's own reviews, and that each replica shows it live."""

import contextlib
import http.client
import socket
import uuid
from collections.abc import Iterator

import pytest

from e2e.cluster.api import Api
from e2e.cluster.cluster import Cluster
from tests.integration.dashboard_client import Reader
from tests.integration.operator_process import Operator, running
from tests.integration.operator_space import Space, batch_inference, deployment, files
from tests.integration.waiting import PATIENCE, until
from tests.ports import free_ports

pytestmark = pytest.mark.more

PROXY = "127.0.0.9"


@pytest.fixture(scope="module")
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """It leads, and serves the cluster's users, those of a proxy among them."""
    more = ("--dashboard=pod", f"--dashboard-port={free_ports(1)[0]}", f"--dashboard-proxy={PROXY}/32")
    with running(cluster, tmp_path_factory.mktemp("operator"), more=more) as started:
        until(
            lambda: started.logged("serving the dashboard"), bool, goal="the dashboard is served", context=started.tail
        )
        yield started


@pytest.fixture(scope="module")
def reader(operator: Operator) -> Reader:
    """Somebody with nothing to show."""
    return Reader(port_of(operator), tls=True)


@pytest.fixture(scope="module")
def standby(cluster: Cluster, operator: Operator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Another replica of the same installation, on localhost."""
    more = ("--dashboard=localhost", f"--dashboard-port={free_ports(1)[0]}")
    replica = Operator(operator.namespace, "op-1", cluster.kubeconfig, tmp_path_factory.mktemp("standby"), more=more)
    replica.start()
    try:
        until(
            lambda: replica.logged("serving the dashboard"), bool, goal="the dashboard is served", context=replica.tail
        )
        yield replica
        assert not replica.complaints(), replica.complaints()
    finally:
        replica.stop()


@pytest.fixture
def other(cluster: Cluster) -> Iterator[Space]:
    """A second namespace."""
    space = Space(cluster.api, f"t-{uuid.uuid4().hex[:8]}")
    space.make()
    yield space
    space.end()


def port_of(operator: Operator) -> int:
    return next(
        int(argument.partition("=")[2]) for argument in operator.more if argument.startswith("--dashboard-port=")
    )


def account(space: Space, name: str, *verbs: str) -> str:
    """A token of a new service account that may do this to the ModelDeployments of its namespace."""
    api, namespace = space.api, space.namespace
    api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
    if verbs:
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        rule = {"apiGroups": ["serving.halcyon.dev"], "resources": ["modeldeployments"], "verbs": list(verbs)}
        api.create(f"{rbac}/roles", {"metadata": {"name": name}, "rules": [rule]})
        grant(api, namespace, name, {"kind": "ServiceAccount", "name": name, "namespace": namespace})
    answer = api.call(
        "POST",
        f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}},
    )
    assert answer.status == 201, answer
    assert answer.body is not None
    token: str = answer.body["status"]["token"]
    return token


def grant(api: Api, namespace: str, role: str, subject: dict[str, str]) -> None:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}
    body = {"metadata": {"name": f"{role}-{subject['name']}"}, "roleRef": reference, "subjects": [subject]}
    api.create(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", body)


def shown_namespaces(reader: Reader, **headers: str) -> set[str]:
    """Namespaces of the models that this reader is shown."""
    answer = reader.ask("/api/models?limit=200", **headers)
    assert answer.status == 200, answer
    return {row["namespace"] for row in answer.body["rows"]}


def test_a_client_without_a_token_gets_the_page_and_no_data(reader: Reader) -> None:
    page = reader.ask("/")
    assert page.status == 200
    assert "<main" in page.text
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    for path in ("/api/session", "/api/models", "/api/models/a/b", "/api/stream/models"):
        answer = reader.ask(path)
        assert answer.status == 401, path
        assert "sign in" in answer.body["error"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_every_port_takes_ipv6_and_closes_what_asks_nothing(operator: Operator) -> None:
    ports = {"http": operator.http_port, "https": operator.port, "dashboard": port_of(operator)}
    idle = [socket.create_connection(("::1", port), timeout=15 * PATIENCE) for port in ports.values()]
    for connection in idle:
        assert connection.recv(1) == b""
        connection.close()
    metrics = operator.metrics()
    for name in ports:
        assert metrics[f'halcyon_connections_closed_total{{port="{name}",reason="late"}}'] >= 1


def test_a_token_that_the_cluster_does_not_know_is_refused(reader: Reader) -> None:
    assert reader.ask("/api/models", Authorization="Bearer x.y.z").status == 401
    signed_in = reader.ask("/api/session", method="POST", body={"token": "x.y.z"})
    assert signed_in.status == 401
    assert "Set-Cookie" not in signed_in.headers


def test_batches_of_a_model_are_shown_by_each_replica(reader: Reader, standby: Operator, space: Space) -> None:
    space.serve()
    space.apply(batch_inference())
    bearer = {"Authorization": f"Bearer {account(space, 'reader', 'get', 'list')}"}
    for shown in (reader, Reader(port_of(standby))):
        answer = until(
            lambda shown=shown: shown.ask(f"/api/models/{space.namespace}/m/batches", **bearer),  # type: ignore[misc]  # of the loop
            lambda answer: answer.status == 200 and [batch["state"] for batch in answer.body] == ["RunnerUnknown"],
            goal="the batch is shown with its state",
        )
        (batch,) = answer.body
        assert (batch["name"], batch["done"], batch["total"]) == ("night", None, None)
        assert "no runner image is configured" in batch["message"]
    assert reader.ask(f"/api/models/{space.namespace}/m/batches").status == 401


def test_a_user_sees_the_namespaces_that_they_may_list(reader: Reader, space: Space, other: Space) -> None:
    space.serve()
    other.serve()
    token = account(space, "reader", "get", "list")
    bearer = {"Authorization": f"Bearer {token}"}
    until(
        lambda: shown_namespaces(reader, **bearer),
        lambda spaces: spaces == {space.namespace},
        goal="one namespace is shown",
    )
    assert reader.ask(f"/api/models/{space.namespace}/m", **bearer).status == 200
    refused = reader.ask(f"/api/models/{other.namespace}/m", **bearer)
    assert refused.status == 403
    assert (
        f'cannot get modeldeployments.serving.halcyon.dev "m" in the namespace "{other.namespace}"'
        in refused.body["error"]
    )
    for part in ("/history", "/spec"):
        assert reader.ask(f"/api/models/{other.namespace}/m{part}", **bearer).status == 403
    assert reader.ask(f"/api/models/{other.namespace}/is-not-there", **bearer).status == 403


def test_a_user_without_rights_sees_no_model(reader: Reader, space: Space) -> None:
    space.serve()
    token = account(space, "nobody")
    answer = reader.ask("/api/models", Authorization=f"Bearer {token}")
    assert answer.status == 200
    assert answer.body["total"] == 0


def test_a_session_is_a_cookie_closed_to_scripts_until_sign_out(reader: Reader, space: Space) -> None:
    space.serve()
    token = account(space, "person", "get", "list")
    signed_in = reader.ask("/api/session", method="POST", body={"token": token})
    assert signed_in.status == 200
    cookie = signed_in.headers["Set-Cookie"]
    assert {"HttpOnly", "Secure", "SameSite=Strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    mine = {"Cookie": cookie.partition(";")[0]}
    assert reader.ask("/api/session", **mine).body["user"] == f"system:serviceaccount:{space.namespace}:person"
    until(
        lambda: shown_namespaces(reader, **mine),
        lambda spaces: spaces == {space.namespace},
        goal="its namespace is shown",
    )
    out = reader.ask("/api/session", method="DELETE", **mine)
    assert 'halcyon-token=""' in out.headers["Set-Cookie"]


def test_a_proxy_is_believed_from_its_address_only(reader: Reader, space: Space) -> None:
    space.serve()
    account(space, "proxied", "get", "list")
    grant(
        space.api,
        space.namespace,
        "proxied",
        {"kind": "Group", "name": "ml-team", "apiGroup": "rbac.authorization.k8s.io"},
    )
    headers = {"X-Forwarded-User": "ada", "X-Forwarded-Groups": "staff,ml-team"}
    assert reader.ask("/api/models", **headers).status == 401
    trusted = Reader(reader.port, tls=True, source=PROXY, headers=headers)
    assert trusted.ask("/api/session").body["user"] == "ada"
    until(
        lambda: shown_namespaces(trusted),
        lambda spaces: spaces == {space.namespace},
        goal="the group's namespace is shown",
    )
    stranger = Reader(reader.port, tls=True, source=PROXY, headers={"X-Forwarded-User": "bob"})
    assert shown_namespaces(stranger) == set()
    root = {"X-Forwarded-User": "eve", "X-Forwarded-Groups": "system:masters"}
    assert Reader(reader.port, tls=True, source=PROXY, headers=root).ask("/api/models").status == 401


def test_a_standby_on_localhost_shows_every_model_to_requests_of_that_name(standby: Operator, space: Space) -> None:
    space.serve()
    reader = Reader(port_of(standby))
    until(
        lambda: shown_namespaces(reader), lambda spaces: space.namespace in spaces, goal="the standby shows the model"
    )
    session = reader.ask("/api/session").body
    links = {"alerts": "", "grafana": "", "runbooks": ""}
    assert session == {"user": "localhost", "open": True, "links": links, "cluster": ""}
    assert reader.ask("/api/models", Host="evil.example").status == 403
    assert standby.metrics()["halcyon_leader"] == 0


def test_an_open_page_receives_a_scale_up(standby: Operator, space: Space) -> None:
    space.apply(files(), deployment())
    space.wait_settled()
    reader = Reader(port_of(standby))
    # The standby has caches of its own.
    until(
        lambda: reader.ask(f"/api/models/{space.namespace}/m").status, lambda n: n == 200, goal="the standby knows it"
    )
    with reader.events(f"/api/stream/models/{space.namespace}/m") as events:
        name, _ = next(event for event in events if event[1]["model"]["ready"] == 1)
        assert name == "model"
        space.scale(3)
        ready = ["ready"] * 3
        grown = next(
            document
            for _, document in events
            if document["model"]["ready"] == 3 and [pod["state"] for pod in document["pods"]] == ready
        )
    # The standby has seen it become ready, and writes no events itself.
    (became,) = (event for event in grown["events"] if event["reason"] == "Ready")
    assert (became["type"], became["message"]) == ("Normal", "1 of 1 servers are ready")
    assert grown["model"]["state"] == "ready"
    assert next(c for c in grown["conditions"] if c["type"] == "Ready")["status"] == "True"


def test_head_of_a_stream_is_its_headers_alone(standby: Operator) -> None:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port_of(standby), timeout=60)) as connection:
        connection.request("HEAD", "/api/stream/models")
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
        answer.read()
        # On the same connection: events behind the headers would be taken for this answer.
        connection.request("GET", "/api/session")
        assert connection.getresponse().status == 200


def test_a_models_page_has_its_spec_configuration_and_last_hour(standby: Operator, space: Space) -> None:
    env = [{"name": "MODE", "value": "secret"}]
    space.serve(batching={"maxBatchSize": 8}, runtime={"gpu": {"count": 0}, "env": env})
    reader, path = Reader(port_of(standby)), f"/api/models/{space.namespace}/m"
    until(lambda: reader.ask(f"{path}/spec").status, lambda n: n == 200, goal="the standby knows it")
    page = reader.ask(f"{path}/spec").body
    assert "maxBatchSize: 8" in page["spec"]
    assert "secret" not in page["spec"]
    assert '"max_batch_size": 8' in page["overlay"]
    hour = until(
        lambda: reader.ask(f"{path}/history").body,
        lambda history: history["ready"] and history["ready"][-1] == 1,
        goal="the history has a point",
        limit_s=25,
    )
    assert hour["step"] == 10
    assert hour["rate"][-1] is None  # no agent speaks for KWOK's pods
    assert reader.ask(f"/api/models/{space.namespace}/is-not-there").status == 404
