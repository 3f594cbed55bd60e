"""A tar.gz of texts, readable by its owner only. Not here: what is in it (`diagnose`)."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path

from halcyon_cli.errors import InputError


def write(file: Path, contents: Mapping[str, str], *, root: str, at: float) -> None:
    """Write texts by path, all under the folder `root`; `at` is their time, in seconds since the epoch.

    Raises:
        InputError: the file is there already, or can't be written.
    """
    try:
        # For the owner's eyes, and never over something else.
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as stream, tarfile.open(fileobj=stream, mode="w:gz") as archive:
            for path, text in sorted(contents.items()):
                content = text.encode()
                entry = tarfile.TarInfo(f"{root}/{path}")
                entry.size, entry.mtime, entry.mode = len(content), int(at), 0o600
                archive.addfile(entry, io.BytesIO(content))
    except FileExistsError:
        raise there_already(file) from None
    except OSError as error:
        raise InputError(f"{file}: can't be written: {error.strerror}; --no-bundle only tells the causes") from None


def there_already(file: Path) -> InputError:
    """That nothing is written over."""
    other = f"{str(file).removesuffix('.tar.gz')}-2.tar.gz"
    return InputError(f"{file}: is there already; give another name, for example --bundle {other}")
