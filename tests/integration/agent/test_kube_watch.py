"""The watch client over a real aiohttp server that speaks list and watch (a stand-in; see stand_in_api)."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from halcyon.balancer.agent.api_denials import ApiDenials
from halcyon.balancer.discovery.kube_watch import ApiServerAccess, KubeError, Watch
from tests.integration.waiting import PATIENCE
from tests.unit.balancer.stand_in_api import CONFIG_MAPS, StandIn, certificate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path


class Followed:
    def __init__(self, api: StandIn, token: Path) -> None:
        self.api = api
        self.token = token
        self.seen: list[dict[str, Any]] = []

    def on_change(self, kept: Mapping[str, Any]) -> None:
        self.seen.append(dict(kept))

    def lists(self) -> int:
        return sum("watch" not in query for _, query, _ in self.api.requests)

    def watches(self) -> list[str]:
        return [query["resourceVersion"] for _, query, _ in self.api.requests if "watch" in query]


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(8 * PATIENCE):
        while not true():  # noqa: ASYNC110 - what it waits for is in another process's hands
            await asyncio.sleep(0.01)


@asynccontextmanager
async def following(tmp_path: Path, *, silence_s: float) -> AsyncIterator[Followed]:
    tls, pem = certificate(tmp_path)
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_text(pem)
    api = await StandIn().start(tls=tls)
    access = ApiServerAccess(f"https://127.0.0.1:{api.port}", tmp_path / "token", tmp_path / "ca.crt")
    watched = Followed(api, tmp_path / "token")
    api.put(CONFIG_MAPS, "plan", {"data": {"x": "1"}})
    async with aiohttp.ClientSession() as session:
        watch = Watch(
            session,
            access,
            CONFIG_MAPS,
            params={"fieldSelector": "metadata.name=plan"},
            project=lambda item: item["data"]["x"],
            on_change=watched.on_change,
            silence_s=silence_s,
            first_pause_s=0.02,
        )
        task = asyncio.ensure_future(watch.run())
        try:
            await until(lambda: bool(api.watchers.get(CONFIG_MAPS)))
            yield watched
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await api.stop()


@pytest.fixture
async def followed(tmp_path: Path) -> AsyncIterator[Followed]:
    async with following(tmp_path, silence_s=60) as watched:
        yield watched


async def test_a_list_and_then_each_change_with_selector_token_and_bookmarks(followed: Followed) -> None:
    api = followed.api
    api.put(CONFIG_MAPS, "plan", {"data": {"x": "2"}})
    api.put(CONFIG_MAPS, "other", {"data": {"x": "3"}})
    api.delete(CONFIG_MAPS, "other")
    await until(lambda: len(followed.seen) == 4)
    assert followed.seen == [{"plan": "1"}, {"plan": "2"}, {"plan": "2", "other": "3"}, {"plan": "2"}]
    _, query, authorization = api.requests[1]
    assert query["fieldSelector"] == "metadata.name=plan"
    assert query["allowWatchBookmarks"] == "true"
    assert query["resourceVersion"] == "2"
    assert authorization == "Bearer first"


async def test_a_bookmark_moves_the_version_from_which_a_new_watch_goes_on(followed: Followed) -> None:
    followed.api.send(CONFIG_MAPS, {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "777"}}})
    followed.api.end_watches()
    await until(lambda: len(followed.watches()) == 2)
    assert followed.watches()[1] == "777"
    assert followed.lists() == 1
    assert len(followed.seen) == 1


@pytest.mark.parametrize("how", ["event", "error", "status", "garbage"])
async def test_an_expired_version_leads_to_a_new_list_that_replaces_every_object(followed: Followed, how: str) -> None:
    api = followed.api
    api.objects[CONFIG_MAPS] = {}
    if how == "event":
        api.send(CONFIG_MAPS, {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}})
    elif how == "error":
        api.send(CONFIG_MAPS, {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "no more events"}})
    elif how == "status":
        api.fail_with = [410]
        api.end_watches()
    else:
        for queue in api.watchers[CONFIG_MAPS]:
            queue.put_nowait(b"{not json\n")
    await until(lambda: followed.lists() == 2)
    await until(lambda: len(followed.seen) == 2)
    assert followed.seen[-1] == {}


async def test_a_silent_stream_is_opened_again_and_nothing_is_lost(tmp_path: Path) -> None:
    async with following(tmp_path, silence_s=0.3) as followed:
        await until(lambda: len(followed.watches()) >= 2)
        followed.api.put(CONFIG_MAPS, "plan", {"data": {"x": "5"}})
        await until(lambda: followed.seen[-1] == {"plan": "5"})
        assert followed.lists() == 1


async def test_a_failing_api_server_leaves_the_cache_and_new_tokens_are_used(followed: Followed) -> None:
    followed.token.write_text("second\n")
    followed.api.fail_with = [500, 401]
    followed.api.end_watches()
    await until(lambda: not followed.api.fail_with and bool(followed.api.watchers[CONFIG_MAPS]))
    assert followed.seen == [{"plan": "1"}]
    assert followed.api.requests[-1][2] == "Bearer second"


async def test_denial_of_an_earlier_watch_is_over_when_another_one_lists(followed: Followed) -> None:
    denials = ApiDenials("m-balancer", lambda: None)
    seen: list[dict[str, str]] = []
    on_denied = denials.callback("endpoints")
    # The first watch was cancelled because the plan changed, and the permission was added later.
    on_denied("endpointslices is forbidden")
    async with aiohttp.ClientSession() as session:
        watch = Watch(
            session,
            ApiServerAccess(f"https://127.0.0.1:{followed.api.port}", followed.token, followed.token.parent / "ca.crt"),
            CONFIG_MAPS,
            params={},
            project=lambda item: item["data"]["x"],
            on_change=lambda kept: seen.append(dict(kept)),
            on_denied=on_denied,
        )
        task = asyncio.ensure_future(watch.run())
        await until(lambda: bool(seen))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert denials.texts == ()


async def test_an_event_larger_than_a_chunk_is_put_together(followed: Followed) -> None:
    followed.api.put(CONFIG_MAPS, "plan", {"data": {"x": "y" * 300_000}})
    await until(lambda: followed.seen[-1] == {"plan": "y" * 300_000})


def test_outside_a_pod_the_error_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(KubeError, match="runs in a pod"):
        ApiServerAccess.in_cluster(tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    assert ApiServerAccess.in_cluster(tmp_path).base_url == "https://[fd00::1]:443"
