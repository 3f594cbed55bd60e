"""Runs of workloads under faults: each to its end by a second operator, and compared with an undisturbed run.

1. An undisturbed operator brings all models to the beginnings of their workloads.
2. Each plan runs in a namespace of its own: an operator that watches this namespace only, and a fault.
3. One undisturbed operator brings all runs to their end. They come to rest, and are compared.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tests.faults.forks import ForkedOperator
from tests.faults.oracles import Outcome, divergences
from tests.faults.plans import MODEL, SITE, Plan, Point, Points, name_of
from tests.faults.rest import at_rest
from tests.faults.site import Site
from tests.faults.workloads import WORKLOADS, Step
from tests.integration.operator_process import Operator
from tests.integration.operator_space import Space
from tests.integration.proxy import Answer, Break, Delay, Door, Fault, Kill, Request
from tests.integration.waiting import PATIENCE
from tests.integration.watch_faults import Frame, Hold, Lose, Swap, Truncate, Twice, WatchEvent, WatchFault

REST_LIMIT_S = 60.0
LIVENESS_S = 30.0
"""Bound for a run to come to its end after the last fault, on an idle machine."""
_BEGINNINGS = 6
"""Number of models that are created at once. A busy API server gives out the addresses of Services one after the other."""
_STARTS = 4
"""Number of operators that may lose their lease one after the other on a busy machine."""
_POLL_S = 0.03
BEGINNING_S = 120.0
"""Bound for all runs of a slice to come to their beginning without a fault, on an idle machine. No oracle is about this time."""
_MAX_POLL_INTERVAL_S = 0.5
"""Time after which a run is polled although no object of its namespace has changed."""


@dataclass
class Run:
    """One run of a workload in a namespace."""

    plan: Plan
    space: Space
    todo: list[Step]
    acted: bool = False
    hit: bool = False
    """Whether the fault has happened."""
    problems: list[str] = field(default_factory=list)
    outcome: Outcome | None = None
    events: list[str] = field(default_factory=list)
    """Names of the events that were sent to the operator, in order."""
    excuse: str = ""
    """Error of the last check of an unfinished step."""
    polled: tuple[int, float] = (-1, 0.0)
    """Number of changes in the namespace, and monotonic time, at the last poll."""

    def advance(self, changes: Callable[[str], int]) -> bool:
        """Do the user's next action, if the step before has ended; return True after the last step.

        `changes` returns the number of changes in a namespace so far: a step is polled after a change, and now and then.
        """
        now = (changes(self.space.namespace), time.monotonic())
        if self.acted and now[0] == self.polled[0] and now[1] - self.polled[1] < _MAX_POLL_INTERVAL_S:
            return not self.todo
        self.polled = now
        while self.todo:
            step = self.todo[0]
            if not self.acted:
                step.act(self.space)
                self.acted = True
            try:
                if not step.done(self.space):
                    return False
            except (KeyError, AssertionError) as error:  # objects that don't exist yet
                self.excuse = repr(error)
                return False
            self.todo.pop(0)
            self.acted = False
        return True


Disturb = Callable[[Point], Fault | None]


def rule_for(run: Run, points: Points, installation: str, fault_at: Disturb) -> Callable[[Request], Fault | None]:
    """Return a rule for the proxy that counts the writes of a run, and disturbs one of them."""

    def rule(request: Request) -> Fault | None:
        if request.write is None or request.namespace not in {run.space.namespace, installation}:
            return None
        scope = MODEL if request.namespace == run.space.namespace else SITE
        fault = fault_at(points.add(scope, request.method, request.target))
        run.hit |= fault is not None
        return fault

    return rule


def crash_at(plan: Plan) -> Disturb:
    """Return the crash of a plan; no fault for a plan without one."""
    after = plan.fault == "crash-after"
    return lambda point: Kill(after=after) if plan.fault.startswith("crash") and str(point) == plan.place else None


ANSWERS: Mapping[str, Fault] = {
    **{str(status): Answer(status) for status in (403, 404, 409, 410, 422, 500, 503)},
    "429": Answer(429, retry_after_s=1),
    "reset-before": Break(after=False),
    "reset-after": Break(after=True),
    "slow": Delay(1.5),
}
"""Faults of one write, by name."""
EVENTS: Mapping[str, WatchFault] = {
    "lose": Lose(2.0),
    "twice": Twice(),
    "swap": Swap(),
    "hold": Hold(2.0),
    "truncate": Truncate(),
    "error-410": Frame(410),
    "error-500": Frame(500),
}
"""Faults of one event of a watch, by name."""


def _rule_of(run: Run, points: Points, installation: str) -> Callable[[Request], Fault | None]:
    fault = ANSWERS.get(run.plan.fault)
    return rule_for(run, points, installation, lambda point: fault if str(point) == run.plan.place else None)


def _event_rule_of(run: Run) -> Callable[[WatchEvent], WatchFault | None]:
    fault = EVENTS.get(run.plan.fault)
    seen: Counter[str] = Counter()

    def rule(event: WatchEvent) -> WatchFault | None:
        name = name_of(event)
        seen[name] += 1
        run.events.append(f"{name}:{seen[name]}")
        if fault is None or run.hit or run.events[-1] != run.plan.place:
            return None
        run.hit = True
        return fault

    return rule


class Driver:
    """Runs of workloads on one installation, whose operators have the same images."""

    def __init__(self, site: Site, images: tuple[str, ...]) -> None:
        self._site, self._images = site, images
        self.points: dict[str, list[Point]] = {}
        """Points of each plan's run until its fault, by the plan's id."""
        self.recovery_s = 0.0
        """Time until all runs were at their end, from the start of the last operator."""

    def prepared(self, plans: Sequence[Plan]) -> list[Run]:
        """Return a run for each plan, at the beginning of its workload."""
        spaces = self._site.spaces_for(len(plans))
        runs = [
            Run(plan, space, list(WORKLOADS[plan.workload].before)) for plan, space in zip(plans, spaces, strict=True)
        ]
        if any(run.todo for run in runs):

            def begin(operator: ForkedOperator, door: Door) -> None:
                self._advanced(runs, operator, BEGINNING_S, _BEGINNINGS)
                self._rest(operator, door, runs, settled=False)

            self.led(begin, self._site.start)
            late = [(run.plan.id, run.excuse) for run in runs if run.todo]
            assert not late, f"after {BEGINNING_S * PATIENCE:g} s still not at their beginning: {late}"
        for run in runs:
            run.todo, run.acted = list(WORKLOADS[run.plan.workload].steps), False
        return runs

    def _rest(
        self, operator: ForkedOperator, door: Door, runs: Iterable[Run], *, settled: bool = True
    ) -> dict[str, str]:
        end = time.monotonic() + REST_LIMIT_S * PATIENCE
        namespaces = {self._site.namespace, *(run.space.namespace for run in runs)}
        return at_rest(operator, door, self._site.ledger, namespaces, end, settled=settled)

    def disturb(self, run: Run) -> None:
        """Run the workload until the crash of its plan, or to its end.

        Raises:
            LeaseLostError: the operator has ended before the crash.
        """
        points = Points()
        rule = rule_for(run, points, self._site.namespace, crash_at(run.plan))
        operator, door = self._site.start(rule, watch=run.space.namespace, in_turn=True, images=self._images)
        end = time.monotonic() + LIVENESS_S * PATIENCE
        changes = self._site.ledger.changes
        while not door.closed.is_set() and not run.advance(changes) and time.monotonic() < end:
            _must_run(operator, door)
            time.sleep(_POLL_S)
        if not run.todo and not door.closed.is_set():
            self._rest(operator, door, [run])
        _must_run(operator, door)
        if door.closed.wait(0.1):
            status = operator.wait()
            if status != -signal.SIGKILL:
                run.problems.append(f"the killed operator has ended with {status}")
        else:
            self._stop(operator, run)
        self.points[run.plan.id] = points.points

    def together(self, runs: Sequence[Run], *, limit_s: float = LIVENESS_S) -> None:
        """Run all workloads under one operator, each with its own fault in its requests or in the events of its watches."""
        points = {run.plan.id: Points() for run in runs}
        rules = {run.space.namespace: _rule_of(run, points[run.plan.id], self._site.namespace) for run in runs}
        events = {run.space.namespace: _event_rule_of(run) for run in runs}

        def rule(request: Request) -> Fault | None:
            return rules[request.namespace](request) if request.namespace in rules else None

        def event_rule(event: WatchEvent) -> WatchFault | None:
            return events[event.key.namespace](event) if event.key.namespace in events else None

        watch = ",".join(sorted(rules))
        late: list[Run] = []

        def work(operator: ForkedOperator, door: Door) -> None:
            late[:] = self._advanced(runs, operator, limit_s)
            self._rest(operator, door, runs)

        self.led(work, partial(self._site.start, rule, watch=watch, images=self._images, events=event_rule))
        for run in late:
            run.problems.append(f"under the fault, doesn't come to its end: {run.excuse or run.space.status()}")
        self.points |= {name: run_points.points for name, run_points in points.items()}

    @staticmethod
    def led(
        work: Callable[[ForkedOperator, Door], None], start: Callable[[], tuple[ForkedOperator, Door]]
    ) -> ForkedOperator:
        """Do work with an operator, and return it, stopped. One that loses its lease is started again, as the kubelet would.

        Raises:
            AssertionError: it has ended for another reason, or again and again.
        """
        for number in range(1, _STARTS + 1):
            operator, door = start()
            try:
                work(operator, door)
                _must_run(operator)
            except LeaseLostError:
                if number == _STARTS:
                    raise
                continue
            break
        if operator.stop() != 0:
            raise AssertionError(f"the operator hasn't ended in order: {operator.tail()}")
        return operator

    @staticmethod
    def _stop(operator: Operator, run: Run) -> None:
        complaints = operator.complaints()
        if complaints:
            run.problems.append(f"the log has errors: {complaints[:2]}")
        if operator.stop() != 0:
            run.problems.append("the operator hasn't ended in order")

    def _advance(self, runs: Sequence[Run], operator: ForkedOperator) -> None:
        for run in self._advanced(runs, operator, LIVENESS_S):
            run.problems.append(f"doesn't come to its end: {run.excuse or run.space.status()}")

    def _advanced(
        self, runs: Sequence[Run], operator: ForkedOperator, limit_s: float, at_once: int | None = None
    ) -> list[Run]:
        """Bring runs to their end, at most `at_once` at a time, and return those that have not come to it in time."""
        unfinished = list(runs)
        end = time.monotonic() + (limit_s + len(unfinished)) * PATIENCE
        while unfinished and time.monotonic() < end:
            waiting = unfinished[len(unfinished) if at_once is None else at_once :]
            unfinished = [run for run in unfinished[:at_once] if not run.advance(self._site.ledger.changes)] + waiting
            _must_run(operator)
            time.sleep(_POLL_S)
        return unfinished

    def converge(self, runs: Sequence[Run]) -> None:
        """Bring all runs to their end and to rest with an undisturbed operator, and record their outcomes."""
        began = time.monotonic()
        busy: dict[str, str] = {}

        def work(operator: ForkedOperator, door: Door) -> None:
            self._advance(runs, operator)
            self.recovery_s = time.monotonic() - began
            busy.clear()
            busy.update(self._rest(operator, door, runs))

        operator = self.led(work, partial(self._site.start, images=self._images))
        for run, outcome in zip(runs, self._site.outcomes([run.space for run in runs]), strict=True):
            if run.space.namespace in busy:
                run.problems.append(f"isn't at rest: {busy[run.space.namespace]}")
            if touched := self._site.touched(run.space):
                run.problems.append(f"objects of others were touched: {touched}")
            run.outcome = outcome
        complaints = operator.complaints()
        for run in runs if complaints else ():
            run.problems.append(f"the log of the last operator has errors: {complaints[:2]}")


class LeaseLostError(AssertionError):
    """The operator has ended since it could not renew its lease in time; the text is the end of its log."""


def _must_run(operator: ForkedOperator, door: Door | None = None) -> None:
    """Raise an error if the operator has ended, unless the proxy has killed it: that closes its door first."""
    if operator.process is None or operator.process.poll() is None or (door is not None and door.closed.is_set()):
        return
    reasons = [line["error"] for line in operator.logged("the operator exits with an error")]
    kind = LeaseLostError if reasons and all(reason.startswith("lease ") for reason in reasons) else AssertionError
    raise kind(f"the operator has ended: {operator.tail()}")


def judge(run: Run, reference: Outcome) -> list[str]:
    """Return the problems of a run, with the differences from the undisturbed outcome."""
    assert run.outcome is not None, run.plan.id
    return run.problems + divergences(run.outcome, reference)
