"""Text of files that people name."""

from __future__ import annotations

import sys
from pathlib import Path

from halcyon_cli.errors import InputError

STDIN = Path("-")
"""For commands that read standard input where they are given this file."""


def name(file: Path) -> str:
    """What errors call the file."""
    return "stdin" if file == STDIN else str(file)


def text(file: Path, *, most_bytes: int, hint: str) -> str:
    """The whole file, of UTF-8; `hint` ends the sentence about one that is larger than `most_bytes`.

    Raises:
        InputError: it can't be read, or is too large.
    """
    try:
        if file == STDIN:
            content = sys.stdin.buffer.read(most_bytes + 1)
        else:
            with file.open("rb") as stream:
                content = stream.read(most_bytes + 1)
        if len(content) > most_bytes:
            raise InputError(f"{name(file)}: is larger than {most_bytes // 2**20} MiB{hint}")
        return content.decode()
    except OSError as error:
        raise InputError(f"{name(file)}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{name(file)}: not UTF-8: {error.reason} at byte {error.start}") from None
