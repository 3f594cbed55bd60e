"""How long the unit tests take is a figure of the project; a run of a part of them is none."""

import time

import pytest

from tests import figures

_started = time.monotonic()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep the seconds of a whole run that passed; a worker of pytest-xdist is not the run."""
    if not hasattr(session.config, "workerinput") and session.config.args == ["tests/unit"] and exitstatus == 0:
        figures.record("unit_tests_s", round(time.monotonic() - _started, 1))
