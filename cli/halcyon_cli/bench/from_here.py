"""A measurement from where the command runs: from its options to its run and document.

Out of scope: the load itself and its statistics (`halcyon_measure`).
"""

from __future__ import annotations

import signal
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

from halcyon_cli.bench.options.inputs import InputOptions
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.bench.options.sampling import SamplingOptions
from halcyon_cli.bench.options.server import ServerOptions

if TYPE_CHECKING:
    from halcyon_measure.measurement import Measurement
    from halcyon_measure.results.document import BenchDocument
    from halcyon_measure.results.run import Run
    from halcyon_measure.results.settling import Block


def measurement(
    server: ServerOptions, load: LoadOptions, inputs: InputOptions, sampling: SamplingOptions
) -> Measurement:
    """Return the measurement of the command's options.

    Raises:
        MeasureError, InputError: an option is invalid, or two don't fit each other.
    """
    from halcyon_measure.measurement import Measurement  # noqa: PLC0415  # NumPy and the clients take a second to import

    preset = load.preset or ""
    target = server.target()
    payload = inputs.payload(preset=preset, seed=load.seed)
    return Measurement(
        target=target,
        scenario=load.made_scenario(),
        preset=preset,
        payload=payload,
        hooks=inputs.hooks(),
        warm_up=load.made_warm_up(),
        processes=load.processes,
        objective_s=load.objective,
        expect=inputs.expect,
        pod_header=server.pod_header.lower(),
        sampling=sampling.settings(),
        prices=sampling.prices(),
    )


def run(prepared: Measurement) -> tuple[Run, BenchDocument]:
    """Run a prepared measurement, with one line of progress if stderr is a terminal.

    Raises:
        MeasureError: a process of the load failed.
    """
    # A Job's end, like Ctrl-C, gives the result so far.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    shown = sys.stderr.isatty()
    made = prepared.run(_Progress() if shown else None)
    if shown:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return made, prepared.document(made, made_by=f"halcyon {version('halcyon-operator')}")


class _Progress:
    """One line on stderr that is rewritten each second."""

    def __call__(self, phase: str, seconds: float, block: Block) -> None:
        middle = f", median {1000 * block.median_s:.1f} ms" if block.median_s is not None else ""
        failed = f", {block.failed} failed" if block.failed else ""
        print(
            f"\r\033[K{phase} {seconds:.0f} s: {block.answered}/s{failed}{middle}", end="", file=sys.stderr, flush=True
        )
