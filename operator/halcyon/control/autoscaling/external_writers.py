"""Detection of other writers of `spec.replicas`. A single manual change is allowed; repeated changes mean another autoscaler.

External HPAs are found by their scale target (`cluster_state`). This module finds writers without an HPA: a GitOps tool that
restores the `replicas` of its file, a script, another operator. A value counts as ours if we recently requested it, by /scale
or through our HPA. The writer of any other value is known only if the object's managedFields name it: writes to /scale leave
no trace there (Kubernetes 1.35, custom resources).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from halcyon.kube.kinds import Key

OURS = frozenset({"halcyon", "kube-controller-manager"})
"""Field managers that write replicas for us: the operator, and the HPA controller."""
LATELY_S = 60.0
"""How long a requested value counts as ours: an HPA that polls every 15 s has written it within this time."""
TIMES, WITHIN_S = 3, 300.0
"""Number of changes within a period that can't be manual."""
CALM_S = 600.0
"""Time without another change after which Halcyon writes replicas again."""


@dataclass
class ExternalWriters:
    """Replica changes of every model that Halcyon didn't request. Times are monotonic, in seconds."""

    _seen: dict[Key, int] = field(default_factory=dict)
    _asked: dict[Key, dict[int, float]] = field(default_factory=dict)
    """Time of the last request for each value, by value."""
    _foreign: dict[Key, deque[float]] = field(default_factory=dict)
    _until: dict[Key, tuple[float, str]] = field(default_factory=dict)

    def look(self, key: Key, replicas: int, desired: int, writer: str, now: float) -> str:
        """Return a sentence that names the competing writer; empty if there is none.

        `replicas` is the value in force and `desired` the one that we request from now on. `writer` is the field manager that
        managedFields name; empty if they name none.
        """
        before = self._seen.get(key)
        known = self._asked.get(key)
        if before == replicas and known is not None and len(known) == 1 and desired in known and key not in self._until:
            # Nearly always: nothing has changed, and there is no competing writer.
            known[desired] = now
            return ""
        self._seen[key] = replicas
        asked = {count: at for count, at in self._asked.get(key, {}).items() if now - at <= LATELY_S}
        until, who = self._until.get(key, (0.0, ""))
        if before is not None and before != replicas and replicas not in asked:
            times = self._foreign.setdefault(key, deque(maxlen=TIMES))
            times.append(now)
            if now < until or (len(times) == TIMES and now - times[0] <= WITHIN_S):
                named = bool(writer) and writer not in OURS
                until, who = self._until[key] = (
                    now + CALM_S,
                    f"field manager {writer}" if named else "another controller or user",
                )
        if now >= until:
            self._until.pop(key, None)
            self._asked[key] = asked | {desired: now}
            return ""
        # While we stand back, `desired` is not requested, so it is not recorded as ours.
        self._asked[key] = asked
        return (
            f"{who} has changed spec.replicas {TIMES} times within {WITHIN_S / 60:.0f} min, most recently "
            f"to {replicas}; Halcyon has stopped scaling the model and resumes 10 min after the last such "
            "change. Remove that writer, or set spec.scaling.mode: Paused"
        )

    def wrote(self, key: Key, replicas: int) -> None:
        """Record our own write, so that a writer that reverts it before the next call of `look` is noticed."""
        self._seen[key] = replicas

    def rest(self, key: Key) -> None:
        """Stop watching while replicas aren't ours to set (HPA's own rules, or the mode): changes meanwhile are no conflict."""
        self._seen.pop(key, None)

    def forget(self, key: Key) -> None:
        """Drop a deleted model."""
        for held in (self._seen, self._asked, self._foreign, self._until):
            held.pop(key, None)
