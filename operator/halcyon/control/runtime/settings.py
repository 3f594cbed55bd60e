"""Settings of the operator process, and the command-line options for them."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from functools import partial

from halcyon.api.policy.downloads import NO_DOWNLOADS, SiteDownloads
from halcyon.api.policy.network import SiteNetwork
from halcyon.api.policy.site_policy import ANYTHING, SitePolicy
from halcyon.api.spec.placement import Placement
from halcyon.control.autoscaling.planner_memory.shards import CONFIG_MAPS as MEMORY_CONFIG_MAPS
from halcyon.control.reporting.dashboard_source import DashboardSettings
from halcyon.control.runtime import option_groups, option_values
from halcyon.dashboard.site import LINKED
from halcyon.kube.tracing import TracesSite
from halcyon.render.site import ANYWHERE, SERVICE_ANNOTATIONS
from halcyon.scaling.gpu_cost import Prices
from halcyon.signals.prometheus.client import PrometheusSite


@dataclass(frozen=True)
class OperatorSettings:
    """Settings of the operator, from the options of `halcyon operator`."""

    namespace: str
    pod_name: str
    watch_namespaces: tuple[str, ...]
    """Namespaces whose ModelDeployments the operator manages. If empty, it manages all. If set, the operator doesn't
    access cluster-scoped resources."""
    service: str
    agents_service: str
    lease: str
    memory_config_maps: str
    operator_image: str
    balancer_image: str
    server_image: str
    image_pull_secrets: tuple[str, ...]
    tls_secret: str
    port: int
    http_port: int
    workers: int
    kubeconfig: str | None
    prometheus: PrometheusSite | None = None
    """Settings of the site's Prometheus; None if the site has no Prometheus."""
    gpu_budget: int | None = None
    """Number of GPUs that all models may hold in total; None for no limit."""
    service_annotations: tuple[str, ...] = SERVICE_ANNOTATIONS
    """Prefixes of the annotation keys that models may set on their Services."""
    model_pod_labels: tuple[str, ...] = ()
    """Keys of the labels that models may set on their server pods. An entry is a whole key, or a prefix that ends with
    a slash."""
    model_pod_annotations: tuple[str, ...] = ()
    """Keys of the annotations that models may set on their server pods. An entry is a whole key, or a prefix that ends
    with a slash."""
    fixed_user_ids: bool = True
    """Whether the pods of models run with fixed user and group IDs."""
    front_proxy: bool = True
    """Whether the API server may forward requests to this operator, so that the CA of its front proxy is read."""
    downloads: SiteDownloads = NO_DOWNLOADS
    """Proxy and certificates for downloading models."""
    site_policy: SitePolicy = ANYTHING
    """Limits that the site policy sets for ModelDeployments."""
    dashboard: DashboardSettings | None = None
    """Settings of the web dashboard; None if it is disabled."""
    balancers: Placement = ANYWHERE
    """Placement of balancer pods on nodes."""
    network: SiteNetwork | None = None
    """Peers in the NetworkPolicies of models; None if no NetworkPolicies are created."""
    prices: Prices | None = None
    """Prices of GPUs; None if no prices are set."""
    bench_image: str = ""
    """Image for the clients of measurements and for the runners of batch inference; empty if the site has none."""
    bench_priority_class: str = ""
    """PriorityClass for the runners of batch inference; empty if they have none."""
    cpu_limit: str = ""
    """CPU limit of each of Halcyon's own containers in the namespaces of models; empty if they have none."""
    traces: TracesSite | None = None
    """Receiver to which traces are sent; None if no traces are sent."""

    @property
    def release(self) -> str:
        """This installation of Halcyon, as NAMESPACE/NAME of its Lease."""
        return f"{self.namespace}/{self.lease}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the operator's options to a command line parser."""
    add = parser.add_argument
    add("--namespace", required=True, help="namespace of the operator, with its Lease, Secret and Services")
    add("--pod-name", default=os.uname().nodename, help="name of this replica (default: host name)")
    add(
        "--watch-namespace",
        dest="watch_namespaces",
        action="append",
        default=[],
        metavar="NAMESPACE",
        help=(
            "namespace to manage; may be repeated (default: all). The operator then needs permissions only in these "
            "namespaces: it serves no metrics API, and models are scaled with the actuator Direct"
        ),
    )
    add("--service", default="halcyon", help="Service of the metrics API")
    add("--agents-service", default="halcyon-agents", help="headless Service to which agents report")
    add("--lease", default="halcyon", help="Lease for leader election (default: halcyon)")
    add(
        "--memory-config-maps",
        default=MEMORY_CONFIG_MAPS,
        metavar="NAME",
        help=f"name prefix of the ConfigMaps with planner memories (default: {MEMORY_CONFIG_MAPS})",
    )
    add("--operator-image", required=True, help="image of agents and fetchers")
    add("--balancer-image", required=True, help="image with HAProxy")
    add("--server-image", required=True, help="Triton image of models that set none")
    add("--bench-image", default="", help="image of runners of batch inference (default: none, and none runs)")
    add("--bench-priority-class", default="", metavar="NAME", help="PriorityClass of these runners (default: none)")
    add(
        "--image-pull-secret",
        dest="image_pull_secrets",
        action="append",
        default=[],
        metavar="NAME",
        help="pull Secret for these images, in the namespace of each ModelDeployment; may be repeated",
    )
    add(
        "--cpu-limit",
        type=option_values.parse_cpu,
        default="",
        metavar="CPU",
        help="CPU limit of each own container in namespaces of models, for example 2 (default: none)",
    )
    add("--tls-secret", default="halcyon-tls", help="Secret in which the operator stores its certificate")
    port, workers = partial(option_values.number_parser, 65535), option_values.number_parser(1000, 32)
    add(
        "--port", type=port(10250), default=10250, help="TLS port of the metrics API and the collector (default: 10250)"
    )
    add("--http-port", type=port(8080), default=8080, help="port of /healthz, /readyz and /metrics (default: 8080)")
    add("--workers", type=workers, default=16, help="maximum number of concurrent reconciles (default: 16)")
    add("--kubeconfig", default=None, help="kubeconfig to use outside a cluster")
    add(
        "--prometheus-url",
        default="",
        metavar="URL",
        help="Prometheus to read, for example http://prometheus:9090 (default: none)",
    )
    add(
        "--prometheus-token-file",
        default="",
        metavar="FILE",
        help="file with the bearer token for it, read for each query",
    )
    add(
        "--prometheus-ca-file",
        default="",
        metavar="FILE",
        help="PEM file with the CAs to trust for https (default: the system's CAs)",
    )
    add(
        "--prometheus-gpu-matchers",
        default="",
        metavar="MATCHERS",
        help='label matchers for DCGM\'s series, for example namespace="gpu-operator" (default: none)',
    )
    add(
        "--prometheus-arrivals",
        default="",
        metavar="PROMQL",
        help=(
            "query for a model's requests per second over five minutes, with $namespace, $name and $cluster "
            "(default: the agents' counters)"
        ),
    )
    add(
        "--prometheus-query",
        action="append",
        default=[],
        metavar="NAME=PROMQL",
        type=option_values.parse_query,
        help="query that models may use as a target by its name, with $namespace, $name and $cluster; repeatable",
    )
    add(
        "--gpu-budget",
        type=option_values.parse_count,
        default=None,
        metavar="GPUS",
        help="maximum GPUs of all models together, shared by priority and demand (default: no limit)",
    )
    add(
        "--service-annotations",
        type=option_values.parse_prefixes,
        default=SERVICE_ANNOTATIONS,
        metavar="PREFIXES",
        help=(
            "comma-separated prefixes of the annotations that models may set on their Services; empty: "
            "none (default: those of load balancers and external-dns)"
        ),
    )
    for kind, example in (("labels", "kueue.x-k8s.io/,cost-center"), ("annotations", "karpenter.sh/")):
        add(
            f"--model-pod-{kind}",
            type=option_values.parse_keys,
            default=(),
            metavar="KEYS",
            help=(
                f"comma-separated keys of the {kind} that models may set on their server pods: whole keys, and prefixes "
                f"with a slash; for example {example} (default: none)"
            ),
        )
    add(
        "--no-fixed-user-ids",
        dest="fixed_user_ids",
        action="store_false",
        help="set no user and group in the pods of models: the platform assigns them, as OpenShift does",
    )
    add(
        "--no-front-proxy",
        dest="front_proxy",
        action="store_false",
        help="read nothing from kube-system, because no APIService refers to this operator's metrics API",
    )
    add(
        "--downloads",
        type=option_values.parse_downloads,
        default=NO_DOWNLOADS,
        metavar="JSON",
        help=(
            "how pods reach the servers of models: a JSON object with proxy (URL of an HTTP proxy), noProxy (hosts that are "
            "reached directly) and caConfigMap (ConfigMap with ca.crt in each model's namespace) (default: directly)"
        ),
    )
    add(
        "--dashboard",
        choices=["off", "localhost", "pod"],
        default="off",
        help=(
            "serve the web dashboard: on localhost, over plain HTTP and without sign-in, for kubectl port-forward; or "
            "on every address of the pod, over TLS, for users of the cluster (default: off)"
        ),
    )
    add("--dashboard-port", type=port(8090), default=8090, help="port of the dashboard (default: 8090)")
    add(
        "--dashboard-proxy",
        dest="dashboard_proxies",
        type=option_values.parse_network,
        action="append",
        default=[],
        metavar="CIDR",
        help="network of a proxy whose user headers are trusted; may be repeated (default: none)",
    )
    add(
        "--dashboard-user-header",
        default="X-Forwarded-User",
        help="the proxy's header with the user (default: X-Forwarded-User)",
    )
    add(
        "--dashboard-groups-header",
        default="X-Forwarded-Groups",
        help="the proxy's header with the user's groups, comma-separated (default: X-Forwarded-Groups)",
    )
    add(
        "--dashboard-cluster",
        type=option_values.parse_cluster,
        metavar="NAME",
        help="name of the cluster, shown in the dashboard, and the label of its series in Prometheus (default: none)",
    )
    for tool in LINKED:
        add(
            f"--dashboard-{tool}",
            type=option_values.parse_base_url,
            metavar="URL",
            help=f"base URL of the site's {tool}, for links in the dashboard (default: no links)",
        )
    add(
        "--site-policy-file",
        dest="site_policy",
        type=option_values.parse_policy,
        default=ANYTHING,
        metavar="FILE",
        help=(
            "JSON file with the site policy, in the form of the chart's sitePolicy; read at start (default: no limits)"
        ),
    )
    add(
        "--gpu-price",
        dest="gpu_prices",
        type=option_values.parse_product_price,
        action="append",
        default=[],
        metavar="PRODUCT=PRICE",
        help=(
            "PRODUCT=PRICE of one GPU for an hour, by the node label nvidia.com/gpu.product that models "
            "request in their nodeSelector, or by their resourceName, for example nvidia.com/mig-1g.10gb, which comes "
            "first; default=PRICE is for all others; may be repeated (default: unknown, and no cost is shown)"
        ),
    )
    add("--currency", default="", metavar="NAME", help="currency of these prices, for example EUR (default: none)")
    add(
        "--balancer-placement",
        dest="balancers",
        type=option_values.parse_placement,
        default=ANYWHERE,
        metavar="JSON",
        help=(
            "placement of balancer pods: a JSON object with nodeSelector, tolerations and "
            "priorityClassName, as in spec.runtime.placement (default: any node without a taint)"
        ),
    )
    add(
        "--network-policies",
        dest="network",
        type=option_values.parse_network_peers,
        default=None,
        metavar="JSON",
        help=(
            "create NetworkPolicies for the pods of each model: a JSON object with operator (peers that "
            "match the operator's pods), clients (peers that may send requests to models; none: all) and "
            "scrapers, lists of NetworkPolicyPeers; egress, a list of NetworkPolicyEgressRules (for "
            "server pods; none: no egress); sources (peers from which models are downloaded; none: all "
            "but cloud metadata addresses); and apiServerPorts (default: no NetworkPolicies)"
        ),
    )
    add(
        "--traces-endpoint",
        default="",
        metavar="URL",
        help=(
            "OTLP endpoint for traces, for example http://collector.observability.svc:4318/v1/traces "
            "(default: no traces)"
        ),
    )
    add(
        "--traces-ratio",
        type=option_values.parse_share,
        default=None,
        metavar="SHARE",
        help="share of traces to send, from 0 to 1 (default: 1)",
    )
    add("--log-level", choices=["debug", "info", "warning"], default="info", help="minimum log level")


def of(arguments: argparse.Namespace) -> OperatorSettings:
    """Return the settings from parsed command-line arguments.

    Raises:
        SettingsError: options contradict each other, or the value of one is invalid.
    """
    values = {name: getattr(arguments, name) for name in OperatorSettings.__dataclass_fields__ if name in arguments}
    prices = option_values.by_name("--gpu-price", arguments.gpu_prices)
    default = prices.pop("default", None)
    gpu_prices = Prices(arguments.currency, prices, default) if arguments.gpu_prices else None
    parsed = {
        "image_pull_secrets": tuple(arguments.image_pull_secrets),
        "watch_namespaces": tuple(dict.fromkeys(filter(None, arguments.watch_namespaces))),
        "prices": gpu_prices,
        "prometheus": option_groups.prometheus(arguments),
        "dashboard": option_groups.dashboard(arguments),
        "traces": option_groups.traces(arguments),
    }
    return OperatorSettings(**values | parsed)
