"""Execution of perf_analyzer after a run of Halcyon's engine, with the same load."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from halcyon_measure.errors import MeasureError
from halcyon_measure.measurement import Measurement
from halcyon_measure.perf_analyzer import command_line, program, reading, request_data, section
from halcyon_measure.perf_analyzer.program import Program, ProgramError
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.sections.second_engine import SecondEngine

_LARGER_THRESHOLD = "for example --perf-analyzer-option stability-percentage=20, or a longer --duration"
_INTERRUPTED = "it was interrupted"


@dataclass(frozen=True)
class Engine:
    """The installed perf_analyzer, with options of its own."""

    program: Program
    options: tuple[str, ...] = ()

    @classmethod
    def checked(cls, measurement: Measurement, options: Sequence[str]) -> Engine:
        """Return the engine, after checking that it is installed and can generate the load of a prepared measurement.

        Raises:
            MeasureError: it isn't installed, or lacks a feature that the measurement uses.
        """
        command_line.check(measurement, options)
        payloads = measurement.payload.payloads(measurement.target)
        request_data.common_rows(payloads)
        request_data.text(payloads, measurement.target.inputs)
        return cls(program.installed(), tuple(options))

    def measure(self, measurement: Measurement, document: BenchDocument, show: Callable[[str], None]) -> BenchDocument:
        """Return the document of a run with the section `second_engine`.

        Ctrl-C ends perf_analyzer, and the section has no figures.

        Args:
            measurement: the measurement, with the scenario of the run.
            document: document of the run.
            show: function that shows progress.
        """
        show(f"{program.NAME}: the same load")
        return document.model_copy(update={"second_engine": self._section(measurement, document)})

    def _section(self, measurement: Measurement, document: BenchDocument) -> SecondEngine:
        if document.run.partial:
            return section.without_result(document, self.program, None, _INTERRUPTED)
        target = measurement.target
        command = None
        try:
            command_line.check(measurement, self.options)  # a point of a sweep may have another encoding
            payloads = measurement.payload.payloads(target)
            rows = request_data.common_rows(payloads)
            data, count = request_data.text(payloads, target.inputs)
            command = command_line.build(
                target,
                measurement.scenario,
                self.options,
                rows=rows,
                measured_s=document.run.measured_s,
            )
            if count < len(payloads):
                note = f"it sends the first {count} of the {len(payloads)} different requests, because its data file is limited to {request_data.MAX_BYTES >> 20} MiB"
                command = replace(command, limits=(*command.limits, note))
            if measurement.expect:
                command = replace(command, limits=(*command.limits, "it doesn't check the responses against --expect"))
            with tempfile.TemporaryDirectory(prefix="halcyon-perf-analyzer-") as name:
                folder = Path(name)
                (folder / command_line.DATA).write_text(data, "utf-8")
                (folder / command_line.GAPS).write_text("".join(f"{gap}\n" for gap in command.gaps_us), "utf-8")
                output = program.execute(self.program.path, command.arguments, limit_s=command.limit_s, folder=name)
                path = folder / command_line.TABLE
                table = path.read_text("utf-8") if path.exists() else ""
        except (MeasureError, ProgramError) as error:
            return section.without_result(document, self.program, command, str(error))
        except KeyboardInterrupt:
            return section.without_result(document, self.program, command, _INTERRUPTED)
        result = reading.parse(table, output.text, rows=rows)
        if result is None:
            reason = program.message(output)
            hint = f"; {_LARGER_THRESHOLD}" if "stable measurement" in reason else ""
            return section.without_result(document, self.program, command, f"{reason}{hint}")
        return section.build(document, self.program, command, result)
