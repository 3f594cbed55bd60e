"""Entry point of `halcyon agent`: command line, signals and exit status."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from halcyon.triton.json_log import log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from halcyon.balancer.agent.settings import AgentSettings
    from halcyon.balancer.discovery.kube_watch import ApiServerAccess

_TERMINATION_LOG = Path("/dev/termination-log")
EXIT_TIMEOUT_S = 2.0
"""Maximum time from SIGTERM to exit, in seconds. As a native sidecar, the agent receives SIGTERM after HAProxy has exited."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the agent's options to the parser."""
    parser.add_argument("--namespace", required=True, help="namespace of the ModelDeployment")
    parser.add_argument("--plan", required=True, metavar="NAME", help="ConfigMap that holds the accepted plan")
    parser.add_argument(
        "--run-dir",
        type=Path,
        default=Path("/run/halcyon"),
        help="directory shared with HAProxy (default: %(default)s)",
    )
    parser.add_argument(
        "--certificate-secret", default="", metavar="NAME", help="Secret with the TLS certificate and key"
    )
    parser.add_argument(
        "--clients-secret", default="", metavar="NAME", help="Secret with the CA certificates of clients"
    )
    parser.add_argument("--keys-secret", default="", metavar="NAME", help="Secret with the clients' API keys")
    parser.add_argument(
        "--collector", default="", metavar="HOST:PORT", help="address for reports (default: the address in the plan)"
    )
    parser.add_argument("--collector-name", default="", metavar="NAME", help="name in the collector's certificate")
    parser.add_argument(
        "--drain-key",
        default="",
        metavar="KEY",
        help="key that a request to /drain must have; default: /drain is closed",
    )
    parser.add_argument("--port", type=int, default=9100, help="port of the probes (default: %(default)s)")


def settings(arguments: argparse.Namespace) -> AgentSettings:
    """Return the settings from the parsed arguments; the pod's name comes from the environment."""
    from halcyon.balancer.agent.settings import (  # noqa: PLC0415 - `halcyon --help` needs no network code
        AgentSettings,
        collector_address,
    )
    from halcyon.balancer.secrets.mounted_secrets import SecretNames  # noqa: PLC0415 - same

    front = SecretNames(arguments.certificate_secret, arguments.clients_secret, arguments.keys_secret)
    return AgentSettings(
        namespace=arguments.namespace,
        plan=arguments.plan,
        pod=os.environ.get("POD_NAME") or socket.gethostname(),
        run_dir=arguments.run_dir,
        port=arguments.port,
        drain_key=arguments.drain_key,
        front=front if front != SecretNames() else None,
        collector=collector_address(arguments.collector, arguments.collector_name),
    )


def run_agent(chosen: AgentSettings) -> int:
    """Run the agent until SIGTERM or SIGINT, and return its exit status."""
    from halcyon.balancer.discovery.kube_watch import ApiServerAccess, KubeError  # noqa: PLC0415 - same as above

    try:
        access = ApiServerAccess.in_cluster(chosen.secrets / "kubernetes.io/serviceaccount")
    except KubeError as error:
        log("error", "the agent can't start", error=str(error))
        return 1
    # All objects that exist now live as long as the process, so the garbage collector can skip them.
    gc.collect()
    gc.freeze()
    try:
        asyncio.run(_run(chosen, access))
    except KubeError as error:
        log("error", "the agent can't continue", error=str(error))
        if _TERMINATION_LOG.exists():
            # The kubelet copies this message into the pod's status, from which the operator reads it.
            _TERMINATION_LOG.write_text(str(error))
        return 1
    return 0


async def _run(chosen: AgentSettings, access: ApiServerAccess) -> None:
    from halcyon.balancer.agent.agent import Agent  # noqa: PLC0415 - same as above

    stop, signalled = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled.set)
    agent = Agent(chosen, access)

    async def end() -> None:
        await signalled.wait()
        try:
            async with asyncio.timeout(EXIT_TIMEOUT_S):
                await agent.haproxy_ended()
        except TimeoutError:
            pass
        stop.set()

    ending = asyncio.ensure_future(end())
    log("info", "the agent has started", plan=f"{chosen.namespace}/{chosen.plan}")
    try:
        await agent.run(stop)
    finally:
        ending.cancel()
    log("info", "the agent has stopped")


def main(argv: Sequence[str] | None = None) -> int:
    """Run `halcyon agent` with the arguments, and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="halcyon agent", description="Configures and monitors the HAProxy in the same pod."
    )
    add_arguments(parser)
    return run_agent(settings(parser.parse_args(argv)))
