"""The folder of `halcyon bench --save`: checked before anything is measured, and written after the result was shown.

Out of scope: the contents of the files (`halcyon_measure`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from halcyon_cli.arguments.options import warn
from halcyon_cli.errors import InputError

if TYPE_CHECKING:
    from halcyon_measure.results.document import BenchDocument


def check(folder: Path | None) -> None:
    """Create the folder, and check that a file can be written into it. None stands for no folder.

    Raises:
        InputError: the folder can't be created, or not be written to.
    """
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"--save {folder}: can't write files into it: {error.strerror or error}; for example --save /tmp/run"
        ) from None


def write(folder: Path | None, save: Callable[[Path], str]) -> bool:
    """Save a result that was shown, and return whether nothing failed. None stands for no folder.

    `save` writes the files, and returns what it wrote as a phrase.
    """
    if folder is None:
        return True
    try:
        warn("bench", f"wrote {save(folder)}")
    except OSError as error:
        warn("bench", f"--save {folder}: the result isn't complete there: {error.strerror or error}")
        return False
    return True


def write_document(folder: Path, document: BenchDocument, requests: bytes | None) -> str:
    """Write bench.json, and requests.npz if there is one, and return what was written as a phrase."""
    (folder / "bench.json").write_text(document.model_dump_json(indent=2) + "\n", "utf-8")
    if requests is None:
        return f"{folder}/bench.json; there is no requests.npz: too large, counted, or of several runs"
    (folder / "requests.npz").write_bytes(requests)
    return str(folder)
