"""Detection of other writers of `spec.replicas`. A single manual change is allowed; repeated changes are a conflict.

External HPAs are found by their scale target (`external_hpas`). This module detects other writers: a GitOps tool that
restores the `replicas` of its file, a script, or another operator. Only the leader can detect them. A value of
spec.replicas counts as Halcyon's if the leader recently requested it, through /scale or through its HPA. The writer of
any other value is known only if managedFields name it. They don't name writers to /scale (Kubernetes 1.35).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from halcyon.kube.kinds import Key

OURS = frozenset({"halcyon", "kube-controller-manager"})
"""Field managers that write replicas for Halcyon: the operator, and the HPA controller."""
LATELY_S = 60.0
"""Seconds for which a value that Halcyon has requested counts as Halcyon's. An HPA, which polls every 15 s, writes it
within this time."""
TIMES, WITHIN_S = 3, 300.0
"""Number of external changes that count as a conflict, and the seconds within which they must occur."""
CALM_S = 600.0
"""Time without another external change after which Halcyon writes replicas again, in seconds."""


@dataclass
class ExternalWriters:
    """Detector of replica changes that Halcyon didn't request, for all models. Times are monotonic, in seconds."""

    _replicas: dict[Key, int] = field(default_factory=dict)
    """spec.replicas at the last comparison or write, by model."""
    _requested: dict[Key, dict[int, float]] = field(default_factory=dict)
    """Time at which Halcyon last requested each value of spec.replicas, by model and value."""
    _external_changes: dict[Key, deque[float]] = field(default_factory=dict)
    """Times of the last external changes, by model."""
    _until: dict[Key, tuple[float, str]] = field(default_factory=dict)
    """Time at which a conflict ends, and the message about the other writer, by model."""
    _manual: dict[Key, int] = field(default_factory=dict)
    """Last number of replicas that another writer has set, by model. It is removed when `take_manual` returns it."""

    def compare(self, key: Key, replicas: int, desired: int, writer: str, now: float) -> str:
        """Compare the replicas with those of the last call. Return a message about a competing writer, or "".

        `replicas` is the current spec.replicas, and `desired` the number that Halcyon requests from now on. `writer` is
        the field manager that has set spec.replicas lately, according to managedFields; empty if there is none.
        """
        before = self._replicas.get(key)
        requested = self._requested.get(key)
        is_same = before == replicas and requested is not None and len(requested) == 1 and desired in requested
        if is_same and requested is not None and key not in self._until:
            # The usual case: nothing has changed, and there is no competing writer.
            requested[desired] = now
            return ""
        self._replicas[key] = replicas
        recent = {count: at for count, at in self._requested.get(key, {}).items() if now - at <= LATELY_S}
        until, message = self._until.get(key, (0.0, ""))
        if before is not None and before != replicas and replicas not in recent:
            self._manual[key] = replicas
            changes = self._external_changes.setdefault(key, deque(maxlen=TIMES))
            changes.append(now)
            if now < until or (len(changes) == TIMES and now - changes[0] <= WITHIN_S):
                is_named = bool(writer) and writer not in OURS
                writer_text = f"field manager {writer}" if is_named else "another controller or user"
                message = (
                    f"{writer_text} has changed spec.replicas {TIMES} times within {WITHIN_S / 60:.0f} min, most recently "
                    f"to {replicas}; Halcyon has stopped scaling the model and resumes 10 min after the last such "
                    "change. Remove that writer, or set spec.scaling.mode: Paused"
                )
                until, _ = self._until[key] = (now + CALM_S, message)
        if now >= until:
            self._until.pop(key, None)
            self._requested[key] = recent | {desired: now}
            return ""
        # While Halcyon doesn't write, `desired` isn't requested, so it doesn't count as Halcyon's.
        self._requested[key] = recent
        return message

    def take_manual(self, key: Key) -> int | None:
        """Return the replicas that another writer last set since the previous call; None if it set none."""
        return self._manual.pop(key, None)

    def wrote(self, key: Key, replicas: int) -> None:
        """Record a write by Halcyon. If another writer reverts it before the next `compare`, that is detected too."""
        self._replicas[key] = replicas

    def adopt(self, key: Key, message: str, now: float) -> str:
        """Adopt the leader's published `message` about a competing writer (empty if there is none), and return it.

        A standby does this instead of comparing, so that the conflict continues if it becomes the leader.
        """
        self.pause(key)
        self._until.pop(key, None)
        if message:
            self._until[key] = (now + CALM_S, message)
        return message

    def pause(self, key: Key) -> None:
        """Ignore changes until the next `compare`. Changes are no conflict while Halcyon doesn't set the replicas."""
        self._replicas.pop(key, None)

    def forget(self, key: Key) -> None:
        """Drop the state of a deleted model."""
        for state in (self._replicas, self._requested, self._external_changes, self._until, self._manual):
            state.pop(key, None)
