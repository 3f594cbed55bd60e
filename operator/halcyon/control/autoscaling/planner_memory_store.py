"""Store of planner memories in ConfigMaps (shards), so that they outlive the operator's processes.

The shards are in the operator's namespace. Their names begin with the name of the Helm release, so that two releases in
one namespace have separate ConfigMaps. Only the leader writes. A model's GPU time is stored with its memory, but
changes of the GPU time alone cause no write. Out of scope: the stored form of a memory (`planner_memory.entries`), and
the division among shards (`planner_memory.shards`).
"""

# halcyon-memory-000, -001, ...    binaryData: NAMESPACE.NAME -> zlib of {"uid", "at", "sign", "memory", "cost"}

from __future__ import annotations

import asyncio
import base64
import logging
import re
from collections.abc import Callable, Container, Mapping

from halcyon.api.types import GROUP
from halcyon.control.autoscaling.planner_memory.entries import BROKEN, NOTHING_LEARNT, Saved, read, saved, sign_of
from halcyon.control.autoscaling.planner_memory.shards import (
    CONFIG_MAPS,
    ShardWrite,
    entry_name,
    shard_count,
    shard_name,
    steps,
)
from halcyon.kube import errors
from halcyon.kube.client import Kube
from halcyon.kube.clock import Clock
from halcyon.kube.kinds import CONFIG_MAP, Key
from halcyon.scaling.planner.outputs import PlannerMemory

log = logging.getLogger(__name__)

LABEL, LABEL_VALUE = f"{GROUP}/memory", "planner"
"""Label of the ConfigMaps with planner memories. It differs from the label of child objects, because informers would
otherwise keep every shard in memory."""
SAVE_INTERVAL_S = 600.0
RETRY_S = 60.0
"""Time from a failed save to the next one, in seconds. A save also counts as failed if only a part of it failed."""
PACE_S = 0.25
"""Pause after packing the memory of a model, in seconds. Packing takes 12 ms, so it uses 5 % of a CPU core."""
READ_RETRY_INTERVAL_S = 1.0
_NUMBERED = re.compile(r"(.+)-(\d{3})")
Restore = Callable[[Mapping[Key, Saved]], object]
"""Type of the function with which planners adopt stored memories."""


class Shards:
    """ConfigMaps with planner memories, with the content that this process last read or wrote."""

    def __init__(self, client: Kube, namespace: str, config_maps: str = CONFIG_MAPS) -> None:
        """Initialize without content; `read` fetches it. `config_maps` is the prefix of the ConfigMaps' names."""
        self._client, self._namespace, self._name = client, namespace, config_maps
        self._stored: dict[int, dict[str, bytes]] = {}

    async def read(self) -> dict[Key, Saved]:
        """Return every readable entry of the shards; the newest one if a model has several.

        If no shard has this release's prefix, shards with other prefixes are read instead, and left unchanged: the
        release may have been reinstalled under another name. The first save drops the entries of models that this
        release doesn't manage.

        Raises:
            ApiError, Unreachable: a shard could not be fetched.
        """
        # Fetch one shard at a time: a list of all could have tens of MiB and exceed the request timeout.
        config_maps, _ = await self._client.list(
            CONFIG_MAP, namespace=self._namespace, selector=f"{LABEL}={LABEL_VALUE}", metadata_only=True
        )
        stored: dict[int, dict[str, bytes]] = {}
        newest: dict[Key, Saved] = {}
        for config_map, index in self._sources(sorted(item["metadata"]["name"] for item in config_maps)):
            shard = await self._client.get(CONFIG_MAP, self._namespace, config_map) or {}
            content: dict[str, bytes] = {}
            if index is not None:
                stored[index] = content
            for entry_key, text in (shard.get("binaryData") or {}).items():
                content[entry_key] = value = base64.b64decode(text)
                try:
                    namespace, name = entry_key.split(".", 1)
                    entry = read(value)
                except BROKEN as error:
                    context = {"config_map": config_map, "entry": entry_key, "error": str(error) or repr(error)}
                    log.warning("cannot read a saved planner memory; the model starts without one", extra=context)
                    continue
                key = Key(namespace, name)
                if key not in newest or entry.at > newest[key].at:
                    newest[key] = entry
                await asyncio.sleep(0)
        self._stored = stored
        return newest

    def _sources(self, config_maps: list[str]) -> list[tuple[str, int | None]]:
        """Return the names of the ConfigMaps to read, each with its shard index, or None for another release's.

        ConfigMaps of other releases are returned only if this release has none.
        """
        sources: list[tuple[str, int | None]] = []
        for name in config_maps:
            match = _NUMBERED.fullmatch(name)
            if match is None:
                text = "a ConfigMap has the label of planner memories but not a shard's name"
                log.warning(text, extra={"config_map": name})
            else:
                sources.append((name, int(match[2]) if match[1] == self._name else None))
        return [(name, index) for name, index in sources if index is not None] or sources

    async def write(self, entries: Mapping[Key, Saved]) -> bool:
        """Write the shards so that they hold exactly these entries. Log failures, and return whether there was none."""
        content = {entry_name(key): entry.content for key, entry in entries.items()}
        count = shard_count({entry: len(value) for entry, value in content.items()}, max(self._stored, default=0) + 1)
        succeeded = True
        for step in steps(self._stored, content, count):
            if step.removes and not succeeded:
                continue
            try:
                await self._apply(step, shard_name(step.index, self._name))
            except (errors.ApiError, errors.Unreachable) as error:
                succeeded = False
                context = {"config_map": shard_name(step.index, self._name), "error": str(error)}
                log.warning("cannot write planner memories", extra=context)
        return succeeded

    async def _apply(self, step: ShardWrite, name: str) -> None:
        if step.content is None:
            await self._client.delete(CONFIG_MAP, self._namespace, name)
            del self._stored[step.index]
            return
        binary = {entry: base64.b64encode(value).decode() for entry, value in step.content.items()}
        meta = {"name": name, "namespace": self._namespace, "labels": {LABEL: LABEL_VALUE}}
        shard = {"apiVersion": CONFIG_MAP.api_version, "kind": CONFIG_MAP.kind, "metadata": meta, "binaryData": binary}
        # If the response is lost, the shard may have the old or the new content. Record that it may have entries of both.
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
        """Initialize without memories; `load` reads them.

        `namespace` is the operator's namespace, and `config_maps` the prefix of the ConfigMaps' names. `cost` is a
        function that returns the JSON value to store with a model's memory.
        """
        self._clock, self._cost = clock, cost
        self._shards = Shards(client, namespace, config_maps)
        self._loaded = False
        self._entries: dict[Key, Saved] = {}
        self._offered: dict[Key, tuple[str, PlannerMemory]] = {}

    async def load(self, *, within_s: float = 15.0) -> Mapping[Key, Saved]:
        """Return the stored memories of all models. Call this before `offer`, which replaces stored memories.

        Raises:
            ApiError, Unreachable: the memories could not be read within `within_s`. `run` retries before it writes.
        """
        end = self._clock.monotonic() + within_s
        while not self._loaded:
            try:
                self._entries = await self._shards.read()
                self._loaded = True
            except (errors.ApiError, errors.Unreachable) as error:
                if self._clock.monotonic() + READ_RETRY_INTERVAL_S > end:
                    raise
                context = {"error": str(error), "retry_s": READ_RETRY_INTERVAL_S}
                log.warning("cannot read planner memories", extra=context)
                await asyncio.sleep(READ_RETRY_INTERVAL_S)
        return dict(self._entries)

    def offer(self, key: Key, uid: str, memory: PlannerMemory) -> None:
        """Keep the newest planner memory of a model for the next save. This takes almost no time."""
        self._offered[key] = (uid, memory)

    async def run(self, live: Callable[[], Container[Key]], restore: Restore = lambda _: None) -> None:
        """Save memories every ten minutes, until cancelled. Drop memories of models that `live` doesn't return.

        If `load` has failed, it is repeated, and its result is passed to `restore` before any memory is replaced.
        """
        delay = SAVE_INTERVAL_S
        while True:
            await asyncio.sleep(delay if self._loaded else RETRY_S)
            delay = SAVE_INTERVAL_S if await self._save(live, restore) else RETRY_S

    async def flush(self, *, within_s: float) -> None:
        """Save as many changed memories as possible within `within_s` seconds, in order of their newest requests."""
        if not self._loaded:
            return
        end = self._clock.monotonic() + within_s
        changed = sorted(filter(self._changed, self._offered), key=lambda k: self._offered[k][1].arrivals.last_at or 0)
        unpacked = len(changed)
        try:
            async with asyncio.timeout(within_s):
                for key in reversed(changed):
                    # Keep half of the time for the writes, without which packing is useless.
                    if self._clock.monotonic() > end - within_s / 2:
                        break
                    self._pack(key)
                    unpacked -= 1
                    await asyncio.sleep(0)
                await self._shards.write(self._entries)
        except TimeoutError:
            log.warning("not enough time to write all planner memories", extra={"within_s": within_s})
        log.info("saved planner memories", extra={"changed": len(changed), "not_packed": unpacked})

    async def _save(self, live: Callable[[], Container[Key]], restore: Restore) -> bool:
        """Pack changed memories, a few per second, and then write them. Return whether all memories are stored."""
        try:
            # Load first: otherwise the write would replace stored memories by those of this process alone.
            if not self._loaded:
                restore(await self.load(within_s=0))
                return False
        except (errors.ApiError, errors.Unreachable) as error:
            log.warning("cannot read planner memories, so none are written", extra={"error": str(error)})
            return False
        pause_s = min(PACE_S, SAVE_INTERVAL_S / 2 / max(len(self._offered), 1))
        for key in list(self._offered):
            changed = self._changed(key)
            if changed:
                self._pack(key)
            await asyncio.sleep(pause_s if changed else 0)
        existing = live()
        for memories in (self._offered, self._entries):
            for key in [key for key in memories if key not in existing]:
                del memories[key]
        return await self._shards.write(self._entries)

    def _changed(self, key: Key) -> bool:
        uid, memory = self._offered[key]
        stored, sign = self._entries.get(key), sign_of(memory)
        return sign != NOTHING_LEARNT if stored is None else (uid, sign) != (stored.uid, stored.sign)

    def _pack(self, key: Key) -> None:
        uid, memory = self._offered[key]
        try:
            self._entries[key] = saved(uid, memory, at=self._clock.wall(), cost=self._cost(key))
        except Exception:  # a bug that one memory triggers must neither prevent the others' saves nor end the process
            log.exception("cannot pack a planner memory", extra={"key": str(key)})
