"""Stored form of one model's planner memory: the content, the model's uid, the time, and the digest of what was learnt.

Out of scope: the JSON of a memory (`scaling.planner.serialization`), and the ConfigMaps that hold the entries
(`shards`, `planner_memory_store`).
"""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import dataclass
from typing import Any

from halcyon.scaling.planner.clock_shift import shifted
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.scaling.planner.serialization import MAX_BYTES, Restored, packed, resumed, unpacked

_MAX_JSON_BYTES = 4 * MAX_BYTES
"""Maximum size of an unpacked entry, in bytes. A larger entry wasn't written by Halcyon. Without this maximum,
unpacking a few KiB of compressed zeros could fill the process's memory."""
BROKEN = (zlib.error, ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Saved:
    """Planner memory of one model in its stored form."""

    uid: str
    """Uid of the ModelDeployment that the memory belongs to. A later ModelDeployment of the same name has a different
    uid and doesn't use the memory."""
    at: float
    """Time at which the planner memory was packed, in seconds since the epoch."""
    sign: str
    """Digest of what the planner had learnt when its memory was packed, as returned by `sign_of`."""
    content: bytes
    """Compressed JSON with the other fields, the planner memory and the GPU time."""

    def restored(self, *, now: float = math.inf) -> Restored:
        """Return the planner's memory for a new process, and the parts that can't be read. This takes 20 to 40 ms.

        If the memory was packed after `now` (seconds since the epoch), the clock of the previous node was ahead, and
        the times in the memory are shifted. Otherwise a hold could keep replicas until a time in the future.
        """
        restored = unpacked(_document(self.content).get("memory"))
        memory = resumed(restored.memory)
        return Restored(shifted(memory, now - self.at) if self.at > now else memory, restored.problems)

    def cost(self) -> Any:  # any JSON value
        """Return the stored GPU time, as JSON of `scaling.gpu_cost.Ledger`; None if there is none.

        Raises:
            One of BROKEN: the content can't be read.
        """
        return _document(self.content).get("cost")


def saved(uid: str, memory: PlannerMemory, *, at: float, cost: object = None) -> Saved:
    """Pack a planner memory for storage, together with the JSON value `cost`.

    The result takes about 10 KB after two weeks. Packing takes 12 to 20 ms.
    """
    sign = sign_of(memory)
    document = {"uid": uid, "at": at, "sign": sign, "memory": packed(memory)}
    document |= {} if cost is None else {"cost": cost}
    return Saved(uid, at, sign, zlib.compress(json.dumps(document, separators=(",", ":")).encode()))


def read(content: bytes) -> Saved:
    """Parse an entry that was packed by `saved`. Raise one of `BROKEN` for any other content."""
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
    a spike, and a wrong prediction of the next spike. Other changes without requests only show that time has passed:
    empty bins, expired holds, and samples equal to the last one.

    Numbers are rounded as in the JSON, so that storing and reading a memory doesn't change its digest.
    """
    capacity, spikes = memory.capacity, memory.spikes
    line = () if capacity.line is None else (capacity.line.t0_s, capacity.line.row_s)
    times = (
        memory.arrivals.last_at,
        spikes.spikes[-1].onset if spikes.spikes else None,
        spikes.bet.due if spikes.bet else None,
    )
    numbers = [*("-" if at is None else f"{at:.3f}" for at in times), *(f"{s:.9g}" for s in (*line, *capacity.starts))]
    return f"{zlib.crc32(' '.join(numbers).encode()):08x}"


NOTHING_LEARNT = sign_of(PlannerMemory())
"""Digest of the memory of a planner that has learnt nothing yet."""
