"""Work beside a measurement: the autoscaler of a step, and changes of the pods under streams."""

import asyncio

import pytest

from benchmarks.background import in_background


async def fail() -> None:
    raise ValueError("no capacity")


async def test_failed_work_fails_the_measurement() -> None:
    with pytest.raises(ValueError, match="no capacity"):
        async with in_background(fail()):
            await asyncio.sleep(0)


async def test_work_is_cancelled_at_the_end_of_the_measurement() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with in_background(work()):
        await asyncio.sleep(0)
    assert ended.is_set()


async def test_error_of_the_measurement_is_not_hidden_by_that_of_the_work() -> None:
    async def measure() -> None:
        async with in_background(fail()):
            await asyncio.sleep(0)
            raise KeyError("load")

    with pytest.raises(KeyError, match="load"):
        await measure()
