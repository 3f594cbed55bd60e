"""The notice: what the operator tells a model's agents of one pod, on the streams that bring their records.

The agents' EndpointSlices tell the same and are what counts, but the controller that writes them waits a second where a slice has just
changed, as it has in every scale-down of several pods. Standard library only: the agent's memory is a budget.

Agents and operator are not replaced in one moment: an agent that knows no notices leaves them unread, and fields that this
version doesn't know are left out.
"""

from __future__ import annotations

import ipaddress
import json
from dataclasses import asdict, dataclass
from typing import Final, Literal, cast, get_args

PodNews = Literal["ready", "unready", "leaving"]
"""ready, unready: its Ready condition has changed. leaving: it was told to terminate, which nothing takes back."""

MAX_BYTES: Final = 2048


class NoticeError(ValueError):
    """The text is not a notice that this version understands."""


@dataclass(frozen=True)
class Notice:
    """One pod's news."""

    pod: str
    slot: str
    address: str
    """Its IP address; empty where it has none, which only one that leaves may have."""
    news: PodNews

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Notice:
        """Read what `to_json` wrote.

        Raises:
            NoticeError: it is none; it names the field, the value and a good example.
        """
        try:
            found = json.loads(text[: MAX_BYTES + 1])
            values = {name: found[name] for name in ("pod", "slot", "address", "news")}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise NoticeError(f"not a notice: {error!r}") from error
        for name, value in values.items():
            if not isinstance(value, str):
                raise NoticeError(f"{name} is {value!r}; it must be a text")
        if values["news"] not in get_args(PodNews):
            raise NoticeError(f"news is {values['news']!r}; it must be one of {', '.join(get_args(PodNews))}")
        if not values["pod"] or not values["slot"]:
            raise NoticeError("pod and slot must not be empty; for example digits-server-a-5d7c-x2b4q and a")
        if values["address"] or values["news"] == "ready":
            try:
                ipaddress.ip_address(values["address"])
            except ValueError as error:
                raise NoticeError(
                    f"address is {values['address']!r}; it must be an IP address, such as 10.0.0.7"
                ) from error
        return cls(values["pod"], values["slot"], values["address"], cast("PodNews", values["news"]))
