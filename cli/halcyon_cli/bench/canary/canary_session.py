"""A canary of a served model: the change is written, watched, and kept or reverted.

The change stays only if the operator's analysis finds that the canary is as good as the previous revision. In all other
cases it is reverted: if the canary is worse, can't be compared, or isn't decided in time, after Ctrl-C, and after an
error. Out of scope: the conditions for a canary and the patches (`canary_change`), and reading the canary's state
(`canary_course`).
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from halcyon.kube import kinds
from halcyon_cli.bench.canary import canary_change, canary_course
from halcyon_cli.bench.canary.canary_change import WrittenChange
from halcyon_cli.bench.canary.canary_course import CanaryCourse
from halcyon_cli.bench.canary.canary_pods import lacking_capacity
from halcyon_cli.errors import ClusterError, Failure, InputError
from halcyon_cli.kube import fields, merge_patch
from halcyon_cli.kube.client import NoSuchModelError
from halcyon_cli.kube.object_writer import ObjectWriter

Json = Mapping[str, Any]

_POLL_S = 1.0
_ATTEMPTS = 8
"""Maximum number of attempts to write a change, each of which may conflict with another writer or fail."""
_RESTORED_S = 120.0
"""Maximum time for the operator to restore the previous revision after the change was reverted, in seconds."""
_INTERRUPTED = "it was interrupted"
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals after which a canary is reverted: Ctrl-C, a request to terminate the process, and a closed terminal."""

CanaryEnd = Literal["promoted", "undone", "left"]
"""End of a canary. promoted: the change stays. undone: the change was reverted. left: another writer changed the spec,
so nothing was reverted."""


@dataclass(frozen=True, kw_only=True)
class CanaryOutcome:
    """Result of a canary."""

    end: CanaryEnd
    why: str
    revision: str = ""
    """Name of the canary's ControllerRevision; empty if the operator created none."""

    def document(self) -> dict[str, Any]:
        """Return the JSON form of the result."""
        return {"end": self.end, "why": self.why, "revision": self.revision or None}


class UndoError(Failure):
    """The change couldn't be reverted. The message has the commands for doing it by hand."""


def check(cluster: ObjectWriter, name: str) -> Json:
    """Return the model if a canary can be started on it now.

    Raises:
        InputError: a canary can't be started; the message has the reason and a remedy.
        ClusterError: the API server is unreachable, or there is no such model.
    """
    if not cluster.may("patch", kinds.MODEL_DEPLOYMENT):
        raise InputError(
            f"--apply needs patch on {kinds.MODEL_DEPLOYMENT.plural} in namespace {cluster.namespace}; leave it out to get the patch alone"
        )
    model = cluster.model(name)
    if why := canary_change.refusal(model) or lacking_capacity(cluster, model):
        raise InputError(f"--apply can't start a canary: {why}")
    return model


class CanarySession:
    """One canary, from writing its change to its end."""

    def __init__(
        self,
        cluster: ObjectWriter,
        name: str,
        *,
        limit_s: float,
        start_s: float,
        show: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Store the settings.

        Args:
            cluster: the cluster of the model.
            name: the name of the ModelDeployment.
            limit_s: maximum duration of the canary, in seconds.
            start_s: maximum time for which a pod of the canary may be unschedulable, in seconds.
            show: function that shows progress.
            clock: function that returns a monotonic time, in seconds.
            pause: function that waits for a number of seconds.
        """
        self._cluster, self._name, self._show = cluster, name, show
        self._limit_s, self._start_s, self._clock, self._pause = limit_s, start_s, clock, pause
        self._was_compared = False

    def run(self, change: Json) -> CanaryOutcome:
        """Roll out the change, a merge patch of the spec, as a canary, and return the result.

        Raises:
            InputError: the canary can't be started.
            ClusterError: the change can't be written.
            UndoError: the change couldn't be reverted.
        """
        written: WrittenChange | None = None
        try:
            # Without the response to the write, it would be unknown whether the change has to be taken back.
            with _delayed_signals() as signals:
                written = self._write(change)
            end = CanaryOutcome(end="undone", why=_INTERRUPTED) if signals else self._follow(written)
        except KeyboardInterrupt:
            end = CanaryOutcome(end="undone", why=_INTERRUPTED)
        except Failure as error:
            if written is None:
                raise
            end = CanaryOutcome(end="undone", why=str(error))
        except Exception as error:
            if written is not None:
                self._undo(written, CanaryOutcome(end="undone", why=f"an error of this command: {error}"))
            raise
        if written is None:
            return CanaryOutcome(end="undone", why=f"{_INTERRUPTED} before the change was written")
        if end.end == "undone":
            return self._undo(written, end)
        if end.end == "promoted":
            self._restore_rollout(written)
        return end

    def _write(self, change: Json) -> WrittenChange:
        """Write the change, provided that the model hasn't changed since it was checked.

        Raises:
            InputError, ClusterError: the change can't be written.
        """
        for _ in range(_ATTEMPTS):
            model = check(self._cluster, self._name)
            spec = dict(model["spec"])
            body = {
                "metadata": {"annotations": canary_change.canary_annotations()},
                "spec": canary_change.canary_patch(spec, change),
            }
            version = str(model["metadata"]["resourceVersion"])
            try:
                stored = self._cluster.change_version(kinds.MODEL_DEPLOYMENT, self._name, body, version)
            except ClusterError:
                stored = self._model_after_lost_write(model, body["spec"])
                if stored is None:
                    raise
            if stored is not None:
                return WrittenChange(
                    before=spec,
                    after=dict(stored["spec"]),
                    generation=int(stored["metadata"].get("generation") or 0),
                    previous=str(fields.mapping(model["status"].get("revision")).get("current")),
                )
        raise ClusterError(f"other writers changed {self._name} each time; nothing is applied")

    def _model_after_lost_write(self, before: Json, change: Json) -> Json | None:
        """Return the model if a write whose response was lost has changed its spec; otherwise None.

        A new generation isn't enough, because another writer, such as the autoscaler, may have changed the spec.
        Therefore the spec must contain the change.
        """
        try:
            model = self._cluster.model(self._name)
        except ClusterError:
            return None
        has_changed = model["metadata"].get("generation") != before["metadata"].get("generation")
        return model if has_changed and merge_patch.applied(model["spec"], change) == model["spec"] else None

    def _follow(self, written: WrittenChange) -> CanaryOutcome:
        """Watch the canary until its result is known, and return the result.

        Raises:
            NoSuchModelError: the model was deleted.
        """
        began, last = self._clock(), ""
        lacks_since: float | None = None
        while True:
            try:
                model = self._cluster.model(self._name)
                course = canary_course.course(model, written)
                if end := _outcome(model, course, was_compared=self._was_compared):
                    return end
                self._was_compared |= course.phase == "Canary"
                lacks_since = (lacks_since or self._clock()) if course.lacks_capacity else None
                last = course.text
            except NoSuchModelError:
                raise
            except ClusterError as error:
                course = CanaryCourse(phase="Waiting", text=str(error))
            self._show(f"canary: {course.text}")
            now = self._clock()
            if lacks_since is not None and now - lacks_since >= self._start_s:
                return CanaryOutcome(
                    end="undone", why=f"no node had capacity for its pod within {self._start_s:.0f} s: {last}", revision=course.revision
                )  # fmt: skip
            if now - began >= self._limit_s:
                return CanaryOutcome(
                    end="undone", why=f"it wasn't decided within {self._limit_s / 60:.0f} min: {last}", revision=course.revision
                )  # fmt: skip
            self._pause(_POLL_S)

    def _undo(self, written: WrittenChange, end: CanaryOutcome) -> CanaryOutcome:
        """Revert the change, and return the result.

        A canary that was promoted in the meantime stays, because the analysis found that it is as good.

        Raises:
            UndoError: the change couldn't be reverted.
        """
        with _delayed_signals():
            outcome = self._write_undo(written, end)
        if outcome.end != "undone":
            if outcome.end == "promoted":
                self._restore_rollout(written)
            return outcome
        restored = self._wait_until_restored(written)
        state = "the previous settings serve all requests" if restored else self._not_restored_text()
        return CanaryOutcome(end="undone", why=f"{end.why}; {state}", revision=outcome.revision)

    def _write_undo(self, written: WrittenChange, end: CanaryOutcome) -> CanaryOutcome:
        why, failed_revision = "other writers changed it each time", None
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._pause(_POLL_S)
            try:
                model = self._cluster.model(self._name)
                course = canary_course.course(model, written)
                if failed_revision is not None and merge_patch.applied(model["spec"], written.undo()) == model["spec"]:
                    # The response to the write was lost, and not the write.
                    return CanaryOutcome(end="undone", why=end.why, revision=failed_revision)
                if course.phase == "Replaced" or (self._was_compared and course.phase in {"Promoted", "Served"}):
                    outcome = _outcome(model, course, was_compared=True)
                    return outcome or CanaryOutcome(end="promoted", why=course.text, revision=course.revision)
                body: dict[str, Any] = {"spec": written.undo()}
                if course.revision:
                    body["metadata"] = {"annotations": canary_change.canary_annotations(abort=course.revision)}
                version = str(model["metadata"]["resourceVersion"])
                failed_revision = course.revision
                if self._cluster.change_version(kinds.MODEL_DEPLOYMENT, self._name, body, version) is not None:
                    return CanaryOutcome(end="undone", why=end.why, revision=course.revision)
                failed_revision = None
            except NoSuchModelError:
                return CanaryOutcome(end="left", why=f"{self._name} was deleted during the canary")
            except ClusterError as error:
                why = str(error)
        by_hand = json.dumps({"spec": written.undo()}, separators=(",", ":"))
        raise UndoError(
            f"{end.why}, and the change of {self._name} couldn't be taken back: {why}. By hand: halcyon abort {self._name} -n "
            f"{self._cluster.namespace}; kubectl patch modeldeployment {self._name} -n {self._cluster.namespace} --type merge -p '{by_hand}'"
        )  # fmt: skip

    def _wait_until_restored(self, written: WrittenChange) -> bool:
        """Wait until only the previous revision serves, and return whether it does."""
        end = self._clock() + _RESTORED_S
        try:
            while self._clock() < end:
                try:
                    if canary_course.is_restored(self._cluster.model(self._name), written.previous):
                        return True
                except ClusterError as error:
                    self._show(f"canary: {error}")
                else:
                    self._show("canary: taken back; waiting until the previous settings serve alone")
                self._pause(_POLL_S)
        except KeyboardInterrupt:
            pass
        return False

    def _not_restored_text(self) -> str:
        return f"the operator hasn't confirmed yet that the previous settings serve alone; halcyon status {self._name} -w shows it"

    def _restore_rollout(self, written: WrittenChange) -> None:
        """Restore `spec.rollout`, unless another writer has changed it.

        Raises:
            UndoError: it couldn't be restored.
        """
        undo, why = written.rollout_undo(), "other writers changed it each time"
        with _delayed_signals():
            for attempt in range(_ATTEMPTS if undo else 0):
                if attempt:
                    self._pause(_POLL_S)
                try:
                    model = self._cluster.model(self._name)
                    if not written.is_rollout_in_force(model["spec"]):
                        return
                    version = str(model["metadata"]["resourceVersion"])
                    if (
                        self._cluster.change_version(kinds.MODEL_DEPLOYMENT, self._name, {"spec": undo}, version)
                        is not None
                    ):
                        return
                except NoSuchModelError:
                    return
                except ClusterError as error:
                    why = str(error)
        if undo:
            raise UndoError(
                f"{self._name} serves with the new settings, and its spec.rollout couldn't be restored: {why}. By hand: kubectl patch "
                f"modeldeployment {self._name} -n {self._cluster.namespace} --type merge -p '{json.dumps({'spec': undo})}'"
            )


def _outcome(model: Json, course: CanaryCourse, *, was_compared: bool) -> CanaryOutcome | None:
    """Return the result that the canary's course leads to; None while the canary is in progress. Pure."""
    match course.phase:
        case "Replaced":
            return CanaryOutcome(end="left", why=f"{course.text}; nothing is taken back", revision=course.revision)
        case "Worse" | "NotCompared":
            return CanaryOutcome(end="undone", why=course.text, revision=course.revision)
        case "Served" if not was_compared:
            why = "the new pods took over without a comparison with the previous ones"
            return CanaryOutcome(end="undone", why=why, revision=course.revision)
        case "Served":
            reason = (
                "a person promoted the canary"
                if canary_course.is_promoted_by_hand(model, course.revision)
                else "the analysis found the canary as good as before in failures and waiting, and its gain was measured"
            )
            return CanaryOutcome(end="promoted", why=reason, revision=course.revision)
        case _:
            return None


@contextmanager
def _delayed_signals() -> Iterator[list[int]]:
    """Collect the signals in `SIGNALS` in a list until the context ends. Only the main thread receives signals."""
    pending: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield pending
        return
    before = {
        signal_number: signal.signal(signal_number, lambda number, _: pending.append(number))
        for signal_number in SIGNALS
    }
    try:
        yield pending
    finally:
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)
