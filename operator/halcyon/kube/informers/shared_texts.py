"""Pool of strings that cached objects share, so that equal strings are in memory only once.

Most strings in objects of a kind are the same few hundred: types, reasons and messages of conditions, and field values.
The JSON parser makes a new string for each occurrence.
"""

from __future__ import annotations

from typing import Any

MAX_TEXTS = 2048
"""Number of strings above which the pool is emptied. Strings that occur once, such as uids and times, would otherwise
fill the memory. `sys.intern` is no substitute: some versions of Python keep its strings until the process ends."""


class SharedTexts:
    """Pool of strings from recently cached objects."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def share(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Replace the strings in a JSON object with equal ones of earlier objects, and return the object."""
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
