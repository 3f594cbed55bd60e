"""A simple and slow event loop with objects and lists, to check the compiled one. All pods are always ready."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from halcyon_simulator.engine.case import ServiceLaw


@dataclass
class PlainPod:
    service: ServiceLaw
    queue: deque[tuple[int, float]] = field(default_factory=deque)
    """Requests, each with the time since which it is queued."""
    running: list[tuple[float, int]] = field(default_factory=list)
    """End time and size of each running batch."""

    @property
    def held(self) -> int:
        return len(self.queue) + sum(size for _, size in self.running)

    @property
    def due(self) -> float:
        times = [end for end, _ in self.running]
        if self.queue and len(self.running) < self.service.instances:
            times.append(self.queue[0][1] + self.service.delay_s)
        return min(times, default=math.inf)

    def answer(self, now: float) -> None:
        self.running = [(end, size) for end, size in self.running if end > now]

    def compute(self, now: float) -> dict[int, float]:
        """Start batches, and return the response times by request."""
        ends = {}
        while self.queue and len(self.running) < self.service.instances:
            full = len(self.queue) >= self.service.max_batch
            if not full and self.service.delay_s and now < self.queue[0][1] + self.service.delay_s:
                break
            batch = [self.queue.popleft()[0] for _ in range(min(len(self.queue), self.service.max_batch))]
            end = now + self.service.seconds(len(batch))
            self.running.append((end, len(batch)))
            ends.update(dict.fromkeys(batch, end))
        return ends


@dataclass
class Plain:
    pods: list[PlainPod]
    slots: int
    limit: int
    waiting: deque[int] = field(default_factory=deque)
    turn: int = 0

    def send(self, request: int, now: float) -> PlainPod | None:
        order = [(self.turn + step) % len(self.pods) for step in range(len(self.pods))]
        least = min(order, key=lambda index: self.pods[index].held)
        if self.pods[least].held >= self.slots:
            return None
        self.turn = least + 1
        self.pods[least].queue.append((request, now))
        return self.pods[least]

    def run(self, arrivals: Sequence[float]) -> list[float]:
        """Return the times in system; NaN for rejected requests."""
        ends: dict[int, float] = {}
        upcoming = 0
        while True:
            pod = min(self.pods, key=lambda candidate: candidate.due)
            now = pod.due
            if upcoming < len(arrivals) and arrivals[upcoming] < now:
                now = arrivals[upcoming]
                sent = None if self.waiting else self.send(upcoming, now)
                if sent is not None:
                    ends |= sent.compute(now)
                elif len(self.waiting) < self.limit:
                    self.waiting.append(upcoming)
                upcoming += 1
            elif now < math.inf:
                pod.answer(now)
                while self.waiting and self.send(self.waiting[0], now) is not None:
                    self.waiting.popleft()
                ends |= pod.compute(now)
            else:
                return [ends.get(request, math.nan) - at for request, at in enumerate(arrivals)]
