"""Pool of texts that cached objects share, so that equal texts are in memory once.

Most texts of a kind of object are the same few hundred: types, reasons and messages of conditions, and values of fields.
The JSON parser makes a new text for each of them.
"""

from __future__ import annotations

from typing import Any

MAX_TEXTS = 2048
"""Number of texts above which the pool is emptied. Texts that occur once, such as uids and times, would otherwise fill the
memory. `sys.intern` is no substitute: some versions of Python keep its texts until the process ends."""


class SharedTexts:
    """Pool of texts from recently cached objects."""

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
