"""Normal operation, in which no alert fires, and incidents with exactly the alerts that fire then.

Out of scope: a firing and a silent case of each alert (`alert_cases`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.integration.alert_cases import (
    DECIDED,
    DECIDED_LATELY,
    DESIRED,
    EXIST,
    HAS_BALANCER,
    IN_FORCE,
    IS_READY,
    LEADS,
    NOT_READY,
    OF,
    QUEUE,
    READY,
    SUCCESS,
    TARGET,
    UNSCHEDULABLE,
    UP,
    UP_TOO,
    Series,
    condition,
    expiry,
    failed_pods,
    failures,
    of,
)


@dataclass(frozen=True)
class Scene:
    """Series by the minute, and the alerts that fire at `at`. If none is expected, none may fire at any minute until then."""

    name: str
    at: int
    series: Series
    firing: frozenset[str] = frozenset()


def agent(name: str, more: str = "") -> str:
    """Return a series of the first balancer's agent."""
    return f'halcyon_agent_{name}{{{OF},pod="b"{more}}}'


LEADS_TOO = LEADS.replace('"one"', '"two"')
OPERATOR: Series = {
    UP: "1x90",
    UP_TOO: "1x90",
    LEADS: "1x90",
    LEADS_TOO: "0x90",
    DECIDED: "0+60x90",
    DECIDED_LATELY: "0+60x90",
}
"""A healthy operator that scales one model."""
SCRAPED: Series = {agent("haproxy_up"): "1x90", SUCCESS: "0+60x90", failures("BACKEND"): "0x90"}
SERVED: Series = {IS_READY: "1x90", HAS_BALANCER: "1x90", condition("Accepted", "True", "Accepted"): "1x90"}
"""A model that is served."""
REPLICAS: Series = {READY: "2x90", EXIST: "2x90", IN_FORCE: "2x90", DESIRED: "2x90", UNSCHEDULABLE: "0x90"}
WELL: Series = {**OPERATOR, **SCRAPED, **SERVED, **REPLICAS, QUEUE: "1x90", TARGET: "8x90"}
ACTIVE = condition("ScalingActive", "True", "ScalingActive")
PROGRESSING = condition("Reconciling", "True", "Progressing")
MISSING = of("halcyon_model_signal_missing", ',signal="queueDepth"')
TRAFFIC: Series = {agent("requests_total"): "0+600x90", agent("rejected_total"): "0x90", agent("errors_total"): "0x90"}

NORMAL = (
    Scene("a served model", 60, {**WELL, **TRAFFIC}),
    Scene(
        "a rollout that replaces pods one at a time, for forty minutes",
        60,
        {**WELL, **TRAFFIC, PROGRESSING: "1x40 stale", READY: "2 1x39 2x49", UNSCHEDULABLE: "0 1 0x7 1 0x80"},
    ),
    Scene(
        "a model at zero that starts within four minutes for a request",
        60,
        {
            **WELL,
            IS_READY: "_x20 1x70",
            condition("Ready", "True", "ScaledToZero"): "1x15 stale",
            NOT_READY: "_x15 1x4 stale",
            READY: "0x19 1x70",
            EXIST: "0x15 1x74",
            IN_FORCE: "0x15 1x74",
            DESIRED: "0x15 1x74",
            QUEUE: "0x15 12x4 0x70",
            agent("requests_total"): "0x15 12x74",
            agent("rejected_total"): "0x90",
            agent("errors_total"): "0x90",
        },
    ),
    Scene(
        "a weekend without traffic",
        60,
        {
            **WELL,
            SUCCESS: "7x90",
            agent("requests_total"): "7x90",
            agent("rejected_total"): "0x90",
            agent("errors_total"): "0x90",
            agent("request_duration_seconds_bucket", ',le="0.5"'): "7x90",
            agent("request_duration_seconds_bucket", ',le="+Inf"'): "7x90",
            of("halcyon_model_latency_target_seconds"): "0.3x90",
        },
    ),
    Scene(
        "a drain of a node, on which a server and the leader ran",
        60,
        {
            **WELL,
            **TRAFFIC,
            READY: "2x9 1x4 2x77",
            EXIST: "2x9 1 2x80",
            UP: "1x9 stale",
            LEADS: "1x9 stale",
            UP_TOO: "1x90",
            LEADS_TOO: "0x10 1x80",
            UP.replace('"one"', '"three"'): "_x12 1x78",
            LEADS.replace('"one"', '"three"'): "_x12 0x78",
        },
    ),
    Scene(
        "an upgrade of the operator: all series of models end for two minutes, and counters begin again",
        60,
        {
            **dict.fromkeys((UP, UP_TOO), "1x20 stale"),
            LEADS: "1x20 stale",
            LEADS_TOO: "0x20 stale",
            **{name.replace('"one"', '"three"'): "_x20 1x70" for name in (UP, LEADS)},
            UP.replace('"one"', '"four"'): "_x22 1x70",
            **{
                name: f"{values.partition('x')[0]}x20 _ _ {values.partition('x')[0]}x67"
                for name, values in SERVED.items()
            },
            **{
                name: f"{values.partition('x')[0]}x20 _ _ {values.partition('x')[0]}x67"
                for name, values in REPLICAS.items()
            },
            MISSING: "0x20 _ _ 1x2 0x65",
            **SCRAPED,
            **TRAFFIC,
        },
    ),
    Scene(
        "a model that is paused, and one that only gets recommendations",
        60,
        {**WELL, **TRAFFIC, condition("ScalingActive", "False", "Paused"): "1x90", DESIRED: "1x90"},
    ),
    Scene(
        "an API server that is away for a minute",
        60,
        {**WELL, **TRAFFIC, f'halcyon_reconciles_total{LEADS[LEADS.index("{") : -1]},result="error"}}': "0x9 40 80x80"},
    ),
    Scene(
        "one of two balancers that has the new certificate a minute late",
        60,
        {**WELL, expiry("tls.crt"): "600x9 99999x80", expiry("tls.crt").replace('"b"', '"c"'): "600x8 99999x81"},
    ),
)
INCIDENTS = (
    Scene(
        "all balancers are down",
        60,
        {
            **{name: values for name, values in WELL.items() if name != IS_READY},
            condition("Ready", "False", "BalancerNotReady"): "1x90",
        },
        frozenset({"HalcyonModelNotReady"}),
    ),
    Scene(
        "an agent is silent, and its balancer serves",
        60,
        {**WELL, **TRAFFIC, MISSING: "1x90", condition("ScalingActive", "False", "MetricsMissing"): "1x90"},
        frozenset({"HalcyonMetricMissing"}),
    ),
    Scene(
        "the operator is down",
        60,
        {**SCRAPED, **TRAFFIC, UP: "0x90", UP_TOO: "0x90"},
        frozenset({"HalcyonOperatorDown"}),
    ),
    Scene(
        "an HPA is frozen, because it can't read the metrics API",
        60,
        {**WELL, **TRAFFIC, condition("ScalingActive", "False", "HPAInactive"): "1x90"},
        frozenset({"HalcyonScalingInactive"}),
    ),
    Scene(
        "six of eight pods find no GPU",
        60,
        {**WELL, **TRAFFIC, EXIST: "8x90", IN_FORCE: "8x90", DESIRED: "8x90", UNSCHEDULABLE: "6x90"},
        frozenset({"HalcyonServersMissing"}),
    ),
    Scene(
        "an image can't be pulled on a new node",
        60,
        {**WELL, **TRAFFIC, EXIST: "3x90", IN_FORCE: "3x90", failed_pods("ImagePullFailed"): "1x90"},
        frozenset({"HalcyonServersMissing"}),
    ),
    Scene(
        "one of two servers is killed again and again for its memory",
        60,
        {**WELL, **TRAFFIC, READY: "1x90", failed_pods("OOMKilled"): "1x90"},
        frozenset({"HalcyonServersMissing"}),
    ),
    Scene(
        "a quota allows no second pod",
        60,
        {**WELL, **TRAFFIC, READY: "1x90", EXIST: "1x90"},
        frozenset({"HalcyonServersMissing"}),
    ),
    Scene(
        "a paused model gets three times its usual load",
        60,
        {**WELL, **TRAFFIC, DESIRED: "6x90", QUEUE: "0+5x90", condition("ScalingActive", "False", "Paused"): "1x90"},
        frozenset({"HalcyonQueueLong"}),
    ),
    Scene(
        "a certificate has expired",
        60,
        {**WELL, **TRAFFIC, expiry("tls.crt"): "60x90", agent("degraded"): "1x90"},
        frozenset({"HalcyonCertificateExpired", "HalcyonBalancerDegraded"}),
    ),
    Scene(
        "the HAProxy of one of two balancers does not respond",
        60,
        {**WELL, **TRAFFIC, agent("haproxy_up").replace('"b"', '"c"'): "0x90"},
        frozenset({"HalcyonBalancerDegraded"}),
    ),
    Scene(
        "a ready pod has no entry in HAProxy",
        60,
        {**WELL, **TRAFFIC, agent("endpoints_unplaced"): "1x90"},
        frozenset({"HalcyonBalancerDegraded"}),
    ),
    Scene(
        "the Deployment of a model is paused during a rollout",
        60,
        {**WELL, **TRAFFIC, condition("Reconciling", "True", "DeploymentPaused"): "1x90"},
        frozenset({"HalcyonRolloutBlocked"}),
    ),
    Scene(
        "a revision was rolled back",
        60,
        {**WELL, **TRAFFIC, condition("Stalled", "True", "RolledBack"): "1x90"},
        frozenset({"HalcyonRolloutBlocked"}),
    ),
    Scene(
        "a NetworkPolicy keeps Prometheus from all pods of models",
        60,
        {**OPERATOR, **SERVED, **REPLICAS},
        frozenset({"HalcyonPodsNotScraped"}),
    ),
    Scene(
        "two instances of Prometheus write to one store, and a replica of the operator is gone",
        60,
        {
            name.replace("{", f'{{prometheus="{instance}",', 1): values
            for instance in "ab"
            for name, values in {**WELL, **TRAFFIC}.items()
            if name not in {UP_TOO, LEADS_TOO}
        },
        frozenset({"HalcyonReplicaMissing"}),
    ),
)


def tests(rule_file: str) -> dict[str, Any]:
    """Return the input file for `promtool test rules`."""
    return {
        "rule_files": [rule_file],
        "evaluation_interval": "1m",
        "tests": [*map(_test, NORMAL), *map(_test, INCIDENTS)],
    }


def _test(scene: Scene) -> dict[str, Any]:
    expected = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(scene.firing)]
    minutes = (scene.at,) if expected else range(scene.at + 1)
    return {
        "interval": "1m",
        "name": scene.name,
        "input_series": [{"series": name, "values": values} for name, values in scene.series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{minute}m",
                "exp_samples": expected,
            }
            for minute in minutes
        ],
    }
