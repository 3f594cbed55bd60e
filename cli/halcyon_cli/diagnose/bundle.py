"""Writer of the bundle of `halcyon diagnose`, a tar.gz of text files that only its owner can read.

Out of scope: its contents (`commands.diagnose`).
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path

from halcyon_cli.errors import InputError


def write(file: Path, contents: Mapping[str, str], *, root: str, at: float) -> None:
    """Write an archive with the folder `root`, which contains the texts in `contents`, given by path.

    `at` is the modification time of the files, in seconds since the epoch.

    Raises:
        InputError: the archive exists already, or can't be written.
    """
    try:
        # Create the file with permissions for the owner only, and never overwrite an existing file.
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as stream, tarfile.open(fileobj=stream, mode="w:gz") as archive:
            for path, text in sorted(contents.items()):
                content = text.encode()
                entry = tarfile.TarInfo(f"{root}/{path}")
                entry.size, entry.mtime, entry.mode = len(content), int(at), 0o600
                archive.addfile(entry, io.BytesIO(content))
    except FileExistsError:
        raise already_exists(file) from None
    except OSError as error:
        raise InputError(
            f"{file}: can't write it: {error.strerror}; with --no-bundle only the causes are printed"
        ) from None


def already_exists(file: Path) -> InputError:
    """Return the error for a bundle file that already exists."""
    other_name = f"{str(file).removesuffix('.tar.gz')}-2.tar.gz"
    return InputError(f"{file}: exists already; choose another name, for example --bundle {other_name}")
