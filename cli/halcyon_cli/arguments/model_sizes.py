"""Arguments for batch sizes and for the sizes of a model's variable dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from halcyon_cli.errors import InputError


def parse_batches(argument: str) -> tuple[int, ...]:
    """Parse batch sizes such as 1,8,32.

    Raises:
        InputError: a size isn't a positive whole number.
    """
    sizes = [part.strip() for part in argument.split(",")] if argument else []
    for size in sizes:
        if not (size.isascii() and size.isdigit() and int(size)):
            raise InputError(f"--batch {argument}: '{size}' isn't a positive whole number; for example --batch 1,8,32")
    return tuple(sorted(set(map(int, sizes))))


def parse_dims(arguments: Sequence[str]) -> dict[str, int]:
    """Parse sizes of dimensions such as sequence=128.

    Raises:
        InputError: a text isn't NAME=N, or a name has two sizes.
    """
    sizes: dict[str, int] = {}
    for argument in arguments:
        name, _, size = argument.rpartition("=")
        if not name or not (size.isascii() and size.isdigit()):
            raise InputError(f"--dim {argument}: it must be NAME=N, for example --dim sequence=128")
        if sizes.setdefault(name, int(size)) != int(size):
            raise InputError(f"--dim {argument}: {name} has the size {sizes[name]} already; leave one of them out")
    return sizes
