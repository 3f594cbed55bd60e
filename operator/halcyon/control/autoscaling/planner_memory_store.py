"""Store of planner memories in ConfigMaps (shards), so that they outlive the operator's processes.

The shards are in the operator's namespace. Their names begin with the name of the Helm release, so that two releases in
one namespace have separate ConfigMaps. The shard of a model is the hash of NAMESPACE.NAME modulo the number of shards,
which is a power of two. Only the leader writes. A model's GPU time is stored with its memory. A change of the GPU time
alone causes no write, so the stored GPU time is as old as the memory. Out of scope: the content of a memory and its
JSON (`scaling.planner.serialization`), and the use of restored memories.
"""

# halcyon-memory-000, -001, ...    binaryData: NAMESPACE.NAME -> zlib of {"uid", "at", "sign", "memory", "cost"}

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

from halcyon.api.types import GROUP
from halcyon.kube import errors
from halcyon.kube.client import Kube
from halcyon.kube.clock import Clock
from halcyon.kube.kinds import CONFIG_MAP, Key
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.scaling.planner.serialization import MAX_BYTES, Restored, packed, resumed, unpacked

log = logging.getLogger(__name__)

LABEL, LABEL_VALUE = f"{GROUP}/memory", "planner"
"""Label of the ConfigMaps with planner memories. It differs from the label of child objects. With that label, informers
would keep every shard in memory."""
SAVE_INTERVAL_S = 600.0
RETRY_S = 60.0
"""Time until the next save after a failed save, in seconds. It also applies if only a part failed."""
PACE_S = 0.25
"""Pause after the memory of a model was packed, in seconds. Packing takes 12 ms, so it uses 5 % of a CPU core."""
READ_RETRY_INTERVAL_S = 1.0
MEAN_SHARD_BYTES = 400 * 1024
"""Maximum mean size of the shards, which are the ConfigMaps with planner memories, in bytes. It suffices for about 40
models after two weeks. Building a request of this size takes about 10 ms."""
MAX_SHARD_BYTES = 768 * 1024
"""Maximum size of the largest shard, in bytes. The API server rejects a ConfigMap of more than 1 MiB."""
MAX_SHARDS = 512
_MAX_JSON_BYTES = 4 * MAX_BYTES
"""Maximum size of an unpacked entry, in bytes. A larger entry wasn't written by Halcyon. Without a maximum, a few KiB
of compressed zeros could fill the memory."""
CONFIG_MAPS = "halcyon-memory"
"""Prefix of the names of the shards if the Helm release is named halcyon."""
_NUMBERED = re.compile(r"(.+)-(\d{3})")
BROKEN = (zlib.error, ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Saved:
    """Planner memory of one model in its stored form."""

    uid: str
    """Uid of the ModelDeployment that the memory belongs to. A later ModelDeployment of the same name has another uid,
    and doesn't use the memory."""
    at: float
    """Time at which the planner memory was packed, in seconds since the epoch."""
    sign: str
    """Digest of what the planner had learnt when its memory was packed, as returned by `sign_of`."""
    content: bytes
    """Compressed JSON with the other fields, the planner memory and the GPU time."""

    def restored(self) -> Restored:
        """Return the planner's memory for a new process, and the parts that can't be read. This takes 20 to 40 ms."""
        restored = unpacked(_document(self.content).get("memory"))
        return Restored(resumed(restored.memory), restored.problems)

    def cost(self) -> Any:  # any JSON value
        """Return the stored GPU time, as JSON of `scaling.gpu_cost.Ledger`; None if there is none.

        Raises:
            One of BROKEN: the content can't be read.
        """
        return _document(self.content).get("cost")


def saved(uid: str, memory: PlannerMemory, *, at: float, cost: object = None) -> Saved:
    """Pack a planner memory for storage, together with the JSON value `cost`.

    The result has about 10 KB after two weeks. Packing takes 12 to 20 ms.
    """
    sign = sign_of(memory)
    document = {"uid": uid, "at": at, "sign": sign, "memory": packed(memory)}
    document |= {} if cost is None else {"cost": cost}
    return Saved(uid, at, sign, zlib.compress(json.dumps(document, separators=(",", ":")).encode()))


def read(content: bytes) -> Saved:
    """Parse an entry that `saved` has made. Raises one of `BROKEN` for any other content."""
    document = _document(content)
    uid, at, sign = document["uid"], document["at"], document["sign"]
    if not (isinstance(uid, str) and isinstance(at, int | float) and isinstance(sign, str)):
        raise TypeError(f"uid is {uid!r}, at is {at!r}, sign is {sign!r}; they must be a string, a number and a string")
    return Saved(uid, float(at), sign, content)


def _document(content: bytes) -> dict[str, Any]:
    inflate = zlib.decompressobj()
    text = inflate.decompress(content, _MAX_JSON_BYTES)
    if not inflate.eof:
        raise ValueError(f"it is truncated, or larger than {_MAX_JSON_BYTES} bytes when unpacked")
    document = json.loads(text)
    if not isinstance(document, dict):
        raise TypeError(f"it is a {type(document).__name__}, not an object")
    return document


def sign_of(memory: PlannerMemory) -> str:
    """Return a digest of what the planner has learnt. As long as the digest is the same, the memory needn't be written.

    Batches, rates, seasons and the dispersion are learnt from requests, so the digest includes the time of the last
    request. It also includes what is learnt without requests: start times, the service line after a warm-up, the end of
    a spike, and a wrong prediction of the next spike. Other changes without requests only reflect passing time: empty
    bins (unknown after a restart, when the season uses other days), expired holds, and samples equal to the last one.

    Numbers are rounded as in the JSON, so that a memory has the same digest after it was stored and read.
    """
    capacity, spikes = memory.capacity, memory.spikes
    line = () if capacity.line is None else (capacity.line.t0_s, capacity.line.row_s)
    times = (
        memory.arrivals.last_at,
        spikes.spikes[-1].onset if spikes.spikes else None,
        spikes.bet.due if spikes.bet else None,
    )
    learnt = [*("-" if at is None else f"{at:.3f}" for at in times), *(f"{s:.9g}" for s in (*line, *capacity.starts))]
    return f"{zlib.crc32(' '.join(learnt).encode()):08x}"


_NOTHING = sign_of(PlannerMemory())


def entry_name(key: Key) -> str:
    """Return the key of a model's entry in binaryData, NAMESPACE.NAME, which is unique, as no part contains a dot."""
    return f"{key.namespace}.{key.name}"


def shard_name(index: int, config_maps: str = CONFIG_MAPS) -> str:
    """Return the name of the ConfigMap that holds a shard."""
    return f"{config_maps}-{index:03}"


def place(entry: str, count: int) -> int:
    """Return the index of the shard that holds an entry. It is the same in every process and version."""
    return zlib.crc32(entry.encode()) % count


def shard_count(sizes: Mapping[str, int], now: int) -> int:
    """Return the number of shards, a power of two, for entries of these sizes in bytes. `now` is the current number.

    The number grows as soon as needed. To avoid flapping, it shrinks only if half as many shards would be at most half
    full.
    """
    count: int = 1 << (min(max(now, 1), MAX_SHARDS) - 1).bit_length()
    while count < MAX_SHARDS and not _fits(sizes, count, 1.0):
        count *= 2
    while count > 1 and _fits(sizes, count // 2, 0.5):
        count //= 2
    return count


def _fits(sizes: Mapping[str, int], count: int, share: float) -> bool:
    filled = [0] * count
    for entry, size in sizes.items():
        filled[place(entry, count)] += size + len(entry)
    return sum(filled) <= share * MEAN_SHARD_BYTES * count and max(filled) <= share * MAX_SHARD_BYTES


@dataclass(frozen=True, slots=True)
class ShardWrite:
    """Write of a shard, or its deletion if `content` is None."""

    index: int
    content: dict[str, bytes] | None
    takes: bool
    """Whether the write removes an entry that belongs to another shard. That shard must have been written before."""


def steps(stored: Mapping[int, Mapping[str, bytes]], entries: Mapping[str, bytes], count: int) -> list[ShardWrite]:
    """Return the writes after which there are `count` shards with these entries.

    The order of the writes keeps each entry in at least one shard at all times: the shard with the highest index is
    written first, and deletions come last. Proof: suppose an entry is in shard i but belongs to shard j. It was put
    there when the number of shards was m. If m < count, m divides count, so i = hash mod m < j = hash mod count. If m >
    count and i isn't the right shard, i >= count, so shard i is deleted.
    """
    wanted: defaultdict[int, dict[str, bytes]] = defaultdict(dict)
    for entry in sorted(entries):
        wanted[place(entry, count)][entry] = entries[entry]
    puts, deletes = [], []
    for index in sorted({*stored, *wanted}, reverse=True):
        before, after = stored.get(index, {}), wanted.get(index)
        takes = any(entry in entries and place(entry, count) != index for entry in before)
        if after is None:
            deletes.append(ShardWrite(index, None, takes))
        elif before != after:
            puts.append(ShardWrite(index, after, takes))
    return puts + deletes


class Shards:
    """ConfigMaps with planner memories. Their content is what this process last read or wrote."""

    def __init__(self, client: Kube, namespace: str, config_maps: str = CONFIG_MAPS) -> None:
        """Initialize without content, which `read` fetches. `config_maps` is the prefix of the ConfigMaps' names."""
        self._client, self._namespace, self._name = client, namespace, config_maps
        self._stored: dict[int, dict[str, bytes]] = {}

    async def read(self) -> dict[Key, Saved]:
        """Return every readable entry of the shards; the newest one if a model has several.

        If no shard has the prefix, shards with other prefixes are read instead, and left unchanged: the release may
        have been reinstalled under another name. Entries of models that this release doesn't manage are dropped with
        the first save.

        Raises:
            ApiError, Unreachable: a shard could not be fetched.
        """
        # Fetch one shard at a time: a list of all could have tens of MiB and exceed the request timeout.
        listed, _ = await self._client.list(
            CONFIG_MAP, namespace=self._namespace, selector=f"{LABEL}={LABEL_VALUE}", metadata_only=True
        )
        stored: dict[int, dict[str, bytes]] = {}
        found: dict[Key, Saved] = {}
        for shard_at, index in self._sources(sorted(item["metadata"]["name"] for item in listed)):
            shard = await self._client.get(CONFIG_MAP, self._namespace, shard_at) or {}
            content: dict[str, bytes] = {}
            if index is not None:
                stored[index] = content
            for entry, text in (shard.get("binaryData") or {}).items():
                content[entry] = value = base64.b64decode(text)
                try:
                    namespace, name = entry.split(".", 1)
                    one = read(value)
                except BROKEN as error:
                    context = {"config_map": shard_at, "entry": entry, "error": str(error) or repr(error)}
                    log.warning("cannot read a saved planner memory; the model starts without one", extra=context)
                    continue
                key = Key(namespace, name)
                if key not in found or one.at > found[key].at:
                    found[key] = one
                await asyncio.sleep(0)
        self._stored = stored
        return found

    def _sources(self, listed: list[str]) -> list[tuple[str, int | None]]:
        """Return the names of the ConfigMaps that must be read, each with its shard index.

        The index is None for ConfigMaps with the prefix of another release, which are read only if this release has
        none.
        """
        found: list[tuple[str, int | None]] = []
        for name in listed:
            matched = _NUMBERED.fullmatch(name)
            if matched is None:
                log.warning(
                    "a ConfigMap has the label of planner memories but not a shard's name", extra={"config_map": name}
                )
            else:
                found.append((name, int(matched[2]) if matched[1] == self._name else None))
        return [(name, index) for name, index in found if index is not None] or found

    async def write(self, entries: Mapping[Key, Saved]) -> bool:
        """Write shards that hold exactly these entries. Return whether all writes succeeded; failures are logged."""
        content = {entry_name(key): one.content for key, one in entries.items()}
        count = shard_count({entry: len(value) for entry, value in content.items()}, max(self._stored, default=0) + 1)
        good = True
        for step in steps(self._stored, content, count):
            if step.takes and not good:
                continue
            try:
                await self._make(step, shard_name(step.index, self._name))
            except (errors.ApiError, errors.Unreachable) as error:
                good = False
                context = {"config_map": shard_name(step.index, self._name), "error": str(error)}
                log.warning("cannot write planner memories", extra=context)
        return good

    async def _make(self, step: ShardWrite, name: str) -> None:
        if step.content is None:
            await self._client.delete(CONFIG_MAP, self._namespace, name)
            del self._stored[step.index]
            return
        binary = {entry: base64.b64encode(value).decode() for entry, value in step.content.items()}
        meta = {"name": name, "namespace": self._namespace, "labels": {LABEL: LABEL_VALUE}}
        shard = {"apiVersion": CONFIG_MAP.api_version, "kind": CONFIG_MAP.kind, "metadata": meta, "binaryData": binary}
        # If the response is lost, the shard may have the old or the new content. Record entries of both, as not written.
        self._stored[step.index] = dict.fromkeys({**self._stored.get(step.index, {}), **step.content}, b"")
        await self._client.apply(CONFIG_MAP, shard)
        self._stored[step.index] = step.content


class PlannerMemoryStore:
    """Store of all planners' memories. A leader calls `load`, then `run`, and `flush` after `run` was cancelled."""

    def __init__(
        self,
        client: Kube,
        namespace: str,
        clock: Clock,
        *,
        cost: Callable[[Key], object] = lambda _: None,
        config_maps: str = CONFIG_MAPS,
    ) -> None:
        """Initialize without memories, which `load` reads.

        Args:
            client: client of the API server.
            namespace: the operator's namespace.
            clock: clock of this process.
            cost: function that returns the JSON value to store with a model's memory.
            config_maps: prefix of the ConfigMaps' names.
        """
        self._clock, self._cost = clock, cost
        self._shards = Shards(client, namespace, config_maps)
        self._loaded = False
        self._entries: dict[Key, Saved] = {}
        self._offered: dict[Key, tuple[str, PlannerMemory]] = {}

    async def load(self, *, within_s: float = 15.0) -> Mapping[Key, Saved]:
        """Return the stored memories of all models.

        Call this before the first decision, because a memory passed to `offer` replaces the stored one.

        Raises:
            ApiError, Unreachable: the memories could not be read within `within_s`. `run` doesn't write until they have been read.
        """
        end = self._clock.monotonic() + within_s
        while not self._loaded:
            try:
                self._entries = await self._shards.read()
                self._loaded = True
            except (errors.ApiError, errors.Unreachable) as error:
                if self._clock.monotonic() + READ_RETRY_INTERVAL_S > end:
                    raise
                log.warning(
                    "cannot read planner memories", extra={"error": str(error), "retry_s": READ_RETRY_INTERVAL_S}
                )
                await asyncio.sleep(READ_RETRY_INTERVAL_S)
        return dict(self._entries)

    def offer(self, key: Key, uid: str, memory: PlannerMemory) -> None:
        """Keep the newest planner memory of a model for the next save. This takes almost no time."""
        self._offered[key] = (uid, memory)

    async def run(self, live: Callable[[], Container[Key]]) -> None:
        """Save memories every ten minutes, until cancelled.

        `live` returns the models that exist. The entries of other models are dropped.
        """
        delay = SAVE_INTERVAL_S
        while True:
            await asyncio.sleep(delay)
            delay = SAVE_INTERVAL_S if await self._save(live) else RETRY_S

    async def flush(self, *, within_s: float) -> None:
        """Save as many changed memories as possible within `within_s` seconds, those with the newest requests first."""
        if not self._loaded:
            return
        end = self._clock.monotonic() + within_s
        changed = sorted(filter(self._changed, self._offered), key=lambda k: self._offered[k][1].arrivals.last_at or 0)
        left = len(changed)
        try:
            async with asyncio.timeout(within_s):
                for key in reversed(changed):
                    # Keep half of the time for the writes, without which packing is useless.
                    if self._clock.monotonic() > end - within_s / 2:
                        break
                    self._pack(key)
                    left -= 1
                    await asyncio.sleep(0)
                await self._shards.write(self._entries)
        except TimeoutError:
            log.warning("not enough time to write all planner memories", extra={"within_s": within_s})
        log.info("saved planner memories", extra={"changed": len(changed), "not_packed": left})

    async def _save(self, live: Callable[[], Container[Key]]) -> bool:
        """Pack changed memories, a few per second, and then write them. Return whether all memories are stored."""
        try:
            # Load first: otherwise the write would replace stored memories by those of this process alone.
            await self.load(within_s=0)
        except (errors.ApiError, errors.Unreachable) as error:
            log.warning("cannot read planner memories, so none are written", extra={"error": str(error)})
            return False
        pause_s = min(PACE_S, SAVE_INTERVAL_S / 2 / max(len(self._offered), 1))
        for key in list(self._offered):
            changed = self._changed(key)
            if changed:
                self._pack(key)
            await asyncio.sleep(pause_s if changed else 0)
        alive = live()
        for held in (self._offered, self._entries):
            for key in [key for key in held if key not in alive]:
                del held[key]
        return await self._shards.write(self._entries)

    def _changed(self, key: Key) -> bool:
        uid, memory = self._offered[key]
        kept, sign = self._entries.get(key), sign_of(memory)
        return sign != _NOTHING if kept is None else (uid, sign) != (kept.uid, kept.sign)

    def _pack(self, key: Key) -> None:
        uid, memory = self._offered[key]
        try:
            self._entries[key] = saved(uid, memory, at=self._clock.wall(), cost=self._cost(key))
        except Exception:  # a bug that one memory triggers must neither prevent the others' saves nor end the process
            log.exception("cannot pack a planner memory", extra={"key": str(key)})
