"""Screenshots of the dashboard for the documentation: a fleet under simulated load, served by the dashboard's own server.

scripts/screenshots [DIRECTORY]    default: docs/images
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
import time
from pathlib import Path

from aiohttp import web
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from halcyon.dashboard.authorization import Authorizer
from halcyon.dashboard.history import MAX_POINTS, STEP_S
from halcyon.dashboard.server import Dashboard
from halcyon.dashboard.site import Links, SiteMetrics
from tests.browser.simulated_fleet import SimulatedFleet, SimulatedPrometheus
from tests.ports import free_ports

CLUSTER = "prod-eu-1"
COLOURS = 128
"""Colours in a picture, so that it is small enough for git."""


def serve(fleet: SimulatedFleet, *, points: int = MAX_POINTS) -> str:
    """Serve the dashboard of this fleet, with this many points of history, in a daemon thread; return its URL."""
    access = Authorizer(None, clock=time.monotonic, namespaces=lambda: {name.namespace for name in fleet.names()})
    site = Dashboard(
        fleet,
        access,
        fleet.history(points),
        site=SiteMetrics(SimulatedPrometheus(), monotonic=time.monotonic, wall=time.time),
        measured_results=fleet.measured,
        links=Links("https://grafana.example.org", "https://alerts.example.org", "https://runbooks.example.org"),
        cluster=CLUSTER,
        steps=lambda: int(fleet.now // STEP_S),
    )
    port, started = free_ports(1)[0], threading.Event()

    def run() -> None:
        async def main() -> None:
            runner = web.AppRunner(site.app())
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            started.set()
            await asyncio.Event().wait()

        asyncio.run(main())

    threading.Thread(target=run, name="dashboard", daemon=True).start()
    started.wait(30)
    return f"http://localhost:{port}/"


def keep(page: Page, path: Path) -> None:
    """Write a picture of what is in sight."""
    with Image.open(io.BytesIO(page.screenshot())) as picture:
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.convert("RGB").quantize(COLOURS).save(path, optimize=True)


def main() -> int:
    """Write all screenshots."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images")
    url = serve(SimulatedFleet())
    with sync_playwright() as playwright:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=os.environ["HALCYON_CHROMIUM"], args=flags)
        for name, path, scheme, width, height in (
            ("fleet-light", "", "light", 1280, 800),
            ("fleet-dark", "", "dark", 1280, 800),
            ("fleet-phone", "", "dark", 390, 800),
            ("model", "#/vision/detector", "dark", 1280, 1500),
            ("model-failed", "#/assistants/intent", "light", 1280, 1100),
        ):
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
            )
            page = context.new_page()
            page.on(
                "console",
                lambda message: message.type in {"error", "warning"} and sys.stderr.write(f"{message.text}\n"),
            )
            page.goto(f"{url}{path}")
            page.wait_for_selector(".facts" if path else "tbody tr")
            page.wait_for_timeout(800)
            keep(page, folder / f"dashboard-{name}.png")
            context.close()
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
