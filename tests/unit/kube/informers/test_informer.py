"""The informer, on a stand-in for the API server's lists and watches."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

import pytest
from typing_extensions import override

from halcyon.kube import errors
from halcyon.kube.client import SILENCE_S, Object
from halcyon.kube.informers.informer import Informer, drop_managed_fields
from halcyon.kube.kinds import POD, Key, Kind
from tests.unit.kube.memory_kube import MemoryKube
from tests.unit.kube.virtual_time import VirtualTime, run

Change = tuple[str, str | None, str | None]
"""Name, and the versions before and after."""


def obj(name: str, version: int, **labels: str) -> Object:
    return {
        "metadata": {
            "namespace": "team",
            "name": name,
            "resourceVersion": str(version),
            "labels": labels,
            "managedFields": [{}],
        }
    }


class Script(MemoryKube):
    """Lists and watches as they were written down, one after the other; when they are used up, a watch is silent.

    A number among the events of a watch is seconds without one. A list that wasn't written down gives what the last one gave.
    """

    last: Any = ([], 5)

    def __init__(self, *steps: Any) -> None:
        super().__init__()
        self.steps = list(steps)
        self.requests: list[str] = []

    @override
    async def list(
        self, kind: Kind, *, namespace: str = "", selector: str = "", metadata_only: bool = False
    ) -> tuple[list[Object], str]:
        self.requests.append(f"list {selector}")
        if self.steps and isinstance(self.steps[0], Exception):
            raise self.steps.pop(0)
        if self.steps and isinstance(self.steps[0], tuple):
            self.last = self.steps.pop(0)
        items, version = self.last
        return copy.deepcopy(items), str(version)

    @override
    async def watch(
        self, kind: Kind, *, since: str, namespace: str = "", selector: str = "", metadata_only: bool = False
    ) -> AsyncGenerator[tuple[str, Object], None]:
        self.requests.append(f"watch {since}")
        if not self.steps:
            await asyncio.Event().wait()
        for event in self.steps.pop(0):
            if isinstance(event, Exception):
                raise event
            if isinstance(event, float):
                await asyncio.sleep(event)
                continue
            yield event


def by_owner(item: Object) -> Iterable[str]:
    owner = item["metadata"]["labels"].get("owner")
    return (owner,) if owner else ()


def follow(script: Script, limit_s: float = 100.0, *, packed: bool = False) -> tuple[Informer, list[Change]]:
    """Return the informer after all steps of the script, and the changes that it reported."""
    changes: list[Change] = []

    async def scenario(_: VirtualTime) -> Informer:
        def on_change(key: Key, before: Object | None, after: Object | None) -> None:
            changes.append((key.name, _version(before), _version(after)))

        informer = Informer(script, POD, selector="a=b", index=by_owner, listeners=[on_change], packed=packed)
        running = asyncio.create_task(informer.run())
        await asyncio.sleep(limit_s)
        running.cancel()
        return informer

    return run(scenario), changes


def _version(item: Object | None) -> str | None:
    return None if item is None else str(item["metadata"]["resourceVersion"])


def event(kind: str, item: Object) -> tuple[str, Object]:
    return kind, item


def test_a_list_fills_the_cache_and_says_that_it_is_synced() -> None:
    script = Script(([obj("a", 1), obj("b", 2)], 5))
    informer, changes = follow(script)

    assert informer.synced.is_set()
    assert changes == [("a", None, "1"), ("b", None, "2")]
    assert sorted(informer.all_keys()) == [Key("team", "a"), Key("team", "b")]
    assert script.requests == ["list a=b", "watch 5"]


def test_the_cache_is_not_synced_before_the_first_list() -> None:
    informer, changes = follow(Script(errors.Unreachable("x"), errors.Unreachable("x")), limit_s=0.1)

    assert not informer.synced.is_set()
    assert changes == []


def test_a_watch_brings_what_is_new_changed_and_gone() -> None:
    informer, changes = follow(
        Script(
            ([obj("a", 1)], 5),
            [event("ADDED", obj("b", 6)), event("MODIFIED", obj("a", 7)), event("DELETED", obj("b", 8))],
        )
    )

    assert changes == [("a", None, "1"), ("b", None, "6"), ("a", "1", "7"), ("b", "6", None)]
    assert informer.all_keys() == [Key("team", "a")]


def test_packed_objects_are_read_and_reported_as_others_are() -> None:
    events = [event("ADDED", obj("b", 6, owner="x")), event("MODIFIED", obj("a", 7)), event("DELETED", obj("b", 8))]
    plain, plain_changes = follow(Script(([obj("a", 1, owner="x")], 5), events))
    packed, packed_changes = follow(Script(([obj("a", 1, owner="x")], 5), events), packed=True)

    assert packed_changes == plain_changes
    key = Key("team", "a")
    assert (packed.get(key), packed.version(key)) == (plain.get(key), plain.version(key)) == (packed.get(key), "7")
    assert (packed.find("team", "x"), packed.version(Key("team", "b"))) == ([], None)
    assert packed.has_seen(key, 7)


def test_an_object_that_cannot_be_packed_is_skipped_and_harms_no_other() -> None:
    deep = obj("deep", 6)
    inner = deep
    for _ in range(500):
        inner["data"] = inner = {}
    informer, _ = follow(Script(([], 5), [event("ADDED", deep), event("ADDED", obj("b", 7))]), packed=True)

    assert informer.all_keys() == [Key("team", "b")]
    assert informer.malformed.counts() == {"Pod": 1}


def test_a_watch_that_ends_goes_on_where_it_ended_without_a_list() -> None:
    script = Script(([], 5), [event("ADDED", obj("a", 6))], [event("BOOKMARK", obj("", 9))])
    follow(script)

    assert script.requests == ["list a=b", "watch 5", "watch 6", "watch 9"]


def test_a_bookmark_is_no_object() -> None:
    informer, changes = follow(Script(([], 5), [event("BOOKMARK", {"metadata": {"resourceVersion": "9"}})]))

    assert changes == []
    assert informer.all_keys() == []
    assert informer.has_seen(Key("team", "a"), 9)


@pytest.mark.parametrize("error", [errors.Unreachable("reset"), errors.Busy(500, "x")])
def test_a_broken_watch_goes_on_where_it_broke_without_a_list(error: Exception) -> None:
    script = Script(([obj("a", 1)], 5), [event("ADDED", obj("b", 6)), error], [event("DELETED", obj("a", 7))])
    informer, _ = follow(script)

    assert informer.all_keys() == [Key("team", "b")]
    assert script.requests == ["list a=b", "watch 5", "watch 6", "watch 7"]


def test_a_watch_without_news_for_minutes_is_followed_by_a_list() -> None:
    cut = [60.0, errors.Unreachable("reset")]
    script = Script(([obj("a", 1)], 5), *[cut] * 5, ([obj("b", 2)], 3))
    informer, _ = follow(script, limit_s=400.0)

    assert script.requests == ["list a=b", *["watch 5"] * 5, "list a=b", "watch 3"]
    assert informer.all_keys() == [Key("team", "b")]


def test_a_silent_watch_is_replaced_within_75_seconds() -> None:
    """A bookmark is due after 60 s; the API server keeps the changes of 75 s."""
    silent = [SILENCE_S, errors.Unreachable("no data")]
    informer, _ = follow(Script(([obj("a", 1)], 5), silent, [("ADDED", obj("b", 6)), 100.0]), limit_s=75.0)

    assert SILENCE_S >= 65
    assert informer.all_keys() == [Key("team", "a"), Key("team", "b")]


def test_an_unexpected_event_does_not_end_the_informer(caplog: pytest.LogCaptureFixture) -> None:
    script = Script(([], 5), [("MODIFIED", {"metadata": "x"})], ([obj("a", 6)], 7))
    informer, _ = follow(script)

    assert informer.all_keys() == [Key("team", "a")]
    assert "unexpected event" in caplog.text


@pytest.mark.parametrize("error", [errors.Gone(410, "too old"), errors.Refused(403, "forbidden")])
def test_objects_that_vanish_during_an_outage_are_reported_after_the_list(error: Exception) -> None:
    script = Script(([obj("a", 1), obj("b", 2)], 5), [error], ([obj("b", 7)], 9))
    informer, changes = follow(script)

    assert changes[2:] == [("b", "2", "7"), ("a", "1", None)]
    assert informer.get(Key("team", "a")) is None
    assert script.requests == ["list a=b", "watch 5", "list a=b", "watch 9"]


def test_a_list_without_news_calls_no_listener() -> None:
    _, changes = follow(Script(([obj("a", 1)], 5), [errors.Gone(410, "x")], ([obj("a", 1)], 9)))

    assert changes == [("a", None, "1")]


def test_the_deletion_of_an_unknown_object_calls_no_listener() -> None:
    assert follow(Script(([], 5), [event("DELETED", obj("a", 6))]))[1] == []


def test_an_object_is_found_by_its_index_words_while_it_has_them() -> None:
    informer, _ = follow(
        Script(
            ([obj("b", 1, owner="x"), obj("a", 2, owner="x"), obj("c", 3), obj("d", 4, owner="y")], 5),
            [event("MODIFIED", obj("b", 6, owner="y")), event("DELETED", obj("d", 7, owner="y"))],
        )
    )

    assert [o["metadata"]["name"] for o in informer.find("team", "x")] == ["a"]
    assert [o["metadata"]["name"] for o in informer.find("team", "y")] == ["b"]
    assert informer.find("elsewhere", "x") == []
    assert set(informer._index) == {("team", "x"), ("team", "y")}


def test_an_unused_index_word_is_forgotten() -> None:
    informer, _ = follow(Script(([obj("a", 1, owner="x")], 5), [event("DELETED", obj("a", 6, owner="x"))]))

    assert informer._index == {}


def test_managed_fields_are_not_kept() -> None:
    informer, _ = follow(Script(([obj("a", 1)], 5), [event("ADDED", obj("b", 6))]))

    assert all("managedFields" not in (informer.get(k) or {})["metadata"] for k in informer.all_keys())
    assert drop_managed_fields({"metadata": {}}) == {"metadata": {}}


@pytest.mark.parametrize(
    ("key", "version", "seen"),
    [("a", 5, True), ("a", 6, True), ("b", 6, True), ("a", 7, False), ("b", 7, False)],
)
def test_a_write_was_seen_when_the_cache_is_as_new(key: str, version: int, seen: bool) -> None:
    informer, _ = follow(Script(([obj("a", 3)], 5), [event("MODIFIED", obj("a", 6))]))

    assert informer.has_seen(Key("team", key), version) is seen


EXPIRED = errors.Gone(410, "too old")
FAILING_LISTS: list[Any] = [errors.Unreachable("x")] * 1000
FAILING_WATCHES: list[Any] = [([], 5), *[[errors.Busy(500, "x")]] * 1000]
EXPIRED_LISTS: list[Any] = [EXPIRED] * 1000
EXPIRED_WATCHES: list[Any] = [([], 5), [EXPIRED]] * 1000
EMPTY_WATCHES: list[Any] = [([], 5), *[[]] * 1000]


@pytest.mark.parametrize(
    "steps",
    [FAILING_LISTS, FAILING_WATCHES, EXPIRED_LISTS, EXPIRED_WATCHES, EMPTY_WATCHES],
    ids=["lists fail", "watches fail", "lists are too old", "watches are too old", "watches end at once"],
)
def test_a_failing_api_server_receives_fewer_and_fewer_requests(steps: list[Any]) -> None:
    script = Script(*steps)
    follow(script, limit_s=120.0)

    assert 10 < len(script.requests) < 60


def test_a_write_after_a_restore_is_not_seen_too_early() -> None:
    script = Script(([obj("a", 90)], 90), [errors.Gone(410, "too old")], ([obj("a", 40)], 40))
    informer, _ = follow(script)
    assert informer.has_seen(Key("team", "a"), 40)
    assert not informer.has_seen(Key("team", "a"), 41), "a version of before the restore is unrelated"


def test_an_expired_watch_is_followed_by_a_list_at_once() -> None:
    script = Script(([], 5), [EXPIRED], ([obj("a", 6)], 7))
    _, changes = follow(script, limit_s=0.01)

    assert changes == [("a", None, "6")]


def test_a_connection_cut_once_a_minute_does_not_lengthen_the_waits() -> None:
    cut: list[Any] = [
        30.0,
        event("BOOKMARK", {"metadata": {"resourceVersion": "5"}}),
        30.0,
        errors.Unreachable("reset"),
    ]
    script = Script(([], 5), *[cut] * 1000)
    follow(script, limit_s=3600.0)

    assert len(script.requests) > 58
    assert script.requests.count("list a=b") == 1


def test_the_failure_after_a_good_watch_is_retried_soon() -> None:
    failing: list[Any] = [errors.Unreachable("x")] * 6
    steps = [*failing, ([], 5), [event("ADDED", obj("a", 6))], [errors.Unreachable("x")], ([obj("a", 6)], 7)]
    script = Script(*steps)
    follow(script, limit_s=27.0)

    assert script.steps == []


def test_listeners_receive_every_change_in_order() -> None:
    calls: list[str] = []
    listeners: list[Callable[..., None]] = [
        lambda key, *_: calls.append(f"1 {key.name}"),
        lambda key, *_: calls.append(f"2 {key.name}"),
    ]

    async def scenario(_: VirtualTime) -> None:
        script = Script(([obj("a", 1), obj("b", 2)], 5))
        running = asyncio.create_task(Informer(script, POD, listeners=listeners).run())
        await asyncio.sleep(1)
        running.cancel()

    run(scenario)
    assert calls == ["1 a", "2 a", "1 b", "2 b"]


def test_each_watched_namespace_is_listed_and_watched_by_itself() -> None:
    class Two(MemoryKube):
        """One object in each of two namespaces; `blue` can't be listed at first, and loses its object later."""

        def __init__(self) -> None:
            super().__init__()
            self.lists = {
                "green": [([obj("a", 9) | {"metadata": obj("a", 9)["metadata"] | {"namespace": "green"}}], "9")],
                "blue": [
                    errors.Unreachable("not yet"),
                    ([obj("b", 3) | {"metadata": obj("b", 3)["metadata"] | {"namespace": "blue"}}], "3"),
                    ([], "12"),
                ],
            }

        @override
        async def list(self, kind: Kind, *, namespace: str = "", **_: Any) -> tuple[list[Object], str]:
            step = self.lists[namespace].pop(0)
            if isinstance(step, Exception):
                raise step
            return step

        @override
        async def watch(self, kind: Kind, *, namespace: str = "", **_: Any) -> AsyncGenerator[tuple[str, Object], None]:
            if namespace == "blue" and self.lists["blue"]:
                await asyncio.sleep(50)
                raise errors.Gone(410, "too old")
            await asyncio.Event().wait()
            yield "BOOKMARK", {}

    async def scenario(_: VirtualTime) -> None:
        informer = Informer(Two(), POD, namespaces=("green", "blue"))
        running = asyncio.create_task(informer.run())
        await asyncio.sleep(0.1)
        assert informer.all_keys() == [Key("green", "a")]
        assert not informer.synced.is_set(), "one of two is no full cache"
        await asyncio.sleep(20)
        assert informer.synced.is_set()
        assert sorted(informer.all_keys()) == [Key("blue", "b"), Key("green", "a")]
        # What one namespace has brought says nothing of the other.
        assert informer.has_seen(Key("green", "new"), 9)
        assert not informer.has_seen(Key("blue", "new"), 9)
        await asyncio.sleep(60)
        assert informer.all_keys() == [Key("green", "a")], "the list of one namespace took the other's away"
        running.cancel()

    run(scenario)


def test_records_of_a_malformed_object_are_removed_with_the_object() -> None:
    async def scenario(_: VirtualTime) -> dict[str, int]:
        informer = Informer(Script(([obj("a", 1)], 5), [event("DELETED", obj("a", 6))]), POD)
        informer.malformed.note(POD.kind, Key("team", "a"), "metrics", "KeyError: 'x'")
        running = asyncio.create_task(informer.run())
        await asyncio.sleep(1)
        running.cancel()
        return informer.malformed.counts()

    assert run(scenario) == {}
