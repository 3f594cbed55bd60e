from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from halcyon.balancer.config.model import ServerKey
from halcyon.balancer.runtime.server_assignment import (
    AssignedServer,
    Command,
    ServerState,
    adopt,
    drains,
    place,
    resize,
)
from halcyon.triton.client import Endpoint
from tests.drawn import draws

DRAIN_S = 5.0


def pod(name: str, address: str, *, slot: str = "a", serving: bool = True, terminating: bool = False) -> Endpoint:
    return Endpoint(slot, name, address, serving=serving, terminating=terminating)


@dataclass
class Model:
    """What a HAProxy does with commands; sessions are the test's to set."""

    lines: dict[ServerKey, ServerState]
    cut: set[ServerKey] = field(default_factory=set)

    @classmethod
    def fresh(cls, count: int, slot: str = "a") -> Model:
        return cls({ServerKey(slot, n): ServerState("127.0.0.1", "maint", 0) for n in range(1, count + 1)})

    def apply(self, commands: tuple[Command, ...]) -> None:
        holds: set[str] = set()
        for command in commands:
            if command.verb in {"open", "close"}:
                (holds.add if command.verb == "open" else holds.discard)(command.key.slot)
                continue
            seen = self.lines[command.key]
            if seen.admin == "ready" and command.verb in {"drain", "maint"} and self.is_last(command.key, commands):
                assert command.key.slot in holds, "the queue of the slot would be lost with its last server"
            if command.verb == "address":
                assert seen.sessions == 0, "a line changed its address while sessions of the former pod last"
                assert seen.admin == "maint", "a line changed its address while it took requests"
                self.lines[command.key] = replace(seen, address=command.address)
            elif command.verb == "cut":
                self.lines[command.key] = replace(seen, sessions=0)
            else:
                self.lines[command.key] = replace(seen, admin=command.verb)
        assert not holds, "only while the last server leaves does the server `held` take requests"

    def is_last(self, key: ServerKey, commands: tuple[Command, ...]) -> bool:
        """Return whether no other server of the slot takes requests, nor will after these commands."""
        others = {other for other, seen in self.lines.items() if seen.admin == "ready" and other.slot == key.slot}
        return not (others - {key}) and (key, "ready") not in {(command.key, command.verb) for command in commands}


def step(
    model: Model, lines: tuple[AssignedServer, ...], pods: list[Endpoint], now: float, out: frozenset[str] = frozenset()
) -> tuple[AssignedServer, ...]:
    placement = place(lines, pods, model.lines, now=now, drain_s=DRAIN_S, out=out)
    model.apply(placement.commands)
    return placement.servers


def in_use(model: Model) -> set[str]:
    return {seen.address for seen in model.lines.values() if seen.admin == "ready"}


def test_a_ready_pod_gets_a_free_server_and_another_look_changes_nothing() -> None:
    model = Model.fresh(3)
    lines = step(model, resize((), {"a": 3}), [pod("p", "10.0.0.1")], 0)
    assert in_use(model) == {"10.0.0.1"}
    again = place(lines, [pod("p", "10.0.0.1")], model.lines, now=1, drain_s=DRAIN_S)
    assert again.commands == ()
    assert again.servers == lines


def test_the_queue_is_taken_over_before_the_last_server_leaves() -> None:
    model = Model({**Model.fresh(2).lines, **Model.fresh(1, "b").lines})
    pods = [pod("p", "10.0.0.1"), pod("q", "10.0.0.2"), pod("r", "10.0.0.3", slot="b")]
    lines = step(model, resize((), {"a": 2, "b": 1}), pods, 0)
    first = place(lines, pods[1:], model.lines, now=1, drain_s=DRAIN_S)
    assert [(command.key, command.verb) for command in first.commands] == [(ServerKey("a", 1), "drain")]
    model.apply(first.commands)
    last = place(first.servers, pods[2:], model.lines, now=1, drain_s=DRAIN_S, keep=True)
    assert [(command.key, command.verb) for command in last.commands] == [
        (ServerKey("a", 0), "open"),
        (ServerKey("a", 2), "drain"),
        (ServerKey("a", 0), "close"),
    ]


def test_a_hold_that_a_failed_command_left_open_is_closed() -> None:
    model = Model.fresh(1)
    left = place(resize((), {"a": 1}), [], model.lines, now=0, drain_s=DRAIN_S, open_holds={"a"})
    assert left.commands == (Command(ServerKey("a", 0), "close"),)


def test_a_pod_that_never_was_ready_gets_no_line() -> None:
    model = Model.fresh(3)
    step(model, resize((), {"a": 3}), [pod("p", "10.0.0.1", serving=False), pod("q", "10.0.0.2", terminating=True)], 0)
    assert in_use(model) == set()


def test_a_leaving_sticky_pod_drains_for_all_of_its_time() -> None:
    model = Model.fresh(1)
    lines, key = step(model, resize((), {"a": 1}), [pod("p", "10.0.0.1")], 0), ServerKey("a", 1)
    for now, admin in ((1.0, "drain"), (1 + DRAIN_S - 0.1, "drain"), (1 + DRAIN_S, "maint")):
        placement = place(lines, [], model.lines, now=now, drain_s=DRAIN_S, keep=True)
        model.apply(placement.commands)
        lines = placement.servers
        assert model.lines[key].admin == admin


def test_a_leaving_pod_drains_until_its_last_session_and_frees_its_server() -> None:
    model = Model.fresh(2)
    lines = step(model, resize((), {"a": 2}), [pod("p", "10.0.0.1")], 0)
    key = ServerKey("a", 1)
    model.lines[key] = replace(model.lines[key], sessions=2)
    for now in (1, 2, 3):
        lines = step(model, lines, [], now)
        assert model.lines[key].admin == "drain"
    model.lines[key] = replace(model.lines[key], sessions=0)
    lines = step(model, lines, [], 4)
    assert model.lines[key].admin == "maint"
    step(model, lines, [pod("q", "10.0.0.2")], 5)
    assert model.lines[ServerKey("a", 2)].address == "10.0.0.2", "the line that was free for longer"


def test_sessions_that_outlast_the_drain_are_cut_before_the_line_is_free() -> None:
    model = Model.fresh(1)
    lines = step(model, resize((), {"a": 1}), [pod("p", "10.0.0.1")], 0)
    key = ServerKey("a", 1)
    model.lines[key] = replace(model.lines[key], sessions=1)
    lines = step(model, lines, [], 1)
    placement = place(lines, [pod("q", "10.0.0.2")], model.lines, now=1 + DRAIN_S, drain_s=DRAIN_S)
    assert placement.commands == (Command(key, "cut"),)
    assert [e.pod for e in placement.unplaced] == ["q"]
    model.apply(placement.commands)
    step(model, placement.servers, [pod("q", "10.0.0.2")], 7)
    assert in_use(model) == {"10.0.0.2"}


def test_a_pod_that_comes_back_while_it_drains_keeps_its_line() -> None:
    model = Model.fresh(2)
    lines = step(model, resize((), {"a": 2}), [pod("p", "10.0.0.1")], 0)
    model.lines[ServerKey("a", 1)] = replace(model.lines[ServerKey("a", 1)], sessions=1)
    lines = step(model, lines, [pod("p", "10.0.0.1", serving=False)], 1)
    assert in_use(model) == set()
    step(model, lines, [pod("p", "10.0.0.1")], 2)
    assert [key for key, seen in model.lines.items() if seen.admin == "ready"] == [ServerKey("a", 1)]


def test_a_pod_in_maintenance_takes_no_request_though_it_serves() -> None:
    model = Model.fresh(2)
    pods = [pod("p", "10.0.0.1"), pod("q", "10.0.0.2")]
    lines = step(model, resize((), {"a": 2}), pods, 0)
    step(model, lines, pods, 1, frozenset({"p"}))
    assert in_use(model) == {"10.0.0.2"}


def test_slots_have_lines_of_their_own() -> None:
    model = Model({**Model.fresh(1).lines, **Model.fresh(1, "b").lines})
    pods = [pod("p", "10.0.0.1", slot="b"), pod("q", "10.0.0.2", slot="b")]
    placement = place(resize((), {"a": 1, "b": 1}), pods, model.lines, now=0, drain_s=DRAIN_S)
    model.apply(placement.commands)
    assert model.lines[ServerKey("b", 1)].address == "10.0.0.1"
    assert model.lines[ServerKey("a", 1)].admin == "maint"
    assert [e.pod for e in placement.unplaced] == ["q"]


def test_a_haproxy_that_lost_its_state_gets_all_of_it_again() -> None:
    model = Model.fresh(3)
    pods = [pod("p", "10.0.0.1"), pod("q", "10.0.0.2")]
    lines = step(model, resize((), {"a": 3}), pods, 0)
    before = dict(model.lines)
    model.lines = Model.fresh(3).lines
    step(model, lines, pods, 1)
    assert model.lines == before


def test_a_haproxy_with_another_state_is_brought_to_the_wanted_one() -> None:
    model = Model(
        {
            ServerKey("a", 1): ServerState("10.0.0.9", "ready", 0),
            ServerKey("a", 2): ServerState("", "mixed", 0),
            ServerKey("a", 3): ServerState("10.0.0.8", "drain", 0),
        }
    )
    lines = (
        AssignedServer(ServerKey("a", 1), "ready", "10.0.0.1"),
        AssignedServer(ServerKey("a", 2), "ready", "10.0.0.2"),
        AssignedServer(ServerKey("a", 3)),
    )
    pods = [pod("p", "10.0.0.1"), pod("q", "10.0.0.2")]
    step(model, lines, pods, 1)
    assert model.lines == {
        ServerKey("a", 1): ServerState("10.0.0.1", "ready", 0),
        ServerKey("a", 2): ServerState("10.0.0.2", "ready", 0),
        ServerKey("a", 3): ServerState("10.0.0.8", "maint", 0),
    }


def test_an_agent_that_restarts_finds_its_lines_again() -> None:
    model = Model.fresh(4)
    pods = [pod("p", "10.0.0.1"), pod("q", "10.0.0.2")]
    lines = step(model, resize((), {"a": 4}), pods, 0)
    model.lines[ServerKey("a", 2)] = replace(model.lines[ServerKey("a", 2)], sessions=1)
    lines = step(model, lines, pods[:1], 1)
    adopted = adopt(model.lines, now=100)
    assert [(line.state, line.address) for line in adopted] == [
        ("ready", "10.0.0.1"),
        ("draining", "10.0.0.2"),
        ("free", ""),
        ("free", ""),
    ]
    assert place(adopted, pods[:1], model.lines, now=100, drain_s=DRAIN_S).commands == ()


def test_a_smaller_plan_moves_a_pod_from_a_line_that_is_gone() -> None:
    lines = (AssignedServer(ServerKey("a", 1)), AssignedServer(ServerKey("a", 2), "ready", "10.0.0.2"))
    assert resize(lines, {"a": 1}) == (AssignedServer(ServerKey("a", 1)),)
    model = Model.fresh(1)
    step(model, resize(lines, {"a": 1}), [pod("p", "10.0.0.2")], 0)
    assert in_use(model) == {"10.0.0.2"}


def test_six_hundred_replacements_leak_no_line() -> None:
    model = Model.fresh(6)
    lines = resize((), {"a": 6})
    pods = [pod(f"p{n}", f"10.1.0.{n}") for n in range(3)]
    used: dict[ServerKey, int] = {}
    for number in range(600):
        now = float(number)
        pods = [*pods[1:], pod(f"q{number}", f"10.2.{number // 250}.{number % 250}")]
        lines = step(model, lines, pods, now)
        lines = step(model, lines, pods, now + 0.5)
        assert in_use(model) == {p.address for p in pods}
        for key, seen in model.lines.items():
            used[key] = used.get(key, 0) + (seen.admin == "ready")
    assert min(used.values()) > 200, "every line has its turns"


ADDRESSES = [f"10.0.0.{n}" for n in range(1, 7)]


class Replacements(RuleBasedStateMachine):
    """Pods come, go, flap and keep sessions; HAProxy and the agent restart at any time."""

    @initialize(count=st.integers(1, 5))
    def begin(self, count: int) -> None:
        self.model = Model.fresh(count)
        self.lines = resize((), {"a": count})
        self.pods: dict[str, Endpoint] = {}
        self.now = 0.0
        self.out: frozenset[str] = frozenset()

    @rule(address=st.sampled_from(ADDRESSES), serving=st.booleans(), terminating=st.booleans())
    def pod_is(self, address: str, *, serving: bool, terminating: bool) -> None:
        self.pods[address] = pod("p" + address, address, serving=serving, terminating=terminating)

    @rule(address=st.sampled_from(ADDRESSES))
    def pod_goes(self, address: str) -> None:
        self.pods.pop(address, None)

    @rule(address=st.sampled_from(ADDRESSES))
    def pod_is_excluded(self, address: str) -> None:
        self.out = frozenset({"p" + address})

    @rule(data=st.data())
    def sessions_begin(self, data: st.DataObject) -> None:
        ready = [key for key, seen in self.model.lines.items() if seen.admin == "ready"]
        if ready:
            key = data.draw(st.sampled_from(sorted(ready)))
            self.model.lines[key] = replace(self.model.lines[key], sessions=2)

    @rule(data=st.data())
    def sessions_end(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model.lines)))
        self.model.lines[key] = replace(self.model.lines[key], sessions=0)

    @rule()
    def haproxy_restarts(self) -> None:
        self.model.lines = Model.fresh(len(self.model.lines)).lines

    @rule()
    def agent_restarts(self) -> None:
        self.lines = adopt(self.model.lines, now=self.now)

    @rule(seconds=st.sampled_from([0.2, 1.0, 6.0]))
    def a_step(self, seconds: float) -> None:
        self.now += seconds
        self.lines = step(self.model, self.lines, list(self.pods.values()), self.now, self.out)

    @rule()
    def it_converges(self) -> None:
        for key, seen in self.model.lines.items():
            self.model.lines[key] = replace(seen, sessions=0)
        for _ in range(4):
            self.a_step(1.0)
        expected = {p.address for p in self.pods.values() if p.serving and not p.terminating and p.pod not in self.out}
        assert in_use(self.model) <= expected
        assert len(in_use(self.model)) == min(len(expected), len(self.model.lines))
        placement = place(
            self.lines, list(self.pods.values()), self.model.lines, now=self.now, drain_s=DRAIN_S, out=self.out
        )
        assert placement.commands == ()
        assert len(placement.unplaced) == max(0, len(expected) - len(self.model.lines))

    @invariant()
    def no_address_is_on_two_lines_in_use(self) -> None:
        if hasattr(self, "model"):
            ready = [seen.address for seen in self.model.lines.values() if seen.admin == "ready"]
            assert len(ready) == len(set(ready))


TestReplacements = Replacements.TestCase
TestReplacements.settings = draws(6, steps=40)


@given(st.permutations(range(5)))
def test_the_order_of_the_endpoints_does_not_matter(order: list[int]) -> None:
    pods = [pod(f"p{n}", f"10.0.0.{n + 1}") for n in range(5)]
    model = Model.fresh(8)
    first = place(resize((), {"a": 8}), pods, model.lines, now=0, drain_s=DRAIN_S)
    second = place(resize((), {"a": 8}), [pods[n] for n in order], model.lines, now=0, drain_s=DRAIN_S)
    assert first == second


def test_replaced_process_drains_servers_and_passes_emptied_queues_on() -> None:
    servers = {ServerKey("a", 1): "10.0.0.1", ServerKey("a", 2): "10.0.0.2", ServerKey("b", 1): "10.0.0.3"}
    serving = Endpoint("a", "pod-2", "10.0.0.2", serving=True, terminating=False)
    leaving = [
        Endpoint("a", "pod-1", "10.0.0.1", serving=True, terminating=True),
        Endpoint("b", "pod-3", "10.0.0.3", serving=False, terminating=True),
    ]
    drained = [Command(ServerKey("a", 1), "drain"), Command(ServerKey("b", 1), "drain")]
    opened, closed = ([Command(ServerKey(slot, 0), verb) for slot in "ab"] for verb in ("open", "close"))
    assert list(drains(servers, [serving, *leaving], out=set())) == [opened[1], *drained, closed[1]]
    both = sorted([*drained, Command(ServerKey("a", 2), "drain")], key=lambda command: command.key)
    assert list(drains(servers, [serving, *leaving], out={"pod-2"})) == [*opened, *both, *closed]
    assert list(drains(servers, [serving, *leaving], out=set(), passes_queue=False)) == drained[:1]
