"""The notice: a message about one pod from the operator to a model's agents, on the streams that bring their reports.

The agents' EndpointSlices carry the same information and are authoritative. But the controller that writes them waits a
second if a slice has just changed, which is the case in every scale-down of several pods. Standard library only: the
agent's memory is a budget.

Agents and operator are not replaced at the same moment: an agent that does not know notices leaves them unread, and
fields that this version does not know are ignored.
"""

from __future__ import annotations

import ipaddress
import json
from dataclasses import asdict, dataclass
from typing import Final, Literal, cast, get_args

PodChange = Literal["ready", "unready", "leaving"]
"""ready, unready: the pod's Ready condition has changed. leaving: the pod is being terminated, which cannot be undone."""

MAX_BYTES: Final = 2048


class NoticeError(ValueError):
    """The text is not a notice that this version understands."""


@dataclass(frozen=True)
class Notice:
    """A change of one pod."""

    pod: str
    slot: str
    address: str
    """IP address of the pod; empty if it has none, which is only allowed for one that is leaving."""
    change: PodChange

    def to_json(self) -> str:
        """Return the notice on one line."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Notice:
        """Return the notice that `to_json` wrote.

        Raises:
            NoticeError: the text is not a notice; the error names the field, the value and a good example.
        """
        try:
            found = json.loads(text[: MAX_BYTES + 1])
            values = {name: found[name] for name in ("pod", "slot", "address", "change")}
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
