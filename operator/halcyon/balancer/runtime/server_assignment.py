"""The assignment of pods to HAProxy's servers. Pure: state, endpoints and sessions in, state and commands out.

    server    | its pod is                         | HAProxy's admin state | leaves this state
    free      | none                               | maint                 | when a ready pod needs a server; oldest free one first
    ready     | serving                            | ready                 | when the pod stops serving, or the agent takes it out
    draining  | terminating, gone, not ready, dead | drain                 | when no session is left, or the drain time is over;
              |                                    |                       | back to ready if the same pod serves again
    closing   | the same, its drain time is over   | drain, sessions cut   | when no session is left

Only `maint` closes idle connections to the pod, and only those idle at that moment. So it comes after the last session, and no
connection delays Triton's exit. A server goes to another pod only through `free`, so never while sessions of the previous pod last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from halcyon.balancer.config.model import ServerKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

AssignmentState = Literal["free", "ready", "draining", "closing"]
AdminState = Literal["ready", "drain", "maint", "mixed"]
"""mixed: the two protocols disagree, as happens for a moment between two commands."""

ADMIN_STATES: dict[AssignmentState, Literal["ready", "drain", "maint"]] = {
    "free": "maint",
    "ready": "ready",
    "draining": "drain",
    "closing": "drain",
}


@dataclass(frozen=True)
class Endpoint:
    """One pod of a slot, as its EndpointSlice lists it."""

    slot: str
    pod: str
    address: str
    serving: bool
    """Whether the kubelet finds it ready. (`ready` of a slice means nothing if unready addresses are published.)"""
    terminating: bool


@dataclass(frozen=True)
class AssignedServer:
    """Desired state of one HAProxy server."""

    key: ServerKey
    state: AssignmentState = "free"
    address: str = ""
    """Address of the pod; empty if free."""
    since: float = 0.0
    """When this state began, in seconds of the caller's clock."""


@dataclass(frozen=True)
class ServerState:
    """Observed state of one HAProxy server."""

    address: str
    admin: AdminState
    sessions: int
    """Requests in flight, both protocols."""


@dataclass(frozen=True)
class Command:
    """One change of a server, in both protocols."""

    key: ServerKey
    verb: Literal["address", "ready", "drain", "maint", "cut"]
    """address: set it. ready, drain, maint: set the state. cut: end its sessions."""
    address: str = ""


@dataclass(frozen=True)
class Assignment:
    """The result of one step."""

    servers: tuple[AssignedServer, ...]
    commands: tuple[Command, ...]
    unplaced: tuple[Endpoint, ...]
    """Ready pods without a free server: the plan's capacity is too small."""


def adopt(observed: Mapping[ServerKey, ServerState], *, now: float) -> tuple[AssignedServer, ...]:
    """Return the servers of a HAProxy that ran before this agent; those in use keep their pods."""
    states: dict[AdminState, AssignmentState] = {
        "ready": "ready",
        "drain": "draining",
        "maint": "free",
        "mixed": "draining",
    }
    servers = []
    for key, seen in sorted(observed.items()):
        state = states[seen.admin]
        if state == "free" and seen.sessions:
            state = "closing"
        servers.append(
            AssignedServer(key, state, "" if state == "free" else seen.address, now if state != "free" else 0.0)
        )
    return tuple(servers)


def resize(servers: Iterable[AssignedServer], capacities: Mapping[str, int]) -> tuple[AssignedServer, ...]:
    """Return the servers of a new configuration, for the process that a reload starts.

    That process has no session yet, so servers that were draining are free. A pod beyond the new capacity loses its server; the
    next step assigns it another.
    """
    ready = {server.key: server for server in servers if server.state == "ready"}
    keys = (ServerKey(slot, number) for slot, most in sorted(capacities.items()) for number in range(1, most + 1))
    return tuple(ready.get(key, AssignedServer(key)) for key in keys)


def place(
    servers: Iterable[AssignedServer],
    endpoints: Iterable[Endpoint],
    observed: Mapping[ServerKey, ServerState],
    *,
    now: float,
    drain_s: float,
    keep: bool = False,
    out: AbstractSet[str] = frozenset(),
) -> Assignment:
    """Run one step towards the endpoints.

    Args:
        servers: current assignment, with every server of the configuration.
        endpoints: every pod of the slots.
        observed: the same servers as HAProxy has them. A server missing here gets no command.
        now: monotonic, in seconds.
        drain_s: maximum time that sessions may last after their pod left.
        keep: a server drains for all that time, also without a session: clients bound to its pod may return.
        out: pods (by name) that must take no request though they serve.

    Returns:
        The assignment, the commands that bring HAProxy there, and pods without a server. Once the commands have taken effect, a
        second call returns no command.
    """
    serving = {
        (e.slot, e.address): e for e in endpoints if e.serving and not e.terminating and e.pod not in out and e.address
    }
    stepped = [
        _step(server, serving, observed.get(server.key), now=now, drain_s=drain_s, keep=keep) for server in servers
    ]
    assigned = {(server.key.slot, server.address) for server in stepped if server.state in {"ready", "closing"}}
    unassigned = sorted((e for at, e in serving.items() if at not in assigned), key=lambda e: (e.slot, e.pod))
    free = sorted(
        (i for i, server in enumerate(stepped) if server.state == "free" and not _sessions(observed.get(server.key))),
        key=lambda i: (stepped[i].since, stepped[i].key),
    )
    unplaced = []
    for endpoint in unassigned:
        at = next((i for i in free if stepped[i].key.slot == endpoint.slot), None)
        if at is None:
            unplaced.append(endpoint)
            continue
        free.remove(at)
        stepped[at] = AssignedServer(stepped[at].key, "ready", endpoint.address, now)
    commands = tuple(c for server in stepped for c in _commands(server, observed.get(server.key)))
    return Assignment(tuple(stepped), commands, tuple(unplaced))


def _step(
    server: AssignedServer,
    serving: Mapping[tuple[str, str], Endpoint],
    seen: ServerState | None,
    *,
    now: float,
    drain_s: float,
    keep: bool,
) -> AssignedServer:
    if server.state == "free":
        return server
    is_serving = (server.key.slot, server.address) in serving
    # Sessions count only for this very address: after a restart of HAProxy the server may have another one.
    sessions = seen.sessions if seen is not None and seen.address == server.address else 0
    if server.state == "ready":
        return server if is_serving else replace(server, state="draining", since=now)
    if server.state == "draining" and is_serving:
        return replace(server, state="ready", since=now)
    # A session can start between the reading and the drain, so one reading after the drain is needed.
    settled = seen is not None and (seen.address != server.address or seen.admin != "ready")
    is_due = now - server.since >= drain_s
    if not sessions and settled and (is_due or not keep or server.state == "closing"):
        return AssignedServer(server.key, since=now)
    if server.state == "draining" and is_due:
        return replace(server, state="closing", since=now)
    return server


def _sessions(seen: ServerState | None) -> int:
    return seen.sessions if seen is not None else 0


def _commands(server: AssignedServer, seen: ServerState | None) -> list[Command]:
    if seen is None:
        return []
    admin = ADMIN_STATES[server.state]
    commands = []
    if server.state != "free" and seen.address != server.address:
        if seen.admin != "maint":
            commands.append(Command(server.key, "maint"))
        if server.state != "ready" or seen.sessions:
            return commands
        commands += [Command(server.key, "address", server.address), Command(server.key, "ready")]
        return commands
    if seen.admin != admin:
        commands.append(Command(server.key, admin))
    if server.state == "closing" and seen.sessions:
        commands.append(Command(server.key, "cut"))
    return commands
