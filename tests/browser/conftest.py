"""Fixtures of the browser tests: a cluster, a fleet of 5,000 models with two operators, a simulated fleet, and the browser.

`make test-browser` runs these tests. Without Playwright, no tests are collected.
"""

import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.browser.figures import add_samples
from tests.browser.fleet import Fleet, filled
from tests.browser.patience import PATIENCE_MS
from tests.integration.conftest import cluster, kubectl, namespace
from tests.integration.operator_process import Operator, running
from tests.integration.operator_space import Space
from tests.ports import free_ports

__all__ = ["cluster", "kubectl", "namespace"]

if find_spec("playwright") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from playwright.sync_api import Browser, Page, expect, sync_playwright

    expect.set_options(timeout=PATIENCE_MS)

    @pytest.fixture(scope="session")
    def browser() -> Iterator[Browser]:
        """Start the system's Chromium."""
        with sync_playwright() as playwright:
            flags = ["--no-sandbox"] if os.geteuid() == 0 else []
            chromium = playwright.chromium.launch(executable_path=os.environ["HALCYON_CHROMIUM"], args=flags)
            yield chromium
            chromium.close()

    @pytest.fixture(scope="session")
    def simulated() -> str:
        """Serve the dashboard of a fleet under simulated load, and return its URL."""
        from tests.browser.screenshots import serve  # noqa: PLC0415  # needs Playwright
        from tests.browser.simulated_fleet import SimulatedFleet  # noqa: PLC0415

        return serve(SimulatedFleet())

    @pytest.fixture
    def bare(browser: Browser) -> Iterator[Page]:
        """Open a page in its own browser context."""
        context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
        yield context.new_page()
        context.close()

    @pytest.fixture
    def page(bare: Page) -> Iterator[Page]:
        """Open a page, and fail the test if the browser's console has warnings or errors at the end."""
        complaints: list[str] = []
        bare.on(
            "console", lambda message: complaints.append(message.text) if message.type in {"error", "warning"} else None
        )
        bare.on("pageerror", lambda error: complaints.append(str(error)))
        yield bare
        add_samples("console", [complaints])
        assert complaints == []


@pytest.fixture(scope="session")
def fleet(cluster, tmp_path_factory) -> Iterator[Fleet]:  # noqa: ANN001  # fixtures of another module
    """Create 5,000 models, and two standby operators with them in their caches: with and without the dashboard."""
    with filled(cluster, tmp_path_factory.mktemp("fleet")) as created:
        yield created


@pytest.fixture(scope="session")
def leader(cluster, tmp_path_factory) -> Iterator[Operator]:  # noqa: ANN001
    """Start an operator that manages the namespace `live`, with its dashboard on localhost."""
    Space(cluster.api, "live").make()
    more = ("--dashboard=localhost", f"--dashboard-port={free_ports(1)[0]}")
    with running(cluster, tmp_path_factory.mktemp("leader"), watch="live", more=more) as started:
        yield started


@pytest.fixture
def live(cluster, leader: Operator) -> Space:  # noqa: ANN001
    """Return the namespace that `leader` manages."""
    assert leader.process is not None
    return Space(cluster.api, "live")
