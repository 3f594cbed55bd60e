"""Check of the options against the models and servers to measure, before anything is measured.

Out of scope: options of one group that contradict each other, which the group itself checks.
"""

from __future__ import annotations

from collections.abc import Sequence

import click
from click.core import ParameterSource

from halcyon_cli.bench.options.group import arguments
from halcyon_cli.bench.options.model_file import ModelFileOptions
from halcyon_cli.bench.options.place import PlaceOptions
from halcyon_cli.bench.options.pod import PodOptions
from halcyon_cli.bench.options.server import ServerOptions
from halcyon_cli.errors import InputError
from halcyon_cli.kube.client import Target

_OF_A_CLUSTER = {"namespace": "--namespace", "context": "--context", "kubeconfig": "--kubeconfig"}
"""Options that choose a cluster and a namespace, by the names of their parameters."""


def check(
    names: Sequence[str],
    *,
    server: ServerOptions,
    place: PlaceOptions,
    pod: PodOptions,
    model_file: ModelFileOptions,
    target: Target,
) -> None:
    """Check that the options of the current command have an effect for these names. With --url, there are no names.

    Raises:
        InputError: an option would have no effect.
    """
    if place.teach and len(names) != 1:
        raise InputError("--teach is for one ModelDeployment; for example halcyon bench digits --teach")
    if len(names) > 1 and model_file.is_set:
        raise InputError("--onnx is the file of one model; for example halcyon bench digits --onnx model.onnx")
    if names and pod.wait is not None:
        raise InputError(f"--wait is for --url; for {names[0]}, give --start-timeout {pod.wait:g}s")
    if names:
        return
    context = click.get_current_context()
    if context.get_parameter_source("timeout") is ParameterSource.COMMANDLINE:
        raise InputError(
            "--timeout is for requests to the cluster, which --url doesn't need; for requests of the load, give "
            f"--request-timeout {target.timeout_s:g}s"
        )
    for name, option in _OF_A_CLUSTER.items():
        if server.url and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise InputError(f"{option} is for a ModelDeployment, and --url names a server; leave one of them out")
    if server.url and (place_arguments := arguments(context.command, place)):
        raise InputError(
            f"{place_arguments[0]} is for a ModelDeployment, and --url names a server; leave one of them out"
        )
