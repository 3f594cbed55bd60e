"""Messages for users about failed requests to the API server. Each suggests a next step. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

from halcyon.api.types import KIND
from halcyon.control.objects.admission_messages import is_denied_by_policy

INSTALL_COMMAND = (
    "helm install halcyon charts/halcyon -n halcyon-system --create-namespace --values build/images-values.yaml --wait"
)
"""Install command from docs/guides/install.md. The chart requires values for the images, in a file that `make images
push` writes."""
MAX_NAMES = 10
"""Maximum number of existing names in the error message for an unknown name."""
_TLS = {
    "certificate has expired": "its certificate has expired; renew it, or set the clock of this machine",
    "not yet valid": "its certificate isn't valid yet; set the clock of this machine",
    "CERTIFICATE_VERIFY_FAILED": "its certificate isn't trusted; give the cluster's authority in the kubeconfig (certificate-authority-data), and its name (server)",
    "WRONG_VERSION_NUMBER": "it doesn't use TLS; for example server: http://127.0.0.1:8001 in the kubeconfig",
    "CERTIFICATE_REQUIRED": "it demands a client certificate, and the kubeconfig's user has none (client-certificate-data); choose another context",
    "CERTIFICATE_EXPIRED": "the kubeconfig's client certificate has expired; get a new one, for example with kubeadm certs renew, or log in again",
    "CERTIFICATE": "it rejects the kubeconfig's client certificate; log in again, or choose another context",
    "ALERT_UNKNOWN_CA": "it rejects the kubeconfig's client certificate; log in again, or choose another context",
    "ALERT_": "its TLS can't be used, because it ended the handshake; check server in the kubeconfig, for example server: https://10.0.0.1:6443",
}
"""Problems by words that occur in TLS errors. The first match counts."""
_CONNECTION = re.compile(r"^HTTPS?Connection(Pool)?\([^)]*\): ")
"""Pattern of the prefix of urllib3's error messages, which is not shown to users."""


def no_access_settings(file: str | None, error: object, contexts: Sequence[str]) -> str:
    """Return the message for a kubeconfig that can't be used.

    Args:
        file: path of the kubeconfig; None if the pod's service account was to be used.
        error: the reason.
        contexts: names of all contexts, if the named one doesn't exist.
    """
    if file is None:
        return (
            f"no cluster: {error}; mount one into the pod, or name a kubeconfig, for example --kubeconfig cluster.yaml"
        )
    if contexts:
        return f"no cluster: kubeconfig {file} has {error}; it has {', '.join(contexts)}, for example --context {contexts[0]}"
    return f"no cluster: kubeconfig {file} is invalid: {error}; kubectl config view shows its contents"


def no_crd(host: str) -> str:
    """Return the message for a cluster in which Halcyon isn't installed."""
    return (
        f"the cluster at {host} has no CRD {KIND}: Halcyon is not installed; images and values: "
        f"docs/guides/install.md; then {INSTALL_COMMAND}"
    )


def no_kind(host: str, kind: str) -> str:
    """Return the message for a cluster whose Halcyon is older than a kind."""
    return f"the cluster at {host} has no CRD {kind}; upgrade Halcyon: docs/guides/upgrade.md"


def no_models(*, namespace: str | None, selector: str) -> str:
    """Return the message for an empty list of models; `namespace` is None if the list is of the whole cluster."""
    scope = "the cluster" if namespace is None else f"namespace {namespace}"
    scope += f" with the labels {selector}" if selector else ""
    return f"no {KIND}s in {scope}; create one with kubectl apply -f, for example manifests/examples/digits.yaml"


def no_model(name: str, existing: Iterable[str] | None, *, namespace: str, command: str) -> str:
    """Return the message for an unknown model, with the most similar names of existing ones.

    `existing` is None if the user may not list them.
    """
    problem = f"no {KIND} {name} in namespace {namespace}"
    if existing is None:
        return f"{problem}, and you may not list the others; check the name and the namespace, which -n chooses"
    names = sorted(existing, key=lambda other: (-SequenceMatcher(None, name, other).ratio(), other))
    if not names:
        return f"{problem}, nor any other; list all namespaces with kubectl get mdep -A, and choose one with -n"
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    listed = ", ".join(names[:MAX_NAMES])
    return f"{problem}; existing ones: {listed}{more}; for example halcyon {command} {names[0]}"


def rejected(status: int, content: bytes, reason: str, *, host: str, namespace: str, permission: str) -> str:
    """Return the message for an error response of the API server.

    Args:
        status: HTTP status of the response.
        content: body of the response.
        reason: HTTP reason phrase, which is used if the body has no message.
        host: address of the API server.
        namespace: namespace of the request.
        permission: permission that the request needs.
    """
    message = _message(content) or reason
    if status == 401:
        return f"no access: the cluster at {host} rejects the kubeconfig's credentials ({message}); log in again, or choose another context"
    if lacks_access(status, content):
        return f"no access: {message}; you need {permission}"
    if status in {403, 422}:
        return f"the cluster at {host} rejects the change: {message}"
    return f"the cluster at {host} responds with {status}: {message}; try again, or try kubectl get mdep -n {namespace}"


def lacks_access(status: int, content: bytes) -> bool:
    """Return whether the API server rejects the credentials, or the user lacks a permission."""
    return status == 401 or (status == 403 and not is_denied_by_policy(_message(content)))


def _message(content: bytes) -> str:
    try:
        return str(json.loads(content)["message"])
    except (ValueError, TypeError, KeyError):
        return ""


def unreachable(host: str, error: object) -> str:
    """Return the message for an API server that can't be reached, or whose TLS fails."""
    reason = _CONNECTION.sub("", " ".join(str(error).split()))
    for words, problem in _TLS.items():
        if words in reason:
            return f"no access to the cluster at {host}: {problem} ({reason})"
    return f"no cluster: {host} is unreachable ({reason}); start it, or choose another cluster, for example --kubeconfig FILE"
