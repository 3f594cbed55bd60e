"""Settings for all tests. Hypothesis has no deadlines, because timing on shared machines varies too much."""

import gc
import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

# Commands that tests run wrap and colour their output by these. CI makes pytest's summaries longer.
for _name in ("CI", "BUILD_NUMBER", "COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "PY_COLORS", "CLICOLOR_FORCE"):
    os.environ.pop(_name, None)
os.environ["TERM"] = "xterm"

_USUAL = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Use the same examples in every run, so that a difference is caused by the change under test. `make properties` draws
# new ones, and many more.
settings.register_profile("halcyon", _USUAL, max_examples=10, derandomize=True)
settings.register_profile("thorough", _USUAL, max_examples=1000)
settings.load_profile("halcyon")


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Draw no constant of our own source in the usual profile: the examples would depend on the modules that are loaded.

    So they would differ between a file alone and all files. Reading the constants takes four seconds of processor time
    on a fresh clone and one later. `make properties` draws them: Hypothesis loads the profile of its option before this.
    """
    if settings.get_current_profile_name() == "halcyon":
        pytest.MonkeyPatch().setattr(providers, "_get_local_constants", lambda: _NO_CONSTANTS)


_NO_CONSTANTS = Constants()

# Thousands of tests create hundreds of thousands of objects that live to the end, and each collection visits them. So
# collections are less frequent; they still find the garbage that a test leaves behind.
gc.set_threshold(200_000, 20, 100)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave the modules and the collected tests out of each collection of garbage: they live to the end."""
    gc.collect()
    gc.freeze()
