"""Real Triton servers on loopback: the cluster's image in a chroot, each server with its own address, as a pod has.

Each server has its own mount and process namespace, so that its mounts and its child processes end with it.
"""

import itertools
import os
import shlex
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tritonclient.grpc import service_pb2

from benchmarks.dataplane import installed
from benchmarks.errors import BenchError
from demo.kube import samples, total
from e2e.cluster.progress import say

HTTP_PORT, GRPC_PORT, METRICS_PORT = 18000, 18001, 18002
_CGROUPS = Path("/sys/fs/cgroup")
_CFS_PERIOD_US = 100_000
METHOD = "/inference.GRPCInferenceService/ModelInfer"
_START_TIMEOUT_S = 60.0
_REMOVE_TIMEOUT_S = 5.0
_numbers = itertools.count()
# Each process has addresses of its own, because the ports are the same.
_addresses = (
    f"127.{90 + os.getpid() // 250 % 100}.{os.getpid() % 250}.{number % 250 + 1}" for number in itertools.count()
)

_CONFIG = """backend: "python"
max_batch_size: {max_batch}
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ 1 ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ 1 ] }} ]
dynamic_batching {{ }}
{parameters}
"""
_MODEL = Path(__file__).parents[1] / "model" / "model.py"
_NO_WORK = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", values)]) for values in inputs]
"""


class Served(Protocol):
    """A model for a Triton server."""

    @property
    def name(self) -> str:
        """Name of the model."""

    @property
    def files(self) -> Mapping[str, str]:
        """Files of the model as path -> content, with paths relative to the model's folder."""


@dataclass(frozen=True)
class Work:
    """A model that responds at once, or sleeps t0_ms + a_ms x rows per batch of up to `max_batch` rows."""

    name: str
    t0_ms: float = 0.0
    a_ms: float = 0.0
    max_batch: int = 16

    @property
    def files(self) -> dict[str, str]:
        """Return the files of the model as path -> content, with paths relative to the model's folder."""
        sleeps = {"t0_ms": self.t0_ms, "a_ms": self.a_ms} if self.t0_ms else {}
        parameters = "\n".join(
            f'parameters {{ key: "{key}" value {{ string_value: "{value:g}" }} }}' for key, value in sleeps.items()
        )
        return {
            "config.pbtxt": _CONFIG.format(parameters=parameters, max_batch=self.max_batch),
            "1/model.py": _MODEL.read_text() if sleeps else _NO_WORK,
        }


@dataclass(frozen=True)
class Triton:
    """A running Triton server."""

    address: str
    model: str
    metrics_port: int = METRICS_PORT
    repository: Path = field(default=Path(), repr=False, compare=False)
    """Folder of its models on this machine."""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False, compare=False)

    def kill(self) -> None:
        """End the server and its process namespace at once, as the loss of a node does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    @property
    def grpc(self) -> str:
        """Return host:port of the gRPC endpoint."""
        return f"{self.address}:{GRPC_PORT}"

    def answered(self) -> int:
        """Return the number of requests that its model has answered so far, from Triton's counters."""
        with urllib.request.urlopen(f"http://{self.address}:{self.metrics_port}/metrics", timeout=5) as answer:
            return int(total(samples(answer.read().decode()), "nv_inference_request_success"))


@contextmanager
def running(
    works: Sequence[Served], *, arguments: Sequence[str] = (), shares_memory: bool = False, cores: float = 0.0
) -> Iterator[list[Triton]]:
    """Start one Triton server per model, and yield them when all are ready. They are ended when the context is left.

    `arguments` are added to each server's command line. With `shares_memory`, the servers have the /dev/shm of this process.
    With `cores`, a cgroup that each server sees limits the CPU of all of them together.

    Raises:
        BenchError: a server doesn't start; the message has the end of its log.
    """
    tree = installed.triton()
    with tempfile.TemporaryDirectory(prefix="halcyon-tritons-") as folder, _cgroup(cores) as cgroup:
        processes: list[subprocess.Popen[bytes]] = []
        servers = []
        try:
            for number, work in enumerate(works):
                home = Path(folder) / str(number)
                for path, content in work.files.items():
                    file = home / work.name / path
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(content)
                address = next(_addresses)
                with (Path(folder) / f"{number}.log").open("wb") as log:
                    process = subprocess.Popen(
                        _command(tree, home, address, arguments, shares_memory=shares_memory, cgroup=cgroup),
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                processes.append(process)
                servers.append(Triton(address, work.name, repository=home, process=process))
            for number, (triton, process) in enumerate(zip(servers, processes, strict=True)):
                _await(triton, process, Path(folder) / f"{number}.log")
            try:
                yield servers
            finally:
                for number, process in enumerate(processes):
                    if process.poll() is not None:
                        log_end = (Path(folder) / f"{number}.log").read_text(errors="replace")[-800:]
                        say(
                            f"bench: Triton at {servers[number].address} ended with status {process.returncode}:\n{log_end}"
                        )
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.wait()


def _command(
    tree: Path,
    repository: Path,
    address: str,
    arguments: Sequence[str],
    *,
    shares_memory: bool = False,
    cgroup: Path | None = None,
) -> list[str]:
    ports = {"http": HTTP_PORT, "grpc": GRPC_PORT, "metrics": METRICS_PORT}
    options = " ".join(f"--{kind}-address={address} --{kind}-port={port}" for kind, port in ports.items())
    steps = [
        *([] if cgroup is None else _enter(cgroup, tree)),
        f"mount --rbind /dev {tree}/dev",
        *([] if shares_memory else [f"mount -t tmpfs -o size=256m shm {tree}/dev/shm"]),
        f"mount -t proc proc {tree}/proc",
        f"mount --bind {repository} {tree}/mnt",
        f"mount -t tmpfs tmp {tree}/tmp",
        f"exec chroot {tree} tritonserver --model-repository=/mnt {options} {shlex.join(arguments)}",
    ]
    # Killing `unshare` kills the whole process namespace.
    enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
    return [*enter, "sh", "-c", " && ".join(steps)]


def _enter(cgroup: Path, tree: Path) -> list[str]:
    """Return the commands that enter a cgroup, and let the server see the mounts of all cgroups, as in a container."""
    own = f"{tree}{_CGROUPS}"
    return [
        f"echo 0 > {cgroup}/cgroup.procs",
        f"mount -t tmpfs sys {tree}/sys",
        f"mkdir -p {own}",
        f"mount --rbind {_CGROUPS} {own}",
    ]


@contextmanager
def _cgroup(cores: float) -> Iterator[Path | None]:
    """Create a cgroup (version 1 or 2) with a limit of CPU, and remove it at the end; None without a limit.

    Raises:
        BenchError: it can't be created; the message has the reason.
    """
    if not cores:
        yield None
        return
    is_unified = (_CGROUPS / "cgroup.controllers").exists()
    parent = _CGROUPS if is_unified else _CGROUPS / "cpu"
    folder = parent / f"halcyon-tritons-{os.getpid()}-{next(_numbers)}"
    quota = round(cores * _CFS_PERIOD_US)
    try:
        if is_unified:
            (parent / "cgroup.subtree_control").write_text("+cpu")
        folder.mkdir()
        if is_unified:
            (folder / "cpu.max").write_text(f"{quota} {_CFS_PERIOD_US}")
        else:
            (folder / "cpu.cfs_period_us").write_text(str(_CFS_PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(quota))
    except OSError as error:
        raise BenchError(f"the cgroup {folder} with a limit of {cores:g} cores can't be created: {error}") from None
    try:
        yield folder
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a cgroup once its processes have ended; they are killed already."""
    until_s = time.monotonic() + _REMOVE_TIMEOUT_S
    while True:
        try:
            folder.rmdir()
        except OSError as error:
            if time.monotonic() > until_s:
                say(f"bench: the cgroup {folder} can't be removed: {error}")
                return
            time.sleep(0.05)
        else:
            return


def _await(triton: Triton, process: subprocess.Popen[bytes], log: Path) -> None:
    url = f"http://{triton.address}:{HTTP_PORT}/v2/models/{triton.model}/ready"
    until_s = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            # Triton opens the port of its metrics last.
            with urllib.request.urlopen(url, timeout=1), socket.create_connection((triton.address, METRICS_PORT), 1):
                return
        except OSError:
            ended = process.poll()
            if ended is not None or time.monotonic() > until_s:
                log_end = log.read_text(errors="replace")[-800:]
                problem = "does not come up" if ended is None else f"ended with status {ended}"
                raise BenchError(f"Triton at {triton.address} {problem}; the end of its log:\n{log_end}") from None
        time.sleep(0.1)


def request_body(model: str) -> bytes:
    """Return a ModelInfer request with one row as sent on the wire, with gRPC's prefix of five bytes."""
    request = service_pb2.ModelInferRequest(model_name=model)
    tensor = request.inputs.add(name="x", datatype="FP32")
    tensor.shape.extend([1, 1])
    request.raw_input_contents.append(struct.pack("<f", 1.0))
    content = bytes(request.SerializeToString())
    return b"\0" + struct.pack(">I", len(content)) + content
