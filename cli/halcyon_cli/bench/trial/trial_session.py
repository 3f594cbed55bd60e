"""A trial pod in which a command measures many points, from the checks before its creation to its removal.

The search runs in the command, because it needs the simulator; loads are sent within the pod. The command connects to
the pod by a tunnel through the API server, as `kubectl port-forward` does, so no Service and no NetworkPolicy is
needed.
"""

from __future__ import annotations

import http.client
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any, Self

import click

from halcyon.kube import kinds
from halcyon_cli.bench.options.group import arguments
from halcyon_cli.bench.options.inputs import InputOptions
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.bench.options.sampling import SamplingOptions
from halcyon_cli.bench.options.server import ServerOptions
from halcyon_cli.bench.place import placed_document
from halcyon_cli.bench.place.admitted_pods import admitted
from halcyon_cli.bench.place.bench_request import BenchRequest
from halcyon_cli.bench.place.beside_model import BesideModel, Deadlines
from halcyon_cli.bench.trial.point_client import PointClient
from halcyon_cli.bench.trial.point_server import PORT
from halcyon_cli.errors import InputError
from halcyon_cli.kube import tunnel
from halcyon_cli.kube.object_writer import ObjectWriter
from halcyon_cli.kube.tunnel import TunnelError

Json = Mapping[str, Any]

_TIMEOUT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class TrialServer:
    """Properties of a trial pod's server for which its measurements are valid."""

    revision: str
    """Name of the ControllerRevision from which the pod was created."""
    image: str | None
    gpu_product: str | None


class TrialSession:
    """Trial pod that measures points. As a context manager, it creates the pod, and removes it at the end."""

    def __init__(
        self,
        cluster: ObjectWriter,
        model: Json,
        request: BenchRequest,
        bench: click.Command,
        *,
        run_s: float,
        progress: Callable[[str], None],
    ) -> None:
        """Check that the cluster would accept the pod.

        Args:
            cluster: the cluster of the model.
            model: the ModelDeployment.
            request: options of the measurement; its place must be a trial pod.
            bench: the command `halcyon bench`, which the pod's client runs.
            run_s: maximum time of all points together, in seconds.
            progress: function that shows progress.

        Raises:
            InputError: a check failed.
            ClusterError: the API server is unreachable.
        """
        if not cluster.may("create", kinds.POD, "portforward"):
            raise InputError(
                f"in namespace {cluster.namespace} you lack: create on pods/portforward, by which a point comes to the trial pod"
            )

        def client(
            server: ServerOptions, load: LoadOptions, inputs: InputOptions, sampling: SamplingOptions
        ) -> Sequence[str]:
            return ("bench", *arguments(bench, server, load, inputs, sampling), "--points")

        placement = admitted(cluster, model, request, client)
        for note in placement.notes:
            print(f"halcyon: {note}", file=sys.stderr)
        self._cluster, self._progress = cluster, progress
        self._start_s = request.place.start_timeout
        self._network_policy = placement.network_policy
        limits = Deadlines(start_s=self._start_s, run_s=run_s)
        self._beside = BesideModel(cluster, placement.client, None, limits, progress, trial=placement.trial)
        self._revision, self._pod = placement.measured.revision, ""
        self._server: Json = {}

    def __enter__(self) -> Self:
        self._beside.__enter__()
        try:
            self._server = self._beside.start(network_policy=self._network_policy)
            self._pod = str(self._server["metadata"]["name"])
        except BaseException:
            self._beside.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._beside.__exit__()

    def config(self) -> dict[str, Any]:
        """Return Triton's configuration of the model, once the model is loaded.

        Raises:
            TuneError, PlaceError: the model doesn't load, or the pod has ended.
        """
        return self.points().config(self._start_s)

    def server(self) -> TrialServer:
        """Return the server of the pod."""
        return TrialServer(
            revision=self._revision,
            image=placed_document.server_image([self._server]),
            gpu_product=placed_document.gpu_product(self._cluster, [self._server]),
        )

    def points(self, threads_parameter: str = "") -> PointClient:
        """Return the client that measures points in the pod.

        `threads_parameter` is the key in `model.parameters` for the number of threads of an instance; empty if that
        number stays unchanged.
        """
        return PointClient(self._connect, threads_parameter=threads_parameter, keep=self._keep, show=self._progress)

    def _keep(self) -> None:
        self._beside.keep(self._pod)

    def _connect(self) -> HTTPConnection:
        connection = http.client.HTTPConnection("localhost", PORT, timeout=_TIMEOUT_S)
        path = kinds.POD.path(self._cluster.namespace, self._pod)
        try:
            connection.sock = tunnel.open_tunnel(self._cluster.transport, path, PORT)
        except TunnelError as error:
            raise OSError(str(error)) from None
        connection.sock.settimeout(_TIMEOUT_S)
        return connection
