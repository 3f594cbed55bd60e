"""Structured logging, with one JSON object per line on stderr. Callers log only changes and failures."""

from __future__ import annotations

import json
import sys
import time
from typing import Literal

from halcyon.api.timestamps import rfc3339

Level = Literal["info", "warning", "error"]


def log(level: Level, message: str, **fields: object) -> None:
    """Write one log line. Values that JSON cannot represent are converted with `str`."""
    line = {"time": rfc3339(time.time()), "level": level, "message": message, **fields}
    sys.stderr.write(json.dumps(line, default=str) + "\n")
    sys.stderr.flush()
