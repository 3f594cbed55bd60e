"""Arrays in a file of NumPy, .npz or .npy. A file that is cut off, damaged or of another kind is one kind of error."""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

DAMAGES = (ValueError, EOFError, AttributeError, TypeError, NotImplementedError, struct.error, zlib.error, zipfile.BadZipFile)  # fmt: skip
"""Errors of NumPy and of the archive for files that are cut off, damaged, or no files of NumPy."""


def arrays(source: Path | BinaryIO) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an .npz file by name, or that of an .npy file with an empty name, whatever the file's suffix.

    Raises:
        ValueError: the file isn't one of NumPy, is cut off or damaged, or contains something else than arrays.
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
