"""Names that would be another path of the API server, and what is said of a TLS connection that fails."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from halcyon.main import main
from halcyon_cli.kube import client_messages
from halcyon_cli.kube.client import Cluster, Target
from halcyon_cli.kube.kubeconfig import Access, KubeconfigError
from halcyon_cli.kube.transport import Transport


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    """A cluster to which no request is sent."""
    document: dict[str, Any] = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    }
    (tmp_path / "config").write_text(json.dumps(document))
    return str(tmp_path / "config")


@pytest.mark.parametrize("command", [["explain"], ["pause"], ["scale", "--", "2"], ["status"], ["undo"]])
@pytest.mark.parametrize("name", ["", "digits/scale", "..", "digits?dryRun=All", "a b", "a%2fb"])
def test_a_name_that_is_another_path_is_refused(
    command: list[str], name: str, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [command[0], name, *command[2:], "--kubeconfig", kubeconfig]
    assert main(arguments) == 2
    assert f"name is {name!r}; it must be the name of an object, for example digits" in capsys.readouterr().err


@pytest.mark.parametrize("namespace", ["a/b", "..", "Team", "a b", "-a", "a" * 64])
def test_a_namespace_that_can_not_exist_is_refused(
    namespace: str, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["get", "-n", namespace, "--kubeconfig", kubeconfig]) == 2
    assert f"namespace is {namespace!r}; it must be up to 63 lower-case letters" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired (_ssl.c:1)", "its certificate has expired"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate", "its certificate isn't trusted; give"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", "it doesn't use TLS"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required", "it demands a client certificate"),
        ("[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] sslv3 alert certificate expired", "the kubeconfig's client certificate has expired"),
        ("[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca", "it rejects the kubeconfig's client certificate"),
    ],
)  # fmt: skip
def test_a_failure_of_tls_is_no_cluster_that_must_be_started(error: str, words: str) -> None:
    message = client_messages.unreachable("https://c", error)
    assert message.startswith(f"no access to the cluster at https://c: {words}")
    assert "start it" not in message


def test_other_alerts_of_tls_blame_no_client_certificate() -> None:
    error = "[SSL: TLSV1_ALERT_PROTOCOL_VERSION] tlsv1 alert protocol version"
    message = client_messages.unreachable("https://c", error)
    assert message.startswith("no access to the cluster at https://c: its TLS can't be used")
    assert "certificate" not in message


def test_annotations_have_a_field_manager_of_their_own(kubeconfig: str, monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[Any] = []

    def sent(*arguments: Any) -> dict[str, Any]:
        queries.append(arguments[3] if len(arguments) > 3 else None)
        return {}

    monkeypatch.setattr(Cluster, "_json", sent)
    cluster = Cluster(Target("promote", kubeconfig=Path(kubeconfig)))
    cluster.patch("m", {"spec": {}})
    cluster.annotate("m", {"serving.halcyon.dev/promote": "m-2"})
    assert queries == [None, {"fieldManager": "halcyon-annotate"}]


def test_a_refused_connection_is_a_cluster_to_start() -> None:
    assert "is unreachable (Connection refused); start it" in client_messages.unreachable("c", "Connection refused")


@pytest.mark.parametrize("token", ["a\nb", "ä", "a\x00"])
def test_a_token_that_no_header_can_have_is_refused(token: str) -> None:
    with pytest.raises(KubeconfigError, match="token has characters that no token has"):
        Transport(Access("https://c", token=token)).headers()


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ('User "bob" cannot patch resource "modeldeployments"', "no access: .*; you need get and patch on"),
        ('admission webhook "policy" denied the request: no', "the cluster at https://c rejects the change: admission"),
        ("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", "rejects the change"),
        ('modeldeployments "m" is forbidden: exceeded quota: models', "rejects the change"),
        ('pods "m" is forbidden: failed quota: q: must specify limits.cpu for: triton', "rejects the change"),
    ],
)
def test_rejections_by_policies_are_no_lack_of_permissions(message: str, words: str) -> None:
    content = json.dumps({"message": message}).encode()
    permission = "get and patch on modeldeployments"
    text = client_messages.rejected(
        403, content, "Forbidden", host="https://c", namespace="team", permission=permission
    )
    assert re.search(words, text)
    assert ("you need" in text) == ("cannot" in message)
    assert client_messages.lacks_access(403, content) == ("cannot" in message)
