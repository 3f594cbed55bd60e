"""Display of the running demo: a live view on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from demo import figures
from demo.watch import ModelSample
from e2e.load.settings import Report

_LINE_EVERY_S = 5.0


class Screen:
    """Display of the steps and of the watched model. Thread-safe, because several threads report to it."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stdout, highlight=False, soft_wrap=True)
        self._live = (
            Live(get_renderable=self._render, console=self.console, refresh_per_second=4, transient=True)
            if self.console.is_terminal
            else None
        )
        self._lock = threading.RLock()
        self._title: str | None = None
        self._began_s = self._step_began_s = time.monotonic()
        self._sample: ModelSample | None = None
        self._report: Report | None = None
        self._load = ""
        self._printed: tuple[int, int] | None = None
        self._printed_s = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def step(self, title: str) -> None:
        """Begin a step. If the previous step has not been ended, it counts as done."""
        with self._lock:
            self._close()
            self._title, self._step_began_s = title, time.monotonic()
        if self._live is None:
            self._print(Text(f"       .. {title}"))

    def end(self, result: str = "", *, ok: bool = True) -> None:
        """End the step with its result."""
        with self._lock:
            self._close(result, ok=ok)

    def note(self, text: str) -> None:
        """Print a line that stays on the screen."""
        self._print(Text(f"          {text}"))

    def load(self, title: str) -> None:
        """Set the name of the load to which the following reports belong; empty for none."""
        with self._lock:
            self._load, self._report = title, None

    def sample(self, sample: ModelSample) -> None:
        """Show a new observation of the watched model."""
        with self._lock:
            self._sample = sample
        if self._live is None:
            self._print_sample(sample)

    def report(self, report: Report) -> None:
        """Show a report on one second of the load."""
        with self._lock:
            self._report = report

    def forget(self) -> None:
        """Stop showing a model."""
        with self._lock:
            self._sample = self._report = None
            self._load = ""

    def _close(self, result: str = "", *, ok: bool = True) -> None:
        if self._title is None:
            return
        line = Text(f"{time.monotonic() - self._began_s:6.1f} s ")
        line.append("ok " if ok else "NO ", style="green" if ok else "bold red")
        line.append(f"{self._title} ({time.monotonic() - self._step_began_s:.1f} s)")
        line.append(f": {result}" if result else "")
        self._title = None
        self._print(line)

    def _print(self, text: Text) -> None:
        self.console.print(text)

    def _print_sample(self, sample: ModelSample) -> None:
        """Print an observation if the replicas have changed; otherwise only every few seconds."""
        now, replicas = time.monotonic(), (sample.replicas, sample.ready)
        with self._lock:
            if replicas == self._printed and now - self._printed_s < _LINE_EVERY_S:
                return
            self._printed, self._printed_s = replicas, now
            words = [f"{name} {value}" for name, value in self._cells(sample)]
        self._print(Text("          " + "  ".join(words)))

    def _cells(self, sample: ModelSample) -> list[tuple[str, str]]:
        gpu_percent = sample.gpu_mean_percent
        cells = [
            ("replicas", f"{sample.ready}/{sample.replicas}"),
            ("queue", "-" if sample.queue is None else f"{sample.queue:.0f}"),
            ("GPU", "-" if gpu_percent is None else f"{gpu_percent:.0f} %"),
        ]
        report = self._report
        if report is not None:
            cells += [
                ("batch", "-" if report.mean_batch is None else f"{report.mean_batch:.1f}"),
                ("p50", "-" if report.p50_ms is None else f"{report.p50_ms:.0f} ms"),
                ("p99", "-" if report.p99_ms is None else f"{report.p99_ms:.0f} ms"),
                ("req/s", f"{report.rate_rps:.0f}"),
            ]
            counts = figures.failures(report.failures)
            if counts["rejected_requests"]:
                cells.append(("rejected", str(counts["rejected_requests"])))
            cells.append(("failed", str(counts["failed_requests"])))
        return cells

    def _render(self) -> RenderableType:
        with self._lock:
            parts: list[RenderableType] = []
            if self._title is not None:
                seconds = time.monotonic() - self._step_began_s
                parts.append(Spinner("dots", text=f"{self._title} ({seconds:.0f} s)"))
            if self._sample is not None:
                grid = Table(title=self._load or "no load", title_justify="left", expand=False)
                cells = self._cells(self._sample)
                for name, _ in cells:
                    grid.add_column(name, justify="right", min_width=8)
                grid.add_row(*(value for _, value in cells))
                parts.append(grid)
                parts.append(_bars(self._sample))
            return Group(*parts)


def _bars(sample: ModelSample) -> Text:
    text = Text("pods  ")
    text.append("#" * sample.ready, style="green")
    text.append("+" * max(sample.replicas - sample.ready, 0), style="yellow")
    text.append("   # ready   + wanted", style="dim")
    return text
