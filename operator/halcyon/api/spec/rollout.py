"""`spec.rollout`: the replacement of the serving revision by a new one, and what happens if the new one fails."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from halcyon.api.types import Documented, ListMap, Rule, cel_string, duration_field, exactly_one


class CanaryPause(Documented):
    """End of a step of a canary: after a certain time, or when a person continues the rollout."""

    duration: duration_field("1s", "168h") | None = None  # type: ignore[valid-type]
    """Minimum duration of the step, measured from the time at which its pods are ready. 1s to 168h. Default: none; the
    step lasts until a person continues the rollout. For that, use `halcyon promote NAME --step` or the annotation
    `serving.halcyon.dev/promote-step`."""


class CanaryStep(Documented):
    """Step of a canary, with its share of the requests and its end."""

    weight: Annotated[int, Field(ge=1, le=99)]
    """Share of the requests that the new revision receives, in percent, 1 to 99. Its share of the pods is as close to
    this as possible with whole pods."""
    pause: CanaryPause = CanaryPause(duration="5m")
    """Condition for the end of the step. `{}` waits for a person. Default: `{duration: 5m}`."""


QUERY_PLACEHOLDERS = ("namespace", "name", "revision", "stable", "deployment", "stableDeployment")
"""Placeholders in a Prometheus query of a canary, each in double braces."""
_QUERY = r"^([^{]|\{[^{]|\{\{(" + "|".join(QUERY_PLACEHOLDERS) + r")\}\})+$"
_Number = Annotated[str, StringConstraints(pattern=r"^-?[0-9]{1,12}(\.[0-9]{1,9})?$", min_length=1, max_length=24)]


class AnalysisMetric(Documented):
    """A value from the site's Prometheus that a canary must keep within a limit."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$", min_length=1, max_length=63)]
    """Name of the metric in status messages."""
    query: Annotated[str, Field(min_length=1, max_length=1024)]
    """PromQL query whose result is one series. `{{namespace}}` and `{{name}}` stand for those of the ModelDeployment,
    `{{revision}}` and `{{stable}}` for the keys of the new and the old revision, `{{deployment}}` and
    `{{stableDeployment}}` for the Deployments of their pods."""
    min: _Number | None = None
    """Lowest value within the limit, a number in quotes. Either this or max is required. Default: none."""
    max: _Number | None = None
    """Highest value within the limit, a number in quotes. Either this or min is required. Default: none."""
    interval: duration_field("10s", "1h") = "1m"  # type: ignore[valid-type]
    """Time between evaluations, and before the first one. 10s to 1h. Default: 1m."""
    failure_limit: Annotated[int, Field(ge=1, le=10)] = 3
    """Number of values in a row beyond the limit that roll the canary back, 1 to 10. Default: 3."""

    rules: ClassVar = (
        exactly_one(
            "min",
            "max",
            where="an entry of spec.rollout.canary.analysis.metrics",
            good="{name: error-ratio, query: QUERY, max: '0.01'}",
        ),
        Rule(
            cel=f"self.query.matches({cel_string(_QUERY)})",
            check=lambda m: re.fullmatch(_QUERY[1:-1], m.query) is not None,
            message=(
                "an entry of spec.rollout.canary.analysis.metrics, {name}, has a query with an unknown placeholder; the "
                f"known ones are {', '.join(QUERY_PLACEHOLDERS)}, each in double braces without spaces; for example "
                'sum(rate(orders_total{{namespace="{{{{namespace}}}}"}}[5m]))'
            ),
        ),
    )


class Analysis(Documented):
    """Comparison of a canary with the revision that serves: whether it is made, and with which limits.

    The limits define what counts as worse. They do not change the error rates of the statistical tests.
    """

    mode: Literal["Enabled", "Disabled"] = "Enabled"
    """Whether the revisions are compared. `Enabled`: a step ends when its pause is over and the new revision has been
    shown to be as good as the old one; a revision that is worse is rolled back at once, during a pause too.
    `Disabled`: a step ends as soon as its pause is over. Default: Enabled."""
    max_failure_increase: Annotated[int, Field(ge=1, le=50)] = 1
    """Number of percentage points by which the share of failed requests may exceed that of the old revision, 1 to 50.
    Default: 1."""
    max_latency_increase: Annotated[int, Field(ge=1, le=900)] = 20
    """Increase of the latency that is still accepted, in percent of the old revision's 95th percentile, 1 to 900. The
    effective limit is the next bound of the latency histogram. Without balancers, latency is not compared. Default:
    20."""
    max_queue_time_increase: Annotated[int, Field(ge=1, le=900)] = 50
    """Increase of the time in the server's queue that is still accepted, in percent of the old revision's time, 1 to
    900. The times of a typical second are compared, with 5 ms added to both. Default: 50."""
    min_requests: Annotated[int, Field(ge=10, le=1000000)] = 100
    """Number of requests that each revision must have received before the new one is promoted, 10 to 1000000. A
    revision that is worse is rolled back without waiting for this number. Default: 100."""
    metrics: Annotated[tuple[AnalysisMetric, ...], Field(min_length=1, max_length=5), ListMap(("name",))] | None = None
    """Values from the site's Prometheus that the new revision must keep within limits, in addition to the comparison, 1
    to 5. They require that the site has a Prometheus and that its policy allows queries
    (sitePolicy.canary.queryNamespaces). Default: none."""


class Canary(Documented):
    """Settings of the strategy `Canary`: its steps, and whether the revisions are compared."""

    steps: Annotated[tuple[CanaryStep, ...], Field(min_length=1, max_length=10), ListMap(("weight",))] | None = None
    """Steps of the canary, with ascending weights, 1 to 10 steps. Default: 5 % of the requests for 2m, 25 % for 5m, 50
    % for 5m."""
    analysis: Analysis = Analysis()
    """Comparison of the new revision with the old one: whether it is made, and its limits. Default: Enabled."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.steps) || self.steps.map(s, s.weight).isSorted()",
            check=lambda m: [s.weight for s in m.steps or ()] == sorted(s.weight for s in m.steps or ()),
            message="the weights of spec.rollout.canary.steps must increase; for example 5, 25 and 50",
        ),
    )


class Rollout(Documented):
    """Replacement of the serving revision with a new one.

    Changing only the replicas does not create a new revision.
    """

    strategy: Literal["Auto", "Surge", "Replace", "Canary"] = "Auto"
    """Method of replacing pods. `Surge`: a pod of the new revision becomes ready before an old one stops, which needs
    capacity for one more pod. `Replace`: an old pod stops first, and the next old pod stops only when the replacement
    of the first is ready. `Auto`: Surge at first, switching to Replace if there is no capacity for the duration of
    surgeTimeout, unless only one pod serves: then the rollout waits for capacity.
    `Canary`: the new revision runs beside the old one and receives a growing share of the pods and requests, in steps.
    Default: Auto."""
    surge_timeout: duration_field("1s", "24h") = "1m"  # type: ignore[valid-type]
    """Maximum time that a pod of the new revision waits for capacity, 1s to 24h. After that, `Auto` switches to
    Replace if another pod serves; otherwise, and with the other strategies, the status reports that the rollout is blocked. Default: 1m."""
    on_failure: Literal["Rollback", "Stay"] = "Rollback"
    """What to do if no pod of a new revision becomes ready within runtime.startupTimeout plus one minute. `Rollback`:
    the previously serving revision is restored, and the failed one is not tried again until the spec changes. `Stay`:
    the failed revision stays, and its pods keep trying. A canary that fails is always rolled back. Default:
    Rollback."""
    canary: Canary | None = None
    """Settings of the strategy `Canary`: its steps, and whether the revisions are compared. Other strategies ignore
    them. Default: the defaults of `steps` and `analysis`."""
