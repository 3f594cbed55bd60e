"""The CRDs of the Gateway API, from its Go module with the version in `e2e/cluster/modules/gateway/go.mod`."""

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.binaries import toolchain
from e2e.cluster.cluster import Cluster
from tests.integration.waiting import until

PINNED = Path("e2e/cluster/modules/gateway")
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@cache
def definitions() -> list[dict[str, Any]]:
    """Return the released CRDs of HTTPRoute and GRPCRoute.

    Go downloads the module once, and checks it against go.sum.
    """
    download = subprocess.run(
        [toolchain(), "mod", "download", "-json", "sigs.k8s.io/gateway-api"],
        cwd=PINNED,
        env={**os.environ, "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local", "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=True,
    )
    folder = Path(json.loads(download.stdout)["Dir"]) / "config/crd/standard"
    names = ("httproutes", "grpcroutes")
    return [yaml.safe_load((folder / f"gateway.networking.k8s.io_{name}.yaml").read_text()) for name in names]


def uninstall(cluster: Cluster) -> None:
    """Remove the CRDs if they exist, and wait until the API server doesn't serve them."""
    for definition in definitions():
        name, plural = definition["metadata"]["name"], definition["spec"]["names"]["plural"]
        cluster.api.call("DELETE", f"{_CRDS}/{name}")
        until(
            lambda plural=plural: cluster.api.call("GET", f"/apis/gateway.networking.k8s.io/v1/{plural}").status,  # type: ignore[misc]
            lambda status: status == 404,
            goal=f"the API server serves no {plural}",
        )


def install(cluster: Cluster) -> None:
    """Create the CRDs if they don't exist, and wait until they are served."""
    for definition in definitions():
        name, plural = definition["metadata"]["name"], definition["spec"]["names"]["plural"]
        if not cluster.api.exists(f"{_CRDS}/{name}"):
            cluster.api.create(_CRDS, definition)
        until(
            lambda plural=plural: cluster.api.call("GET", f"/apis/gateway.networking.k8s.io/v1/{plural}").status,  # type: ignore[misc]
            lambda status: status == 200,
            goal=f"the API server serves {plural}",
        )
