"""The rules of the Pod Security Standard "restricted", as far as a pod template can violate them.

Sources: Kubernetes documentation, "Pod Security Standards"; policy/check_restrictedVolumes.go of
k8s.io/pod-security-admission 0.35.4 for volumes of the kind image, which API servers before 1.35 reject.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip
_HANDLERS = ("startupProbe", "readinessProbe", "livenessProbe")


def violations(template: dict[str, Any]) -> list[str]:
    """Return the template's violations of "restricted"."""
    pod = template["spec"]
    return [*_of_pod(pod), *(v for c in _containers(pod) for v in _of_container(pod, c))]


def _containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", ()), *pod["containers"], *pod.get("ephemeralContainers", ())]


def _of_pod(pod: dict[str, Any]) -> Iterator[str]:
    yield from (field for field in ("hostNetwork", "hostPID", "hostIPC") if pod.get(field))
    for volume in pod.get("volumes", ()):
        kinds = set(volume) - {"name"}
        if not kinds <= _VOLUMES or len(kinds) != 1:
            yield f"volume {volume['name']} is {kinds}"
    security = pod.get("securityContext", {})
    if security.get("sysctls") or security.get("seLinuxOptions") or security.get("windowsOptions"):
        yield "sysctls, seLinuxOptions or windowsOptions"


def _of_container(pod: dict[str, Any], container: dict[str, Any]) -> Iterator[str]:
    name, own, shared = container["name"], container.get("securityContext", {}), pod.get("securityContext", {})
    together = {**shared, **own}
    if own.get("privileged"):
        yield f"{name}: privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{name}: allowPrivilegeEscalation"
    capabilities = own.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", ()) or set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
        yield f"{name}: capabilities"
    if together.get("runAsNonRoot") is not True or together.get("runAsUser") == 0:
        yield f"{name}: runs as root"
    if together.get("seccompProfile", {}).get("type") not in {"RuntimeDefault", "Localhost"}:
        yield f"{name}: seccompProfile"
    if own.get("procMount", "Default") != "Default" or own.get("seLinuxOptions"):
        yield f"{name}: procMount or seLinuxOptions"
    if any(port.get("hostPort") for port in container.get("ports", ())):
        yield f"{name}: hostPort"
    handlers = [container.get(h, {}) for h in _HANDLERS] + list(container.get("lifecycle", {}).values())
    if any("host" in handler.get(kind, {}) for handler in handlers for kind in ("httpGet", "tcpSocket")):
        yield f"{name}: a probe or hook names a host"
