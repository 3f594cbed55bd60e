"""Division of entries among shards, which are ConfigMaps, and the order of writes when the number of shards changes.

The shard of a model is the hash of NAMESPACE.NAME modulo the number of shards, which is a power of two. Out of scope:
the content of an entry (`entries`), and the requests (`planner_memory_store`).
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from halcyon.kube.kinds import Key

MEAN_SHARD_BYTES = 400 * 1024
"""Maximum mean size of the shards, which are the ConfigMaps with planner memories, in bytes. It suffices for about 40
models after two weeks. Building a request of this size takes about 10 ms."""
MAX_SHARD_BYTES = 768 * 1024
"""Maximum size of the largest shard, in bytes. The API server rejects a ConfigMap of more than 1 MiB."""
MAX_SHARDS = 512
CONFIG_MAPS = "halcyon-memory"
"""Prefix of the names of the shards if the Helm release is named halcyon."""


def entry_name(key: Key) -> str:
    """Return the key of a model's entry in binaryData, NAMESPACE.NAME. It is unique, because neither part has a dot."""
    return f"{key.namespace}.{key.name}"


def shard_name(index: int, config_maps: str = CONFIG_MAPS) -> str:
    """Return the name of the ConfigMap that holds a shard."""
    return f"{config_maps}-{index:03}"


def place(entry: str, count: int) -> int:
    """Return the index of the shard that holds an entry. The index is the same in every process and version."""
    return zlib.crc32(entry.encode()) % count


def shard_count(sizes: Mapping[str, int], current: int) -> int:
    """Return the number of shards, a power of two, for entries of these sizes in bytes. `current` is the number now.

    The number grows as soon as needed. To avoid flapping, it shrinks only if half as many shards would be at most half
    full.
    """
    count: int = 1 << (min(max(current, 1), MAX_SHARDS) - 1).bit_length()
    while count < MAX_SHARDS and not _fits(sizes, count, 1.0):
        count *= 2
    while count > 1 and _fits(sizes, count // 2, 0.5):
        count //= 2
    return count


def _fits(sizes: Mapping[str, int], count: int, share: float) -> bool:
    sizes_of_shards = [0] * count
    for entry, size in sizes.items():
        sizes_of_shards[place(entry, count)] += size + len(entry)
    return sum(sizes_of_shards) <= share * MEAN_SHARD_BYTES * count and max(sizes_of_shards) <= share * MAX_SHARD_BYTES


@dataclass(frozen=True, slots=True)
class ShardWrite:
    """Write of a shard, or its deletion if `content` is None."""

    index: int
    content: dict[str, bytes] | None
    removes: bool
    """Whether the write removes an entry that belongs to another shard. The other shard must be written first."""


def steps(stored: Mapping[int, Mapping[str, bytes]], entries: Mapping[str, bytes], count: int) -> list[ShardWrite]:
    """Return the writes after which there are `count` shards with exactly these entries.

    The order of the writes keeps each entry in at least one shard at all times: the shard with the highest index is
    written first, and deletions come last. Proof: suppose an entry is in shard i but belongs to shard j. It was put
    there when the number of shards was m. If m < count, m divides count, so i = hash mod m < j = hash mod count. If m >
    count and i isn't the right shard, i >= count, so shard i is deleted.
    """
    contents: defaultdict[int, dict[str, bytes]] = defaultdict(dict)
    for entry in sorted(entries):
        contents[place(entry, count)][entry] = entries[entry]
    puts, deletes = [], []
    for index in sorted({*stored, *contents}, reverse=True):
        before, after = stored.get(index, {}), contents.get(index)
        removes = any(entry in entries and place(entry, count) != index for entry in before)
        if after is None:
            deletes.append(ShardWrite(index, None, removes))
        elif before != after:
            puts.append(ShardWrite(index, after, removes))
    return puts + deletes
