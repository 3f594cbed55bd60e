"""Messages for users about failed requests to the API server. Each suggests a next step. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from difflib import SequenceMatcher

from halcyon.api.types import KIND

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
_DENIED = re.compile(r"denied (?:the )?request|exceeded quota")
"""Pattern of rejections by an admission webhook, an admission policy or a quota, for which permissions don't matter."""
_CONNECTION = re.compile(r"^HTTPS?Connection(Pool)?\([^)]*\): ")
"""Pattern of the prefix of urllib3's error messages, which is not shown to users."""


def no_crd(host: str) -> str:
    """Return the message for a cluster in which Halcyon isn't installed."""
    return (
        f"the cluster at {host} has no CRD {KIND}: Halcyon is not installed; images and values: "
        f"docs/guides/install.md; then {INSTALL_COMMAND}"
    )


def no_model(name: str, existing: Iterable[str], *, namespace: str, command: str) -> str:
    """Return the message for an unknown model, with the most similar existing names."""
    problem = f"no {KIND} {name} in namespace {namespace}"
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
    try:
        message = str(json.loads(content)["message"])
    except (ValueError, TypeError, KeyError):
        message = reason
    if status == 401:
        return f"no access: the cluster at {host} rejects the kubeconfig's credentials ({message}); log in again, or choose another context"
    if status == 403 and not _DENIED.search(message):
        return f"no access: {message}; you need {permission}"
    if status in {403, 422}:
        return f"the cluster at {host} rejects the change: {message}"
    return f"the cluster at {host} responds with {status}: {message}; try again, or try kubectl get mdep -n {namespace}"


def unreachable(host: str, error: object) -> str:
    """Return the message for an API server that can't be reached, or whose TLS fails."""
    reason = _CONNECTION.sub("", " ".join(str(error).split()))
    for words, problem in _TLS.items():
        if words in reason:
            return f"no access to the cluster at {host}: {problem} ({reason})"
    return f"no cluster: {host} is unreachable ({reason}); start it, or choose another cluster, for example --kubeconfig FILE"
