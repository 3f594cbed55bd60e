"""Texts in cached objects, of which equal ones are in memory once.

The objects of a kind have the same few hundred texts: types, reasons and messages of conditions, and values of fields. The
JSON parser makes a new text for each of them.
"""

from __future__ import annotations

from typing import Any

MAX_TEXTS = 2048
"""Maximum number of texts that are remembered. Texts of single objects, such as uids and times, are among them, so they are
all dropped when there are more. `sys.intern` would keep them until the process ends, with some versions of Python."""


class SharedTexts:
    """Texts of the newest objects."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def share(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Replace the texts in a JSON object by equal ones of earlier objects, and return the object."""
        if len(self._texts) > MAX_TEXTS:
            self._texts.clear()
        setdefault = self._texts.setdefault
        parts: list[Any] = [obj]
        while parts:
            part = parts.pop()
            for key, value in part.items() if isinstance(part, dict) else enumerate(part):
                if isinstance(value, str):
                    part[key] = setdefault(value, value)
                elif isinstance(value, dict | list):
                    parts.append(value)
        return obj
