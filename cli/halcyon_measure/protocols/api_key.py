"""API key of a client, read from a file or from the folder of a mounted Secret."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from halcyon_measure.errors import SettingError

_SENDABLE: Final = re.compile(r"[!-~]+")
_VALID: Final = re.compile(r"[!-~]{16,512}")
"""Pattern of the API keys that Halcyon's balancers accept. Other entries of a Secret are ignored, as in the
balancers."""


def authorization(path: Path) -> tuple[str, str]:
    """Return the request header with the API key in a file, or with the first valid API key in a folder.

    Raises:
        SettingError: there is no API key, or the key isn't valid in a header. The message doesn't contain the key.
    """
    try:
        if path.is_dir():
            # A mounted Secret has hidden files of Kubernetes, whose names begin with two dots.
            files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith(".."))
            keys = [key for key in map(_text, files) if _VALID.fullmatch(key)]
            if not keys:
                raise SettingError(
                    f"{path}: none of the {len(files)} files has a valid API key; it must have 16 to 512 visible ASCII characters"
                )
            return _header(keys[0])
        key = _text(path)
    except OSError as error:
        raise SettingError(f"{path}: can't read an API key: {error.strerror}") from None
    if not _SENDABLE.fullmatch(key):
        raise SettingError(f"{path} is not an API key; it must be one line of visible ASCII characters, without spaces")
    return _header(key)


def _text(file: Path) -> str:
    return file.read_bytes().decode("ascii", errors="replace").strip()


def _header(key: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {key}"
