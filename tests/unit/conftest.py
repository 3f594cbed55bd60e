"""Settings of the unit tests, which may use neither a cluster nor the network."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.no_network import no_network

CACHE = os.environ.get("HALCYON_CACHE") or str(
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "halcyon"
)
"""Cache of built programs, in the real home directory, which is hidden from tests."""


@pytest.fixture(scope="session", autouse=True)
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Name no cluster, neither here nor to processes that a test starts: a home without a kubeconfig, and no variable of a cluster.

    Once for all tests: each of them undoes what it sets itself.
    """
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in [name for name in os.environ if name == "KUBECONFIG" or name.startswith("KUBERNETES_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("HALCYON_CACHE", CACHE)
        yield home


@pytest.fixture(autouse=True)
def _alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let nothing be connected to."""
    with no_network(request.node.nodeid):
        yield
