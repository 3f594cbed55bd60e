"""Start of the Triton container, and its arguments for gRPC connections of clients without a balancer.

The command is a POSIX shell script that adapts the start of Triton to its image and its pod. It handles unsupported
options, IPv6 addresses, CPU limits, complete configurations, dead Python stubs, leftover shared memory, requested
restarts, and NVIDIA's entrypoint.

The shell stays the container's first process (PID 1), and Triton is its child. A container ends with PID 1, which
ignores SIGKILL from inside the container. Triton as a child can always be killed. The shell then exits, and the kubelet
restarts the container at once.
"""

# | difference between images and pods | what the script does |
# | --- | --- |
# | an option that this release of Triton doesn't list in `--help` | leaves it out if serving doesn't need it, and logs that |
# | a pod with an IPv6 address | lets HTTP and metrics listen on IPv6: by default they listen on IPv4 only, gRPC on both |
# | the fetcher has marked the configuration as complete | disables auto-complete: it starts a Python model twice (`fetch.auto_complete`) |
# | the container has a CPU limit | sets OMP_NUM_THREADS to the limit's share of an instance, unless it is set: OpenMP, OpenBLAS, MKL and PyTorch see the node's cores only |
# | a Python stub process ended | creates a folder that agents find in the repository index; Triton itself doesn't restart the process |
# | Triton was killed | deletes the shared memory of its Python stubs: a pod's /dev/shm outlives its containers |
# | the operator orders a restart | sends SIGTERM to Triton and, if it is still there after `STOP_S`, SIGKILL: the container ends |
# | the kubelet stops the container | passes SIGTERM to Triton, and ends with Triton's exit status |
# | an NVIDIA image | starts Triton through the image's entrypoint, which selects the CUDA libraries for the node's driver |

from __future__ import annotations

from halcyon.api.documents.repository_marker import COMPLETE, INSTANCES, STUB_EXIT
from halcyon.api.spec.routing_mode import TRITON_BODY_BYTES

ORDERS = "/halcyon/orders"
"""Mount path of the volume with the operator's instructions. To restart Triton, the operator changes the value of the
annotation `RESTART_ANNOTATION`, which the file `restart` contains."""
STOP_S = 2
"""Time for which Triton may finish its requests before a requested restart, in seconds. It is short because the
balancers have already taken the pod out of service, and a Triton with a dead backend may never finish."""
POD_IP = "HALCYON_POD_IP"
"""Name of the environment variable with the pod address to which the kubelet's probes connect."""
MAX_AGE_MS = 60_000
"""Maximum age of a gRPC channel, in milliseconds. Clients then reconnect and thus find new pods."""
_MIN_AGE_MS = 500
_PING_INTERVAL_MS = 5_000
"""Minimum interval, in milliseconds, between a client's keepalive pings that Triton accepts. It is half the minimum of
gRPC libraries, which is 10 s."""
OPTIONAL = {
    "metrics-interval-ms": "GPU metrics are updated every 2 s instead of every second",
    "allow-gpu-metrics": "Triton tries to read the GPU metrics of slices, which it can't measure",
    "http-max-input-size": "requests above Triton's own limit are rejected if `traffic.maxRequestSize` is larger",
    "grpc-max-connection-age": "clients without balancers find new pods only when they reconnect by themselves",
    "grpc-http2-min-recv-ping-interval-without-data": "Triton closes the channels of clients that send keepalive pings often",
    "grpc-keepalive-permit-without-calls": "Triton closes idle channels of clients that send keepalive pings",
}
"""Options that the start script omits if this Triton release doesn't support them. Each value describes the consequence
of omitting the option."""
RESTRICTED = ("http-restricted-api", "grpc-restricted-protocol")
"""Options that restrict Triton's administrative APIs. A release without them can be used only with balancers, which
block these APIs too."""
_SHARED_MEMORY = "/dev/shm/triton_python_backend_shm_region_*"  # noqa: S108  # a volume of the pod's own
"""Shared memory files of Triton's Python backend, by the default of its option `shm-region-prefix-name`. The backend
deletes them only on a normal exit."""
_NVIDIA_ENTRYPOINT = "/opt/nvidia/nvidia_entrypoint.sh"


def _watch(repository: str) -> str:
    """Return shell commands that watch the Python stub processes and the operator's restart requests in the background.

    Triton doesn't reap a stub process that ended, so it stays a zombie, and field 52 of its stat file is the exit
    status. A zombie is reported only if it is found twice, a moment apart, because Triton itself ends stub processes
    while it completes a configuration.
    """
    return f"""\
watch() {{
  ordered=$(cat {ORDERS}/restart) seen= pause=1
  while sleep $pause && kill -0 $main; do
    pause=1
    test "$(cat {ORDERS}/restart)" = "$ordered" || {{ kill -TERM $main; sleep {STOP_S}; kill -KILL $main; return; }}
    dead=
    for file in /proc/[0-9]*/stat; do
      {{ read -r line < "$file"; }} || continue
      case $line in *"(triton_python_b) Z "*) dead="$dead ${{line%% *}}:${{line##* }}" ;; esac
    done
    for one in $dead; do
      case "$seen " in *" $one "*) ;; *) pause=0.3; continue ;; esac
      code=${{one#*:}} oom=
      how=exit-$((code >> 8))
      test $((code & 127)) -eq 0 || how=signal-$((code & 127))
      ! grep -q 'oom_kill [1-9]' /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control || oom=.oom
      mkdir -p "{repository}/{STUB_EXIT}$how$oom"
      echo "a Python stub process ended: $how$oom" > /dev/termination-log
    done
    seen=$dead
  done
}}
"""


def _threads(repository: str) -> str:
    """Return shell commands that limit the threads of libraries to the container's CPU limit (cgroup v2 or v1)."""
    return f"""\
quota= period=
if read -r quota period < /sys/fs/cgroup/cpu.max; then :; else
  read -r quota < /sys/fs/cgroup/cpu/cpu.cfs_quota_us && read -r period < /sys/fs/cgroup/cpu/cpu.cfs_period_us
fi 2> /dev/null
case $quota in ''|*[!0-9]*) ;; *)
  {{ read -r instances < {repository}/{INSTANCES}; }} 2> /dev/null || instances=1
  threads=$((quota / (period * instances)))
  export OMP_NUM_THREADS="${{OMP_NUM_THREADS-$((threads > 0 ? threads : 1))}}" ;;
esac
"""


# A trap is set before Triton starts: the kernel drops a signal to a first process that has no handler for it.
# `wait` also returns after each trap, so the shell waits again while Triton is there.
_RUN = """\
main=
trap 'test -n "$main" || exit 143; kill -TERM $main' TERM INT
"$@" &
main=$!
watch 2> /dev/null &
while :; do
  wait $main
  status=$?
  kill -0 $main 2> /dev/null || exit $status
done
"""


def command(repository: str, *, direct: bool) -> list[str]:
    """Return the container's command, to which the container's arguments are appended.

    Without balancers (`direct`), Triton does not start if it can't restrict its administrative APIs, because nothing
    else protects them.
    """
    optional = "|".join(f"--{name}=*" for name in (*OPTIONAL, *(() if direct else RESTRICTED)))
    script = f"""\
known=$(tritonserver --help 2>&1)
for option do
  shift
  case $known in
  *"${{option%%=*}}"[!a-z-]*) ;;
  *--model-repository*)
    case $option in {optional})
      echo "halcyon: this release of Triton has no ${{option%%=*}}; it is left out" >&2
      continue ;;
    esac ;;
  esac
  set -- "$@" "$option"
done
case ${POD_IP} in *:*) set -- "$@" --http-address=ipv6::: ;; esac
if test -e {repository}/{COMPLETE}; then
  case $known in *--disable-auto-complete-config*) set -- "$@" --disable-auto-complete-config ;; esac
fi
{_threads(repository)}rm -rf {repository}/{STUB_EXIT}* {_SHARED_MEMORY}
set -- tritonserver "$@"
test ! -x {_NVIDIA_ENTRYPOINT} || set -- {_NVIDIA_ENTRYPOINT} "$@"
{_watch(repository)}{_RUN}"""
    return ["/bin/sh", "-c", script, "tritonserver"]


def larger_bodies(max_request_bytes: int) -> list[str]:
    """Return the arguments with which Triton accepts HTTP bodies of `max_request_bytes`.

    The list is empty if Triton accepts them by default.
    """
    return [f"--http-max-input-size={max_request_bytes}"] if max_request_bytes > TRITON_BODY_BYTES else []


def direct_clients(*, drain_s: int) -> list[str]:
    """Return the Triton arguments for clients' gRPC channels: a maximum age, and permission for keepalive pings.

    Clients reconnect after the maximum age and thus find newer pods. Channels are not closed by force, so streams may
    last longer. By default, Triton closes a channel after three pings within 5 minutes, even while a request is in
    progress.
    """
    return [
        f"--grpc-max-connection-age={connection_age_ms(drain_s)}",
        f"--grpc-http2-min-recv-ping-interval-without-data={_PING_INTERVAL_MS}",
        "--grpc-keepalive-permit-without-calls=1",
    ]


def connection_age_ms(drain_s: int) -> int:
    """Return the maximum age of a gRPC channel, in milliseconds.

    It is shorter than the drain by more than gRPC's jitter of 10 %. A stopping pod waits until no client is connected,
    but not longer than the drain. Clients that connect in the first seconds of the drain must therefore reconnect
    before it ends.
    """
    return max(min(drain_s * 1000 * 2 // 3, MAX_AGE_MS), _MIN_AGE_MS)
