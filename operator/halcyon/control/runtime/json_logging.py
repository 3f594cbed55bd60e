"""Logging in JSON. Each message is an object on one line, with the details of the message in separate fields."""

from __future__ import annotations

import json
import logging
import sys

from halcyon.api.timestamps import rfc3339

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formatter that writes a log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as a JSON object with time, level, logger, message and extra fields."""
        line = {
            "time": rfc3339(record.created, "milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{k: v for k, v in vars(record).items() if k not in _STANDARD and not k.startswith("_")},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _Retries(logging.Filter):
    """Filter that turns errors of kopf into warnings if kopf will retry. A final failure stays an error."""

    def filter(self, record: logging.LogRecord) -> bool:
        if (
            record.levelno == logging.ERROR
            and record.name.startswith("kopf.")
            and "; will retry" in record.getMessage()
        ):
            record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        return True


def configure(level: str) -> None:
    """Configure logging in JSON to standard error. `level` is the lowest level that is logged."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(_Retries())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
