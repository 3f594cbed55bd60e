"""What balancers say that they can't do."""

from __future__ import annotations

from halcyon.api.documents.observation_report import AgentReport, BalancerSample
from halcyon.control.autoscaling.balancer_errors import MAX_CHARACTERS, BalancerErrorStore
from halcyon.kube.kinds import Key
from halcyon.render import names
from halcyon.scaling.observations import MAX_AGE_S

KEY = Key("team", "digits")


def record(trouble: str, *, agent: str = "b-1", at: float = 1.0) -> AgentReport:
    return AgentReport(*KEY, agent, at, BalancerSample(0, 0, 0, 0, 0, problem=trouble))


def test_an_error_is_reported_for_each_pod_until_it_is_over() -> None:
    changed: list[tuple[str, str]] = []
    hub = BalancerErrorStore(lambda *key: changed.append(key))
    hub.receive(record("", at=1.0), 1.0)
    hub.receive(record("", agent="b-2", at=1.0), 1.0)
    changed.clear()
    hub.receive(record("no certificate", at=2.0), 2.0)
    assert changed == [KEY]
    hub.receive(record("no certificate", at=3.0), 3.0)
    assert changed == [KEY], "no news"
    hub.receive(record("x" * 1000, agent="b-2", at=3.0), 3.0)
    assert hub.errors(KEY, 3.0) == ("pod b-1: no certificate", f"pod b-2: {'x' * MAX_CHARACTERS}")
    changed.clear()
    hub.receive(record("", at=4.0), 4.0)
    assert changed == [KEY]
    assert [text[:7] for text in hub.errors(KEY, 4.0)] == ["pod b-2"]
    assert hub.errors(Key("team", "other"), 4.0) == ()


def test_a_silent_or_deleted_agent_has_no_errors() -> None:
    hub = BalancerErrorStore(lambda *_: None)
    hub.receive(record("no certificate"), 1.0)
    assert hub.errors(KEY, 1.0 + MAX_AGE_S)
    assert not hub.errors(KEY, 1.1 + MAX_AGE_S)
    hub.forget(*KEY)
    assert not hub.errors(KEY, 1.0)


def test_the_error_of_a_deleted_balancer_pod_is_dropped_and_reported() -> None:
    changed: list[tuple[str, str]] = []
    hub = BalancerErrorStore(lambda *key: changed.append(key))
    for agent in ("b-1", "b-2"):
        hub.receive(record("no certificate", agent=agent), 1.0)
    changed.clear()
    for name in ("b-1", "b-3"):
        pod = {"metadata": {"namespace": "team", "name": name, "labels": {names.OWNER_LABEL: "digits"}}}
        hub.pod_changed(Key("team", name), None, pod)
        hub.pod_changed(Key("team", name), pod, pod)
        assert len(hub.errors(KEY, 2.0)) == 2 - len(changed)
        hub.pod_changed(Key("team", name), pod, None)

    assert changed == [KEY]
    assert hub.errors(KEY, 2.0) == ("pod b-2: no certificate",)
