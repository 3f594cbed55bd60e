"""View of a run that returns the values of another view. Subclasses change some of them."""

from __future__ import annotations

from collections.abc import Mapping

from halcyon_simulator.engine.policy_view import PolicyPod, PolicyView, SampleColumn


class ForwardedView:
    """View with the values of the view that was last passed to `update`."""

    def __init__(self) -> None:
        """Create a view without values; `update` must be called before it is used."""
        self._view: PolicyView

    def update(self, view: PolicyView) -> PolicyView:
        """Update the view for the current tick, and return it."""
        self._view = view
        return self

    @property
    def now(self) -> float:
        """Time of the current tick, in seconds since the start of the simulation case."""
        return self._view.now

    @property
    def replicas(self) -> int:
        """Number of replicas that were last requested."""
        return self._view.replicas

    @property
    def pods(self) -> tuple[PolicyPod, ...]:
        """Pods of the model."""
        return self._view.pods

    def value(self, signal: SampleColumn) -> float | None:
        """Return the newest value of a signal."""
        return self._view.value(signal)

    def mean(self, signal: SampleColumn, window_s: float) -> float | None:
        """Return the mean of a signal over a window in seconds."""
        return self._view.mean(signal, window_s)

    def rate(self, signal: SampleColumn, window_s: float) -> float | None:
        """Return the increase per second of a counter over a window in seconds."""
        return self._view.rate(signal, window_s)

    def sampled_at(self) -> float | None:
        """Return the time of the newest sample, in seconds."""
        return self._view.sampled_at()

    def batches(self) -> Mapping[int, tuple[int, float]]:
        """Return the numbers of batches and their total seconds of computing, by batch size."""
        return self._view.batches()
