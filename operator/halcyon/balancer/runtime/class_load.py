"""Parsing of HAProxy's stick table of counters: one row for users' requests and two for batch inference. Pure.

In the code, requests of batch inference are called the lower class.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from halcyon.balancer.config import latency_buckets
from halcyon.balancer.config.model import LOWER_ROW, SENT_ROW, USERS_ROW

if TYPE_CHECKING:
    from collections.abc import Mapping

OFFSET: Final = 200
"""Offset added to the numbers of the counters for batch inference, to distinguish them from those of users and of
streams."""
_ROW = re.compile(r" key=([0-9]+) ")
_GPC = re.compile(r" gpc([0-9]{1,2})=([0-9]+)")
_IN_PROGRESS = re.compile(r" conn_cur=([0-9]+)")


@dataclass(frozen=True)
class ClassLoad:
    """Number of requests from users and from batch inference in one HAProxy process."""

    users: int
    """Total inference requests from users (counter), modulo 2^32."""
    present: int
    """Number of batch inference requests that wait or are in progress at servers now."""
    sent: int
    """Number of requests of batch inference that are in progress at servers now."""


@dataclass(frozen=True)
class LowerStats:
    """Statistics of batch inference in one HAProxy process.

    Other statistics of the process don't include these requests.
    """

    waiting: int
    sent: int
    """Number of requests of batch inference in progress at servers."""
    requests: int
    rejected: int
    errors: int
    answered: int


def counters(row: str) -> dict[int, int]:
    """Return the counters in one row of a stick table, by counter number."""
    return {int(index): int(count) for index, count in _GPC.findall(row)}


def class_load(table: str) -> ClassLoad:
    """Parse HAProxy's response to `show table`, and return the load of users and of batch inference."""
    rows = _rows(table)
    present, sent = (sum(map(int, _IN_PROGRESS.findall(rows.get(key, "")))) for key in (LOWER_ROW, SENT_ROW))
    return ClassLoad(counters(rows.get(USERS_ROW, "")).get(0, 0), present, sent)


def all_counters(table: str) -> dict[int, int]:
    """Return the counters for users by number, and the counters for batch inference by number plus `OFFSET`."""
    rows = _rows(table)
    lower = {OFFSET + index: count for index, count in counters(rows.get(LOWER_ROW, "")).items()}
    return counters(rows.get(USERS_ROW, "")) | lower


def lower_stats(counts: Mapping[int, int], load: ClassLoad) -> LowerStats | None:
    """Return the statistics of batch inference from the result of `all_counters`.

    Return None if there has been no batch inference request yet.
    """
    if OFFSET not in counts:
        return None
    requests, rejected, errors = (counts[OFFSET + index] for index in range(3))
    answered = counts[OFFSET + latency_buckets.FIRST]
    return LowerStats(max(load.present - load.sent, 0), load.sent, requests, rejected, errors, answered)


def _rows(table: str) -> dict[int, str]:
    """Return the rows of a stick table, by the key of each row."""
    return {int(key[1]): row for row in table.splitlines() if (key := _ROW.search(row))}
