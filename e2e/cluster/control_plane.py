"""etcd, the API server, the controller-manager and the scheduler: their arguments and start order.

There is no leader election and no fsync, because there is one process of each kind and its data is temporary.
"""

from pathlib import Path

from e2e.cluster.network import Network
from e2e.cluster.places import Place
from e2e.cluster.processes import Started, start


def start_api_server(place: Place, bin_: Path, network: Network, *, history: bool = False) -> list[Started]:
    """Start the API server and etcd at the same time.

    The API server waits for etcd, which is faster than waiting here. With `history` it lists and watches from every version since its
    start: the cache of watches has the newest versions only, and versions of more than five minutes ago would be removed.
    """
    history_arguments = ["--watch-cache=false", "--etcd-compaction-interval=0"] if history else []
    parts = (("etcd", _etcd(place, network)), ("kube-apiserver", [*_api_server(place, network), *history_arguments]))
    return [start(place, name, [bin_ / name, *arguments], enter=network.enter) for name, arguments in parts]


def start_controllers(place: Place, bin_: Path, network: Network, *, hpa_sync: str) -> list[Started]:
    """Start the components that need a ready API server: the controller-manager exits if it gets none within 10 s."""
    parts = (("kube-controller-manager", _controller_manager(place, hpa_sync)), ("kube-scheduler", _scheduler(place)))
    return [start(place, name, [bin_ / name, *arguments], enter=network.enter) for name, arguments in parts]


def _etcd(place: Place, network: Network) -> list[str]:
    pki = place.pki / "etcd"
    url = f"https://127.0.0.1:{network.etcd_port}"
    # etcd with a single member connects to no peer. The advertised peer address is required, but never used.
    peer = "http://127.0.0.1:2380"
    return [
        f"--data-dir={place.state / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        "--listen-peer-urls=http://127.0.0.1:0",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        f"--cert-file={pki / 'server.crt'}",
        f"--key-file={pki / 'server.key'}",
        f"--trusted-ca-file={pki / 'ca.crt'}",
        "--client-cert-auth",
        "--unsafe-no-fsync",
    ]


def _api_server(place: Place, network: Network) -> list[str]:
    pki = place.pki
    arguments = [
        f"--advertise-address={network.node_address}",
        f"--secure-port={network.api_port}",
        f"--etcd-servers=https://127.0.0.1:{network.etcd_port}",
        f"--etcd-cafile={pki / 'etcd' / 'ca.crt'}",
        f"--etcd-certfile={pki / 'apiserver-etcd-client.crt'}",
        f"--etcd-keyfile={pki / 'apiserver-etcd-client.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--kubelet-client-certificate={pki / 'apiserver-kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'apiserver-kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={pki / 'sa.pub'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-cluster-ip-range={network.service_cidr}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki / 'front-proxy-client.crt'}",
        f"--proxy-client-key-file={pki / 'front-proxy-client.key'}",
    ]
    if network.namespace is None:
        # Endpoints must not be loopback addresses. So the Service `kubernetes` has none here. An APIService reaches a
        # process on this machine through a Service of type ExternalName `localhost`, which endpoint routing doesn't
        # support.
        return [*arguments, f"--bind-address={network.node_address}", "--endpoint-reconciler-type=none"]
    return [*arguments, "--enable-aggregator-routing=true"]


def _controller_manager(place: Place, hpa_sync: str) -> list[str]:
    pki = place.pki
    return [
        f"--kubeconfig={place.state / 'controller-manager.conf'}",
        f"--service-account-private-key-file={pki / 'sa.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}",
        f"--cluster-signing-key-file={pki / 'ca.key'}",
        f"--horizontal-pod-autoscaler-sync-period={hpa_sync}",
        "--use-service-account-credentials",
        # There is no cloud provider with load balancers, and the controller in 1.31.0 panics when such a Service
        # changes.
        "--controllers=*,-service-lb-controller",
        # It creates a token for each of its controllers. At its default of 20 requests per second this takes 4 s.
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--leader-elect=false",
        "--secure-port=0",
    ]


def _scheduler(place: Place) -> list[str]:
    return [f"--kubeconfig={place.state / 'scheduler.conf'}", "--leader-elect=false", "--secure-port=0"]
