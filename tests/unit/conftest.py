"""Settings of the unit tests, which may use neither a cluster nor the network."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.no_network import no_network

CACHE = os.environ.get("HALCYON_CACHE") or str(
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "halcyon"
)
"""Cache of built programs, in the real home directory, which is hidden from tests."""


_held = pytest.StashKey[ExitStack]()
_home = pytest.StashKey[TemporaryDirectory[str]]()

# Hooks and not fixtures that each test uses: these would take a quarter of what pytest itself needs for a small test.


def _empty_home(config: pytest.Config) -> None:
    """Name no cluster, neither here nor to processes that a test starts: a home without a kubeconfig, and no variable of a cluster.

    Once for all tests: each of them undoes what it sets itself.
    """
    home = config.stash[_home] = TemporaryDirectory(prefix="home-")
    monkeypatch = pytest.MonkeyPatch()
    config.add_cleanup(home.cleanup)
    config.add_cleanup(monkeypatch.undo)
    for name in [name for name in os.environ if name == "KUBECONFIG" or name.startswith("KUBERNETES_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", home.name)
    monkeypatch.setenv("HALCYON_CACHE", CACHE)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Let nothing be connected to, from before the test's first fixture."""
    if _home not in item.config.stash:
        _empty_home(item.config)
    held = item.stash[_held] = ExitStack()
    held.enter_context(no_network(item.nodeid))
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Allow connections again after the test's last fixture; fail if one was attempted and the error was caught."""
    with item.stash[_held]:
        return (yield)
