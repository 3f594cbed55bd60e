"""`halcyon images`: lists all images of an installation, for mirrors and for sites without access to the internet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from halcyon.kube import kinds
from halcyon_cli import input_files
from halcyon_cli.arguments.options import FILE, Output, cluster_options, emit, output_options, warn
from halcyon_cli.bench.place.site import IMAGE_ANNOTATION
from halcyon_cli.errors import InputError
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster, Target
from halcyon_cli.kube.operator_pods import of_operators
from halcyon_cli.plan import manifest_documents

MAX_BYTES = 64 * 2**20
_ARGUMENT = re.compile(r"--[a-z-]*image=(.+)")
_EPILOG = """\
\b
examples:
  halcyon images
  helm template halcyon charts/halcyon | halcyon images -f - > images.txt

With -f, the images are those of rendered manifests, so that they can be copied
before the installation. Otherwise they are those of the operator and the models
in the cluster. Images without a digest are reported: pin them with
images.*.digest of the chart.

exit status: 0, or 2 if nothing was read: empty or invalid file, no access, no cluster.
"""


@click.command("images", epilog=_EPILOG)
@click.option("-f", "--file", type=FILE, metavar="FILE", help="Rendered manifests as YAML, or - for stdin.")
@cluster_options
@output_options("table", "json", "yaml")
def main(file: Path | None, target: Target, output: Output) -> int:
    """List all images of an installation, one per line."""
    references = sorted(set(images(_in_cluster(Cluster(target)) if file is None else _in_file(file))))
    if output.is_data:
        output.data({"images": references})
    elif references:
        emit("\n".join(references))
    for image in references:
        if "@sha256:" not in image:
            warn(target.command, f"{image} has no digest, so its contents may change")
    return 0


def _in_cluster(cluster: Cluster) -> list[Mapping[str, Any]]:
    operators = of_operators(cluster, kinds.DEPLOYMENT)
    return [*operators, *cluster.models(all_namespaces=True)]


def _in_file(file: Path) -> list[Any]:
    text = input_files.text(file, max_bytes=MAX_BYTES, hint=", more than a chart renders")
    name = input_files.name(file)
    if objects := [obj for obj in manifest_documents.objects(text, name) if obj]:
        return objects
    # In a pipe, the exit status of a failed `helm template` is lost.
    raise InputError(
        f"{name}: no objects; pass rendered manifests, for example those of helm template halcyon charts/halcyon"
    )


def images(documents: Iterable[Any]) -> Iterator[str]:
    """Yield the images that objects name in containers, arguments such as `--server-image`, annotations and models."""
    for document in documents:
        obj = fields.mapping(document)
        if obj.get("kind") == "List":
            yield from images(fields.sequence(obj.get("items")))
        yield from _container_images(obj)
        if client := fields.text(
            fields.mapping(fields.mapping(obj.get("metadata")).get("annotations")).get(IMAGE_ANNOTATION)
        ):
            yield client
        if obj.get("kind") == "ModelDeployment":
            spec = fields.mapping(obj.get("spec"))
            source = fields.mapping(fields.mapping(spec.get("model")).get("source"))
            model_images = (
                fields.mapping(spec.get("runtime")).get("image"),
                fields.mapping(source.get("image")).get("reference"),
            )
            yield from (image for image in map(fields.text, model_images) if image)


def _container_images(value: Any) -> Iterator[str]:  # any JSON value
    if isinstance(value, list):
        for item in value:
            yield from _container_images(item)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if name in {"containers", "initContainers"}:
                for container in fields.mappings(inner):
                    yield from filter(None, (fields.text(container.get("image")),))
                    for argument in map(str, fields.sequence(container.get("args"))):
                        if match := _ARGUMENT.fullmatch(argument):
                            yield match[1]
            else:
                yield from _container_images(inner)
