"""Strings that stand in Secrets, looked for wherever the operator leaves something: status, events, logs, objects, arguments, metrics."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from tests.integration.operator_process import Operator, running
from tests.integration.operator_space import Space, deployment, files
from tests.integration.waiting import PATIENCE, until

pytestmark = pytest.mark.more

CANARIES: Final = {
    name: f"canary-{name}-{uuid.uuid4().hex}" for name in ("env", "tls", "keys", "pull", "prometheus", "bearer")
}
SECRET: Final = "models-canary"


@pytest.fixture(scope="module")
def watched(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator with a Prometheus that nobody answers for, and a token for it."""
    directory = tmp_path_factory.mktemp("operator")
    token = directory / "token"
    token.write_text(CANARIES["prometheus"])
    more = ("--prometheus-url=http://127.0.0.1:1", f"--prometheus-token-file={token}", "--log-level=debug")
    with running(cluster, directory, more=more) as started:
        yield started


@pytest.fixture
def served(cluster: Cluster, namespace: str, watched: Operator) -> Space:
    """A model that names a Secret wherever one can be named; it was served, and then refused."""
    space = Space(cluster.api, namespace)
    data = {key: base64.b64encode(text.encode()).decode() for key, text in CANARIES.items()}
    body = {"metadata": {"name": SECRET}, "data": data | {"tls.crt": data["tls"], "tls.key": data["tls"]}}
    assert cluster.api.call("POST", kinds.SECRET.path(namespace), body).status == 201
    named: dict[str, Any] = {
        "runtime": {
            "gpu": {"count": 0},
            "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": SECRET, "key": "env"}}}],
            "imagePullSecrets": [{"name": SECRET}],
        },
        "traffic": {"tls": {"secretName": SECRET, "clientCA": SECRET}, "apiKeys": {"secretName": SECRET}},
    }
    space.apply(files(), deployment("m", **named))
    space.wait_settled()
    space.apply(
        deployment(
            "m", **named, model={"source": {"configMap": {"name": "gone", "items": [{"key": "a", "path": "a"}]}}}
        )
    )
    space.wait_condition("Accepted", "False", "SourceNotFound")
    refused_token(watched)
    return space


def refused_token(operator: Operator) -> None:
    """Ask the metrics API with a token that nobody has given out."""
    context = ssl._create_unverified_context()
    path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queuedepth"
    request = urllib.request.Request(
        f"https://127.0.0.1:{operator.port}{path}", headers={"Authorization": f"Bearer {CANARIES['bearer']}"}
    )

    def status() -> int:
        try:
            with urllib.request.urlopen(request, context=context, timeout=5 * PATIENCE) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0

    until(status, lambda code: code == 401, goal="the metrics API refuses a token")


def left(operator: Operator, space: Space) -> dict[str, str]:
    """Whatever the operator has left, by where it lies."""
    own = Space(space.api, operator.namespace)
    return {
        "log": operator.log.read_text(),
        "arguments": Path(f"/proc/{operator.pid}/cmdline").read_text(),
        "metrics": operator.fetch("/metrics"),
        "status": json.dumps(space.status()),
        "events": json.dumps(space.every(kinds.EVENT)),
        "children": json.dumps(list(space.children().values())),
        "its own ConfigMaps": json.dumps(own.every(kinds.CONFIG_MAP)),
    }


def test_no_output_contains_a_part_of_a_secret(watched: Operator, served: Space) -> None:
    key = Space(served.api, watched.namespace).must(kinds.SECRET, "halcyon-tls")["data"]
    own = [base64.b64decode(text).decode() for name, text in key.items() if "key" in name]
    assert own
    lines = [line for pem in own for line in pem.splitlines() if len(line) > 40]
    outputs = left(watched, served)

    assert SECRET in outputs["children"]
    assert "halcyon_leader" in outputs["metrics"]
    for source, text in outputs.items():
        for secret in (*CANARIES.values(), *lines):
            assert secret not in text, source
            assert base64.b64encode(secret.encode()).decode() not in text, source
