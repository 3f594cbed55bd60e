"""Setup of the demo: images, a cluster and the chart. Parts that exist already are kept."""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from demo import models
from demo.errors import DemoError
from demo.kube import SYSTEM, Kube
from demo.models import REPOSITORY
from e2e.cluster import binaries
from e2e.cluster import cluster as clusters
from e2e.cluster.errors import ClusterError
from e2e.cluster.options import Options
from images.build import build_images
from images.host import ImagesError
from images.recipes import RECIPES

EXISTING = "existing"
CHART = REPOSITORY / "charts" / "halcyon"
_CPU_IMAGE = "images.triton.registry=localhost,images.triton.repository=tritonserver-cpu,images.triton.tag=24.10"
"""Helm values for the CPU build of Triton, which models in the demo use. The chart's default image is large, and must
be downloaded from the internet."""
IMAGE_VALUES = REPOSITORY / "build" / "images-values.yaml"
EXISTING_NAMESPACE = "halcyon-demo"
_IMAGE_ANNOTATION = "imageInputs"


@dataclass(frozen=True, kw_only=True)
class Installed:
    """Cluster with Halcyon. `triton_image` is set if the models need another image than the one in digits.yaml."""

    kube: Kube
    triton_image: str | None = None
    helm_s: float = 0.0
    """Duration of `helm upgrade --install --wait` in seconds, with the images already on the node."""


def install(name: str, *, hpa_sync: str = "15s", nodes: int = 1, step: Callable[[str], None]) -> Installed:
    """Build the images, start a cluster of `nodes` nodes and install the chart. `step` is called with the name of each part.

    Raises:
        DemoError: a part fails. Parts that exist already are not removed.
    """
    if name == EXISTING:
        return _install_existing(step)
    try:
        step("images")
        archives = build_images()
        step(f"cluster {name}")
        before = clusters.find(name)
        cluster = clusters.up(name, Options(hpa_sync=hpa_sync, nodes=nodes))
        if before is not None and before.complete:
            since = cluster.place.record.stat().st_mtime
            for archive in archives.values():
                if archive.stat().st_mtime > since:
                    clusters.load_image(name, archive)
    except (ClusterError, ImagesError) as error:
        raise DemoError(str(error)) from error
    kube = Kube(kubeconfig=cluster.kubeconfig, programs=cluster.bin, namespace="default", reachable=True)
    step("helm upgrade --install")
    # The tag is always `dev`, so an annotation with the digest of the image's inputs makes the Deployment use a new
    # build.
    annotation = f"podAnnotations.{_IMAGE_ANNOTATION}={RECIPES['operator'].digest[:16]}"
    began = time.monotonic()
    _helm(kube, "--set-string", f"images.registry=localhost,{annotation},{_CPU_IMAGE}")
    return Installed(kube=kube, helm_s=time.monotonic() - began)


def _install_existing(step: Callable[[str], None]) -> Installed:
    step("the cluster in KUBECONFIG")
    kube = existing()
    values = image_values()
    step(f"namespace {EXISTING_NAMESPACE}")
    kube("apply", "-f", "-", stdin=models.as_text(_namespace()))
    step("helm upgrade --install")
    triton = values["test"]["image"]
    _helm(
        kube,
        "--values",
        str(IMAGE_VALUES),
        "--set-string",
        ",".join(f"images.triton.{k}={v}" for k, v in triton.items()),
    )
    suffix = f"@{triton['digest']}" if triton.get("digest") else f":{triton.get('tag', 'latest')}"
    return Installed(kube=kube, triton_image=f"{triton['registry']}/{triton['repository']}{suffix}")


def existing() -> Kube:
    """Return the cluster to which KUBECONFIG refers.

    Raises:
        DemoError: the kubeconfig file doesn't exist.
    """
    kubeconfig = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if not Path(kubeconfig).is_file():
        raise DemoError(
            f"CLUSTER=existing uses the cluster in KUBECONFIG, and {kubeconfig} is no file; for example: "
            "KUBECONFIG=~/.kube/config make demo CLUSTER=existing"
        )
    return Kube(kubeconfig=Path(kubeconfig), programs=_programs(), namespace=EXISTING_NAMESPACE, reachable=False)


def image_values() -> dict[str, Any]:
    """Return the Helm values with the images in a registry.

    Raises:
        DemoError: there is no file with these values.
    """
    if not IMAGE_VALUES.is_file():
        raise DemoError(
            f"CLUSTER=existing needs the images in a registry that the cluster can pull from, and "
            f"{IMAGE_VALUES.relative_to(REPOSITORY)}, which names them, is missing. Push them first, for example: "
            "make images push REGISTRY=registry.example.com/ml (docs/demo.md; it also has the recipe for kind)"
        )
    values = yaml.safe_load(IMAGE_VALUES.read_text())
    try:
        for image in (values["images"]["operator"], values["images"]["balancer"], values["test"]["image"]):
            for part in ("registry", "repository"):
                image[part]
    except (KeyError, TypeError):
        raise DemoError(
            f"{IMAGE_VALUES.relative_to(REPOSITORY)} does not name images.operator, images.balancer and test.image; "
            "write it anew with: make images push REGISTRY=registry.example.com/ml"
        ) from None
    return dict(values)


def _programs() -> Path:
    """Return the folder with kubectl and Helm: the machine's if it has both, otherwise that of the embedded cluster."""
    kubectl = shutil.which("kubectl")
    if kubectl is not None and (Path(kubectl).parent / "helm").exists():
        return Path(kubectl).parent
    return Path(binaries.ensure())


def _namespace() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": EXISTING_NAMESPACE}}


def _helm(kube: Kube, *arguments: str) -> None:
    try:
        kube.helm(
            "upgrade",
            "--install",
            "halcyon",
            str(CHART),
            f"--namespace={SYSTEM}",
            "--create-namespace",
            "--wait",
            "--timeout=150s",
            *arguments,
        )
    except DemoError as error:
        pods = kube("get", "pods", "-o", "wide", namespace=SYSTEM)
        raise DemoError(f"{error}\nkubectl get pods --namespace={SYSTEM}:\n{pods}") from None


def remove(name: str, *, step: Callable[[str], None]) -> bool:
    """Remove everything that `install` and the demo created, and return whether there was anything to remove.

    Raises:
        DemoError: an object can't be removed.
    """
    if name != EXISTING:
        step(f"removing cluster {name}")
        try:
            return clusters.down(name)
        except ClusterError as error:
            raise DemoError(str(error)) from error
    kube = existing()
    step(f"removing namespace {EXISTING_NAMESPACE}")
    kube("delete", "namespace", EXISTING_NAMESPACE, "--ignore-not-found")
    step("helm uninstall")
    kube.helm("uninstall", "halcyon", f"--namespace={SYSTEM}", "--ignore-not-found", "--wait")
    kube("delete", "namespace", SYSTEM, "--ignore-not-found")
    # Helm keeps the CRD of a chart. It is removed only if no other ModelDeployments exist.
    remaining = kube("get", "modeldeployments", "--all-namespaces", "--ignore-not-found", "-o", "name").strip()
    if not remaining:
        kube(
            "delete",
            "crd",
            "modeldeployments.serving.halcyon.dev",
            "batchinferences.serving.halcyon.dev",
            "--ignore-not-found",
        )
    return True
