"""Who else writes the count. One change by hand is a person's right; again and again it is an autoscaler of somebody's.

An HPA of somebody else is found by what it scales (`caches`); this finds those that write without one: a GitOps tool that
puts back its file's `replicas`, a script, another operator. A count is nobody's but ours where it was asked for lately: by /scale
or through our HPA. Who has written another one is known where the object's managedFields tell; writes of /scale leave
no trace there (Kubernetes 1.35, custom resources).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from halcyon.kube.kinds import Key

OURS = frozenset({"halcyon", "kube-controller-manager"})
"""Field managers that write the count for us: the operator, and the controller of HPAs."""
LATELY_S = 60.0
"""An HPA that asks every 15 s has written what it was told within this time."""
TIMES, WITHIN_S = 3, 300.0
"""So many changes within so long are no person's."""
CALM_S = 600.0
"""After this long without one more, Halcyon takes the count again."""


@dataclass
class ExternalWriters:
    """Watches the count of every model. Times are monotonic, in seconds."""

    _seen: dict[Key, int] = field(default_factory=dict)
    _asked: dict[Key, dict[int, float]] = field(default_factory=dict)
    """When each count was asked for last."""
    _foreign: dict[Key, deque[float]] = field(default_factory=dict)
    _until: dict[Key, tuple[float, str]] = field(default_factory=dict)

    def look(self, key: Key, replicas: int, desired: int, writer: str, now: float) -> str:
        """Who fights for the count, in a sentence; empty where nobody does.

        `replicas` is the count in force, `desired` the one that we ask for from now on; `writer` the field manager that
        managedFields name, or nothing.
        """
        before = self._seen.get(key)
        known = self._asked.get(key)
        if before == replicas and known is not None and len(known) == 1 and desired in known and key not in self._until:
            # Nearly always: nothing has changed, and nobody was seen to fight.
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
                until, who = self._until[key] = (now + CALM_S, f"field manager {writer}" if named else "somebody else")
        if now >= until:
            self._until.pop(key, None)
            self._asked[key] = asked | {desired: now}
            return ""
        # What we would ask for isn't asked for while we stand back.
        self._asked[key] = asked
        return (
            f"{who} has set spec.replicas {TIMES} times within {WITHIN_S / 60:.0f} min, to {replicas} at last; "
            "Halcyon leaves the count alone until 10 min after its last change. Remove that writer, or set "
            "spec.scaling.mode: Paused"
        )

    def wrote(self, key: Key, replicas: int) -> None:
        """We have written the count: who puts it back before the next look is seen to."""
        self._seen[key] = replicas

    def rest(self, key: Key) -> None:
        """The count isn't ours to ask for now (the HPA's own rules, a person's mode): whatever it becomes meanwhile is no fight."""
        self._seen.pop(key, None)

    def forget(self, key: Key) -> None:
        """The model is gone."""
        for held in (self._seen, self._asked, self._foreign, self._until):
            held.pop(key, None)
