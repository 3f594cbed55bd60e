"""The command `halcyon operator`: it parses the command line and runs the operator."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from collections.abc import Sequence

from halcyon.control.runtime import build, json_logging, process_metrics, settings
from halcyon.control.runtime.settings import OperatorSettings
from halcyon.control.runtime.tls_buffers import SmallBufferEventLoop
from halcyon.kube import errors, tracing
from halcyon.kube.client import connect
from halcyon.kube.clock import ClusterClock

log = logging.getLogger(__name__)


def main(argv: Sequence[str]) -> int:
    """Run the operator, and return the exit status: 0 if a signal stopped it, 1 after an error."""
    parser = argparse.ArgumentParser(prog="halcyon operator", description="Run the operator.")
    settings.add_arguments(parser)
    arguments = parser.parse_args(list(argv))
    json_logging.configure(arguments.log_level)
    status = 0
    try:
        with asyncio.Runner(loop_factory=SmallBufferEventLoop) as runner:
            runner.run(_run(settings.of(arguments)))
    except* errors.HalcyonError as group:
        log.error("the operator exits with an error", extra={"error": "; ".join(_messages(group))})  # noqa: TRY400  # the message suffices
        status = 1
    return status


def _messages(group: BaseExceptionGroup[BaseException]) -> list[str]:
    messages: list[str] = []
    for error in group.exceptions:
        messages += _messages(error) if isinstance(error, BaseExceptionGroup) else [str(error)]
    return messages


async def _run(options: OperatorSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    traces, version = options.traces, process_metrics.VERSION
    tracer = tracing.OFF if traces is None else tracing.connect(traces, instance=options.pod_name, version=version)
    clock = ClusterClock()
    fence = build.build_fence(options, clock)
    client = await connect(options.kubeconfig, fence=fence, tracer=tracer, clock=clock)
    try:
        await build.build(options, client, fence, tracer, clock).run(stop)
    finally:
        await client.close()
        await asyncio.to_thread(tracer.close)
