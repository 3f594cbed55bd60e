"""The command line: `python -m e2e.cluster COMMAND`."""

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from e2e import interrupts
from e2e.cluster import binaries, cluster, node_loss, registry
from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.cluster.options import Options
from e2e.cluster.places import cache, names, place
from e2e.cluster.progress import say

_DESCRIPTION = """\
A real Kubernetes on this machine, for tests and the demo: API server, etcd, controllers and scheduler built from
pinned Go modules, containerd, the kubelet and CoreDNS in a network namespace of their own. Nothing of it reaches the
network or the machine's firewall, and `down` leaves nothing behind."""

_EPILOG = """\
Programs, images and clusters are kept in $HALCYON_CACHE (default ~/.cache/halcyon). A node needs root and Debian's
runc, containernetworking-plugins and iptables, which `up` installs with apt-get; --control-plane-only
needs neither. docs/cluster.md says more."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Return 0, 1 for an error on stderr, or 3 from `status` if a part isn't healthy."""
    options = _parser().parse_args(arguments)
    # so that `up` cleans up when it receives SIGTERM
    interrupts.heed()
    command: Callable[[argparse.Namespace], int] = options.run
    try:
        return command(options)
    except ClusterError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("stopped")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.cluster",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    named = argparse.ArgumentParser(add_help=False)
    named.add_argument("--name", default="halcyon", help="the cluster's name; several may be up (default: %(default)s)")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    up = commands.add_parser("up", parents=[named], help="bring a cluster up; the first time, build its programs")
    up.add_argument(
        "--hpa-sync",
        default="15s",
        metavar="DURATION",
        help="how often the HPA decides, e.g. 5s (default: %(default)s)",
    )
    up.add_argument(
        "--control-plane-only", action="store_true", help="no containers: KWOK plays a node; without root, on loopback"
    )
    up.add_argument("--gpus", type=int, default=8, help="nvidia.com/gpu on each node (default: %(default)s)")
    up.add_argument("--nodes", type=int, default=1, help="1, or 2: a second real node (default: %(default)s)")
    up.add_argument("--ipv6", action="store_true", help="IPv6 addresses only; with --control-plane-only")
    up.add_argument(
        "--history", action="store_true", help="keep every version of the objects, for lists and watches of the past"
    )
    up.add_argument(
        "--registry", action="store_true", help="an image registry for the node; `env` tells its address and its CA"
    )
    up.add_argument(
        "--image-dir",
        type=Path,
        metavar="DIR",
        help="load DIR/*.tar into the node, localhost/pause:3.10 among them (default: $HALCYON_CACHE/images)",
    )
    up.set_defaults(run=_up)

    down = commands.add_parser("down", parents=[named], help="end a cluster and remove all that it made")
    down.set_defaults(run=_down)
    status = commands.add_parser(
        "status", parents=[named], help="show a cluster's parts and their memory; exit status 3 if not all is well"
    )
    status.set_defaults(run=_status)
    env = commands.add_parser(
        "env", parents=[named], help='print shell lines for kubectl and helm: eval "$(python -m e2e.cluster env)"'
    )
    env.set_defaults(run=_env)
    load = commands.add_parser("load-image", parents=[named], help="load image archives (OCI or docker) into the node")
    load.add_argument("archive", nargs="+", type=Path, metavar="TAR")
    load.set_defaults(run=_load_image)
    for verb, run, effect in (
        ("lose-node", _lose_node, "turn off the second node: its processes and those of its pods are killed"),
        ("return-node", _return_node, "turn on the lost node, and wait until it is Ready"),
    ):
        of_node = commands.add_parser(verb, parents=[named], help=effect)
        of_node.add_argument("--network-only", action="store_true", help="only its network; its pods run on")
        of_node.set_defaults(run=run)
    logs = commands.add_parser("logs", parents=[named], help="show a component's log, also after a failed `up`")
    logs.add_argument("component", metavar="COMPONENT", help="e.g. kubelet; `status` lists them")
    logs.add_argument("--lines", type=int, default=50, help="how many, from the end (default: %(default)s)")
    logs.add_argument("--follow", "-f", action="store_true", help="go on as lines are written")
    logs.set_defaults(run=_logs)
    build = commands.add_parser("build", help="build the programs only, and print their directory")
    build.set_defaults(run=_build)
    return parser


def _up(options: argparse.Namespace) -> int:
    requested = Options(
        hpa_sync=options.hpa_sync,
        control_plane_only=options.control_plane_only,
        gpus=options.gpus,
        registry=options.registry,
        ipv6=options.ipv6,
        history=options.history,
        nodes=options.nodes,
    )
    cluster.up(options.name, requested, image_directory=options.image_dir)
    name = "" if options.name == "halcyon" else f" --name {options.name}"
    say(f'for kubectl and helm: eval "$(python -m e2e.cluster env{name})"')
    return 0


def _down(options: argparse.Namespace) -> int:
    began = time.monotonic()
    if cluster.down(options.name):
        say(f"{options.name} is down after {time.monotonic() - began:.1f} s")
    else:
        say(f"{options.name} is not up")
    return 0


def _status(options: argparse.Namespace) -> int:
    current = cluster.find(options.name)
    if current is None:
        other_names = ", ".join(names())
        print(f"{options.name}: down" + (f" (there are: {other_names})" if other_names else ""))
        return 3
    health = cluster.health(current)
    state = "up" if current.complete else "half-way: `up` is at work or was interrupted"
    with_nodes = "with a node" if current.options.nodes == 1 else f"with {current.options.nodes} nodes"
    print(f"{current.name}: {state}, {'control plane only' if current.options.control_plane_only else with_nodes}")
    print(f"  API server  {current.url}  {'ready' if health.api_ready else 'NOT READY'}")
    for name, ready in health.ready.items():
        print(f"  {name:<11} {'Ready' if ready else 'NOT READY'}, nvidia.com/gpu {current.options.gpus}")
    print(f"  HPA sync    {current.options.hpa_sync}")
    for component in current.components:
        memory = health.memory_mib.get(component)
        print(f"  {component:<24}" + (f"{memory:6.0f} MiB" if memory is not None else "MISSING"))
    if "pods" in health.memory_mib:
        print(f"  {'(in pods)':<24}{health.memory_mib['pods']:6.0f} MiB")
    print(f"  {'all':<24}{sum(health.memory_mib.values()):6.0f} MiB")
    return 0 if health.is_healthy else 3


def _env(options: argparse.Namespace) -> int:
    for variable, value in _variables(cluster.get(options.name)).items():
        print(f"export {variable}={shlex.quote(value)}")
    print(f'export PATH={shlex.quote(str(cluster.get(options.name).bin))}:"$PATH"')
    return 0


def _variables(running: Cluster) -> dict[str, str]:
    variables = {
        "KUBECONFIG": str(running.kubeconfig),
        "HALCYON_CLUSTER": running.name,
        "HALCYON_API_URL": running.url,
        "HALCYON_HOST_ADDRESS": running.network.host_address,
    }
    if not running.options.control_plane_only:
        # addresses reachable from this shell: http://POD-IP:PORT, http://CLUSTER-IP:PORT, http://NODE-ADDRESS:NODE-PORT
        variables |= {
            "HALCYON_NODE_ADDRESS": running.network.node_address,
            "HALCYON_POD_CIDR": running.network.pod_cidr,
            "HALCYON_SERVICE_CIDR": running.network.service_cidr,
        }
    if running.registry is not None:
        variables |= {"HALCYON_REGISTRY": running.registry, "SSL_CERT_FILE": str(registry.trusting(running.place))}
    return variables


def _load_image(options: argparse.Namespace) -> int:
    for archive in options.archive:
        say(f"loaded {', '.join(cluster.load_image(options.name, archive)) or archive}")
    return 0


def _lose_node(options: argparse.Namespace) -> int:
    node_loss.lose(options.name, network_only=options.network_only)
    return 0


def _return_node(options: argparse.Namespace) -> int:
    node_loss.bring_back(options.name, network_only=options.network_only)
    return 0


def _logs(options: argparse.Namespace) -> int:
    directory = place(options.name).log
    log = directory / f"{options.component}.log"
    if not log.is_file():
        components = ", ".join(sorted(file.stem for file in directory.glob("*.log")))
        raise ClusterError(f"no log of {options.component} in {directory}; there are: {components or 'none'}")
    sys.stdout.flush()
    follow = ["--follow"] if options.follow else []
    return subprocess.run(["tail", f"--lines={options.lines}", *follow, str(log)], check=False).returncode


def _build(_options: argparse.Namespace) -> int:
    print(binaries.ensure())
    say(f"programs are in {cache() / 'bin'}")
    return 0
