"""`spec.rollout`: the replacement of the serving revision with a new one, and the action if the new one fails."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from halcyon.api.types import ApiModel, AtomicMap, ListMap, Rule, cel_string, duration_field, exactly_one


class CanaryPause(ApiModel):
    """End of a step of a canary: after a certain time, or when someone resumes the rollout."""

    duration: duration_field("1s", "168h") | None = None  # type: ignore[valid-type]
    """Minimum duration (1s to 168h) of the canary step after the pods that it needs are ready. Default: none; the step
    lasts until someone runs `halcyon promote NAME --step` or sets the annotation `serving.halcyon.dev/promote-step`."""


class CanaryStep(ApiModel):
    """One step of a canary: its share of the requests and its duration."""

    weight: Annotated[int, Field(ge=1, le=99)]
    """Share of the requests that the new revision receives, in percent (1 to 99). Its share of the pods is as close to
    this weight as whole pods allow."""
    pause: Annotated[CanaryPause, AtomicMap()] = CanaryPause(duration="5m")
    """Duration of the step. With `{}`, the step lasts until someone resumes the rollout. Default: `{duration: 5m}`."""


QUERY_PLACEHOLDERS = ("namespace", "name", "revision", "stable", "deployment", "stableDeployment")
"""Placeholders in a Prometheus query of a canary, each in double braces."""
_QUERY = r"^([^{]|\{[^{]|\{\{(" + "|".join(QUERY_PLACEHOLDERS) + r")\}\})+$"
_Number = Annotated[str, StringConstraints(pattern=r"^-?[0-9]{1,12}(\.[0-9]{1,9})?$", min_length=1, max_length=24)]


class AnalysisMetric(ApiModel):
    """One Prometheus query for the analysis of a canary, and the minimum or maximum for its result."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$", min_length=1, max_length=63)]
    """Name of the metric in status messages."""
    query: Annotated[str, Field(min_length=1, max_length=1024)]
    """PromQL query whose result is one series. `{{namespace}}` and `{{name}}` are replaced with those of the
    ModelDeployment; `{{revision}}` and `{{stable}}`, with the pod label `serving.halcyon.dev/revision` of the new and
    the old revision; `{{deployment}}` and `{{stableDeployment}}`, with the names of the two revisions' Deployments."""
    min: _Number | None = None
    """Minimum result of the query, a number in quotes, for example `'0.5'`. Set exactly one of min and max. Default:
    none."""
    max: _Number | None = None
    """Maximum result of the query, a number in quotes, for example `'0.01'`. Set exactly one of min and max. Default:
    none."""
    interval: duration_field("10s", "1h") = "1m"  # type: ignore[valid-type]
    """Time (10s to 1h) before the first evaluation of the query, and between two evaluations. Default: 1m."""
    failure_limit: Annotated[int, Field(ge=1, le=10)] = 3
    """Number of consecutive results (1 to 10) outside the limit that cause the canary's rollback. Default: 3."""

    rules: ClassVar = (
        exactly_one(
            "min",
            "max",
            subject="an entry of spec.rollout.canary.analysis.metrics",
            example="{name: error-ratio, query: QUERY, max: '0.01'}",
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


class Analysis(ApiModel):
    """Comparison of a canary with the revision that serves: whether it takes place, and its limits.

    The limits define what counts as worse. They do not change the error rates of the statistical tests.
    """

    mode: Literal["Enabled", "Disabled"] = "Enabled"
    """Whether the revisions are compared. `Enabled`: a step ends when its pause is over and the new revision is shown
    to be as good as the old one. If the new revision is worse, it is rolled back at once, even during a pause.
    `Disabled`: a step ends when its pause is over. Default: Enabled."""
    max_failure_increase: Annotated[int, Field(ge=1, le=50)] = 1
    """Maximum increase in the failure ratio over the old revision's, in percentage points (1 to 50). Default: 1."""
    max_latency_increase: Annotated[int, Field(ge=1, le=900)] = 20
    """Maximum increase in p95 latency compared with the old revision, in percent (1 to 900). The limit is rounded up to
    the next bucket bound of the latency histogram. Without balancers, latency is not compared. Default: 20."""
    max_queue_time_increase: Annotated[int, Field(ge=1, le=900)] = 50
    """Maximum increase in the time in Triton's queue compared with the old revision, in percent (1 to 900). Before the
    comparison, 5 ms are added to both times. Default: 50."""
    min_requests: Annotated[int, Field(ge=10, le=1000000)] = 100
    """Minimum number of requests (10 to 1000000) to each revision before the canary is promoted. A canary that is worse
    can be rolled back earlier. Default: 100."""
    metrics: Annotated[tuple[AnalysisMetric, ...], Field(min_length=1, max_length=5), ListMap(("name",))] | None = None
    """Prometheus queries (1 to 5) whose results must stay within limits, in addition to the comparison of the
    revisions. The site must have a Prometheus server and allow queries (`sitePolicy.canary.queryNamespaces`). Default:
    none."""


class Canary(ApiModel):
    """Settings of the strategy `Canary`: its steps and its analysis."""

    steps: Annotated[tuple[CanaryStep, ...], Field(min_length=1, max_length=10), ListMap(("weight",))] | None = None
    """Steps of the canary (1 to 10), with increasing weights. Default: 5 % of the requests for 2m, 25 % for 5m, then 50
    % for 5m."""
    analysis: Analysis = Analysis.defaults()
    """Comparison of the new revision with the old one during a canary, and its limits. Default: Enabled, with the
    default limits."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.steps) || self.steps.map(s, s.weight).isSorted()",
            check=lambda m: [s.weight for s in m.steps or ()] == sorted(s.weight for s in m.steps or ()),
            message="the weights of spec.rollout.canary.steps must increase; for example 5, 25 and 50",
        ),
    )


class Rollout(ApiModel):
    """Method of replacing the serving revision with a new one, and the action if the replacement fails.

    Changing only the number of replicas does not create a new revision.
    """

    strategy: Literal["Auto", "Surge", "Replace", "Canary"] = "Auto"
    """Method of replacing pods. `Surge`: a new pod becomes ready before an old pod stops, which needs capacity for one
    more pod. `Replace`: an old pod stops before a new pod starts, one pod at a time. `Auto`: like Surge, but switches
    to Replace if a new pod finds no capacity within surgeTimeout, unless only one pod is ready. `Canary`: the new
    revision receives a share of the requests and pods that grows in steps. Default: Auto."""
    surge_timeout: duration_field("1s", "24h") = "1m"  # type: ignore[valid-type]
    """Maximum time (1s to 24h) that a new pod waits for capacity. After that time, `Auto` switches to Replace, unless
    only one pod is ready. In all other cases, the status reports that the rollout is blocked. Default: 1m."""
    on_failure: Literal["Rollback", "Stay"] = "Rollback"
    """Action if no pod of a new revision becomes ready within runtime.startupTimeout plus one minute. `Rollback`:
    Halcyon restores the revision that served before, and does not retry the failed revision until the spec changes.
    `Stay`: the failed revision stays, and its pods keep trying to start. A failed canary is always rolled back.
    Default: Rollback."""
    canary: Canary | None = None
    """Settings of the strategy `Canary`: its steps and its analysis. Other strategies ignore these settings. Default:
    the defaults of `steps` and `analysis`."""
