"""`halcyon version`: shows the versions of this command line, the operators in the cluster, and the API server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import click

from halcyon.api.types import API_VERSION
from halcyon.kube import kinds
from halcyon_cli.arguments.options import Output, cluster_options, emit, output_options, warn
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster, Target
from halcyon_cli.kube.operator_pods import of_operators

_EPILOG = """\
\b
examples:
  halcyon version
  halcyon version --client

If the minor versions differ, a warning says so: lint and plan use the rules of their own
version.

exit status: 0, or 2 if the cluster can't be read: no access, no cluster.
"""


@dataclass(frozen=True)
class OperatorVersion:
    """Version of an operator in the cluster."""

    namespace: str
    name: str
    version: str
    image: str


@click.command("version", epilog=_EPILOG)
@click.option("--client", "only_client", is_flag=True, help="Only the version of this command line; needs no cluster.")
@cluster_options
@output_options("table", "json", "yaml")
def main(only_client: bool, target: Target, output: Output) -> int:
    """Show the versions of halcyon, of the operator and of Kubernetes."""
    client_version = version("halcyon-cli")
    if only_client:
        if output.is_data:
            output.data({"client": client_version, "api": API_VERSION})
        else:
            emit(f"Client:      {client_version} ({API_VERSION})")
        return 0
    cluster = Cluster(target)
    kubernetes = cluster.server_version()
    operators, why_unknown = _operators(cluster)
    if output.is_data:
        entries = None if why_unknown else [asdict(operator) for operator in operators]
        output.data({"client": client_version, "api": API_VERSION, "operators": entries, "kubernetes": kubernetes})
        return 0
    lines = [f"Client:      {client_version} ({API_VERSION})"]
    lines += [
        f"Operator:    {operator.version or 'unknown'} ({operator.namespace}/{operator.name})" for operator in operators
    ]
    lines += [] if operators else [f"Operator:    {f'unknown: {why_unknown}' if why_unknown else 'not found'}"]
    emit("\n".join([*lines, f"Kubernetes:  {kubernetes}"]))
    for operator in operators:
        if skewed(client_version, operator.version):
            warn(target.command, f"this is version {client_version}, and the operator in {operator.namespace} is {operator.version}; install the same version")  # fmt: skip
    return 0


def skewed(client: str, operator: str) -> bool:
    """Return whether two versions differ in their major or minor number. The result is False if `operator` is unknown."""
    return bool(operator) and client.split(".")[:2] != operator.split(".")[:2]


def _operators(cluster: Cluster) -> tuple[Sequence[OperatorVersion], str]:
    """Return the operators that the user may read, and the reason why there are none; empty if they are known."""
    try:
        return [_operator(deployment) for deployment in of_operators(cluster, kinds.DEPLOYMENT)], ""
    except ClusterError as error:
        return (), str(error)


def _operator(deployment: Any) -> OperatorVersion:
    meta = fields.mapping(deployment.get("metadata"))
    spec = fields.mapping(fields.mapping(fields.mapping(deployment.get("spec")).get("template")).get("spec"))
    image = next((str(container.get("image")) for container in fields.mappings(spec.get("containers"))), "")
    label = fields.text(fields.mapping(meta.get("labels")).get("app.kubernetes.io/version")) or ""
    return OperatorVersion(str(meta.get("namespace")), str(meta.get("name")), label, image)
