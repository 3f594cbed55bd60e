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


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a home directory without a kubeconfig."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def _alone(request: pytest.FixtureRequest, empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide clusters from the test and its child processes, and forbid network connections."""
    for name in [name for name in os.environ if name == "KUBECONFIG" or name.startswith("KUBERNETES_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(empty_home))
    monkeypatch.setenv("HALCYON_CACHE", CACHE)
    with no_network(request.node.nodeid):
        yield
