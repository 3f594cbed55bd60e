"""Reader of arrays from NumPy files (.npz, .npy). All kinds of damaged files raise the same error."""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

DAMAGES = (ValueError, EOFError, AttributeError, TypeError, NotImplementedError, struct.error, zlib.error, zipfile.BadZipFile)  # fmt: skip
"""Exceptions of NumPy and zipfile for files that are truncated, damaged, or not NumPy files."""


def arrays(source: Path | BinaryIO) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an .npz file by name, or the array of an .npy file with an empty name.

    The suffix of the file doesn't matter.

    Raises:
        ValueError: the file isn't a NumPy file, is truncated or damaged, or contains something other than arrays.
    """
    try:
        if isinstance(source, Path):
            with source.open("rb") as stream:
                return arrays(stream)
        loaded = np.load(source, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            members = {name: loaded[name] for name in loaded.files}
    except (OSError, *DAMAGES) as error:
        raise ValueError(str(error) or type(error).__name__) from None
    for name, value in members.items():
        if not isinstance(value, np.ndarray):
            raise ValueError(f"{name} in it isn't an array")  # noqa: TRY004  # as for other files
    return members
