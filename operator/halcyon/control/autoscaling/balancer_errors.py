"""Errors that balancers report about themselves, stored with the agents' other reports.

Like any report in the observation store, an error is dropped once its agent has been silent for `MAX_AGE_S`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from halcyon.api.documents.observation_report import AgentReport
from halcyon.kube.kinds import Key, Object
from halcyon.render import names
from halcyon.scaling.observations import MAX_AGE_S
from halcyon.signals.observation_store import ObservationStore

MAX_CHARACTERS = 400
_MAX_AGENTS = 32


class BalancerErrorStore(ObservationStore):
    """Store of the agents' reports, including the errors that balancers report about themselves."""

    def __init__(self, on_change: Callable[[str, str], None]) -> None:
        """Create the store. `on_change` is also called when a balancer's error appears, disappears or changes."""
        super().__init__(on_change=on_change)
        self._changed = on_change
        self._errors: dict[Key, dict[str, tuple[str, float]]] = {}
        """Last error of each balancer pod, with the monotonic time of the report, by model and by the pod's name."""

    def receive_in_steps(self, report: AgentReport, now: float) -> Generator[None, None, bool]:
        """Store a report, and the balancer's error that it contains. Return whether the report was accepted."""
        accepted = yield from super().receive_in_steps(report, now)
        if accepted:
            self._store_error(Key(report.namespace, report.name), report, now)
        return accepted

    def errors(self, key: Key, now: float) -> tuple[str, ...]:
        """Return an error message for each balancer pod of a model that has one. `now` is monotonic, in seconds."""
        errors = self._errors.get(key, {})
        return tuple(f"pod {pod}: {text}" for pod, (text, at) in sorted(errors.items()) if now - at <= MAX_AGE_S)

    def pod_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        """Drop the error of a balancer pod that was deleted."""
        owner = "" if before is None or after is not None else str(before["metadata"]["labels"].get(names.OWNER_LABEL))
        if self._errors.get(Key(key.namespace, owner), {}).pop(key.name, None) is not None:
            self._changed(key.namespace, owner)

    def planned(self, key: Key, plan: object) -> None:
        """Do nothing, because the agents' reports don't depend on the plan."""

    def deleted(self, key: Key) -> None:
        """Drop the reports and errors of a deleted model."""
        self.forget(*key)

    def forget(self, namespace: str, name: str) -> None:
        """Drop a model's reports and the errors of its balancers."""
        super().forget(namespace, name)
        self._errors.pop(Key(namespace, name), None)

    def _store_error(self, key: Key, report: AgentReport, now: float) -> None:
        if report.balancer is None:
            return
        errors = self._errors.get(key, {})
        before = errors.get(report.agent, ("", 0.0))[0]
        text = str(report.balancer.problem)[:MAX_CHARACTERS]
        others = {pod: entry for pod, entry in errors.items() if pod != report.agent and now - entry[1] <= MAX_AGE_S}
        if text and len(others) < _MAX_AGENTS:
            others[report.agent] = (text, now)
        if others:
            self._errors[key] = others
        else:
            self._errors.pop(key, None)
        if text != before:
            self._changed(*key)
