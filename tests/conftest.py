"""What all tests share: hypothesis measures no time here, since these machines are noisy and a slow minute is no defect."""

import gc
import sys

import pytest
from hypothesis import HealthCheck, settings

_USUAL = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same examples in every run, so that a change is judged by what it changes; `make properties` draws others, and many of them.
settings.register_profile("halcyon", _USUAL, max_examples=10, derandomize=True)
settings.register_profile("thorough", _USUAL, max_examples=1000)
settings.load_profile("halcyon")

# Thousands of tests are hundreds of thousands of objects that live to the end, and each collection looks through them again. What a
# test leaves behind is found by the collections that remain.
gc.set_threshold(50_000, 20, 100)

# jsonschema compiles the grammars of the rfc3987 package when it is imported, for two seconds: for formats that no test checks.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # None makes an import fail, as if it weren't installed


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave the modules and the collected tests out of each collection of garbage: they live to the end."""
    gc.collect()
    gc.freeze()
