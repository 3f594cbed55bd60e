"""Assignment of pods to HAProxy servers. Pure.

A server is free, ready, draining or closing. Each state follows from the state of the server's pod, and corresponds to
an admin state in HAProxy.

Only the change to `maint` closes idle connections to the pod: those that are idle at that moment. A server is therefore
set to `maint` after its last session, so that no connection delays the exit of Triton. A server is assigned to another
pod only after it has been free, so it never has sessions of two pods.
"""

# server    | its pod is                         | HAProxy's admin state | leaves this state
# free      | none                               | maint                 | when a ready pod needs a server; longest free one first
# ready     | serving                            | ready                 | when the pod stops serving, or the agent takes it out
# draining  | terminating, gone, not ready, dead | drain                 | when no session is left, or the drain time is over;
#           |                                    |                       | back to ready if the same pod serves again
# closing   | as above, its drain time is over   | drain, sessions cut   | when no session is left

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from halcyon.balancer.config.model import ServerKey
from halcyon.triton.client import Endpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

AssignmentState = Literal["free", "ready", "draining", "closing"]
AdminState = Literal["ready", "drain", "maint", "mixed"]
"""Administrative state of an HAProxy server. `mixed` means that the states of its HTTP server and its gRPC server
differ, which is normal between two commands."""

ADMIN_STATES: dict[AssignmentState, Literal["ready", "drain", "maint"]] = {
    "free": "maint",
    "ready": "ready",
    "draining": "drain",
    "closing": "drain",
}


@dataclass(frozen=True)
class AssignedServer:
    """Desired state of one HAProxy server."""

    key: ServerKey
    state: AssignmentState = "free"
    address: str = ""
    """IP address of the pod; empty if the server is free."""
    since: float = 0.0
    """Time at which the server entered its state, in seconds of the caller's clock."""


@dataclass(frozen=True)
class ServerState:
    """Observed state of one HAProxy server."""

    address: str
    admin: AdminState
    sessions: int
    """Number of requests in progress at the server, HTTP and gRPC together."""


@dataclass(frozen=True)
class Command:
    """Change to one HAProxy server, for both protocols."""

    key: ServerKey
    verb: Literal["address", "ready", "drain", "maint", "cut", "limit", "open", "close"]
    """Kind of the change. `address`: set the server's address. `ready`, `drain`, `maint`: set its state. `cut`: end its
    sessions. `limit`: set its limits. `open`, `close`: enable or disable the slot's server `held`, which takes over the
    queue; the server number in the key is then 0."""
    address: str = ""
    limits: tuple[int, int] = (0, 0)
    """Maximum numbers of requests in progress at the server, for HTTP and for gRPC; at least 1."""


@dataclass(frozen=True)
class Assignment:
    """New assignment of pods to servers, and the commands that apply it."""

    servers: tuple[AssignedServer, ...]
    commands: tuple[Command, ...]
    unplaced: tuple[Endpoint, ...]
    """Ready pods for which no server was free because the plan's capacity is too small."""


def adopt(observed: Mapping[ServerKey, ServerState], *, now: float) -> tuple[AssignedServer, ...]:
    """Return the assignment of pods to servers in an HAProxy process that ran before this agent started.

    Servers that are in use stay assigned to their pods.
    """
    states: dict[AdminState, AssignmentState] = {
        "ready": "ready",
        "drain": "draining",
        "maint": "free",
        "mixed": "draining",
    }
    servers = []
    for key, server in sorted(observed.items()):
        state = states[server.admin]
        if state == "free" and server.sessions:
            state = "closing"
        servers.append(
            AssignedServer(key, state, "" if state == "free" else server.address, now if state != "free" else 0.0)
        )
    return tuple(servers)


def resize(servers: Iterable[AssignedServer], capacities: Mapping[str, int]) -> tuple[AssignedServer, ...]:
    """Return the assignment for the process that a reload starts, with the new number of servers for each slot.

    That process has no sessions yet, so servers that were draining become free. A pod whose server is beyond the new capacity loses it;
    the next call of `place` assigns another one.
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
    open_holds: AbstractSet[str] = frozenset(),
) -> Assignment:
    """Compute the assignment for the current endpoints, and the commands that apply it.

    Args:
        servers: current assignment, with every server of the configuration.
        endpoints: all pods of the slots.
        observed: state of the servers in HAProxy. No command is returned for a server that is missing here.
        now: monotonic time, in seconds.
        drain_s: maximum duration of a drain, in seconds; sessions that last longer are cut.
        keep: whether a server drains for all of `drain_s`, even without sessions, because sticky clients may return to
            its pod.
        out: names of pods that must not receive requests although they are serving.
        open_holds: slots whose server `held` still takes requests, because earlier commands failed.

    Returns: the new assignment, the commands, and the pods without a server. After the commands have taken effect, a
        call with the new assignment and the new state of the servers returns no commands.
    """
    serving = _serving(endpoints, out)
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
    # Put new pods into use before others leave: when its last server leaves, a back end's queue is rejected by HAProxy.
    coming_first = sorted(stepped, key=lambda server: server.state != "ready")
    commands = [c for server in coming_first for c in _commands(server, observed.get(server.key))]
    emptied = _emptied_slots(stepped, observed)
    opening = [Command(ServerKey(slot, 0), "open") for slot in sorted(emptied)]
    closing = [Command(ServerKey(slot, 0), "close") for slot in sorted(emptied | open_holds)]
    return Assignment(tuple(stepped), (*opening, *commands, *closing), tuple(unplaced))


def drains(
    servers: Mapping[ServerKey, str], endpoints: Iterable[Endpoint], *, out: AbstractSet[str], passes_queue: bool = True
) -> tuple[Command, ...]:
    """Return the commands that drain the servers of pods that don't serve, in a replaced or stopping process.

    If a slot would have no server left, its server `held` passes the queue on to the current process. Without a current
    process, the slot keeps its last servers, because HAProxy would reject the queue.

    Args:
        servers: pod address of each server that takes requests.
        endpoints: all pods of the slots.
        out: names of pods that must not receive requests although they are serving.
        passes_queue: whether another process runs, to which `held` leads.
    """
    serving = _serving(endpoints, out)
    leaving = sorted(key for key, address in servers.items() if (key.slot, address) not in serving)
    emptied = sorted({key.slot for key in leaving} - {key.slot for key in servers.keys() - set(leaving)})
    if not passes_queue:
        return tuple(Command(key, "drain") for key in leaving if key.slot not in emptied)
    return (
        *(Command(ServerKey(slot, 0), "open") for slot in emptied),
        *(Command(key, "drain") for key in leaving),
        *(Command(ServerKey(slot, 0), "close") for slot in emptied),
    )


def _serving(endpoints: Iterable[Endpoint], out: AbstractSet[str]) -> dict[tuple[str, str], Endpoint]:
    return {
        (e.slot, e.address): e for e in endpoints if e.serving and not e.terminating and e.pod not in out and e.address
    }


def _emptied_slots(servers: Iterable[AssignedServer], observed: Mapping[ServerKey, ServerState]) -> set[str]:
    """Return the slots whose last server is about to be removed, so that their queued requests must be held."""
    leaving, staying = set(), set()
    for server in servers:
        if server.state == "ready":
            staying.add(server.key.slot)
        elif server.key in observed and observed[server.key].admin == "ready":
            leaving.add(server.key.slot)
    return leaving - staying


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
    # Count sessions only if the server has the pod's address. After a restart of HAProxy it may have another one.
    sessions = seen.sessions if seen is not None and seen.address == server.address else 0
    if server.state == "ready":
        return server if is_serving else replace(server, state="draining", since=now)
    if server.state == "draining" and is_serving:
        return replace(server, state="ready", since=now)
    # A session can start between the last reading and the drain, so wait for a reading after the drain.
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
