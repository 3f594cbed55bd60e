"""The folder of `halcyon bench --save`, which is checked before the measurement and written after the result is shown.

Out of scope: the contents of the files (`halcyon_measure`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from halcyon_cli import output_files
from halcyon_cli.arguments.options import warn
from halcyon_cli.errors import InputError

if TYPE_CHECKING:
    from halcyon_measure.results.document import BenchDocument

_REQUESTS = frozenset({"requests.npz", "histogram.npz"})


def check(folder: Path | None) -> None:
    """Create the folder, and check that a file can be written to it. Do nothing if the folder is None.

    Raises:
        InputError: the folder can't be created or written to.
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
    """Save a result that was already shown, and return whether this succeeded. Do nothing if the folder is None.

    `save` writes the files to a folder, and returns a phrase that names them. If a file can't be written, all files of an
    earlier result stay as they are.
    """
    if folder is None:
        return True
    try:
        with tempfile.TemporaryDirectory(prefix=output_files.PREFIX, dir=folder) as staged:
            phrase = save(Path(staged)).replace(staged, str(folder))
            files = sorted(Path(staged).iterdir())
            for file in files:
                output_files.move(file, folder / file.name)
            for name in _REQUESTS - {file.name for file in files}:
                (folder / name).unlink(missing_ok=True)  # of an earlier result, whose bench.json is replaced
        warn("bench", f"wrote {phrase}")
    except OSError as error:
        warn("bench", f"--save {folder}: the result isn't complete there: {error.strerror or error}")
        return False
    return True


def write_document(folder: Path, document: BenchDocument, requests: bytes | None) -> str:
    """Write bench.json, and requests.npz if there is one, and return a phrase that names the written files."""
    (folder / "bench.json").write_text(document.model_dump_json(indent=2) + "\n", "utf-8")
    if requests is None:
        return f"{folder}/bench.json; there is no requests.npz: too large, counted, or of several runs"
    (folder / "requests.npz").write_bytes(requests)
    return str(folder)
