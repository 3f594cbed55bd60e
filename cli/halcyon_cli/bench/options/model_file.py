"""Options for the file of the measured model, which shows the hardware's limit and the cost of the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from halcyon_cli.arguments.options import FILE
from halcyon_cli.bench.options.group import option_group
from halcyon_cli.errors import InputError


@dataclass(frozen=True, kw_only=True)
class ModelFileOptions:
    """Values of the options for the model's file."""

    onnx: Path | None = None
    dims: Sequence[str] = ()
    is_alone: bool = False
    has_roofline: bool = False
    gpu: str | None = None

    @property
    def is_set(self) -> bool:
        """Whether any of the options is given."""
        return bool(self.onnx or self.dims or self.is_alone or self.has_roofline or self.gpu)

    def check(self) -> None:
        """Check that the options fit together, before any request is sent.

        Raises:
            InputError: two options contradict each other.
        """
        if self.onnx is None and self.is_set:
            raise InputError("--dim, --alone, --roofline and --gpu need the file of the model: --onnx model.onnx")
        if self.gpu and self.has_roofline:
            raise InputError("--gpu has published peaks and --roofline measures this machine's; leave one of them out")


model_file_options = option_group(
    "model_file",
    ModelFileOptions,
    click.option("--onnx", type=FILE, metavar="FILE", help="ONNX file of the model, to show its operations and bytes."),
    click.option("--dim", "dims", multiple=True, metavar="NAME=N", help="Size of a symbolic dimension. Repeatable."),
    click.option(
        "--alone", "is_alone", is_flag=True, help="Run the file here, without a server, and show what the server costs."
    ),
    click.option("--roofline", "has_roofline", is_flag=True, help="Show the server below the peaks of this machine."),
    click.option("--gpu", metavar="PRODUCT", help="Show the server below the published peaks of a GPU."),
)
