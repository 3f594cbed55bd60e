"""Pod notice: a message from the operator to a model's agents about a change to one pod.

The operator sends it on the streams over which agents send their reports.

EndpointSlices contain the same information and are authoritative, but can be late. Their controller waits for a second
if a slice has just changed, which happens whenever several pods are removed. The module uses only the standard library,
because the agent's memory is limited.

Agents and operator are not upgraded at the same moment. Agents without support for notices ignore them, and unknown
fields are ignored.
"""

from __future__ import annotations

import ipaddress
import json
from dataclasses import asdict, dataclass
from typing import Final, Literal, cast, get_args

PodChange = Literal["ready", "unready", "leaving"]
"""Change to a pod. ready, unready: the pod's Ready condition has changed. leaving: the pod is being terminated, which
cannot be undone."""

MAX_BYTES: Final = 2048


class NoticeError(ValueError):
    """The text is not a valid pod notice."""


@dataclass(frozen=True)
class Notice:
    """Notice about a change to one pod."""

    pod: str
    slot: str
    address: str
    """IP address of the pod. It may be empty only if the change is `leaving`."""
    change: PodChange

    def to_json(self) -> str:
        """Return the notice as one line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Notice:
        """Parse a notice.

        Raises:
            NoticeError: the text is not a valid notice; the message names the field, its value and a valid example.
        """
        try:
            fields = json.loads(text[: MAX_BYTES + 1])
            values = {name: fields[name] for name in ("pod", "slot", "address", "change")}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise NoticeError(f"not a valid notice: {error!r}") from error
        for name, value in values.items():
            if not isinstance(value, str):
                raise NoticeError(f"{name} is {value!r}; it must be a string")
        if values["change"] not in get_args(PodChange):
            raise NoticeError(f"change is {values['change']!r}; it must be one of {', '.join(get_args(PodChange))}")
        if not values["pod"] or not values["slot"]:
            raise NoticeError("pod and slot must not be empty; for example digits-server-a-5d7c-x2b4q and a")
        if values["address"] or values["change"] == "ready":
            try:
                ipaddress.ip_address(values["address"])
            except ValueError as error:
                raise NoticeError(
                    f"address is {values['address']!r}; it must be an IP address, for example 10.0.0.7"
                ) from error
        return cls(values["pod"], values["slot"], values["address"], cast("PodChange", values["change"]))
