"""JSON log lines on stderr, one object each. Only changes and failures are logged."""

from __future__ import annotations

import json
import sys
import time
from typing import Literal

from halcyon.api.timestamps import rfc3339

Level = Literal["info", "warning", "error"]


def log(level: Level, message: str, **fields: object) -> None:
    """Write one line. Values that JSON can't represent are written as their text."""
    line = {"time": rfc3339(time.time()), "level": level, "message": message, **fields}
    sys.stderr.write(json.dumps(line, default=str) + "\n")
    sys.stderr.flush()
