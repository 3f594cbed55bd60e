"""Detection of other writers of `spec.replicas`. A single manual change is allowed; repeated changes are a conflict.

External HPAs are found by their scale target (`external_hpas`). This module detects other writers: a GitOps tool that
restores the `replicas` of its file, a script, or another operator. A value of spec.replicas counts as Halcyon's if
Halcyon recently requested it, through /scale or through its HPA. The writer of any other value is known only if the
object's managedFields name it. For custom resources, managedFields don't name writers to /scale (Kubernetes 1.35).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from halcyon.kube.kinds import Key

OURS = frozenset({"halcyon", "kube-controller-manager"})
"""Field managers that write replicas for Halcyon: the operator, and the HPA controller."""
LATELY_S = 60.0
"""Time for which a value that Halcyon has requested counts as Halcyon's, in seconds. An HPA writes the requested value
within this time, as it polls every 15 s."""
TIMES, WITHIN_S = 3, 300.0
"""Number of external changes, and period in seconds. If at least this number of changes occurs within the period, they
count as a conflict and not as manual changes."""
CALM_S = 600.0
"""Time without another external change after which Halcyon writes replicas again, in seconds."""


@dataclass
class ExternalWriters:
    """Detector of replica changes that Halcyon didn't request, for all models. Times are monotonic, in seconds."""

    _seen: dict[Key, int] = field(default_factory=dict)
    _asked: dict[Key, dict[int, float]] = field(default_factory=dict)
    """Monotonic time at which Halcyon last requested each value of spec.replicas, by model and value, in seconds."""
    _foreign: dict[Key, deque[float]] = field(default_factory=dict)
    _until: dict[Key, tuple[float, str]] = field(default_factory=dict)
    _manual: dict[Key, int] = field(default_factory=dict)
    """Last number of replicas that another writer has set, by model. It is removed when `take_manual` returns it."""

    def look(self, key: Key, replicas: int, desired: int, writer: str, now: float) -> str:
        """Compare the replicas with those of the last call, and return a message about a competing writer.

        The message is empty if there is no competing writer.

        Args:
            key: the model.
            replicas: current spec.replicas.
            desired: replicas that Halcyon requests from now on.
            writer: field manager that last set spec.replicas, according to managedFields; empty if none is recorded.
            now: monotonic time, in seconds.
        """
        before = self._seen.get(key)
        known = self._asked.get(key)
        if before == replicas and known is not None and len(known) == 1 and desired in known and key not in self._until:
            # The usual case: nothing has changed, and there is no competing writer.
            known[desired] = now
            return ""
        self._seen[key] = replicas
        asked = {count: at for count, at in self._asked.get(key, {}).items() if now - at <= LATELY_S}
        until, who = self._until.get(key, (0.0, ""))
        if before is not None and before != replicas and replicas not in asked:
            self._manual[key] = replicas
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
        # While Halcyon doesn't write, `desired` isn't requested, so it doesn't count as Halcyon's.
        self._asked[key] = asked
        return (
            f"{who} has changed spec.replicas {TIMES} times within {WITHIN_S / 60:.0f} min, most recently "
            f"to {replicas}; Halcyon has stopped scaling the model and resumes 10 min after the last such "
            "change. Remove that writer, or set spec.scaling.mode: Paused"
        )

    def take_manual(self, key: Key) -> int | None:
        """Return the last manual change of the replicas, and forget it.

        Return None if there was none since the last call.
        """
        return self._manual.pop(key, None)

    def wrote(self, key: Key, replicas: int) -> None:
        """Record a write by Halcyon, so that `look` also detects a writer that reverts it before the next call."""
        self._seen[key] = replicas

    def rest(self, key: Key) -> None:
        """Ignore changes until the next call of `look`.

        While Halcyon doesn't set the replicas, changes by other writers are not a conflict.
        """
        self._seen.pop(key, None)

    def forget(self, key: Key) -> None:
        """Drop the state of a deleted model."""
        for held in (self._seen, self._asked, self._foreign, self._until, self._manual):
            held.pop(key, None)
