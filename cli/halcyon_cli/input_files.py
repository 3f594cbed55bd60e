"""Reader for the text files that users pass as arguments."""

from __future__ import annotations

import sys
from pathlib import Path

from halcyon_cli.errors import InputError

STDIN = Path("-")
"""Path `-`, which stands for standard input."""


def name(file: Path) -> str:
    """Return the name of a file for error messages."""
    return "stdin" if file == STDIN else str(file)


def text(file: Path, *, max_bytes: int, hint: str) -> str:
    """Read a whole file as UTF-8. If it is larger than `max_bytes`, the error message ends with `hint`.

    Raises:
        InputError: the file can't be read, or is too large.
    """
    try:
        if file == STDIN:
            content = sys.stdin.buffer.read(max_bytes + 1)
        else:
            with file.open("rb") as stream:
                content = stream.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise InputError(f"{name(file)}: larger than {max_bytes // 2**20} MiB{hint}")
        return content.decode("utf-8-sig")  # editors on Windows begin a file with a byte order mark
    except OSError as error:
        raise InputError(f"{name(file)}: can't read it: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{name(file)}: not UTF-8: {error.reason} at byte {error.start}") from None
