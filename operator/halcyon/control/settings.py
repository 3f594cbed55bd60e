"""Settings of the operator process: command-line options, each with its meaning and default."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """The options of `halcyon operator`."""

    namespace: str
    pod_name: str
    watch_namespace: str
    service: str
    agents_service: str
    operator_image: str
    balancer_image: str
    server_image: str
    image_pull_secrets: tuple[str, ...]
    tls_secret: str
    port: int
    http_port: int
    workers: int
    kubeconfig: str | None
    pod_ip: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, for the command line."""
    add = parser.add_argument
    add("--namespace", required=True, help="namespace of the operator itself: its Lease, Secret and Services")
    add("--pod-name", default=os.uname().nodename, help="name of this replica (default: the host's name)")
    add("--pod-ip", default=os.environ.get("POD_IP", ""), help="address of this replica")
    add("--watch-namespace", default="", help="the one namespace whose ModelDeployments count (default: all)")
    add("--service", default="halcyon", help="Service in front of the metrics API")
    add("--agents-service", default="halcyon-agents", help="headless Service that agents send to")
    add("--operator-image", required=True, help="image of agents and fetchers")
    add("--balancer-image", required=True, help="image with HAProxy")
    add("--server-image", required=True, help="Triton image of models that name none")
    add(
        "--image-pull-secret",
        dest="image_pull_secrets",
        action="append",
        default=[],
        metavar="NAME",
        help="Secret, in the namespace of each ModelDeployment, for pulling these images; may be given several times",
    )
    add("--tls-secret", default="halcyon-tls", help="Secret for the certificate that the operator makes")
    add("--port", type=int, default=10250, help="TLS port of the metrics API and of the collector (default: 10250)")
    add("--http-port", type=int, default=8080, help="port of /healthz, /readyz and /metrics (default: 8080)")
    add("--workers", type=int, default=16, help="ModelDeployments worked on at the same time (default: 16)")
    add("--kubeconfig", default=None, help="outside a cluster: the kubeconfig to use")
    add("--log-level", choices=["debug", "info", "warning"], default="info", help="least level that is logged")


def of(arguments: argparse.Namespace) -> Settings:
    """The settings of parsed arguments."""
    given = {name: getattr(arguments, name) for name in Settings.__dataclass_fields__}
    return Settings(**given | {"image_pull_secrets": tuple(arguments.image_pull_secrets)})
