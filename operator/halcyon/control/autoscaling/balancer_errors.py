"""Errors that balancers report, kept with the observation store, by model and balancer pod.

A balancer that has been silent for `MAX_AGE_S` no longer counts, as in the observation store.
"""

from __future__ import annotations

from collections.abc import Callable

from halcyon.api.documents.observation_report import AgentReport
from halcyon.kube.kinds import Key
from halcyon.scaling.observations import MAX_AGE_S
from halcyon.signals.observation_store import ObservationStore, OnReport

MAX_CHARACTERS = 400
_MAX_AGENTS = 32


class BalancerErrorStore(ObservationStore):
    """An observation store that also keeps balancers' errors."""

    def __init__(self, on_change: Callable[[str, str], None], on_record: OnReport) -> None:
        """Create the store; `on_change` is also called for each error that appears, disappears or changes."""
        super().__init__(on_change=on_change, on_report=on_record)
        self._changed = on_change
        self._troubles: dict[Key, dict[str, tuple[str, float]]] = {}

    def receive(self, record: AgentReport, now: float) -> bool:
        """Take a report as the base class does, and the error in it."""
        taken = super().receive(record, now)
        if taken:
            self._hear(Key(record.namespace, record.name), record, now)
        return taken

    def troubles(self, key: Key, now: float) -> tuple[str, ...]:
        """Return a sentence for each balancer pod with an error; `now` is monotonic, in seconds."""
        said = self._troubles.get(key, {})
        return tuple(f"pod {pod}: {text}" for pod, (text, at) in sorted(said.items()) if now - at <= MAX_AGE_S)

    def forget(self, namespace: str, name: str) -> None:
        """Drop a model as the base class does, and its errors."""
        super().forget(namespace, name)
        self._troubles.pop(Key(namespace, name), None)

    def _hear(self, key: Key, record: AgentReport, now: float) -> None:
        if record.balancer is None:
            return
        said = self._troubles.get(key, {})
        before = said.get(record.agent, ("", 0.0))[0]
        text = str(record.balancer.problem)[:MAX_CHARACTERS]
        others = {pod: told for pod, told in said.items() if pod != record.agent and now - told[1] <= MAX_AGE_S}
        if text and len(others) < _MAX_AGENTS:
            others[record.agent] = (text, now)
        if others:
            self._troubles[key] = others
        else:
            self._troubles.pop(key, None)
        if text != before:
            self._changed(*key)
