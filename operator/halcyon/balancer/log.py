"""Log lines: one JSON object each, on stderr. Few: what changed, and what failed."""

from __future__ import annotations

import json
import sys
import time
from typing import Literal

Level = Literal["info", "warning", "error"]


def log(level: Level, message: str, **fields: object) -> None:
    """Write one line. Values that JSON doesn't know are written as their text."""
    line = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "level": level, "message": message, **fields}
    sys.stderr.write(json.dumps(line, default=str) + "\n")
    sys.stderr.flush()
