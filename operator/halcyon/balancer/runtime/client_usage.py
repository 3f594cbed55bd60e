"""Usage by each client of a model with API keys, parsed from HAProxy's stick table of clients. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_CLIENT = re.compile(r" key=([-._a-zA-Z0-9]{1,253}) ")
_NUMBER = re.compile(r" (http_req_cnt|bytes_in_cnt|bytes_out_cnt)=([0-9]+)")


@dataclass(frozen=True)
class ClientUsage:
    """Usage by one client since HAProxy started."""

    requests: int
    """Number of inference requests, including those that were rejected."""
    received_bytes: int
    """Number of bytes in the requests that HAProxy passed on, including headers."""
    sent_bytes: int
    """Number of bytes in the responses, including headers."""


def parse_usage(table: str) -> dict[str, ClientUsage]:
    """Parse HAProxy's response to `show table`, and return each client's usage, by client name."""
    found = {}
    for row in table.splitlines():
        if name := _CLIENT.search(row):
            numbers = {key: int(value) for key, value in _NUMBER.findall(row)}
            found[name[1]] = ClientUsage(numbers["http_req_cnt"], numbers["bytes_in_cnt"], numbers["bytes_out_cnt"])
    return dict(sorted(found.items()))
