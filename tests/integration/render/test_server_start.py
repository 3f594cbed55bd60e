"""The command of the Triton container, run with the real Triton of the cluster's image in namespaces of its own.

A release without an option is Triton 2.51 behind a script that hides the option and rejects it, because no older release runs here.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from benchmarks.dataplane import installed
from halcyon.api.documents.model_overlay import Overlay
from halcyon.fetch.main import main as fetch
from halcyon.render import server_start

_CONFIG = """backend: "python"
max_batch_size: 4
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
_MODEL = """
import getpass
import os
import pathlib
import tempfile

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        cache = pathlib.Path.home() / ".cache" / "tokens"
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile() as file:
            file.write(b"x")
        # Triton 2.51 runs Python in isolated mode, in which PYTHONUNBUFFERED has no effect.
        print("model of", getpass.getuser(), "caches in", cache, flush=True)
        print("threads:", os.environ.get("OMP_NUM_THREADS"), flush=True)

    def execute(self, requests):
        tensors = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", values)]) for values in tensors]
"""
_STUB = """#!/bin/bash
exec /opt/triton/backends/python/triton_python_backend_stub "$@"
"""
_HIDES = """#!/bin/sh
# Triton before it had these options.
case "$*" in *--http-restricted-api* | *--metrics-interval-ms*)
  echo "unrecognized option" >&2
  exit 1 ;;
esac
if [ "$*" = --help ]; then
  /usr/local/bin/tritonserver --help 2>&1 | grep -v -e --http-restricted-api -e --metrics-interval-ms
  exit 1
fi
exec /usr/local/bin/tritonserver "$@"
"""
_ENTRYPOINT = """#!/bin/sh
echo "entrypoint of the image"
export FROM_ENTRYPOINT=1
exec "$@"
"""
_PROBES = [
    f"http://{host}:{port}" for host in ("127.0.0.1", "[::1]") for port in ("8000/v2/models/m/ready", "8002/metrics")
]


def model(tmp_path: Path) -> Path:
    """Return the repository of a Python model with a stub of its own, without an execute bit, as a bucket leaves it."""
    source = tmp_path / "source"
    (source / "1").mkdir(parents=True)
    (source / "config.pbtxt").write_text(_CONFIG)
    (source / "1" / "model.py").write_text(_MODEL)
    (source / "triton_python_backend_stub").write_text(_STUB)
    (source / "triton_python_backend_stub").chmod(0o644)
    (tmp_path / "overlay.json").write_text(Overlay("m").to_json())
    repository = tmp_path / "models"
    options = {"source": source, "overlay": tmp_path / "overlay.json", "repository": repository}
    log = tmp_path / "termination-log"
    assert fetch([*(f"--{name}={path}" for name, path in options.items()), f"--termination-log={log}"]) == 0, log
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.chown(path, 1000, 1000, follow_symlinks=False)
    tmp_path.chmod(0o755)
    return repository


def run(
    tmp_path: Path,
    *args: str,
    address: str = "127.0.0.1",
    family: int = 4,
    direct: bool = False,
    kills: int = 0,
    then: str = "",
    **files: str,
) -> dict[str, str]:
    """Start Triton by the container's command, and return the HTTP status of each probe, the log, and the files of /dev/shm.

    Before that it is started and killed `kills` times. After the probes, the commands `then` run; `status` is the exit status of the
    container if they end it.
    """
    tree, root = installed.triton(), tmp_path / "root"
    repository = model(tmp_path)
    for name in ("upper", "work", "root"):
        (tmp_path / name).mkdir()
    for path, text in files.items():
        file = tmp_path / "upper" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    command = [*server_start.command(str(repository), direct=direct), f"--model-repository={repository}", *args]
    env = {
        server_start.POD_IP: address,
        "HOME": "/home/m",
        "USER": "triton",
        "PYTHONUNBUFFERED": "1",
        "PATH": "/hidden:/usr/local/bin:/usr/bin:/bin",
    }
    started = shlex.join(["env", "-i", *(f"{k}={v}" for k, v in env.items()), *command])
    log = tmp_path / "log"
    script = f"""
set -e
ip link set lo up
ip -{4 if family == 6 else 6} addr flush dev lo
mount -t overlay overlay -o lowerdir={tree},upperdir={tmp_path}/upper,workdir={tmp_path}/work {root}
mount --rbind /dev {root}/dev
mount -t tmpfs -o size=256m shm {root}/dev/shm
mount -t proc proc {root}/proc
mount -t tmpfs tmp {root}/tmp
mkdir -p {root}{tmp_path} {root}/home/m
chown 1000 {root}/home/m
mount --bind {tmp_path} {root}{tmp_path}
for n in $(seq 0 {kills}); do
  rm -f {log}
  chroot --userspec=1000:1000 {root} {started} >{log} 2>&1 &
  triton=$!
  for _ in $(seq 300); do
    grep -qs "Started Metrics" {log} && break
    kill -0 $triton 2>/dev/null || break
    sleep 0.1
  done
  # As in a container, all processes end with the first one.
  test $n -eq {kills} || {{ kill -s KILL -- -1; wait $triton || true; }}
done
for url in {shlex.join(_PROBES)}; do
  echo "$url $(curl -s -o /dev/null -w '%{{http_code}}' --max-time 5 "$url" || true)"
done
ls {root}/dev/shm | sed 's/$/ shm/'
root={root}
{then}
"""
    enter = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
    done = subprocess.run([*enter, "sh", "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return dict(line.split(" ") for line in done.stdout.splitlines()) | {"log": log.read_text()}


@pytest.mark.parametrize(("family", "address"), [(4, "127.0.0.1"), (6, "::1")])
def test_triton_serves_on_the_address_family_of_its_pod(tmp_path: Path, family: int, address: str) -> None:
    results = run(tmp_path, "--metrics-interval-ms=1000", address=address, family=family)

    host = f"[{address}]" if family == 6 else address
    assert {url: status for url, status in results.items() if host in url} == {
        f"http://{host}:8000/v2/models/m/ready": "200",
        f"http://{host}:8002/metrics": "200",
    }, results["log"]
    # An own stub that had no execute bit ran a model that writes below its home and asks for its user's name.
    assert "model of triton caches in /home/m/.cache/tokens" in results["log"]


def test_an_option_that_the_release_lacks_is_left_out_and_logged(tmp_path: Path) -> None:
    options = ["--metrics-interval-ms=1000", "--http-restricted-api=trace:key=value", "--exit-on-error=false"]
    results = run(tmp_path, *options, **{"hidden/tritonserver": _HIDES})

    assert results["http://127.0.0.1:8000/v2/models/m/ready"] == "200", results["log"]
    assert "this release of Triton has no --metrics-interval-ms; it is left out" in results["log"]
    assert "this release of Triton has no --http-restricted-api; it is left out" in results["log"]


def test_direct_clients_reach_no_triton_with_open_administrative_apis(tmp_path: Path) -> None:
    results = run(tmp_path, "--http-restricted-api=trace:key=value", direct=True, **{"hidden/tritonserver": _HIDES})

    assert results["http://127.0.0.1:8000/v2/models/m/ready"] == "000"
    assert "unrecognized option" in results["log"]


def test_the_entrypoint_of_an_nvidia_image_starts_triton(tmp_path: Path) -> None:
    results = run(tmp_path, **{"opt/nvidia/nvidia_entrypoint.sh": _ENTRYPOINT})

    assert results["http://127.0.0.1:8000/v2/models/m/ready"] == "200", results["log"]
    assert results["log"].startswith("entrypoint of the image\n")


def test_a_killed_triton_leaves_no_shared_memory_to_its_successor(tmp_path: Path) -> None:
    results = run(tmp_path, kills=2)

    assert results["http://127.0.0.1:8000/v2/models/m/ready"] == "200", results["log"]
    assert list(results.values()).count("shm") == 1, results


@pytest.mark.parametrize(
    ("how", "statuses"),
    [
        ("kill -TERM $triton", {"0"}),
        # Ended by SIGKILL if unloading the model takes longer than `STOP_S`, as it does on a slow machine.
        ("echo 1 > $root/halcyon/orders/restart", {"0", "137"}),
    ],
    ids=["stop", "order"],
)
def test_a_container_ends_with_triton_if_stopped_or_ordered_to_restart(
    tmp_path: Path, how: str, statuses: set[str]
) -> None:
    then = f"""{how}
    began=$(date +%s); status=0; wait $triton || status=$?
    echo status $status; echo seconds $(($(date +%s) - began))"""
    results = run(tmp_path, then=then, **{"halcyon/orders/restart": ""})

    assert results["http://127.0.0.1:8000/v2/models/m/ready"] == "200", results["log"]
    assert results["status"] in statuses, results["log"]
    assert int(results["seconds"]) <= 1 + server_start.STOP_S + 1


def test_a_triton_that_ignores_its_stop_is_killed_by_an_ordered_restart(tmp_path: Path) -> None:
    ignores = (
        '#!/bin/sh\ntest "$1" != --help || exit 1\ntrap "" TERM\necho "Started Metrics"\nwhile :; do sleep 0.1; done\n'
    )
    then = """echo 1 > $root/halcyon/orders/restart
    status=0; wait $triton || status=$?
    echo status $status"""
    results = run(tmp_path, then=then, **{"halcyon/orders/restart": "", "hidden/tritonserver": ignores})

    assert results["status"] == "137", results["log"]


@pytest.mark.parametrize(
    ("files", "threads"),
    [
        ({"sys/fs/cgroup/cpu.max": "350000 100000\n"}, "3"),
        ({"sys/fs/cgroup/cpu.max": "50000 100000\n"}, "1"),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, "None"),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, "4"),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, "None"),
        (
            {
                "sys/fs/cgroup/cpu.max": "400000 100000\n",
                "opt/nvidia/nvidia_entrypoint.sh": '#!/bin/sh\nexport OMP_NUM_THREADS=7\nexec "$@"\n',
            },
            "7",
        ),
    ],
    ids=["v2", "below one core", "v2 without a limit", "v1", "v1 without a limit", "set by the image"],
)
def test_a_models_libraries_have_as_many_threads_as_its_cpu_limit(
    tmp_path: Path, files: dict[str, str], threads: str
) -> None:
    results = run(tmp_path, **files)

    assert results["http://127.0.0.1:8000/v2/models/m/ready"] == "200", results["log"]
    assert f"threads: {threads}\n" in results["log"]
