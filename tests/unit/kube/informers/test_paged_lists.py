"""Lists that are read in pages, of which one fails."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest

from halcyon.kube import errors
from halcyon.kube.client import KubeClient
from halcyon.kube.informers.informer import Informer
from halcyon.kube.kinds import POD, Key
from tests.unit.kube.virtual_time import VirtualTime, run

PAGES = 4
EXPIRED = (410, {"reason": "Expired", "message": "the continue parameter is too old", "metadata": {"continue": "x"}})
THROTTLED = (429, {"reason": "TooManyRequests", "details": {"retryAfterSeconds": 2}})


class Server:
    """An API server with a list of four pages of one pod each. Each failure is that of one request for a page."""

    def __init__(self, failures: dict[int, list[tuple[int, dict[str, Any]]]], *, removed_at: int = 99) -> None:
        self.rest_client, self.configuration = self, SimpleNamespace(host="https://server")
        self.failures, self.removed_at = failures, removed_at
        self.requests: list[int] = []

    async def update_params_for_auth(self, *_: object) -> None:
        """Nobody's credentials."""

    async def request(self, method: str, url: str, **_: object) -> Any:
        assert method == "GET"
        query = parse_qs(urlsplit(url).query)
        if "watch" in query:
            await asyncio.Event().wait()
        page = int(query.get("continue", ["0"])[0])
        self.requests.append(page)
        failing = self.failures.get(page)
        status, body = failing.pop(0) if failing else (200, self._page(page))

        async def read() -> bytes:
            return json.dumps(body).encode()

        return SimpleNamespace(response=SimpleNamespace(status=status, read=read, headers={}))

    def _page(self, page: int) -> dict[str, Any]:
        names = [f"p{page}"] if page or len(self.requests) < self.removed_at else []
        items = [{"metadata": {"namespace": "ns", "name": name, "resourceVersion": str(page + 1)}} for name in names]
        return {
            "metadata": {"resourceVersion": "9", "continue": str(page + 1) if page + 1 < PAGES else ""},
            "items": items,
        }


def informed(server: Server, within_s: float = 60) -> Informer:
    async def scenario(_: VirtualTime) -> Informer:
        informer = Informer(KubeClient(cast("Any", server)), POD)
        running = asyncio.create_task(informer.run())
        await asyncio.sleep(within_s)
        running.cancel()
        return informer

    return run(scenario)


@pytest.mark.parametrize("failure", [THROTTLED, (503, {}), (500, {})])
def test_a_page_that_is_throttled_is_requested_again_alone(failure: tuple[int, dict[str, Any]]) -> None:
    server = Server({2: [failure, failure]})
    informer = informed(server)

    assert informer.synced.is_set()
    assert server.requests == [0, 1, 2, 2, 2, 3]
    assert len(informer) == PAGES


def test_a_page_that_always_fails_ends_the_list() -> None:
    server = Server({2: [THROTTLED] * 1000})

    async def scenario(_: VirtualTime) -> None:
        with pytest.raises(errors.Busy):
            await KubeClient(cast("Any", server)).list(POD)

    run(scenario)
    assert server.requests[:3] == [0, 1, 2]
    assert set(server.requests[2:]) == {2}


def test_an_expired_page_lists_again_without_objects_of_the_first() -> None:
    server = Server({2: [EXPIRED]}, removed_at=4)
    informer = informed(server)

    assert informer.synced.is_set()
    assert server.requests == [0, 1, 2, 0, 1, 2, 3]
    assert {key.name for key in informer.all_keys()} == {"p1", "p2", "p3"}


def test_a_page_is_in_the_cache_before_the_next_one_is_read() -> None:
    server = Server({3: [THROTTLED] * 1000})
    informer = informed(server, within_s=1)

    assert informer.get(Key("ns", "p2")) is not None
    assert not informer.synced.is_set()
