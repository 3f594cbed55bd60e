"""Which pod stands on which server line of HAProxy. Pure: state, endpoints and sessions in, state and commands out.

    line      | its pod is                         | HAProxy holds it in | leaves the state
    free      | none                               | maint               | when a ready pod needs a line; oldest free first
    ready     | serving                            | ready               | when the pod stops serving, or the agent takes it out
    draining  | terminating, gone, not ready, dead | drain               | when no session is left, or the time is over;
              |                                    |                     | back to ready where the same pod serves again
    closing   | the same, its time is over         | drain, sessions cut | when no session is left

Only `maint` closes idle connections to the pod, and only those that are idle when it comes: so it comes after the last session, and
nothing holds the exit of the pod's server. A line goes to another pod only through `free`, so never while sessions of the former pod last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from halcyon.balancer.config.model import LineKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

LineState = Literal["free", "ready", "draining", "closing"]
AdminState = Literal["ready", "drain", "maint", "mixed"]
"""mixed: the two protocols disagree, as they do for a moment between two commands."""

ADMIN: dict[LineState, Literal["ready", "drain", "maint"]] = {
    "free": "maint",
    "ready": "ready",
    "draining": "drain",
    "closing": "drain",
}


@dataclass(frozen=True)
class Endpoint:
    """One pod of a slot, as its EndpointSlice tells."""

    slot: str
    pod: str
    address: str
    serving: bool
    """The kubelet finds it ready. (`ready` of a slice says nothing where unready addresses are published.)"""
    terminating: bool


@dataclass(frozen=True)
class Line:
    """One server line, as the agent wants it."""

    key: LineKey
    state: LineState = "free"
    address: str = ""
    """The pod's; empty on a free line."""
    since: float = 0.0
    """When it came into this state, seconds of the caller's clock."""


@dataclass(frozen=True)
class ServerState:
    """One server line, as HAProxy has it."""

    address: str
    admin: AdminState
    sessions: int
    """Requests in flight, both protocols."""


@dataclass(frozen=True)
class Command:
    """One change of a server line, in both protocols."""

    key: LineKey
    verb: Literal["address", "ready", "drain", "maint", "cut"]
    """address: set it. ready, drain, maint: set the state. cut: end its sessions."""
    address: str = ""


@dataclass(frozen=True)
class Assignment:
    """The result of one step."""

    lines: tuple[Line, ...]
    commands: tuple[Command, ...]
    unplaced: tuple[Endpoint, ...]
    """Ready pods for which no line is free: the plan's capacity is too small."""


def adopt(observed: Mapping[LineKey, ServerState], *, now: float) -> tuple[Line, ...]:
    """The lines of a HAProxy that ran before this agent: what is in use stays where it is."""
    states: dict[AdminState, LineState] = {"ready": "ready", "drain": "draining", "maint": "free", "mixed": "draining"}
    lines = []
    for key, seen in sorted(observed.items()):
        state = states[seen.admin]
        if state == "free" and seen.sessions:
            state = "closing"
        lines.append(Line(key, state, "" if state == "free" else seen.address, now if state != "free" else 0.0))
    return tuple(lines)


def resize(lines: Iterable[Line], capacities: Mapping[str, int]) -> tuple[Line, ...]:
    """The lines of a new configuration, for the process that a reload starts: it has no session yet, so what drains is free.

    A pod beyond the new capacity loses its line; the next step gives it another.
    """
    ready = {line.key: line for line in lines if line.state == "ready"}
    keys = (LineKey(slot, number) for slot, most in sorted(capacities.items()) for number in range(1, most + 1))
    return tuple(ready.get(key, Line(key)) for key in keys)


def place(
    lines: Iterable[Line],
    endpoints: Iterable[Endpoint],
    observed: Mapping[LineKey, ServerState],
    *,
    now: float,
    drain_s: float,
    keep: bool = False,
    out: AbstractSet[str] = frozenset(),
) -> Assignment:
    """One step towards the endpoints.

    Args:
        lines: what is assigned now, every line of the configuration.
        endpoints: every pod of the slots.
        observed: the same lines as HAProxy has them. A line that it lacks gets no command.
        now: seconds of a clock that does not jump.
        drain_s: how long sessions may last after their pod left.
        keep: a line drains for all that time, also without a session: clients that belong to its pod may come again.
        out: pods (by name) that must take no request though they serve.

    Returns:
        Lines, commands that bring HAProxy there, and pods without a line. A second call with what the commands have
        brought about gives no command.
    """
    wanted = {
        (e.slot, e.address): e for e in endpoints if e.serving and not e.terminating and e.pod not in out and e.address
    }
    stepped = [_step(line, wanted, observed.get(line.key), now=now, drain_s=drain_s, keep=keep) for line in lines]
    held = {(line.key.slot, line.address) for line in stepped if line.state in {"ready", "closing"}}
    waiting = sorted((e for at, e in wanted.items() if at not in held), key=lambda e: (e.slot, e.pod))
    free = sorted(
        (i for i, line in enumerate(stepped) if line.state == "free" and not _sessions(observed.get(line.key))),
        key=lambda i: (stepped[i].since, stepped[i].key),
    )
    unplaced = []
    for endpoint in waiting:
        at = next((i for i in free if stepped[i].key.slot == endpoint.slot), None)
        if at is None:
            unplaced.append(endpoint)
            continue
        free.remove(at)
        stepped[at] = Line(stepped[at].key, "ready", endpoint.address, now)
    commands = tuple(c for line in stepped for c in _commands(line, observed.get(line.key)))
    return Assignment(tuple(stepped), commands, tuple(unplaced))


def _step(
    line: Line,
    wanted: Mapping[tuple[str, str], Endpoint],
    seen: ServerState | None,
    *,
    now: float,
    drain_s: float,
    keep: bool,
) -> Line:
    if line.state == "free":
        return line
    is_wanted = (line.key.slot, line.address) in wanted
    # Only a report of this very address counts: after a restart of HAProxy the line may stand elsewhere.
    sessions = seen.sessions if seen is not None and seen.address == line.address else 0
    if line.state == "ready":
        return line if is_wanted else replace(line, state="draining", since=now)
    if line.state == "draining" and is_wanted:
        return replace(line, state="ready", since=now)
    # A session can begin between the report and the drain, so one report after the drain is needed.
    settled = seen is not None and (seen.address != line.address or seen.admin != "ready")
    is_due = now - line.since >= drain_s
    if not sessions and settled and (is_due or not keep or line.state == "closing"):
        return Line(line.key, since=now)
    if line.state == "draining" and is_due:
        return replace(line, state="closing", since=now)
    return line


def _sessions(seen: ServerState | None) -> int:
    return seen.sessions if seen is not None else 0


def _commands(line: Line, seen: ServerState | None) -> list[Command]:
    if seen is None:
        return []
    admin = ADMIN[line.state]
    commands = []
    if line.state != "free" and seen.address != line.address:
        if seen.admin != "maint":
            commands.append(Command(line.key, "maint"))
        if line.state != "ready" or seen.sessions:
            return commands
        commands += [Command(line.key, "address", line.address), Command(line.key, "ready")]
        return commands
    if seen.admin != admin:
        commands.append(Command(line.key, admin))
    if line.state == "closing" and seen.sessions:
        commands.append(Command(line.key, "cut"))
    return commands
