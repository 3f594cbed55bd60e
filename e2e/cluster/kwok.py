"""KWOK, which simulates a node with GPUs whose pods become Ready at once. No container runs.

The stages of the simulation are defined below. A pod on the node gets an address, running containers and Ready; a Job's
pod succeeds; a deleted pod is gone at once. A pod with the annotation `halcyon.dev/hold` stays Pending until the
annotation is removed, for tests of starting pods. A pod that selects nodes by a label of that name stays Pending
forever.
"""

from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.api import Api
from e2e.cluster.network import Network
from e2e.cluster.places import Place
from e2e.cluster.processes import Started, start

NODE = "node"
HOLD = "halcyon.dev/hold"
_NODE_ADDRESS, _NODE_ADDRESS_V6 = "192.0.2.10", "2001:db8::10"
_LEASE_S = 40

_CONDITIONS = """
conditions:
{{ range list "PodReadyToStartContainers" "Initialized" "ContainersReady" "Ready" }}
- {type: {{ . }}, status: "True", lastTransitionTime: {{ $now | Quote }}}
{{ end }}
{{ range .spec.readinessGates }}
- {type: {{ .conditionType | Quote }}, status: "True", lastTransitionTime: {{ $now | Quote }}}
{{ end }}
"""

_ADDRESSES = """
hostIP: NODE_ADDRESS
hostIPs:
- ip: NODE_ADDRESS
{{ with PodIPsWith .spec.nodeName (or .spec.hostNetwork false) .metadata.uid .metadata.name .metadata.namespace }}
podIP: {{ index . 0 | Quote }}
podIPs:
{{ range . }}
- ip: {{ . | Quote }}
{{ end }}
{{ end }}
""".replace("NODE_ADDRESS", _NODE_ADDRESS)

_CONTAINERS = """
initContainerStatuses:
{{ range .spec.initContainers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  restartCount: 0
  {{ if eq (or .restartPolicy "") "Always" }}
  started: true
  state: {running: {startedAt: {{ $now | Quote }}}}
  {{ else }}
  state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}}
  {{ end }}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
"""

_POD_READY = f"""
{{{{ $now := Now }}}}
phase: Running
startTime: {{{{ $now | Quote }}}}
{_CONDITIONS}
{_ADDRESSES}
{_CONTAINERS}
"""

_POD_SUCCEEDED = """
{{ $now := Now }}
phase: Succeeded
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: false
  started: false
  restartCount: 0
  state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}}
{{ end }}
"""

_NODE_READY = """
{{ $now := Now }}
conditions:
- type: Ready
  status: "True"
  reason: KwokReady
  message: a stand-in for a node
  lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $now | Quote }}
"""


def start_kwok(place: Place, bin_: Path, network: Network) -> Started:
    """Start KWOK for every node of the cluster. It waits for the API server itself."""
    config = place.state / "kwok.yaml"
    stages = yaml.safe_dump_all(_stages())
    address = _NODE_ADDRESS_V6 if network.is_ipv6 else _NODE_ADDRESS
    config.write_text(stages.replace(_NODE_ADDRESS, address))
    return start(
        place,
        "kwok",
        [
            bin_ / "kwok",
            f"--kubeconfig={place.kubeconfig}",
            f"--config={config}",
            "--manage-all-nodes",
            f"--cidr={network.pod_cidr}",
            f"--node-ip={address}",
            f"--node-lease-duration-seconds={_LEASE_S}",
        ],
        environment={"KWOK_WORKDIR": str(place.state / "kwok")},
    )


def node_labels(name: str) -> dict[str, str]:
    """Return the labels of a KWOK node, those that a kubelet sets included: pods select the operating system by them."""
    return {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "type": "kwok",
    }


def create_node(api: Api, *, gpus: int, ipv6: bool) -> None:
    """Create the node, with capacity for many pods and GPUS units of nvidia.com/gpu."""
    resources = {
        "cpu": "64",
        "memory": "512Gi",
        "ephemeral-storage": "1Ti",
        "pods": "1000",
        "nvidia.com/gpu": str(gpus),
    }
    api.create(
        "/api/v1/nodes",
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": NODE,
                "labels": node_labels(NODE),
            },
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "addresses": [
                    {"type": "InternalIP", "address": _NODE_ADDRESS_V6 if ipv6 else _NODE_ADDRESS},
                    {"type": "Hostname", "address": NODE},
                ],
            },
        },
    )


def _stages() -> list[dict[str, Any]]:
    alive = _match(".metadata.deletionTimestamp", "DoesNotExist")
    not_ready = _match('.status.conditions.[] | select( .type == "Ready" ) | .status', "NotIn", "True")
    owned_by_job = _match(".metadata.ownerReferences.[].kind", "In", "Job")
    return [
        _stage("node-ready", "Node", [not_ready], {"statusTemplate": _NODE_READY}),
        _stage(
            "pod-ready",
            "Pod",
            [
                alive,
                not_ready,
                _match(".status.phase", "In", "Pending"),
                _match(f'.metadata.annotations["{HOLD}"]', "DoesNotExist"),
                _match(f'.spec.nodeSelector["{HOLD}"]', "DoesNotExist"),
            ],
            {"statusTemplate": _POD_READY},
        ),
        _stage(
            "pod-succeeded",
            "Pod",
            [alive, _match(".status.phase", "In", "Running"), owned_by_job],
            {"statusTemplate": _POD_SUCCEEDED},
        ),
        _stage("pod-deleted", "Pod", [_match(".metadata.deletionTimestamp", "Exists")], {"delete": True}),
    ]


def _stage(name: str, kind: str, matches: list[dict[str, Any]], following: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": matches},
            "next": following,
        },
    }


def _match(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
