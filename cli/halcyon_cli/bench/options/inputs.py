"""Options for the tensors of a request, and for the expected answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from halcyon_cli.arguments.options import AmountParam
from halcyon_cli.bench.options.group import option_group
from halcyon_cli.errors import InputError

if TYPE_CHECKING:
    from halcyon_measure.engine.hooks import HookSettings
    from halcyon_measure.engine.job import PayloadSettings


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """Values of the options for inputs."""

    inputs: Sequence[str] = ()
    rows: str = ""
    shapes: Sequence[str] = ()
    pixel_scale: float | None = None
    decode: bool = False
    prepare: str = ""
    finish: str = ""
    hook_processes: int = 1
    expect: str = ""

    @property
    def is_timed(self) -> bool:
        """Whether each request is prepared only when it is sent."""
        return bool(self.decode or self.prepare)

    def payload(self, *, preset: str, seed: int) -> PayloadSettings:
        """Return the source of the payloads.

        Raises:
            MeasureError, InputError: a file, a shape or the number of rows is invalid.
        """
        from halcyon_measure.engine.job import PayloadSettings  # noqa: PLC0415
        from halcyon_measure.inputs.payloads import Rows  # noqa: PLC0415
        from halcyon_measure.schedule.scenario import PRESET_ROWS  # noqa: PLC0415

        if self.decode and self.prepare:
            raise InputError("--decode and --prepare both prepare a request; leave one of them out")
        if self.is_timed and self.rows:
            option = "--decode, which sends each file" if self.decode else "--prepare, whose arrays have their own rows"
            raise InputError(f"--rows has no effect with {option}; leave it out")
        shapes = tuple(map(_shape, self.shapes))
        if repeated := [name for name, count in Counter(name for name, _ in shapes).items() if count > 1]:
            raise InputError(f"--shape {repeated[0]} is given twice; leave one of them out")
        return PayloadSettings(
            samples=() if self.is_timed else samples(self.inputs),
            rows=Rows.parse(self.rows or str(PRESET_ROWS.get(preset, 1))),
            has_chosen_rows=bool(self.rows),
            shapes=shapes,
            pixel_scale=self.pixel_scale,
            seed=seed,
        )

    def hooks(self) -> HookSettings:
        """Return the settings of the functions that prepare requests and process answers.

        Raises:
            MeasureError: an input file doesn't exist.
        """
        from halcyon_measure.engine.hooks import DECODE, HookSettings, sample_paths  # noqa: PLC0415

        return HookSettings(
            prepare=DECODE if self.decode else self.prepare,
            finish=self.finish,
            samples=sample_paths([path for _, path in map(parse_input, self.inputs)]) if self.is_timed else (),
            pixel_scale=self.pixel_scale,
            processes=self.hook_processes,
        )


input_options = option_group(
    "inputs",
    InputOptions,
    click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="[INPUT=]PATH",
        help="File, or folder of files, to send in turn. Default: random values for the inputs that the model requires.",
    ),
    click.option("--rows", default="", metavar="N", help="Rows of a request: 8, or 1..8. Default: 1."),
    click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="INPUT=N,N",
        help="Sizes of an input's open dimensions, without the rows.",
    ),
    click.option(
        "--pixel-scale",
        type=AmountParam(min=0, min_open=True),
        metavar="N",
        help="Value of a white pixel, if an input is an image.",
    ),
    click.option(
        "--decode", is_flag=True, help="Read and convert each file when its request is due, in processes of their own."
    ),
    click.option(
        "--prepare",
        default="",
        metavar="FILE.py:FUNCTION",
        help="Function that makes the tensors of a request, timed apart.",
    ),
    click.option(
        "--finish", default="", metavar="FILE.py:FUNCTION", help="Function that takes the outputs of an answer."
    ),
    click.option(
        "--hook-processes",
        type=int,
        default=InputOptions.hook_processes,
        metavar="N",
        help="Processes for these functions, for each process that sends. Default: 1.",
    ),
    click.option(
        "--expect", default="", metavar="FILE.npz", help="Outputs that every answer must have; others count as wrong."
    ),
)


def parse_input(argument: str) -> tuple[str, str]:
    """Parse [INPUT=]PATH into (input, path).

    If a file exists whose name is the whole text, including `INPUT=`, the text is the path.
    """
    name, sign, path = argument.partition("=")
    return (name, path) if sign and not Path(argument).exists() else ("", argument)


def samples(arguments: Sequence[str]) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return the files of each request: one per file of a folder, or a single list of all given files.

    Raises:
        MeasureError, InputError: a file doesn't exist, or a folder is combined with other inputs.
    """
    from halcyon_measure.engine.hooks import sample_paths  # noqa: PLC0415

    pairs = [parse_input(argument) for argument in arguments]
    if not pairs:
        return ()
    if len(pairs) == 1:
        name, path = pairs[0]
        return tuple(((name, file),) for file in sample_paths([path]))
    if folders := [path for _, path in pairs if Path(path).is_dir()]:
        raise InputError(f"--input {folders[0]} is a folder; it can't be combined with other inputs")
    return (tuple(pairs),)


def _shape(argument: str) -> tuple[str, tuple[int, ...]]:
    name, _, sizes = argument.rpartition("=")
    try:
        shape = tuple(int(size) for size in sizes.split(","))
    except ValueError:
        shape = ()
    if not name or not shape or min(shape) < 1:
        raise InputError(
            f"--shape {argument}: it must be INPUT=SIZES with sizes of 1 or more, for example --shape image=3,224,224"
        )
    return name, shape
