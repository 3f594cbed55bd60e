"""What planners have learnt is kept: when it is written, in which shard, and that no crash and no fault loses any of it."""

from __future__ import annotations

import asyncio
import base64
import functools
import itertools
import json
import logging
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from halcyon.control.autoscaling.planner_memory import entries as stored_entries
from halcyon.control.autoscaling.planner_memory import shards as shard_division
from halcyon.control.autoscaling.planner_memory.entries import Saved, read, saved, sign_of
from halcyon.control.autoscaling.planner_memory.shards import (
    MAX_SHARD_BYTES,
    MEAN_SHARD_BYTES,
    entry_name,
    place,
    shard_count,
    steps,
)
from halcyon.control.autoscaling.planner_memory_store import (
    LABEL,
    RETRY_S,
    SAVE_INTERVAL_S,
    PlannerMemoryStore,
    Shards,
)
from halcyon.kube import errors
from halcyon.kube.client import FIELD_MANAGER, Object
from halcyon.kube.kinds import CONFIG_MAP, Key, Kind
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.scaling.planner.plan import plan
from halcyon.scaling.planner.serialization import packed, resumed
from tests.clocks import DrivenClock, SplitClock
from tests.drawn import draws
from tests.unit.kube import virtual_time
from tests.unit.kube.memory_kube import MemoryKube
from tests.unit.scaling.planner.test_serialization import EPOCH, LIVED, OBJECTIVES, WEEKS, reading

KEY = Key("team", "digits")
Entries = list[tuple[str, str]]


class Crash(Exception):  # noqa: N818  # no error: the process is gone
    """The process is killed."""


class ShardKube(MemoryKube):
    """With apply and list as for ConfigMaps that one manager writes. `fate` is told each write, before and after it."""

    def __init__(self, fate: Callable[[str], None] = lambda _: None) -> None:
        super().__init__()
        self.fate = fate
        self.writes: list[str] = []

    def after_a_restart(self) -> ShardKube:
        """The same objects, without faults, and as if none had been written."""
        again = ShardKube()
        again.objects, again._versions = self.objects, self._versions
        return again

    def entries(self) -> Entries:
        """(shard, entry) of everything that is there."""
        return [(name, entry) for (_, _, name), obj in self.objects.items() for entry in obj.get("binaryData") or {}]

    @override
    async def apply(self, kind: Kind, obj: Object, *, subresource: str = "", manager: str = FIELD_MANAGER) -> Object:
        meta = obj["metadata"]
        self.fate("before")
        self.writes.append(meta["name"])
        stored = self._put((kind, meta["namespace"], meta["name"]), obj)
        self.fate("after")
        return stored

    @override
    async def delete(self, kind: Kind, namespace: str, name: str, *, seen: Object | None = None) -> None:
        self.fate("before")
        self.writes.append(f"-{name}")
        await super().delete(kind, namespace, name, seen=seen)
        self.fate("after")

    @override
    async def list(
        self, kind: Kind, *, namespace: str = "", selector: str = "", metadata_only: bool = False
    ) -> tuple[list[Object], str]:
        assert metadata_only
        self.fate("list")
        label, _, value = selector.partition("=")
        matching = [
            {"metadata": obj["metadata"]}
            for (its_kind, its_namespace, _), obj in self.objects.items()
            if (its_kind, its_namespace) == (kind, namespace) and obj["metadata"]["labels"].get(label) == value
        ]
        return matching, str(next(self._versions))


def memory_with_request(memory: PlannerMemory, at: float) -> PlannerMemory:
    """With one more request."""
    return replace(memory, arrivals=replace(memory.arrivals, last_at=at))


def kept(kube: ShardKube) -> dict[Key, Saved]:
    return asyncio.run(Shards(kube.after_a_restart(), "system").read())


def same(memory: PlannerMemory) -> Any:
    """To be compared with what was read: as the next process has it."""
    return packed(resumed(memory))


# One memory.


@pytest.mark.parametrize("memory", [PlannerMemory(), LIVED(1), WEEKS(1)])
def test_a_memory_comes_back_with_its_origin_and_time(memory: PlannerMemory) -> None:
    entry = saved("some-uid", memory, at=EPOCH)
    back = read(entry.content)
    assert back == entry
    assert (back.uid, back.at) == ("some-uid", EPOCH)
    restored = back.restored()
    assert restored.problems == ()
    assert packed(restored.memory) == same(memory)


def test_two_weeks_of_a_busy_model_take_less_than_16_kb() -> None:
    assert 8_000 < len(saved("some-uid", WEEKS(1), at=EPOCH).content) < 16_000


@draws(0.4)
@given(st.integers(1, 6), st.integers(30, 300))
def test_the_digest_survives_a_restart_and_stays_while_requests_are_none(seed: int, seconds: int) -> None:
    memory = LIVED(seed, seconds=seconds)
    at, arrived = memory.arrivals.times[-1], memory.arrivals.raw or 0.0

    def quiet(memory: PlannerMemory, begin: float, hours: float) -> PlannerMemory:
        for step in range(int(hours * 180)):
            now = begin + 20.0 * step
            still = replace(reading(now, arrived, waiting=0.0), inflight=0.0)
            memory = plan(now, OBJECTIVES, still, memory).memory
        return memory

    rested = quiet(memory, at + 1, 0.5)
    assert sign_of(quiet(rested, at + 1801, 5)) == sign_of(rested)
    assert sign_of(saved("u", rested, at=at).restored().memory) == sign_of(rested)


def test_the_digest_changes_with_a_request_start_line_or_bet() -> None:
    memory = LIVED(1)
    line = memory.capacity.line
    assert line is not None
    others = [
        memory_with_request(memory, EPOCH + 999),
        replace(memory, capacity=replace(memory.capacity, starts=(*memory.capacity.starts, 12.5))),
        replace(memory, capacity=replace(memory.capacity, line=replace(line, t0_s=line.t0_s * 1.01))),
        replace(memory, spikes=replace(memory.spikes, spikes=())),
    ]
    assert memory.spikes.spikes
    assert len({sign_of(m) for m in (memory, *others)}) == 5


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no zlib",
        zlib.compress(b"no json"),
        zlib.compress(b"[]"),
        zlib.compress(b'{"uid": 1, "at": 2, "sign": ""}'),
        zlib.compress(b'{"uid": "u", "sign": ""}'),
        zlib.compress(b" " * 10**7),
        saved("u", PlannerMemory(), at=1.0).content[:-9],
    ],
)
def test_a_malformed_memory_is_refused_and_a_bomb_is_not_unpacked(content: bytes) -> None:
    with pytest.raises(stored_entries.BROKEN):
        read(content)


# Shards.

NAMESPACES, NAMES = st.text("a0-", min_size=1, max_size=4), st.text("a0-", min_size=1, max_size=4)
SIZES = st.dictionaries(st.integers(0, 3000).map("ns.m{}".format), st.integers(1000, 30_000), max_size=250)


@given(st.lists(st.tuples(NAMESPACES, NAMES), min_size=2, max_size=2, unique=True))
def test_no_two_models_share_an_entry(pair: list[tuple[str, str]]) -> None:
    first, second = (entry_name(Key(*parts)) for parts in pair)
    assert first != second
    assert tuple(first.split(".", 1)) == pair[0]


@given(SIZES, st.integers(0, 40))
def test_shards_are_a_power_of_two_with_spare_capacity_and_stable(sizes: dict[str, int], now: int) -> None:
    count = shard_count(sizes, now)
    assert count & (count - 1) == 0
    filled = [sum(size for entry, size in sizes.items() if place(entry, count) == i) for i in range(count)]
    assert sum(filled) <= MEAN_SHARD_BYTES * count
    assert max(filled) <= MAX_SHARD_BYTES
    assert shard_count(sizes, count) == count


def test_shards_become_fewer_only_where_half_of_them_would_be_half_full() -> None:
    sizes = {f"ns.m{n}": 10_000 for n in range(300)}
    assert shard_count(sizes, 1) == 8
    assert shard_count(dict(itertools.islice(sizes.items(), 160)), 8) == 8
    assert shard_count(dict(itertools.islice(sizes.items(), 70)), 8) == 4
    assert shard_count({}, 8) == 1


COUNTS = st.sampled_from([1, 2, 4, 8, 16])
CONTENTS = st.dictionaries(st.integers(0, 40).map("ns.m{}".format), st.binary(min_size=1, max_size=2), max_size=20)


@given(st.lists(st.tuples(CONTENTS, COUNTS, st.floats(0, 1)), min_size=1, max_size=5))
def test_a_crash_between_two_writes_loses_no_entry(
    changes: list[tuple[dict[str, bytes], int, float]],
) -> None:
    stored: dict[int, dict[str, bytes]] = {}
    entries: dict[str, bytes] = {}
    for change, count, share in changes:
        # Entries that are new may be lost with the process, those that were there may not.
        stored_before = {entry for shard in stored.values() for entry in shard}
        entries = {
            entry: change.get(entry, value) for entry, value in entries.items() if entry in stored_before
        } | change
        todo = steps(stored, entries, count)
        crash = int(share * len(todo))
        for step in todo[:crash] if share < 0.8 else todo:
            if step.content is None:
                del stored[step.index]
            else:
                stored[step.index] = step.content
            left = {entry for shard in stored.values() for entry in shard}
            assert stored_before & entries.keys() <= left
        if share >= 0.8:
            # It went through: each is where it belongs, and nothing else is there.
            assert all(place(entry, count) == index for index, shard in stored.items() for entry in shard)
            assert {entry: value for shard in stored.values() for entry, value in shard.items()} == entries
            assert steps(stored, entries, count) == []


def filler(key: Key, at: float) -> Saved:
    """An entry of about 300 bytes that can be read."""
    rest = "".join(f"{zlib.crc32(f'{key}{n}'.encode()):08x}" for n in range(60))
    document = {"uid": str(key), "at": at, "sign": "", "memory": rest}
    return Saved(str(key), at, "", zlib.compress(json.dumps(document).encode()))


@pytest.fixture(scope="module")
def small_shards() -> Iterator[None]:
    """Four shards for sixty models."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_division, "MEAN_SHARD_BYTES", 6_000)
        yield


@functools.cache
def crowd(models: int, at: float) -> dict[Key, Saved]:
    return {(key := Key("ns", f"m{n}")): filler(key, at) for n in range(models)}


def failing(pattern: int) -> Callable[[str], None]:
    """Each bit says whether the next write fails, before or after it was done."""
    bits = itertools.cycle([bool(pattern >> n & 1) for n in range(16)])

    def fate(when: str) -> None:
        if when != "list" and next(bits):
            raise errors.Unreachable(f"{when} the write")

    return fate


@given(
    st.lists(st.tuples(st.integers(0, 1).map(lambda n: (5, 60)[n]), st.integers(0, 2**16 - 1)), min_size=1, max_size=4)
)
@pytest.mark.usefixtures("small_shards")
def test_failing_requests_lose_no_live_model_and_recovery_is_complete(
    rounds: list[tuple[int, int]],
) -> None:
    async def scenario() -> None:
        kube = ShardKube()
        shards = Shards(kube, "system")
        stored: set[str] = set()
        for at, (models, pattern) in enumerate(rounds):
            memories = crowd(models, float(at))
            kube.fate = failing(pattern)
            good = await shards.write(memories)
            left = {entry for _, entry in kube.entries()}
            assert stored & {entry_name(key) for key in memories} <= left
            assert not good or left == {entry_name(key) for key in memories}
            stored = left
        kube.fate = lambda _: None
        assert await shards.write(memories)
        again = Shards(kube, "system")
        assert await again.read() == memories
        assert len(kube.entries()) == len(memories)
        kube.writes.clear()
        assert await again.write(memories)
        assert kube.writes == []

    asyncio.run(scenario())


def test_two_releases_in_one_namespace_keep_their_own_shards() -> None:
    kube = ShardKube()
    ours, theirs = crowd(4, 1.0), {(other := Key("other", "m")): filler(other, 2.0)}

    async def scenario() -> None:
        first, second = Shards(kube, "system"), Shards(kube, "system", "prod-halcyon-memory")
        assert await first.write(ours)
        # One that has none yet takes over what there is, as it would after an install under another name.
        assert await second.read() == ours
        assert await second.write(theirs)
        assert await first.read() == ours
        assert await second.read() == theirs
        assert await first.write({})
        assert await second.read() == theirs

    asyncio.run(scenario())
    assert {name for name, _ in kube.entries()} == {"prod-halcyon-memory-000"}


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize("crash_at", range(8))
def test_a_leader_killed_while_shards_grow_loses_nothing_and_the_next_tidies(crash_at: int) -> None:
    kube = ShardKube()
    few, many = crowd(5, 1.0), crowd(60, 2.0)
    assert asyncio.run(Shards(kube, "system").write(few))
    assert {name for name, _ in kube.entries()} == {"halcyon-memory-000"}
    moments = iter(range(100))

    def killed(_: str) -> None:
        if next(moments) == crash_at:
            raise Crash

    async def scenario(kube: ShardKube, memories: dict[Key, Saved]) -> None:
        shards = Shards(kube, "system")
        await shards.read()
        assert await shards.write(memories)

    kube.fate = killed
    with pytest.raises(Crash):
        asyncio.run(scenario(kube, many))
    remaining = kept(kube)
    assert few.keys() <= remaining.keys()
    # Of one that is there twice, the newest counts.
    newest = {key: max(s.at for s in [few.get(key), many[key]] if s and present(kube, key, s)) for key in remaining}
    assert {key: entry.at for key, entry in remaining.items()} == newest

    second = kube.after_a_restart()
    asyncio.run(scenario(second, many))
    assert kept(second) == many
    assert len(second.entries()) == len(many)


def present(kube: ShardKube, key: Key, entry: Saved) -> bool:
    """Whether this very entry is in some shard."""
    text = base64.b64encode(entry.content).decode()
    return any((obj.get("binaryData") or {}).get(entry_name(key)) == text for obj in kube.objects.values())


def test_unreadable_entries_are_named_and_the_rest_is_used(caplog: pytest.LogCaptureFixture) -> None:
    kube = ShardKube()
    assert asyncio.run(Shards(kube, "system").write(crowd(3, 1.0)))
    (shard,) = kube.objects.values()
    shard["binaryData"] |= {"ns.m1": "AAAA", "nodot": shard["binaryData"]["ns.m0"]}
    for name in ("halcyon-memory-7", "halcyon-memory-003"):
        meta = {"namespace": "system", "name": name, "labels": {LABEL: "planner"}}
        kube.objects[CONFIG_MAP, "system", name] = {"metadata": meta | {"resourceVersion": "1"}}

    assert kept(kube).keys() == {Key("ns", "m0"), Key("ns", "m2")}
    warnings = {
        (r.__dict__["config_map"], r.__dict__.get("entry")) for r in caplog.records if r.levelno == logging.WARNING
    }
    assert warnings == {
        ("halcyon-memory-000", "ns.m1"),
        ("halcyon-memory-000", "nodot"),
        ("halcyon-memory-7", None),
    }


# When.


async def served(kube: ShardKube, clock: Callable[[], float], **within: float) -> PlannerMemoryStore:
    """What a new leader has loaded; its wall clock runs with the other."""
    store = PlannerMemoryStore(kube, "system", DrivenClock(clock, EPOCH))
    await store.load(**within)
    return store


def test_memories_are_written_every_ten_minutes_and_never_at_rest() -> None:
    kube = ShardKube()

    async def scenario(clock: virtual_time.VirtualTime) -> None:
        first = await served(kube, clock)
        running = asyncio.create_task(first.run(lambda: {KEY}))
        first.offer(KEY, "u", LIVED(1))
        await asyncio.sleep(SAVE_INTERVAL_S - 1)
        assert kube.writes == []
        await asyncio.sleep(2)
        assert kube.writes == ["halcyon-memory-000"]
        first.offer(KEY, "u", replace(LIVED(1), hold=LIVED(2).hold))
        await asyncio.sleep(5 * SAVE_INTERVAL_S)
        assert len(kube.writes) == 1
        first.offer(KEY, "u", memory_with_request(LIVED(1), EPOCH + 9999))
        await asyncio.sleep(SAVE_INTERVAL_S + 1)
        assert len(kube.writes) == 2
        running.cancel()

        second = await served(kube, clock)
        loaded = (await second.load())[KEY]
        assert packed(loaded.restored().memory) == same(memory_with_request(LIVED(1), EPOCH + 9999))
        running = asyncio.create_task(second.run(lambda: {KEY}))
        second.offer(KEY, "u", loaded.restored().memory)
        await asyncio.sleep(5 * SAVE_INTERVAL_S)
        await second.flush(within_s=1.0)
        assert len(kube.writes) == 2
        # Another of the same name is another model.
        second.offer(KEY, "another", loaded.restored().memory)
        await asyncio.sleep(SAVE_INTERVAL_S + 1)
        assert len(kube.writes) == 3
        assert kept_uid(kube) == "another"
        running.cancel()

    def kept_uid(kube: ShardKube) -> str:
        (shard,) = kube.objects.values()
        return read(base64.b64decode(shard["binaryData"]["team.digits"])).uid

    virtual_time.run(scenario)


def test_models_without_requests_are_not_kept_and_deleted_models_are_dropped() -> None:
    async def scenario(clock: virtual_time.VirtualTime) -> None:
        kube, live = ShardKube(), {KEY, Key("team", "idle")}
        kept = await served(kube, clock)
        running = asyncio.create_task(kept.run(lambda: live))
        kept.offer(KEY, "u", LIVED(1))
        kept.offer(Key("team", "idle"), "v", PlannerMemory())
        await asyncio.sleep(SAVE_INTERVAL_S + 1)
        assert kube.entries() == [("halcyon-memory-000", "team.digits")]
        live.remove(KEY)
        await asyncio.sleep(SAVE_INTERVAL_S + 1)
        assert kube.objects == {}
        assert kube.writes == ["halcyon-memory-000", "-halcyon-memory-000"]
        running.cancel()

    virtual_time.run(scenario)


def test_packing_of_memories_is_spread_over_time_and_done_before_the_save() -> None:
    moments: list[float] = []

    async def scenario(clock: virtual_time.VirtualTime) -> None:
        def wall() -> float:
            moments.append(clock())
            return EPOCH

        kube = ShardKube()
        kept = PlannerMemoryStore(kube, "system", SplitClock(clock, wall))
        await kept.load()
        keys = {Key("team", f"m{n}") for n in range(1300)}
        memory = memory_with_request(PlannerMemory(), EPOCH)
        for key in keys:
            kept.offer(key, "u", memory)
        running = asyncio.create_task(kept.run(lambda: keys))
        await asyncio.sleep(2 * SAVE_INTERVAL_S)
        assert len(kube.entries()) == 1300
        running.cancel()

    virtual_time.run(scenario)
    assert len(moments) == 1300
    assert all(later - earlier > 0.2 for earlier, later in itertools.pairwise(moments))
    assert moments[-1] - moments[0] < SAVE_INTERVAL_S / 2


def test_writes_wait_until_the_stored_memories_are_read() -> None:
    async def scenario(clock: virtual_time.VirtualTime) -> None:
        kube, old = ShardKube(), Key("team", "old")
        assert await Shards(kube, "system").write({old: saved("u", LIVED(2), at=EPOCH)})
        kube.writes.clear()

        def unread(operation: str) -> None:
            if operation == "list":
                raise errors.Busy(503, "later")

        kube.fate = unread
        kept = PlannerMemoryStore(kube, "system", SplitClock(clock, lambda: EPOCH))
        with pytest.raises(errors.Busy):
            await kept.load(within_s=5)
        assert 3 < clock() <= 5
        restored: list[Key] = []
        running = asyncio.create_task(kept.run(lambda: {KEY, old}, restored.extend))
        kept.offer(KEY, "u", LIVED(1))
        await kept.flush(within_s=1)
        await asyncio.sleep(2 * SAVE_INTERVAL_S)
        assert kube.writes == []
        kube.fate = lambda _: None
        while not restored:  # noqa: ASYNC110  # in virtual time
            await asyncio.sleep(1)
        assert (restored, kube.writes) == ([old], []), "planners continue with them before they are replaced"
        await asyncio.sleep(RETRY_S + 1)
        assert {entry for _, entry in kube.entries()} == {"team.digits", "team.old"}
        running.cancel()

    virtual_time.run(scenario)


def test_a_save_that_failed_is_tried_again_within_a_minute() -> None:
    async def scenario(clock: virtual_time.VirtualTime) -> None:
        kube = ShardKube()
        kept = await served(kube, clock)
        kube.fate = failing(2**16 - 1)
        running = asyncio.create_task(kept.run(lambda: {KEY}))
        kept.offer(KEY, "u", LIVED(1))
        await asyncio.sleep(SAVE_INTERVAL_S + 1)
        assert kube.objects == {}
        kube.fate = lambda _: None
        await asyncio.sleep(RETRY_S + 1)
        assert kube.entries() == [("halcyon-memory-000", "team.digits")]
        running.cancel()

    virtual_time.run(scenario)


def test_an_entry_that_cannot_be_packed_costs_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    odd = LIVED(2)

    def packs(memory: PlannerMemory) -> dict[str, Any]:
        if memory is odd:
            raise OverflowError("what nobody foresaw")
        return packed(memory)

    monkeypatch.setattr(stored_entries, "packed", packs)

    async def scenario(clock: virtual_time.VirtualTime) -> None:
        kube = ShardKube()
        kept = await served(kube, clock)
        kept.offer(Key("team", "odd"), "u", odd)
        kept.offer(KEY, "u", LIVED(1))
        await kept.flush(within_s=1.0)
        assert kube.entries() == [("halcyon-memory-000", "team.digits")]

    virtual_time.run(scenario)
    assert "cannot pack a planner memory" in caplog.text


def test_a_leader_that_steps_down_saves_recent_models_first_in_its_time() -> None:
    now = itertools.count()  # each look at the clock takes a second, and so does packing

    async def scenario() -> None:
        kube = ShardKube()
        kept = PlannerMemoryStore(kube, "system", SplitClock(lambda: float(next(now)), lambda: EPOCH))
        await kept.load()
        for n in (3, 1, 9, 7, 5):
            kept.offer(Key("team", f"m{n}"), "u", memory_with_request(PlannerMemory(), EPOCH + n))
        await kept.flush(within_s=5)
        assert {entry for _, entry in kube.entries()} == {"team.m9", "team.m7"}
        await kept.flush(within_s=60)
        assert len(kube.entries()) == 5

    asyncio.run(scenario())


def test_stepping_down_does_not_wait_for_an_api_server_that_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    class Silent(ShardKube):
        @override
        async def apply(self, *_: Any, **__: Any) -> Object:
            await asyncio.Event().wait()
            raise AssertionError

    async def scenario(clock: virtual_time.VirtualTime) -> None:
        kept = await served(Silent(), clock)
        kept.offer(KEY, "u", LIVED(1))
        await kept.flush(within_s=0.7)
        assert clock() == pytest.approx(0.7)

    virtual_time.run(scenario)
    assert "not enough time to write" in caplog.text
