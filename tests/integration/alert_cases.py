"""A firing and a silent case for each alert, as series by the minute and expected alerts for `promtool test rules`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from generators.monitoring import queries
from generators.monitoring.alert import THRESHOLD_PLACEHOLDERS, THRESHOLDS, Alert
from generators.monitoring.alerts import ALERTS

RUNBOOKS = "https://halcyon.dev/docs/runbooks"
"""Default of the chart."""
PLACES = {
    "__OPERATOR__": 'job="halcyon-metrics",namespace="halcyon-system"',
    "__JOB__": 'job="halcyon-metrics"',
    "__NAMESPACE__": "halcyon-system",
    "__NAME__": "halcyon",
    "__REPLICAS__": "2",
    "__RUNBOOKS__": RUNBOOKS,
    **{THRESHOLD_PLACEHOLDERS[key]: f"{default:g}" for key, default in THRESHOLDS.items()},
}
JOB = 'job="halcyon-metrics"'
OPERATOR = f'{JOB},namespace="halcyon-system",instance="one"'
OF = 'namespace="team",model_deployment="m"'
M = f"{JOB},{OF}"
MODEL = {"namespace": "team", "model_deployment": "m"}
Series = dict[str, str]
"""Values by series, in promtool's notation: `0+60x9` is 0, 60, 120 and so on, ten values, one per minute."""


@dataclass(frozen=True)
class Case:
    """Test case of one alert: series for which it must be firing at `at`, and others for which it must not."""

    name: str
    at: str
    firing: Series
    silent: Series
    labels: dict[str, str] = field(default_factory=lambda: dict(MODEL))
    value: str = ""
    """The value as it appears in the summary."""
    also: tuple[str, ...] = ()
    """Other alerts that these series cause, as intended."""

    @property
    def alert(self) -> Alert:
        """Return the alert with this name."""
        return next(alert for alert in ALERTS if alert.name == self.name)


def condition(kind: str, status: str, reason: str) -> str:
    """Return the series of a condition."""
    return f'halcyon_model_condition{{{M},type="{kind}",status="{status}",reason="{reason}"}}'


def of(name: str, more: str = "") -> str:
    """Return a series of the model."""
    return f"{name}{{{M}{more}}}"


def other(series: Series, name: str = "n") -> Series:
    """Return the same series of another model."""
    return {key.replace('model_deployment="m"', f'model_deployment="{name}"'): values for key, values in series.items()}


def of_cluster(cluster: str, series: Series) -> Series:
    """Return the same series, with the label that the chart's monitors set if the cluster has a name."""
    return {name.replace("{", f'{{cluster="{cluster}",', 1): values for name, values in series.items()}


def unlabelled(series: Series) -> Series:
    """Return the same series of a Triton server that isn't Halcyon's."""
    return {name.replace(',model_deployment="m"', ""): values for name, values in series.items()}


def failures(reason: str) -> str:
    """Return the series of failures of a model pod."""
    return f'nv_inference_request_failure{{{OF},pod="p",model="x",version="1",reason="{reason}"}}'


def failed_pods(reason: str) -> str:
    """Return the series of failed server pods."""
    return of("halcyon_model_replicas_failed", f',reason="{reason}"')


def expiry(key: str) -> str:
    """Return the series of the expiry of a certificate in a balancer."""
    return f'halcyon_agent_certificate_expires_timestamp_seconds{{{OF},pod="b",key="{key}"}}'


def batch(kind: str, status: str, reason: str) -> str:
    """Return the series of a condition of a BatchInference."""
    return of("halcyon_model_batch_condition", f',batch="night",type="{kind}",status="{status}",reason="{reason}"')


def took(*, fast: int, slow: int, never: int = 0) -> Series:
    """Return the histogram of requests that take at most 0.25 s, from 0.5 s to 1 s, or longer, by their numbers in a minute."""
    every = {"0.25": fast, "0.5": fast, "1": fast + slow, "+Inf": fast + slow + never}
    return {
        f'halcyon_agent_request_duration_seconds_bucket{{{OF},pod="b",le="{bound}"}}': f"0+{count}x99"
        for bound, count in every.items()
    }


SUCCESS = f'nv_inference_request_success{{{OF},pod="p",model="x",version="1"}}'
OF_STEP = SUCCESS.replace('model="x"', 'model="step"')
REQUESTS, REJECTED, LOST = (
    f'halcyon_agent_{kind}_total{{{OF},pod="b"}}' for kind in ("requests", "rejected", "errors")
)
START, STARTED = of("halcyon_model_start_seconds"), of("halcyon_model_start_timestamp_seconds")
AT_MAX, HOLDS = of("halcyon_model_limited", ',limit="max"'), of("halcyon_model_limited", ',limit="hold"')
QUEUE, TARGET = of("halcyon_model_queue_requests"), of("halcyon_model_queue_target_requests")
LATENCY_TARGET = of("halcyon_model_latency_target_seconds")
READY = of("halcyon_model_replicas_ready")
IN_FORCE, DESIRED = of("halcyon_model_spec_replicas"), of("halcyon_model_replicas_desired")
TWO = {IN_FORCE: "2x20", DESIRED: "2x20"}
MOST, FULL = of("halcyon_model_replicas_max"), of("halcyon_model_limited", ',limit="quota"')
GPUS = of("halcyon_model_gpus")
BUSY, IDLE, UNKNOWN_GPU = (
    of("halcyon_model_gpu_seconds_total", f',state="{state}"') for state in ("busy", "idle", "unknown")
)
MISSING = of("halcyon_model_signal_missing", ',signal="queueDepth"')
UP, LEADS = f"up{{{OPERATOR}}}", f"halcyon_leader{{{OPERATOR}}}"
UP_TOO = UP.replace('"one"', '"two"')
WAITS = f"halcyon_queue_ready{{{OPERATOR}}}"
RESIDENT, LIMIT = f"process_resident_memory_bytes{{{OPERATOR}}}", f"halcyon_memory_limit_bytes{{{OPERATOR}}}"
RESIDENT_TOO, LIMIT_TOO = (series.replace('"one"', '"two"') for series in (RESIDENT, LIMIT))
FAILED, DONE, CONFLICTS = (
    f'halcyon_reconciles_total{{{OPERATOR},result="{result}"}}' for result in ("error", "done", "conflict")
)
UNKNOWN, UNANSWERED = (f'halcyon_metricsapi_requests_total{{{OPERATOR},metric="x",code="{c}"}}' for c in ("404", "503"))
WELL = {UP: "1x200", UP_TOO: "1x200", LEADS: "1x200"}
"""Series of a healthy operator."""
TROUBLE = f'halcyon_agent_degraded{{{OF},pod="b"}}'
CROWDED = f'halcyon_agent_connections_used_ratio{{{OF},pod="b"}}'
LACKS = f'halcyon_permissions_missing{{{OPERATOR},group="apps",resource="deployments",verb="patch"}}'
MALFORMED = f'halcyon_malformed_objects{{{OPERATOR},kind="ModelDeployment"}}'
NOT_READY, IS_READY = condition("Ready", "False", "NoServersReady"), condition("Ready", "True", "Ready")
POD_FAILS = condition("RequestsFailing", "True", "BackendErrors")
HAS_BALANCER, AGENT = condition("BalancerReady", "True", "BalancerReady"), f'halcyon_agent_haproxy_up{{{OF},pod="b"}}'
EXIST, UNSCHEDULABLE = of("halcyon_model_replicas"), of("halcyon_model_replicas_unschedulable")
ROLLS = of("halcyon_model_rollout_start_timestamp_seconds")
DECIDED = f"halcyon_decision_age_seconds_count{{{OPERATOR}}}"
DECIDED_LATELY = f'halcyon_decision_age_seconds_bucket{{{OPERATOR},le="60.0"}}'

CASES = (
    Case(
        "HalcyonModelNotReady",
        "12m",
        # A different reason in between doesn't restart the ten minutes.
        {NOT_READY: "1x5 stale", condition("Ready", "Unknown", "Unknown"): "_x5 1x20"},
        {NOT_READY: "1x8 stale", condition("Ready", "True", "Ready"): "_x8 1x20"},
    ),
    Case(
        "HalcyonServersMissing",
        "16m",
        # Another pod is unschedulable before and after.
        {IS_READY: "1x20", READY: "3x20", EXIST: "4x20", IN_FORCE: "4x20", UNSCHEDULABLE: "1x20"},
        # A rollout that replaces one pod after another: each pod only starts. The object of a pod that was evicted long ago is still there.
        {
            IS_READY: "1x20",
            READY: "3x20",
            EXIST: "4x20",
            IN_FORCE: "4x20",
            UNSCHEDULABLE: "0x20",
            failed_pods("Evicted"): "1x20",
        }
        # An evicted pod stays as an object, and its successor is ready.
        | other({IS_READY: "1x20", READY: "2x20", EXIST: "2x20", IN_FORCE: "2x20", failed_pods("Evicted"): "1x20"})
        # No pod of a third model is ready: HalcyonModelNotReady fires.
        | other({NOT_READY: "1x20", READY: "0x20", IN_FORCE: "2x20", UNSCHEDULABLE: "2x20"}, "o"),
    ),
    Case(
        "HalcyonSpecRejected",
        "12m",
        {condition("Accepted", "False", "Invalid"): "1x20", condition("Ready", "True", "Ready"): "1x20"},
        {condition("Accepted", "True", "Accepted"): "1x20", NOT_READY: "1x20"},
    ),
    Case(
        "HalcyonModelLoadFailed",
        "3m",
        {condition("ModelLoaded", "False", "LoadFailed"): "1x9", condition("Ready", "False", "LoadFailed"): "1x9"},
        # An older revision serves.
        {condition("ModelLoaded", "False", "LoadFailed"): "1x9", condition("Ready", "True", "Ready"): "1x9"},
    ),
    Case(
        "HalcyonModelAtMax",
        "16m",
        # A schedule sets a maximum of 4, the spec of 8.
        {
            AT_MAX: "1x20",
            QUEUE: "41x20",
            TARGET: "10x20",
            READY: "4x20",
            IN_FORCE: "4x20",
            DESIRED: "4x20",
            MOST: "8x20",
        },
        {
            AT_MAX: "1x20",
            QUEUE: "39x20",
            TARGET: "10x20",
            READY: "4x20",
            IN_FORCE: "4x20",
            DESIRED: "4x20",
            HOLDS: "1x20",
        }
        # Another model is paused at 2 of 8: more replicas are allowed, and the mode prevents them.
        | other({AT_MAX: "1x20", QUEUE: "41x20", TARGET: "10x20", READY: "2x20", IN_FORCE: "2x20", DESIRED: "8x20"})
        # A third one needs more than its maximum, but a quota allows even fewer.
        | other({AT_MAX: "1x20", FULL: "1x20", QUEUE: "41x20", TARGET: "10x20", READY: "2x20", **TWO}, "o"),
    ),
    Case(
        "HalcyonQueueLong",
        "16m",
        # A quota allows no more than two replicas.
        {FULL: "1x20", QUEUE: "41x20", TARGET: "10x20", READY: "2x20", **TWO},
        {FULL: "1x20", QUEUE: "20x20", TARGET: "10x20", READY: "2x20", **TWO}
        # Another model runs its maximum: HalcyonModelAtMax fires.
        | other({AT_MAX: "1x20", QUEUE: "41x20", TARGET: "10x20", READY: "2x20", **TWO}),
    ),
    Case(
        "HalcyonScalingInactive",
        "12m",
        {condition("ScalingActive", "False", "HPAInactive"): "1x20"},
        {condition("ScalingActive", "False", "Recommending"): "1x20"}
        | other({condition("ScalingActive", "False", "HPAInactive"): "1x5 stale"}),
    ),
    Case(
        "HalcyonMetricMissing",
        "6m",
        {MISSING: "1x9"},
        {MISSING: "1 1 1 0 1 1 1 1 1 1"},
        labels=MODEL | {"signal": "queueDepth"},
    ),
    Case(
        "HalcyonErrorRatioHigh",
        "15m",
        # The successes of the other models of an ensemble hide no failure.
        {SUCCESS: "0+90x20", failures("BACKEND"): "0+10x20", failures("CANCELED"): "0+50x20", OF_STEP: "0+900x20"},
        {SUCCESS: "0+96x20", failures("BACKEND"): "0+4x20", failures("CANCELED"): "0+50x20", OF_STEP: "0x20"}
        # Another team's Triton, which Prometheus scrapes too.
        | unlabelled({SUCCESS: "0+1x20", failures("BACKEND"): "0+9x20"}),
        value="10%",
    ),
    Case(
        "HalcyonPodRequestsFailing",
        "20m",
        # One of thirty pods.
        {POD_FAILS: "1x30", SUCCESS: "0+97x30", failures("BACKEND"): "0+3x30"},
        # More of the requests fail: HalcyonErrorRatioHigh fires.
        {POD_FAILS: "1x30", SUCCESS: "0+90x30", failures("BACKEND"): "0+10x30"},
    ),
    Case(
        "HalcyonRequestsRejected",
        "15m",
        {REQUESTS: "0+100x20", REJECTED: "0+8x20", LOST: "0+4x20"},
        # There are no requests, so there is no error ratio.
        {REQUESTS: "0x20", REJECTED: "0x20", LOST: "0x20"},
        value="12%",
    ),
    Case(
        "HalcyonLatencyObjectiveMissed",
        "70m",
        # One request in ten takes 0.5 s to 1 s; the objective is 0.3 s.
        {**took(fast=9, slow=1), LATENCY_TARGET: "0.3x99"},
        # One request in fifty does; and another model has no objective.
        {**took(fast=49, slow=1), LATENCY_TARGET: "0.3x99"} | other(took(fast=1, slow=9)),
        value="750ms",
    ),
    Case(
        "HalcyonBalancerDegraded",
        "16m",
        # One of the two is enough.
        {TROUBLE: "1x20", TROUBLE.replace('"b"', '"c"'): "0x20"},
        {TROUBLE: "1x10 0x9", TROUBLE.replace('"b"', '"c"'): "0x20"},
    ),
    Case(
        "HalcyonBalancerCrowded",
        "6m",
        # One of the two is enough.
        {CROWDED: "0.9x9", CROWDED.replace('"b"', '"c"'): "0.1x9"},
        {CROWDED: "0.7x9", CROWDED.replace('"b"', '"c"'): "0.9 0.9 0.9 0.1 0.9 0.9 0.9"},
        value="90%",
    ),
    Case(
        "HalcyonCertificateExpired",
        "3m",
        # At minute 1; the other balancer has the new certificate already.
        {expiry("tls.crt"): "60x9", expiry("tls.crt").replace('"b"', '"c"'): "9000x9"},
        {expiry("tls.crt"): "9000x9", expiry("ca.crt"): "9000x9"},
        labels=MODEL | {"key": "tls.crt"},
        value="2m 0s",
    ),
    Case(
        "HalcyonRoutesRejected",
        "12m",
        {condition("RoutesAccepted", "False", "RoutesRejected"): "1x20", IS_READY: "1x20"},
        # A model without balancers isn't ready then: HalcyonModelNotReady fires.
        {condition("RoutesAccepted", "False", "RoutesRejected"): "1x20", NOT_READY: "1x20"},
    ),
    Case(
        "HalcyonPodsNotScraped",
        "32m",
        {HAS_BALANCER: "1x40", READY: "2x40", SUCCESS: "0+9x40"},
        {HAS_BALANCER: "1x40", READY: "2x40", SUCCESS: "0+9x40", AGENT: "1x40"}
        # A model without balancers, at zero replicas.
        | other({condition("BalancerReady", "True", "NoBalancer"): "1x40", READY: "0x40"}),
    ),
    Case(
        "HalcyonAutoscalerConflict",
        "6m",
        {condition("AutoscalerConflict", "True", "ExternalAutoscaler"): "1x9"},
        {condition("ScalingActive", "False", "Paused"): "1x9"},
    ),
    Case(
        "HalcyonRolloutBlocked",
        "12m",
        {
            condition("Reconciling", "True", "RolloutBlocked"): "1x5 stale",
            condition("Stalled", "True", "ImagePullFailed"): "_x5 1x20",
            condition("Ready", "True", "Ready"): "1x20",
        },
        {condition("Reconciling", "True", "Progressing"): "1x20", condition("Ready", "True", "Ready"): "1x20"}
        # A change isn't accepted: HalcyonSpecRejected fires.
        | other(
            {
                condition("Stalled", "True", "Invalid"): "1x20",
                condition("Accepted", "False", "Invalid"): "1x20",
                IS_READY: "1x20",
            },
            "o",
        )
        # The first revision of another model can't be loaded, so no old one serves: HalcyonModelNotReady fires.
        | other({condition("Stalled", "True", "LoadFailed"): "1x20", NOT_READY: "1x20"}),
    ),
    Case(
        "HalcyonRolloutLong",
        "7m",
        # It began a day before the first minute.
        {ROLLS: "-86400x20"},
        {ROLLS: "-43200x20"},
    ),
    Case(
        "HalcyonColdStartSlow",
        "10m",
        {START: "400x99", STARTED: "0x99"},
        {START: "250x99", STARTED: "0x99"},
        value="6m 40s",
    ),
    # The model has no spec.scaling, so there is no utilisation of a scaling decision.
    Case(
        "HalcyonGPUIdle",
        "62m",
        {BUSY: "0+2x99", IDLE: "0+118x99", UNKNOWN_GPU: "0+60x99", GPUS: "3x99"},
        {BUSY: "0+12x99", IDLE: "0+108x99", GPUS: "2x99"}
        | other({BUSY: "0+1x99", IDLE: "0+119x99", GPUS: "0x99"})
        # No pod of a third model reports the utilisation of its GPU.
        | other({BUSY: "0x99", IDLE: "0x99", UNKNOWN_GPU: "0+120x99", GPUS: "2x99"}, "o"),
    ),
    Case(
        "HalcyonOperatorConflict",
        "16m",
        {condition("OperatorConflict", "True", "ReleaseOverlap"): "1x20", IS_READY: "1x20"},
        {condition("OperatorConflict", "True", "ReleaseOverlap"): "1x9 stale", IS_READY: "1x20"},
    ),
    Case(
        "HalcyonBatchFailed",
        "3m",
        {batch("Complete", "False", "Failed"): "1x9", batch("Failed", "True", "InputChanged"): "1x9"},
        {batch("Complete", "True", "Completed"): "1x9"},
        labels=MODEL | {"batch": "night"},
    ),
    Case(
        "HalcyonBatchLate",
        "32m",
        # It waits for its pod, and then for its model.
        {batch("Complete", "False", "Pending"): "1x9 stale", batch("Complete", "False", "ModelStopped"): "_x9 1x40"},
        # It waits for its users, in time.
        {batch("Complete", "False", "Waiting"): "1x40", batch("OnTime", "True", "InTime"): "1x40"},
        labels=MODEL | {"batch": "night"},
    ),
    Case("HalcyonOperatorDown", "6m", {UP: "0x9", UP_TOO: "0x9"}, {UP: "1x9", UP_TOO: "0x9"}, labels={}),
    Case(
        "HalcyonNoLeader",
        "6m",
        WELL | {LEADS: "0x9"},
        # The leadership changes.
        WELL | {LEADS: "1 1 0 1 1 1 1 1 1 1"},
        labels={},
    ),
    Case("HalcyonReplicaMissing", "16m", WELL | {UP_TOO: "0x20"}, WELL, labels={}),
    Case(
        "HalcyonOperatorMemoryHigh",
        "6m",
        # One of the two is enough.
        WELL | {RESIDENT: "85x9", LIMIT: "100x9", RESIDENT_TOO: "50x9", LIMIT_TOO: "100x9"},
        # A short peak; and no limit, so no ratio.
        WELL | {RESIDENT: "79 79 85 85 85 79 79 79 79 79", LIMIT: "100x9", RESIDENT_TOO: "500x9"},
        labels={"instance": "one"},
        value="85%",
    ),
    Case(
        "HalcyonReconcileErrors",
        "31m",
        WELL | {FAILED: "0+1x60", DONE: "0+1x60"},
        # The API server is away for a minute, after which a conflict is retried now and then.
        WELL | {FAILED: "0x5 40 80x60", DONE: "0+9x60", CONFLICTS: "0+1x60"},
        labels={},
    ),
    Case(
        "HalcyonPermissionsMissing",
        "6m",
        WELL | {LACKS: "1x9"},
        # The series ends when the budget is returned.
        WELL | {LACKS: "1x3 stale"},
        labels={"group": "apps", "resource": "deployments", "verb": "patch"},
    ),
    Case(
        "HalcyonObjectsMalformed",
        "16m",
        WELL | {MALFORMED: "2x20"},
        # It is corrected after ten minutes.
        WELL | {MALFORMED: "2x10 stale"},
        labels={"kind": "ModelDeployment"},
        value="2",
    ),
    # The queue of a standby is irrelevant.
    Case(
        "HalcyonReconcileBacklog",
        "20m",
        WELL | {WAITS: "3x30"},
        WELL | {WAITS: "3 3 3 3 3 0 3 3 3 3 0 3 3 3 3 3 3 0 3 3 3"},
        labels={},
    ),
    Case(
        "HalcyonDecisionsStale",
        "16m",
        # One of sixty models.
        WELL | {DECIDED: "0+3600x30", DECIDED_LATELY: "0+3540x30"},
        # A standby decides late, and the leader in time.
        WELL
        | {DECIDED: "0+3600x30", DECIDED_LATELY: "0+3600x30"}
        | {name.replace('"one"', '"two"'): "0+3600x30" for name in (DECIDED,)}
        | {name.replace('"one"', '"two"'): "0x30" for name in (DECIDED_LATELY,)},
        labels={},
        value="1",
    ),
    Case(
        "HalcyonMetricsAPIErrors",
        "25m",
        WELL | {UNANSWERED: "0+1x40", UNKNOWN: "0+9x40"},
        # One of a thousand.
        WELL | {UNANSWERED: "0+1x40", UNKNOWN: "0+999x40"},
        labels={},
        value="10%",
    ),
)


SLOW = Case(
    "HalcyonLatencyObjectiveMissed",
    "70m",
    # One request in ten takes longer than the histogram's highest bound, which is also the objective.
    {**took(fast=9, slow=0, never=1), LATENCY_TARGET: "1x99"},
    {**took(fast=49, slow=0, never=1), LATENCY_TARGET: "1x99"},
    value="1s",
)


def tests(rule_file: str) -> dict[str, Any]:
    """Return the input file for `promtool test rules`."""
    return _file(rule_file, [t for c in (*CASES, SLOW) for t in (_fires(c), _rests(c))])


def tests_of_clusters(rule_file: str) -> dict[str, Any]:
    """Return the same cases for a Prometheus with the series of two clusters, in one of which all is well."""
    return _file(
        rule_file,
        [
            _fires(
                replace(
                    case,
                    firing=of_cluster("east", case.firing) | of_cluster("west", case.silent),
                    labels=case.labels | {"cluster": "east"},
                )
            )
            for case in CASES
        ],
    )


def tests_of_new_leaders(rule_file: str) -> dict[str, Any]:
    """Return a case of each alert on series that the leader exports: it stays firing while another replica becomes the leader.

    For two minutes, no series of models exist: those of the old leader have ended, and the new one was not scraped yet.
    """
    tests = []
    for case in CASES:
        if "__JOB__" not in case.alert.expression:
            continue
        last = int(case.at.removesuffix("m")) + 1
        series: Series = {}
        for name, values in case.firing.items():
            known = re.fullmatch(r"(?:_x(\d+) )?(-?[0-9.]+)x\d+", values)
            if not name.startswith("halcyon_model_") or known is None:
                series[name] = values
                continue
            begin = int(known[1] or 0)
            series[name] = (f"_x{begin} " if begin else "") + f"{known[2]}x{last - begin} stale"
            series[name.replace("{", '{instance="two",', 1)] = f"_x{last + 3} {known[2]}x20"
        for minute in (last + 2, last + 4):
            fires = _fires(replace(case, firing=series, at=f"{minute}m"))
            tests.append(fires | {"name": f"{case.name} with a new leader"})
    return _file(rule_file, tests)


def _file(rule_file: str, cases: list[dict[str, Any]]) -> dict[str, Any]:
    return {"rule_files": [rule_file], "evaluation_interval": "1m", "tests": cases}


def _series(series: Series) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in series.items()]


def _fires(case: Case) -> dict[str, Any]:
    expected = {
        "exp_labels": case.labels | {"severity": case.alert.severity},
        "exp_annotations": {
            "summary": _text(case.alert.summary, case),
            "description": _text(case.alert.description, case),
            "runbook_url": f"{RUNBOOKS}/{case.name}.md",
        },
    }
    evaluation = {"eval_time": case.at, "alertname": case.name, "exp_alerts": [expected]}
    return {
        "interval": "1m",
        "name": f"{case.name} fires",
        "input_series": _series(case.firing),
        "alert_rule_test": [evaluation],
    }


def _rests(case: Case) -> dict[str, Any]:
    """Yield tests that the alert never fires, until long after the time at which the other case fires."""
    minutes = int(case.at.removesuffix("m"))
    evaluations = [{"eval_time": f"{m}m", "alertname": case.name, "exp_alerts": []} for m in range(minutes + 3)]
    return {
        "interval": "1m",
        "name": f"{case.name} rests",
        "input_series": _series(case.silent),
        "alert_rule_test": evaluations,
    }


def _text(template: str, case: Case) -> str:
    text = queries.replaced(template, PLACES)
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match: case.labels[match[1]], text)
    return re.sub(r"\{\{ \$value[^}]*\}\}", case.value, text)
