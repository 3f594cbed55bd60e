"""A node: containerd, the kubelet, kube-proxy and CoreDNS, and the import of images.

Everything runs in the node's network namespace and keeps its files in the node's directories, so that two nodes on one
machine are independent. `leavings` handles the programs that require a shared directory.
"""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.api import Api
from e2e.cluster.errors import ClusterError
from e2e.cluster.network import Network
from e2e.cluster.places import Place
from e2e.cluster.processes import Started, start
from e2e.cluster.progress import say
from e2e.cluster.registry import trusted_by_node
from e2e.cluster.system import CNI_PLUGINS, command

NODE = "node"
NAMES = (NODE, "node-2")
"""Names of the nodes, by number."""
ZONE_LABEL = "topology.kubernetes.io/zone"
GPU = "nvidia.com/gpu"
PAUSE_IMAGE = "localhost/pause:3.10"
_GRPC_MESSAGE_LIMIT_BYTES = 16 << 20


def start_containerd(place: Place, bin_: Path, network: Network) -> Started:
    """Start the container runtime with its data and its socket in the node's directories."""
    place.files.mkdir(parents=True, exist_ok=True)
    place.sockets.mkdir(parents=True, exist_ok=True)
    config = place.files / "containerd.toml"
    config.write_text(_containerd(place, bin_))
    cni = place.files / "cni" / "10-pods.conflist"
    cni.parent.mkdir(exist_ok=True)
    cni.write_text(json.dumps(_cni(place, network)))
    return _start(place, network, "containerd", [bin_ / "containerd", f"--config={config}"])


def start_kubelet(place: Place, bin_: Path, network: Network, *, zone: bool = False) -> Started:
    """Start the kubelet, which registers the node itself. ZONE: each node is a zone, as the nodes of two zones."""
    config = place.files / "kubelet.yaml"
    config.write_text(yaml.safe_dump(_kubelet(place, network)))
    return _start(
        place,
        network,
        "kubelet",
        [
            bin_ / "kubelet",
            f"--config={config}",
            f"--kubeconfig={place.files / 'kubelet.conf'}",
            f"--hostname-override={_name(place)}",
            f"--node-ip={network.address_of(place.node)}",
            f"--root-dir={place.files / 'kubelet'}",
            f"--cert-dir={place.files / 'kubelet-pki'}",
            *([f"--node-labels={ZONE_LABEL}=zone-{place.node}"] if zone else []),
        ],
    )


def start_kube_proxy(place: Place, bin_: Path, network: Network) -> Started:
    """Start kube-proxy, whose rules stay in the namespace."""
    config = place.files / "kube-proxy.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
                "kind": "KubeProxyConfiguration",
                "mode": "iptables",
                "clusterCIDR": network.pod_cidr,
                "clientConnection": {"kubeconfig": str(place.state / "super-admin.conf")},
                "hostnameOverride": _name(place),
                # the size of the connection table belongs to the whole machine, so don't change it
                "conntrack": {"maxPerCore": 0, "min": 0},
                # without this, changes of endpoints are applied at most once a second
                "iptables": {"minSyncPeriod": "0s"},
            }
        )
    )
    return _start(place, network, "kube-proxy", [bin_ / "kube-proxy", f"--config={config}"])


def start_coredns(place: Place, bin_: Path, network: Network) -> Started:
    """Start the cluster DNS on the first node's address. It resolves only the cluster's names."""
    config = place.state / "Corefile"
    config.write_text(
        f"""\
.:53 {{
  bind {network.node_address}
  errors
  kubernetes cluster.local in-addr.arpa ip6.arpa {{
    kubeconfig {place.state / "super-admin.conf"}
    pods insecure
    ttl 5
  }}
  cache 5
}}
"""
    )
    return start(place, "coredns", [bin_ / "coredns", "-conf", config], enter=network.enter)


def load_image(place: Place, bin_: Path, archive: Path) -> list[str]:
    """Import an image archive (OCI or docker) into the node, and return the names of its images.

    Raises:
        ClusterError: the archive doesn't exist, or containerd rejects it.
    """
    if not archive.is_file():
        raise ClusterError(f"image archive {archive}: no such file; `make images` writes them")
    completed = subprocess.run(
        [*ctr(place, bin_), "images", "import", "--local", "--all-platforms", str(archive)],
        capture_output=True,
        text=True,
        check=False,
    )
    if completed.returncode:
        raise ClusterError(f"image archive {archive}: {(completed.stderr or completed.stdout).strip()[-500:]}")
    return [line.split()[1] for line in completed.stdout.splitlines() if line.startswith("unpacking ")]


def load_images(place: Place, bin_: Path, directory: Path) -> None:
    """Import every archive DIRECTORY/*.tar, which must include the pause image.

    Raises:
        ClusterError: as for `load_image`, or the pause image is missing.
    """
    # one after the other, because parallel imports would unpack shared layers twice
    for archive in sorted(directory.glob("*.tar")):
        say(f"loaded {', '.join(load_image(place, bin_, archive)) or archive.name}")
    if PAUSE_IMAGE not in command([*ctr(place, bin_), "images", "ls", "-q"]).split():
        raise ClusterError(
            f"image {PAUSE_IMAGE} is in no archive of {directory}, and no pod starts without it; "
            "make it with `make images`, or name another directory with --image-dir"
        )


def containerd_answers(place: Place, bin_: Path) -> bool:
    """Return True if containerd responds to requests."""
    completed = subprocess.run([*ctr(place, bin_), "version"], capture_output=True, check=False)
    return completed.returncode == 0


def share_images(first: Place, second: Place) -> None:
    """Give the second node the images of the first, before either has a container, without a second copy of the layers.

    Layers and archives are never written again, so both nodes use the same files. The database is copied.
    """
    data = Path("containerd")
    database = Path("io.containerd.metadata.v1.bolt")
    (second.files / data).mkdir(parents=True, exist_ok=True)
    for part in ("io.containerd.content.v1.content", "io.containerd.snapshotter.v1.overlayfs"):
        command(["cp", "--archive", "--link", first.files / data / part, second.files / data / part])
    linked = second.files / data / "io.containerd.snapshotter.v1.overlayfs" / "metadata.db"
    linked.unlink()
    shutil.copy2(first.files / data / "io.containerd.snapshotter.v1.overlayfs" / "metadata.db", linked)
    command(["cp", "--archive", first.files / data / database, second.files / data / database])


def advertise_gpus(api: Api, *, gpus: int, name: str = NODE) -> None:
    """Give a node GPUS units of nvidia.com/gpu, as a device plugin would.

    Scheduler and kubelet enforce this number.
    """
    amount = {GPU: str(gpus)}
    api.merge(f"/api/v1/nodes/{name}/status", {"status": {"capacity": amount, "allocatable": amount}})


def has_gpus(api: Api, *, gpus: int) -> bool:
    """Return True if the node offers exactly GPUS units of nvidia.com/gpu."""
    node = api.call("GET", f"/api/v1/nodes/{NODE}").body or {}
    return str(node.get("status", {}).get("allocatable", {}).get(GPU, "0")) == str(gpus)


def ctr(place: Place, bin_: Path) -> list[str]:
    """Return the start of a `ctr` command line for the images and containers of this node."""
    return [str(bin_ / "ctr"), "--address", str(place.containerd_socket), "--namespace", "k8s.io"]


def _name(place: Place) -> str:
    return NAMES[place.node - 1]


def _start(place: Place, network: Network, component: str, arguments: Sequence[str | Path]) -> Started:
    return start(place, place.component(component), arguments, enter=network.enter_node(place.node))


def _containerd(place: Place, bin_: Path) -> str:
    def quoted(value: Path | str) -> str:
        return json.dumps(str(value))  # the escaping rules of a TOML basic string are those of JSON

    return f"""\
version = 3
root = {quoted(place.files / "containerd")}
state = {quoted(place.sockets / "containerd")}
disabled_plugins = [
  "io.containerd.nri.v1.nri",  # its socket's place is shared by all containerds
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
  address = {quoted(place.containerd_socket)}
  max_recv_message_size = {_GRPC_MESSAGE_LIMIT_BYTES}

[plugins."io.containerd.internal.v1.opt"]
  path = {quoted(place.files / "opt")}

[plugins."io.containerd.cri.v1.images"]
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = {quoted(PAUSE_IMAGE)}

  [plugins."io.containerd.cri.v1.images".registry]
    config_path = {quoted(trusted_by_node(place))}

[plugins."io.containerd.cri.v1.runtime"]
  # Pods' namespaces are mounts. In the state directory they can be told from another cluster's.
  netns_mounts_under_state_dir = true
  # Without CAP_SYS_RESOURCE runc can't lower oom_score_adj, and no sandbox starts ("can't get final child's PID").
  restrict_oom_score_adj = true

  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [{quoted(CNI_PLUGINS)}]
    conf_dir = {quoted(place.files / "cni")}

  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    # Not the one of a containerd that the machine may have.
    runtime_path = {quoted((bin_ / "containerd-shim-runc-v2").resolve())}

    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
      Root = {quoted(place.sockets / "runc")}
"""


def _cni(place: Place, network: Network) -> dict[str, Any]:
    return {
        "cniVersion": "1.0.0",
        "name": place.namespace,
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": True,
                # a pod can reach itself through its Service
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(place.files / "cni-addresses"),
                    "ranges": [[{"subnet": network.pods_of(place.node)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def _kubelet(place: Place, network: Network) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{place.containerd_socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{place.node_cgroup}",
        # Kubernetes 1.35 rejects cgroup v1 without this setting. With v2 it has no effect.
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [network.node_address],
        "clusterDomain": "cluster.local",
        "resolvConf": "/dev/null",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(place.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "podLogsDir": str(place.files / "pod-logs"),
        "volumePluginDir": str(place.files / "volume-plugins"),
        "serializeImagePulls": False,
        "maxPods": 250,
        # Images come from archives: an image that is garbage-collected can't be pulled again. A full disk evicts no
        # pods.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi"},
        # Maximum delay until a changed Secret or ConfigMap reaches a pod's files; the default is a minute.
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "5s",
        "nodeLeaseDurationSeconds": 40,
        "rotateCertificates": False,
    }
