"""Planner memories of models for which no planner decides now: saved by an earlier process, or kept after an interruption.

An interruption is, for example, a change to the Rules policy, or an HPA of another controller.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from halcyon.control.autoscaling.planner_memory.entries import Saved
from halcyon.kube.kinds import Key
from halcyon.scaling.planner.clock_shift import shifted
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.scaling.planner.serialization import resumed

log = logging.getLogger(__name__)


@dataclass
class KeptMemories:
    """Planner memories from which the planners of existing models begin or continue."""

    _saved: dict[Key, Saved] = field(default_factory=dict)
    """Memories saved by an earlier process, for models that this process has not planned for yet."""
    _interrupted: dict[Key, tuple[str, PlannerMemory]] = field(default_factory=dict)
    """Uid of the ModelDeployment and planner memory, for each model whose planner was stopped in this process."""

    def restore(self, saved: Mapping[Key, Saved]) -> None:
        """Adopt the planner memories of an earlier process."""
        self._saved = dict(saved)

    def keep(self, key: Key, uid: str, memory: PlannerMemory) -> None:
        """Keep the memory of a planner that stops deciding, but drop its hold on the replicas."""
        self._interrupted[key] = uid, resumed(memory).with_changes(hold=PlannerMemory().hold)

    def take(self, key: Key, uid: str, at: float) -> PlannerMemory:
        """Return and drop the last memory for the ModelDeployment with this uid; an empty one if there is none."""
        saved, interrupted = self._saved.pop(key, None), self._interrupted.pop(key, None)
        if interrupted is not None and interrupted[0] == uid:
            return interrupted[1]
        if saved is None or saved.uid != uid:
            return PlannerMemory()
        restored = saved.restored(now=at)
        for problem in restored.problems:
            text = "a part of the planner's memory could not be restored; it starts empty"
            log.warning(text, extra={"key": str(key), "why": problem})
        return restored.memory

    def shift(self, by_s: float) -> None:
        """Shift the times in the memories of this process after the wall clock was set."""
        self._interrupted = {key: (uid, shifted(memory, by_s)) for key, (uid, memory) in self._interrupted.items()}

    def forget(self, key: Key) -> None:
        """Drop the memory of a deleted model."""
        self._saved.pop(key, None)
        self._interrupted.pop(key, None)
