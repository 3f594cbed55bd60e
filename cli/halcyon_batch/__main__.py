"""Entry point of a batch runner: `python -m halcyon_batch RECIPE`. RECIPE is the recipe as JSON.

The exit status is 0 if the results are complete, and 2 if the user must change something. After any other status, the
Job starts a new runner, which continues. The progress is served over HTTP during the run, and afterwards stored in the
termination message.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

from halcyon.api.documents.batch_documents import FAILED, PATH, PORT, STOPPED, BatchDocumentError, BatchRecipe
from halcyon_batch.batch import Batch
from halcyon_batch.errors import BatchError

_BROKEN = 1
_LOG_INTERVAL_S = 60.0
_TERMINATION_LOG = "/dev/termination-log"


def main(arguments: list[str]) -> int:
    """Run the recipe of a batch, and return the exit status."""
    try:
        recipe = BatchRecipe.from_json(arguments[0])
    except (IndexError, BatchDocumentError) as error:
        print(f"halcyon_batch: it needs a recipe, which the operator writes: {error}", file=sys.stderr)
        return FAILED
    return asyncio.run(_run(recipe))


async def _run(recipe: BatchRecipe) -> int:
    batch, status = Batch(recipe), 0
    failure: Exception | None = None
    work = asyncio.ensure_future(batch.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        async with _served(batch):
            log = asyncio.ensure_future(_log(batch))
            try:
                await work
            except asyncio.CancelledError:
                status = STOPPED
            except BatchError as error:
                status, failure = FAILED, error
                print(f"halcyon_batch: {error}", file=sys.stderr)
            except Exception as error:  # noqa: BLE001  # whatever it is, a new runner continues
                status, failure = _BROKEN, error
                traceback.print_exc()
            finally:
                log.cancel()
    finally:
        _publish(batch.progress(failure).to_json())
    return status


def _publish(text: str) -> None:
    """Print the last progress of the batch, and write it to the termination message of the container."""
    print(text, flush=True)
    with contextlib.suppress(OSError):
        Path(os.environ.get("HALCYON_TERMINATION_LOG", _TERMINATION_LOG)).write_text(text)


@contextlib.asynccontextmanager
async def _served(batch: Batch) -> AsyncIterator[None]:
    """Serve the progress of the batch over HTTP."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=batch.progress().to_json(), content_type="application/json")

    app = web.Application()
    app.router.add_get(PATH, answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, None, int(os.environ.get("HALCYON_PORT", PORT))).start()
        yield
    finally:
        await runner.cleanup()


async def _log(batch: Batch) -> None:
    """Print the progress of the batch once a minute, until cancelled."""
    began = time.monotonic()
    while True:
        await asyncio.sleep(_LOG_INTERVAL_S)
        print(f"after {time.monotonic() - began:.0f} s: {batch.progress().to_json()}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
